//! The optimal cache (Belady, IBM Systems Journal 1966): the recipe is known, so the container whose next use is last
//! is evicted. No cache of whole containers has fewer reads.
//!
//! 1. A run of chunks of one container is one use. From the last use to the first, each learns the next use of its
//!    container.
//! 2. The cache is ordered by next use. A hit moves the container to its next use. A miss evicts the last one.
//!
//! Memory: 12 bytes for each run, and the cache.

use std::collections::{BTreeSet, HashMap};

use super::{CacheSize, RecipeChunk};
use crate::trace::containers::SimulatedContainer;

/// The container is not used again.
const NEVER: usize = usize::MAX;

pub(super) fn containers_read(recipe: &[RecipeChunk], size: CacheSize) -> u64 {
    let mut uses: Vec<SimulatedContainer> = recipe.iter().map(|chunk| chunk.container).collect();
    uses.dedup();
    let mut next_uses = vec![NEVER; uses.len()];
    let mut next_of = HashMap::new();
    for ((at, container), next) in uses.iter().enumerate().zip(&mut next_uses).rev() {
        *next = next_of.insert(*container, at).unwrap_or(NEVER);
    }
    let mut cache: BTreeSet<(usize, SimulatedContainer)> = BTreeSet::new();
    let mut read = 0;
    for ((at, container), next) in uses.iter().enumerate().zip(next_uses) {
        if !cache.remove(&(at, *container)) {
            read += 1;
            if cache.len() >= size.containers.max(1) {
                cache.pop_last();
            }
        }
        cache.insert((next, *container));
    }
    read
}
