//! A share of the work: many processes do one job, and each does what falls to it.
//!
//! What falls to a share follows from the name of a unit of work and the number of shares alone (rendezvous hashing):
//! of all shares, the one whose number and the name have the greatest hash. So processes agree without a word, and with
//! one share more only the units that fall to it move.

use std::fmt;
use std::str::FromStr;

/// Shares of a job, at most.
const SHARES_MAX: u32 = 4096;
/// What hashes of this use begin with.
const DOMAIN: &[u8] = b"fhrd share of the work";

/// Share `index` of `count` of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkShare {
    /// From 1 to `count`.
    index: u32,
    count: u32,
}

impl WorkShare {
    /// This share, if there is one.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        let is_share = count <= SHARES_MAX && (1..=count).contains(&index);
        is_share.then_some(WorkShare { index, count })
    }

    /// Its number, from 1 on.
    pub fn index(self) -> u32 {
        self.index
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.count
    }

    /// All shares of its job.
    pub fn all(self) -> impl Iterator<Item = WorkShare> {
        (1..=self.count).map(move |index| WorkShare { index, ..self })
    }

    /// Whether the unit of work called `name` falls to it.
    pub fn has(self, name: &[u8]) -> bool {
        share_of(name, self.count) == self.index
    }
}

/// The number, from 1 on, of the share of `count` that the unit of work called `name` falls to.
pub fn share_of(name: &[u8], count: u32) -> u32 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(DOMAIN).update(name);
    let unit = *hasher.finalize().as_bytes();
    let weight = |index: u32| *blake3::keyed_hash(&unit, &index.to_le_bytes()).as_bytes();
    // Of equals, which are never met, the last one.
    (1..=count).max_by_key(|index| weight(*index)).unwrap_or(1)
}

impl FromStr for WorkShare {
    type Err = String;

    /// Parses `3/8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let parsed = numbers.and_then(|(index, count)| Some((index.trim().parse().ok()?, count.trim().parse().ok()?)));
        parsed.and_then(|(index, count)| WorkShare::new(index, count)).ok_or_else(|| {
            format!("expected a share I/N such as 3/8, with I from 1 to N, and N at most {SHARES_MAX}, found `{text}`")
        })
    }
}

impl fmt::Display for WorkShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<Vec<u8>> {
        (0..4000u32).map(|number| format!("family {number}").into_bytes()).collect()
    }

    #[test]
    fn shares_are_parsed_from_1_on() {
        assert_eq!("3/8".parse(), Ok(WorkShare { index: 3, count: 8 }));
        assert_eq!("1/1".parse::<WorkShare>().unwrap().to_string(), "1/1");
        for wrong in ["", "0/8", "9/8", "1/0", "3", "1/4097", "-1/8", "1/2/3", "a/b"] {
            assert!(wrong.parse::<WorkShare>().unwrap_err().contains(&format!("`{wrong}`")), "{wrong}");
        }
    }

    #[test]
    fn every_unit_falls_to_one_share_and_shares_are_alike() {
        let names = names();
        for count in [1, 2, 7, 16] {
            let shares = WorkShare::new(1, count).unwrap().all();
            let counted: Vec<usize> = shares.map(|share| names.iter().filter(|name| share.has(name)).count()).collect();
            assert_eq!(counted.iter().sum::<usize>(), names.len());
            let even = names.len() / count as usize;
            assert!(counted.iter().all(|found| found.abs_diff(even) < even / 4 + 1), "{counted:?}");
        }
    }

    #[test]
    fn one_share_more_moves_only_what_falls_to_it() {
        let names = names();
        let moved = names.iter().filter(|name| share_of(name, 8) != share_of(name, 9));
        let moved: Vec<u32> = moved.map(|name| share_of(name, 9)).collect();
        assert!(moved.iter().all(|share| *share == 9), "{moved:?}");
        assert!((names.len() / 12..names.len() / 7).contains(&moved.len()), "{}", moved.len());
    }

    #[test]
    fn a_unit_never_falls_to_another_share_in_a_later_version() {
        let shares: Vec<u32> = (0..12u8).map(|number| share_of(&[number], 5)).collect();
        assert_eq!(shares, FIXED);
    }

    const FIXED: [u32; 12] = [5, 1, 2, 5, 1, 2, 2, 4, 1, 4, 5, 1];
}
