//! The fingerprint index of a simulated repository: which duplicates are found, and at what cost.
//!
//! 1. A chunk is looked for in what memory holds anyway: the container being filled, and a cache of the fingerprints
//!    of the containers that were used last (locality-preserved caching: Zhu et al., DDFS, FAST 2008). Of several
//!    copies the newest one found there counts.
//! 2. Else, if its fingerprint is one that the index holds, the index is asked: a look-up. A hit brings the
//!    fingerprints of the whole container into the cache, for duplicates come in the order they were stored in. Each
//!    stream starts with an empty cache.
//! 3. What is found in neither is new to the simulated system, even where it is stored: a missed duplicate.
//!
//! The exact index holds every fingerprint and misses nothing. The sampled one holds those that are 0 modulo its rate
//! (the hooks of Lillibridge et al., Sparse Indexing, FAST 2009, and of near-exact indexes in Fu et al., FAST 2015);
//! the others are found through the containers that hooks bring in. There is no filter in front of the exact index, so
//! new chunks cost a look-up.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::containers::{ChunkNumber, SimulatedContainer, SimulatedContainers};
use super::item::TraceFingerprint;

/// Bytes of an entry: a fingerprint and the number of a container.
pub const ENTRY_BYTES: u64 = 28;

/// What became of the look-ups of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// Questions to the index itself.
    pub lookups: u64,
    /// Chunks found in memory before it.
    pub cache_hits: u64,
    /// Fingerprints written to it.
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
    /// Holds one of `rate` fingerprints, and those of `cache_containers` containers in the cache.
    pub fn new(rate: u64, cache_containers: NonZeroUsize) -> Self {
        SimulatedIndex {
            rate: rate.max(1),
            cache: LruCache::new(cache_containers),
            entries: 0,
            counts: IndexCounts::default(),
        }
    }

    /// The container to take a stored chunk from, as far as the simulated system knows.
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

    /// Notes that a copy of a chunk was stored; `is_first` if it is the only one.
    pub fn update(&mut self, fingerprint: &TraceFingerprint, is_first: bool) {
        if self.holds(fingerprint) {
            self.counts.updates += 1;
            self.entries += u64::from(is_first);
        }
    }

    /// Bytes of its entries.
    pub fn bytes(&self) -> u64 {
        self.entries * ENTRY_BYTES
    }

    /// Ends a stream: the next one starts with an empty cache, as a process of its own. Gives the counts.
    pub fn end_stream(&mut self) -> IndexCounts {
        self.cache.clear();
        std::mem::take(&mut self.counts)
    }

    /// By the first six bytes: the shortest hashes have no more.
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
    fn the_exact_index_finds_all_and_asks_once_a_container_while_it_is_cached() {
        let mut index = SimulatedIndex::new(1, NonZeroUsize::new(2).unwrap());
        let containers = filled(&mut index);
        assert_eq!(index.bytes(), 16 * ENTRY_BYTES);
        assert_eq!(index.end_stream(), IndexCounts { lookups: 0, cache_hits: 0, updates: 16 });
        let found = find(&mut index, &containers, &[1, 0, 4, 2, 8, 3, 5]);
        assert_eq!(found, [0, 0, 1, 0, 2, 0, 1].map(Some));
        // 1 asks, 0 is cached, 4 asks, 2 is cached, 8 asks and drops container 1, 3 is cached, 5 asks.
        assert_eq!(index.end_stream(), IndexCounts { lookups: 4, cache_hits: 3, updates: 0 });
    }

    #[test]
    fn the_sampled_index_knows_hooks_and_their_neighbours() {
        let mut index = SimulatedIndex::new(4, NonZeroUsize::new(2).unwrap());
        let containers = filled(&mut index);
        assert_eq!((index.bytes(), index.end_stream().updates), (4 * ENTRY_BYTES, 4));
        let found = find(&mut index, &containers, &[1, 0, 1, 2, 5, 4, 5]);
        assert_eq!(found, [None, Some(0), Some(0), Some(0), None, Some(1), Some(1)]);
        assert_eq!(index.end_stream(), IndexCounts { lookups: 2, cache_hits: 3, updates: 0 });
    }

    #[test]
    fn the_container_being_filled_and_the_newest_copy_come_first() {
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
