//! Candidates: which entries, stored or of the running session, carry a feature.
//!
//! The similarity index, in the numbers that the resolver and the ring use.

use std::sync::{Arc, Mutex, PoisonError};

use super::ring::SESSION;
use crate::index::{Resolver, Similar, SimilarityIndex};

/// See the module.
pub struct Candidates {
    /// Shared with the engine, which ends it when the run has ended well.
    index: Arc<Mutex<SimilarityIndex>>,
}

impl Candidates {
    /// Those that `index` knows.
    pub fn new(index: Arc<Mutex<SimilarityIndex>>) -> Self {
        Candidates { index }
    }

    /// At most `count_max` entries that carry a feature, newest first.
    pub fn find(&mut self, feature: u64, count_max: usize, resolver: &mut Resolver) -> Vec<u64> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let found = index.find(feature).take(count_max);
        found
            .map(|similar| match similar {
                Similar::Session(number) => SESSION | number,
                Similar::Stored(container, entry) => resolver.entry_number(container, entry),
            })
            .collect()
    }

    /// Adds the features of session entry `number`.
    pub fn insert(&mut self, number: u64, features: &[u64]) {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).insert(number, features);
    }
}
