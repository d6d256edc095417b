//! Compares sets of entries in any order, in the memory of one number: the hashes of their pairs (entry, fingerprint)
//! are added up.
//!
//! The hashes are keyed, and the key is drawn for each check. So nobody can write other entries with the same sum,
//! except with a chance of 1 in 2^128.

use crate::crypto::random;
use crate::error::Result;
use crate::types::Fingerprint;

/// The key of the hashes of a check.
pub(super) struct SumKey([u8; 32]);

/// A set of entries: how many there are, and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntrySum {
    pub(super) count: u64,
    /// Two sums, each modulo 2^64.
    sums: [u64; 2],
}

impl SumKey {
    /// A new key.
    ///
    /// # Errors
    /// Errors of [`random::fresh`].
    pub(super) fn random() -> Result<Self> {
        random::fresh("a check").map(SumKey)
    }

    /// Adds the entry with number `entry`.
    pub(super) fn add(&self, sum: &mut EntrySum, entry: u32, fingerprint: &Fingerprint) {
        let mut pair = [0; 36];
        let (number, name) = pair.split_at_mut(4);
        number.copy_from_slice(&entry.to_le_bytes());
        name.copy_from_slice(&fingerprint.0);
        let hash = blake3::keyed_hash(&self.0, &pair);
        for (sum, bytes) in sum.sums.iter_mut().zip(hash.as_bytes().as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*bytes));
        }
        sum.count += 1;
    }

    /// The sum of all entries of a container.
    pub(super) fn of_entries(&self, fingerprints: &[Fingerprint]) -> EntrySum {
        let mut sum = EntrySum::default();
        fingerprints.iter().zip(0..).for_each(|(fingerprint, entry)| self.add(&mut sum, entry, fingerprint));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_entries_add_up_to_the_same_in_any_order() {
        let key = SumKey::random().unwrap();
        let prints: Vec<Fingerprint> = (0..5u8).map(|n| Fingerprint(*blake3::hash(&[n]).as_bytes())).collect();
        let sum_of = |entries: &[(u32, usize)]| {
            let mut sum = EntrySum::default();
            entries.iter().for_each(|(entry, print)| key.add(&mut sum, *entry, &prints[*print]));
            sum
        };
        let all = key.of_entries(&prints);
        assert_eq!(all.count, 5);
        assert_eq!(sum_of(&[(3, 3), (0, 0), (4, 4), (1, 1), (2, 2)]), all);
        let others: [&[(u32, usize)]; 5] = [
            &[(0, 1), (1, 0), (2, 2), (3, 3), (4, 4)],
            &[(0, 0), (1, 1), (2, 2), (3, 3)],
            &[(0, 0), (1, 1), (2, 2), (3, 3), (5, 4)],
            &[(0, 0), (1, 1), (2, 2), (3, 3), (3, 3)],
            &[(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)],
        ];
        others.iter().for_each(|entries| assert_ne!(sum_of(entries), all, "{entries:?}"));
        let other_key = SumKey::random().unwrap();
        assert_ne!(other_key.of_entries(&prints), all, "nobody knows the sums");
    }
}
