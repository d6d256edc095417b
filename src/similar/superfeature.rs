//! Super-features and delta (Odess: Zou et al., ICDE 2021, after N-transform and Finesse): one similar chunk and the
//! difference from it.
//!
//! 1. A gear hash rolls over the chunk. Positions where seven of its bits are zero, one in 128, are sampled.
//! 2. Twelve linear transforms are applied to each sampled hash. The greatest value of each transform is a feature.
//! 3. Groups of four features are hashed into three super-features. Chunks that share one are very likely similar.
//! 4. First fit: the newest readable chunk with the first shared super-feature is the base.
//! 5. [`DeltaMatcher`] finds the ranges that the chunk shares with its base.
//!
//! Differences from the paper: its chunks are smaller, but 12 features in three groups are kept. Features come from
//! keyed 64-bit arithmetic, not from 32-bit. The paper encodes with Xdelta; here matches become copies and literals, as
//! for all strategies, and literals are compressed in solid frames. The paper leaves open whether a chunk stored as a
//! delta may be a base. Here it may, so that a chunk can follow the latest version, and `depth_max` bounds the chains
//! (1 flattens them).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bases::Bases;
use super::delta::DeltaMatcher;
use super::{HASH_MASK, Strategy, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;

const FEATURES: usize = 12;
const SUPER_FEATURES: usize = 3;
/// Seven bits, which depend on the last 17 to 47 bytes: one position in 128 is sampled.
const SAMPLE_MASK: u64 = 0x4004_4341_0000;

/// Finds one similar chunk by super-features.
pub struct Superfeature {
    gear: Box<[u64; 256]>,
    /// Factor (odd) and addend of each transform.
    transforms: [(u64, u64); FEATURES],
    seed: u64,
    chunk_bytes_min: usize,
    candidates_max: usize,
    delta: DeltaMatcher,
}

impl Superfeature {
    /// With the lengths of `config`; `seed` keys the hashes.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        let random = |purpose: u8, number: usize| xxh3_64_with_seed(&[purpose, number as u8], seed);
        Superfeature {
            gear: Box::new(std::array::from_fn(|byte| random(0, byte))),
            transforms: std::array::from_fn(|number| (random(1, number) | 1, random(2, number))),
            seed,
            chunk_bytes_min: config.chunk_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            delta: DeltaMatcher::new(config.copy_bytes_min.0 as usize),
        }
    }

    /// The greatest value of each transform; `None` if no position is sampled.
    fn features(&self, chunk: &[u8]) -> Option<[u64; FEATURES]> {
        let mut features = [0; FEATURES];
        let (mut hash, mut sampled) = (0u64, false);
        for byte in chunk {
            hash = (hash << 1).wrapping_add(self.gear[usize::from(*byte)]);
            if hash & SAMPLE_MASK == 0 {
                sampled = true;
                for (feature, (factor, addend)) in features.iter_mut().zip(&self.transforms) {
                    *feature = hash.wrapping_mul(*factor).wrapping_add(*addend).max(*feature);
                }
            }
        }
        sampled.then_some(features)
    }

    /// Super-features, each with its number above the hash; empty if no position is sampled.
    pub fn super_features(&self, chunk: &[u8]) -> Vec<u64> {
        let Some(features) = self.features(chunk) else { return Vec::new() };
        let groups = features.chunks(FEATURES / SUPER_FEATURES).zip(0u64..);
        let of_group = |(group, number): (&[u64], u64)| {
            let bytes: Vec<u8> = group.iter().flat_map(|feature| feature.to_le_bytes()).collect();
            number << 48 | xxh3_64_with_seed(&bytes, self.seed ^ number) & HASH_MASK
        };
        groups.map(of_group).collect()
    }
}

impl Strategy for Superfeature {
    fn find(&mut self, chunk: &[u8], bases: &mut Bases) -> Result<StrategyOutput> {
        let mut found = StrategyOutput::default();
        if chunk.len() < self.chunk_bytes_min {
            return Ok(found);
        }
        found.features = self.super_features(chunk);
        for feature in &found.features {
            for entry in bases.candidates(*feature, self.candidates_max) {
                if !bases.entries.features(entry)?.contains(feature) {
                    continue;
                }
                if let Some(base) = bases.bytes(entry)? {
                    found.matches = self.delta.find(chunk, base, entry);
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let lanes = (0..len.div_ceil(8)).flat_map(|n| xxh3_64_with_seed(&n.to_le_bytes(), seed).to_le_bytes());
        lanes.take(len).collect()
    }

    fn shared(a: &[u8], b: &[u8]) -> usize {
        let strategy = Superfeature::new(&SubdedupConfig::default(), 5);
        let (a, b) = (strategy.super_features(a), strategy.super_features(b));
        assert_eq!((a.len(), b.len()), (SUPER_FEATURES, SUPER_FEATURES));
        a.iter().filter(|feature| b.contains(feature)).count()
    }

    #[test]
    fn similar_chunks_share_super_features_and_others_do_not() {
        let similar = (0..50).filter(|seed| {
            let base = noise(65_536, *seed);
            let mut edited = base.clone();
            edited.splice(20_000..20_100, noise(150, 1000 + seed));
            shared(&base, &edited) > 0
        });
        assert!(similar.count() >= 48);
        let others = (0..50).filter(|seed| shared(&noise(65_536, *seed), &noise(65_536, 100 + seed)) > 0);
        assert_eq!(others.count(), 0);
    }

    #[test]
    fn about_one_position_in_128_is_sampled() {
        let strategy = Superfeature::new(&SubdedupConfig::default(), 5);
        let chunk = noise(1 << 20, 1);
        let mut hash = 0u64;
        let sampled = chunk.iter().filter(|byte| {
            hash = (hash << 1).wrapping_add(strategy.gear[usize::from(**byte)]);
            hash & SAMPLE_MASK == 0
        });
        let sampled = sampled.count();
        assert!((7_600..8_800).contains(&sampled), "{sampled}");
        assert!(strategy.super_features(&[0; 4096]).len() <= SUPER_FEATURES);
    }
}
