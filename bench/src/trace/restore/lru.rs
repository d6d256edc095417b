//! LRU cache of whole containers.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::{CacheSize, RecipeChunk};

pub(super) fn containers_read(recipe: &[RecipeChunk], size: CacheSize) -> u64 {
    let mut cache = LruCache::new(NonZeroUsize::new(size.containers).unwrap_or(NonZeroUsize::MIN));
    recipe.iter().filter(|chunk| cache.put(chunk.container, ()).is_none()).count() as u64
}
