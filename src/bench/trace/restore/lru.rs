//! Least recent use: containers are kept whole, and the one that was not used for the longest time makes room.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::{CacheSize, Piece};

pub(super) fn containers_read(recipe: &[Piece], size: CacheSize) -> u64 {
    let mut cache = LruCache::new(NonZeroUsize::new(size.containers).unwrap_or(NonZeroUsize::MIN));
    recipe.iter().filter(|piece| cache.put(piece.container, ()).is_none()).count() as u64
}
