//! The optimum (Belady, IBM Systems Journal 1966): the recipe tells the future, so the container that is needed last,
//! or never again, makes room. No cache of whole containers reads fewer.
//!
//! 1. Runs of one container are a use each; from the last to the first, each use learns the next one of its container.
//! 2. The cache is ordered by next uses. A hit moves the container to its next use; a miss drops the last one.
//!
//! In memory: 12 bytes for each run, and the cache.

use std::collections::{BTreeSet, HashMap};

use super::{CacheSize, RecipeChunk};
use crate::bench::trace::containers::SimulatedContainer;

/// Not used again.
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
