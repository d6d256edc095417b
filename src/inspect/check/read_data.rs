//! Which containers a check reads whole.

use std::collections::HashSet;
use std::str::FromStr;

use super::containers::ContainerJob;
use crate::config::WorkShare;
use crate::error::{Error, Result};
use crate::types::ContainerId;

/// The containers whose bytes a check reads and decodes. It checks the structure of all others, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReadData {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// Random ones with this share of all bytes, in percent.
    Percent(f64),
    /// Random ones with at least this many bytes.
    Bytes(u64),
    /// Part `number`, from 1 on, of `parts`. The parts are chosen by the names of containers: together they are all.
    Part {
        /// 1 to `parts`.
        number: u64,
        /// At least 1.
        parts: u64,
    },
    /// The containers that fall to this share of the work.
    Share(WorkShare),
}

impl From<bool> for ReadData {
    /// Everything or nothing.
    fn from(read_data: bool) -> Self {
        if read_data { ReadData::Everything } else { ReadData::Nothing }
    }
}

impl FromStr for ReadData {
    type Err = String;

    /// Parses `5%`, `2G` or `3/7`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let expected = || format!("expected a share like 5%, a size like 2G, or a part like 3/7, found `{text}`");
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| expected())?;
            let is_share = percent > 0.0 && percent <= 100.0;
            return if is_share { Ok(ReadData::Percent(percent)) } else { Err(expected()) };
        }
        if let Some((number, parts)) = text.split_once('/') {
            let [number, parts] = [number, parts].map(|part| part.trim().parse::<u64>().map_err(|_| expected()));
            let (number, parts) = (number?, parts?);
            let is_part = (1..=parts).contains(&number);
            return if is_part { Ok(ReadData::Part { number, parts }) } else { Err(expected()) };
        }
        match text.parse::<bytesize::ByteSize>() {
            Ok(bytes) if bytes.0 > 0 => Ok(ReadData::Bytes(bytes.0)),
            _ => Err(expected()),
        }
    }
}

impl ReadData {
    /// The chosen containers. Random choices differ from run to run, so that repeated checks reach all of them.
    pub(super) fn choose(self, jobs: &[ContainerJob]) -> Result<HashSet<ContainerId>> {
        let ids = jobs.iter().map(|job| job.id);
        match self {
            ReadData::Nothing => Ok(HashSet::new()),
            ReadData::Everything => Ok(ids.collect()),
            ReadData::Part { number, parts } => {
                Ok(ids.filter(|id| leading_number(&id.0) % parts == number - 1).collect())
            }
            ReadData::Share(share) => Ok(ids.filter(|id| share.has(&id.0)).collect()),
            ReadData::Bytes(bytes) => random(jobs, bytes),
            ReadData::Percent(percent) => {
                let total: u64 = jobs.iter().map(|job| job.len).sum();
                random(jobs, (total as f64 * percent / 100.0).ceil() as u64)
            }
        }
    }
}

/// Random containers with at least `bytes` bytes, as few as possible at the end.
fn random(jobs: &[ContainerJob], bytes: u64) -> Result<HashSet<ContainerId>> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| Error::Usage(format!("no random numbers: {error}")))?;
    let order = |job: &&ContainerJob| *blake3::keyed_hash(&seed, &job.id.0).as_bytes();
    let mut shuffled: Vec<&ContainerJob> = jobs.iter().collect();
    shuffled.sort_by_cached_key(order);
    let mut chosen = HashSet::new();
    let mut left = bytes;
    for job in shuffled {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(job.len);
        chosen.insert(job.id);
    }
    Ok(chosen)
}

/// The first eight bytes of a name, as a number.
fn leading_number(name: &[u8; 32]) -> u64 {
    name.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Vec<ContainerJob> {
        (0..100u8)
            .map(|number| ContainerJob { id: ContainerId(*blake3::hash(&[number]).as_bytes()), len: 10 })
            .collect()
    }

    #[test]
    fn shares_sizes_and_parts_are_parsed() {
        let parsed = |text: &str| text.parse::<ReadData>();
        assert_eq!(parsed("2.5%"), Ok(ReadData::Percent(2.5)));
        assert_eq!(parsed("2G"), Ok(ReadData::Bytes(2_000_000_000)));
        assert_eq!(parsed("64 KiB"), Ok(ReadData::Bytes(65536)));
        assert_eq!(parsed("3/7"), Ok(ReadData::Part { number: 3, parts: 7 }));
        for bad in ["", "0%", "101%", "NaN%", "-1%", "0/7", "8/7", "1/0", "0", "five", "1/2/3", "%"] {
            assert!(parsed(bad).unwrap_err().contains(&format!("`{bad}`")), "{bad}");
        }
    }

    #[test]
    fn parts_are_disjoint_and_together_all() {
        let jobs = jobs();
        let mut all = HashSet::new();
        for number in 1..=7 {
            let part = ReadData::Part { number, parts: 7 }.choose(&jobs).unwrap();
            assert!(part.len() < 40 && part.iter().all(|id| all.insert(*id)), "{number}");
        }
        assert_eq!(all.len(), 100);
        for share in WorkShare::new(1, 7).unwrap().all() {
            let part = ReadData::Share(share).choose(&jobs).unwrap();
            assert!(part.len() < 40 && part.iter().all(|id| all.remove(id)), "{share}");
        }
        assert!(all.is_empty());
    }

    #[test]
    fn a_share_and_a_size_choose_as_many_bytes_each_time_others() {
        let jobs = jobs();
        let chosen = |data: ReadData| data.choose(&jobs).unwrap();
        assert_eq!(chosen(ReadData::Percent(5.0)).len(), 5);
        assert_eq!(chosen(ReadData::Percent(0.001)).len(), 1);
        assert_eq!(chosen(ReadData::Percent(100.0)).len(), 100);
        assert_eq!(chosen(ReadData::Bytes(15)).len(), 2);
        assert_eq!(chosen(ReadData::Bytes(u64::MAX)).len(), 100);
        assert_eq!((chosen(ReadData::Nothing).len(), chosen(ReadData::Everything).len()), (0, 100));
        let reached: HashSet<_> = (0..200).flat_map(|_| chosen(ReadData::Percent(5.0))).collect();
        assert!(reached.len() > 90, "{}", reached.len());
    }
}
