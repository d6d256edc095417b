//! Counts of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often a cache was asked, and had what was wanted.
#[derive(Debug, Default)]
pub struct LookUps {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl LookUps {
    /// Counts a look-up.
    pub fn add(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Look-ups that found something, and those that did not.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}
