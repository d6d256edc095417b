//! The fingerprint index of a simulated repository: which duplicates it finds, and at what cost.
//!
//! 1. A chunk is first searched in memory: in the open container, and in a cache of the fingerprints of recently used
//!    containers (locality-preserved caching: Zhu et al., DDFS, FAST 2008). The newest copy found there counts.
//! 2. Otherwise, if the index holds the fingerprint, the index is queried: a look-up. A hit loads the fingerprints of
//!    the whole container into the cache, because duplicates occur in the order in which they were stored. Each stream
//!    starts with an empty cache.
//! 3. A chunk found in neither is new for the simulated system. If it is stored nevertheless, it is a missed
//!    duplicate.
//!
//! The exact index holds every fingerprint and misses nothing. The sampled index holds those that are 0 modulo its
//! rate (the hooks of Lillibridge et al., Sparse Indexing, FAST 2009, and of near-exact indexes in Fu et al., FAST
//! 2015). Other fingerprints are found through containers that hooks load. The exact index has no filter, so a new
//! chunk costs a look-up.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::containers::{ChunkNumber, SimulatedContainer, SimulatedContainers};
use super::item::TraceFingerprint;

/// Bytes of an entry: a fingerprint and the number of a container.
pub const ENTRY_BYTES: u64 = 28;

/// Counters of the index for one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// Queries of the index.
    pub lookups: u64,
    /// Chunks found in memory.
    pub cache_hits: u64,
    /// Fingerprints written to the index.
    pub updates: u64,
}

/// The index with its cache.
pub struct SimulatedIndex {
    rate: u64,
    cache: LruCache<SimulatedContainer, ()>,
    entries: u64,
    counts: IndexCounts,
}

impl SimulatedIndex {
    /// An index of one in `rate` fingerprints. The cache holds those of `cache_containers` containers.
    pub fn new(rate: u64, cache_containers: NonZeroUsize) -> Self {
        SimulatedIndex {
            rate: rate.max(1),
            cache: LruCache::new(cache_containers),
            entries: 0,
            counts: IndexCounts::default(),
        }
    }

    /// The container of a stored chunk that the simulated system finds.
    pub fn find(
        &mut self,
        chunk: ChunkNumber,
        fingerprint: &TraceFingerprint,
        containers: &SimulatedContainers,
    ) -> Option<SimulatedContainer> {
        let open = containers.open();
        let known = containers.copies(chunk).find(|copy| Some(*copy) == open || self.cache.contains(copy));
        if let Some(container) = known {
            self.counts.cache_hits += 1;
            self.cache.promote(&container);
            return Some(container);
        }
        if !self.holds(fingerprint) {
            return None;
        }
        self.counts.lookups += 1;
        let container = containers.newest(chunk)?;
        self.cache.put(container, ());
        Some(container)
    }

    /// Records that a copy of a chunk was stored. `is_first` is true for its only copy.
    pub fn update(&mut self, fingerprint: &TraceFingerprint, is_first: bool) {
        if self.holds(fingerprint) {
            self.counts.updates += 1;
            self.entries += u64::from(is_first);
        }
    }

    /// Bytes of the entries.
    pub fn bytes(&self) -> u64 {
        self.entries * ENTRY_BYTES
    }

    /// Ends a stream and returns its counts. The next stream starts with an empty cache, like a new process.
    pub fn end_stream(&mut self) -> IndexCounts {
        self.cache.clear();
        std::mem::take(&mut self.counts)
    }

    /// Whether the index holds a fingerprint. Uses the first six bytes, because the shortest hashes have no more.
    fn holds(&self, fingerprint: &TraceFingerprint) -> bool {
        let [a, b, c, d, e, f, ..] = *fingerprint;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0]).is_multiple_of(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fingerprint whose number is `value`.
    fn name(value: u8) -> TraceFingerprint {
        std::array::from_fn(|at| if at == 0 { value } else { 0 })
    }

    /// Four containers of chunks 0-3, 4-7, 8-11, 12-15, all known to the index.
    fn filled(index: &mut SimulatedIndex) -> SimulatedContainers {
        let mut containers = SimulatedContainers::new(4);
        for value in 0..16 {
            let number = containers.number(&name(value)).unwrap();
            containers.store(number, 1).unwrap();
            index.update(&name(value), true);
        }
        containers.close();
        containers
    }

    fn find(index: &mut SimulatedIndex, containers: &SimulatedContainers, values: &[u8]) -> Vec<Option<u32>> {
        values.iter().map(|value| index.find(u32::from(*value), &name(*value), containers)).collect()
    }

    #[test]
    fn the_exact_index_finds_all_with_one_look_up_per_cached_container() {
        let mut index = SimulatedIndex::new(1, NonZeroUsize::new(2).unwrap());
        let containers = filled(&mut index);
        assert_eq!(index.bytes(), 16 * ENTRY_BYTES);
        assert_eq!(index.end_stream(), IndexCounts { lookups: 0, cache_hits: 0, updates: 16 });
        let found = find(&mut index, &containers, &[1, 0, 4, 2, 8, 3, 5]);
        assert_eq!(found, [0, 0, 1, 0, 2, 0, 1].map(Some));
        // Look-ups: 1, 4, 8 (evicts container 1) and 5. Cached: 0, 2 and 3.
        assert_eq!(index.end_stream(), IndexCounts { lookups: 4, cache_hits: 3, updates: 0 });
    }

    #[test]
    fn the_sampled_index_finds_hooks_and_their_neighbours() {
        let mut index = SimulatedIndex::new(4, NonZeroUsize::new(2).unwrap());
        let containers = filled(&mut index);
        assert_eq!((index.bytes(), index.end_stream().updates), (4 * ENTRY_BYTES, 4));
        let found = find(&mut index, &containers, &[1, 0, 1, 2, 5, 4, 5]);
        assert_eq!(found, [None, Some(0), Some(0), Some(0), None, Some(1), Some(1)]);
        assert_eq!(index.end_stream(), IndexCounts { lookups: 2, cache_hits: 3, updates: 0 });
    }

    #[test]
    fn the_open_container_and_the_newest_copy_come_first() {
        let mut index = SimulatedIndex::new(1, NonZeroUsize::new(4).unwrap());
        let mut containers = filled(&mut index);
        assert_eq!(find(&mut index, &containers, &[0]), [Some(0)]);
        assert_eq!(containers.store(0, 1).unwrap(), 4);
        index.update(&name(0), false);
        assert_eq!(find(&mut index, &containers, &[0]), [Some(4)]);
        containers.close();
        // The new copy is not in the cache, the old one is.
        assert_eq!(find(&mut index, &containers, &[0]), [Some(0)]);
        assert_eq!(index.bytes(), 16 * ENTRY_BYTES);
    }
}
