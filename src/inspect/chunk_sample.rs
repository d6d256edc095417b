//! A bounded table of values by chunk. When it is full, it halves the share of fingerprints that it holds.
//!
//! Fingerprints are uniformly distributed, so sums over the sample, times [`ChunkSample::one_in`], estimate the sums
//! over all chunks.

use std::collections::HashMap;

use crate::types::Fingerprint;

/// Values of the chunks whose fingerprints are in the sample.
pub(super) struct ChunkSample<V> {
    /// By the first eight bytes of the fingerprint, which are unique enough for statistics.
    values: HashMap<u64, V>,
    count_max: usize,
    /// Fingerprints are in the sample if these bits of their prefix are zero.
    mask: u64,
}

impl<V> ChunkSample<V> {
    /// An empty table of at most `count_max` values.
    pub(super) fn new(count_max: usize) -> Self {
        ChunkSample { values: HashMap::new(), count_max, mask: 0 }
    }

    /// One chunk in this many is in the sample.
    pub(super) fn one_in(&self) -> u64 {
        self.mask + 1
    }

    /// Whether the chunk is in the sample.
    pub(super) fn holds(&self, fingerprint: &Fingerprint) -> bool {
        fingerprint.prefix() & self.mask == 0
    }

    /// The value of a chunk.
    pub(super) fn get(&self, fingerprint: &Fingerprint) -> Option<&V> {
        self.values.get(&fingerprint.prefix())
    }

    /// All values of the sample.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    /// Sets the value of a chunk, if it is in the sample. Returns whether it is.
    pub(super) fn put(&mut self, fingerprint: &Fingerprint, value: V) -> bool {
        let prefix = fingerprint.prefix();
        if prefix & self.mask != 0 {
            return false;
        }
        self.values.insert(prefix, value);
        while self.values.len() > self.count_max && self.mask < u64::MAX >> 1 {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.values.retain(|prefix, _| prefix & mask == 0);
        }
        prefix & self.mask == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: u64) -> Fingerprint {
        Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    #[test]
    fn a_full_table_keeps_a_sample_that_estimates_the_whole() {
        let mut sample = ChunkSample::new(1 << 12);
        for number in 0..100_000u64 {
            sample.put(&fingerprint(number), number % 7);
        }
        let sampled: Vec<u64> = sample.values().copied().collect();
        assert!(sampled.len() <= 1 << 12 && sample.one_in() >= 16, "{} {}", sampled.len(), sample.one_in());
        let estimate = sampled.iter().sum::<u64>() * sample.one_in();
        assert!(estimate.abs_diff(299_997) < 30_000, "{estimate}");
        let held = (0..100_000).filter(|number| sample.holds(&fingerprint(*number))).count();
        assert_eq!(held, sampled.len());
        assert!((0..100_000).all(|number| sample.get(&fingerprint(number)).is_none_or(|value| *value == number % 7)));
    }

    #[test]
    fn a_small_table_is_exact() {
        let mut sample = ChunkSample::new(100);
        (0..100).for_each(|number| assert!(sample.put(&fingerprint(number), number)));
        assert_eq!((sample.one_in(), sample.values().sum::<u64>()), (1, 4950));
    }
}
