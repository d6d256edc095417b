//! Candidates: the entries, stored or of the running session, that carry a feature.
//!
//! This wraps the similarity index and translates its results to entry numbers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::repo::container::{EntryNumber, SessionEntryNumber};
use crate::repo::index::{Resolver, Similar, SimilarityIndex};

/// A chunk is likely to be mostly copied if one in this many of its features is known.
const LIKELY_SHARE: usize = 3;

/// See the module.
pub struct Candidates {
    /// Shared with the engine, which closes it after a successful run.
    index: Arc<Mutex<SimilarityIndex>>,
}

impl Candidates {
    /// Candidates in `index`.
    pub fn new(index: Arc<Mutex<SimilarityIndex>>) -> Self {
        Candidates { index }
    }

    /// Whether a chunk with these features is likely to be mostly copied.
    ///
    /// The index grows meanwhile, so the answer depends on timing. What is stored must not depend on it.
    pub fn are_likely(&self, features: &[u64]) -> bool {
        let mut index = self.index.lock();
        let known_min = features.len().div_ceil(LIKELY_SHARE).max(1);
        features.iter().filter(|feature| index.find(**feature).next().is_some()).nth(known_min - 1).is_some()
    }

    /// Calls `found` with the position in `features` and the entry, for at most `count_max` entries per feature, newest
    /// first.
    pub fn find(
        &mut self,
        features: &[u64],
        count_max: usize,
        resolver: &mut Resolver,
        mut found: impl FnMut(usize, EntryNumber),
    ) {
        let mut index = self.index.lock();
        for (position, feature) in features.iter().enumerate() {
            for similar in index.find(*feature).take(count_max) {
                let entry = match similar {
                    Similar::Session(number) => EntryNumber::session(number),
                    Similar::Stored(container, entry) => resolver.entry_number(container, entry),
                };
                found(position, entry);
            }
        }
    }

    /// Adds the features of session entry `number`.
    pub fn insert(&mut self, number: SessionEntryNumber, features: &[u64]) {
        self.index.lock().insert(number, features);
    }
}

#[cfg(test)]
mod tests {
    use super::super::anchors::features;
    use super::*;
    use crate::kernel::sieve::Anchor;
    use crate::repo::index::{ContainerListing, SimilarityFiles};
    use crate::store::MemoryStore;

    fn features_of(hashes: impl Iterator<Item = u64>) -> Vec<u64> {
        let anchor = |(hash, position): (u64, u32)| Anchor { position, hash: hash.wrapping_mul(0x2545_f491_4f6c_dd1d) };
        features(&hashes.zip(0..).map(anchor).collect::<Vec<_>>())
    }

    #[test]
    fn a_copy_is_likely_if_a_third_of_the_features_is_known() {
        let store: Arc<dyn crate::store::Store> = Arc::new(MemoryStore::new());
        let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
        let directory = tempfile::tempdir().expect("makes a directory");
        let (directory, repository) = (directory.path().into(), String::new());
        let files = SimilarityFiles { directory, repository, memory_bytes: 1 << 20, file_bytes: 1 << 20, key: None };
        let mut candidates = Candidates::new(Arc::new(Mutex::new(SimilarityIndex::new(store, listing, files))));
        let stored = features_of(1..9);
        assert!(!candidates.are_likely(&stored) && !candidates.are_likely(&[]));
        candidates.insert(SessionEntryNumber(0), &stored);
        assert!(candidates.are_likely(&stored) && candidates.are_likely(&features_of(6..14)));
        assert!(!candidates.are_likely(&features_of(7..15)) && !candidates.are_likely(&features_of(9..17)));
        assert!(candidates.are_likely(&features_of(8..9)) && !candidates.are_likely(&[]));
    }
}
