//! Candidates: the entries, stored or of the running session, that carry a feature.
//!
//! This wraps the similarity index and translates its results to entry numbers. With an LRU, what it found last is
//! asked before the index (FHRD, section 4.3). One owner asks in stream order, so what the LRU holds depends on the
//! stream only.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::HASH_MASK;
use crate::repo::container::{EntryNumber, SessionEntryNumber};
use crate::repo::index::{Resolver, Similar, SimilarityIndex};
use crate::repo::read::at_least_one;

/// A chunk is likely to be mostly copied if one in this many of its features is known.
const LIKELY_SHARE: usize = 3;
/// Entries of a feature in the LRU: as many as are asked for, at most.
const ENTRIES_MAX: usize = 8;

/// See the module.
pub struct Candidates {
    /// Shared with the engine, which closes it after a successful run.
    index: Arc<Mutex<SimilarityIndex>>,
    /// Entries of features that were found, the newest first.
    recent: Option<LruCache<u64, Vec<Similar>>>,
}

impl Candidates {
    /// Candidates in `index`.
    pub fn new(index: Arc<Mutex<SimilarityIndex>>) -> Self {
        Candidates { index, recent: None }
    }

    /// With an LRU of so many features; 0 = none. Others that insert features must not share the index.
    #[must_use]
    pub fn with_lru(mut self, features: usize) -> Self {
        self.recent = (features > 0).then(|| LruCache::new(at_least_one(features)));
        self
    }

    /// Whether a chunk with these features is likely to be mostly copied.
    ///
    /// The index grows meanwhile, so the answer depends on timing. What is stored must not depend on it.
    pub fn are_likely(&self, features: &[u64]) -> bool {
        let mut index = self.index.lock();
        let known_min = features.len().div_ceil(LIKELY_SHARE).max(1);
        features.iter().filter(|feature| index.find_known(**feature).next().is_some()).nth(known_min - 1).is_some()
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
            for similar in find_in(&mut index, self.recent.as_mut(), *feature).into_iter().take(count_max) {
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
        let Some(recent) = &mut self.recent else { return };
        for feature in features {
            if let Some(known) = recent.get_mut(&(feature & HASH_MASK)) {
                known.insert(0, Similar::Session(number));
                known.truncate(ENTRIES_MAX);
            }
        }
    }
}

/// Entries with a feature, the newest first: those in `recent`, if it has any, else those of the index.
fn find_in(
    index: &mut SimilarityIndex,
    recent: Option<&mut LruCache<u64, Vec<Similar>>>,
    feature: u64,
) -> Vec<Similar> {
    let Some(recent) = recent else { return index.find(feature).take(ENTRIES_MAX).collect() };
    if let Some(known) = recent.get(&(feature & HASH_MASK)) {
        index.hits.lru += 1;
        return known.iter().filter(|similar| index.is_usable(similar)).copied().collect();
    }
    let found: Vec<Similar> = index.find(feature).take(ENTRIES_MAX).collect();
    if found.is_empty() {
        index.hits.misses += 1;
    } else {
        index.hits.pages += 1;
        recent.put(feature & HASH_MASK, found.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::anchors::features;
    use super::*;
    use crate::kernel::sieve::Anchor;
    use crate::repo::index::{ContainerIndexes, ContainerListing, Locator, SimilarHits, SimilarityFiles};
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

    #[test]
    fn an_lru_answers_as_the_index_does() {
        let store: Arc<dyn crate::store::Store> = Arc::new(MemoryStore::new());
        let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
        let directory = tempfile::tempdir().expect("makes a directory");
        let (directory, repository) = (directory.path().into(), String::new());
        let files = SimilarityFiles { directory, repository, memory_bytes: 1 << 20, file_bytes: 1 << 20, key: None };
        let index = Arc::new(Mutex::new(SimilarityIndex::new(store.clone(), listing.clone(), files)));
        let mut resolver = Resolver::new(Locator::new(listing, ContainerIndexes::new(store, 8, 1 << 20)));
        let mut candidates = Candidates::new(index.clone()).with_lru(2);
        let mut found = |candidates: &mut Candidates, feature: u64| -> Vec<u64> {
            let mut numbers = Vec::new();
            candidates.find(&[feature], 8, &mut resolver, |_, entry| numbers.push(entry.as_session().unwrap().0));
            numbers
        };
        let hits = || index.lock().hits;
        assert_eq!(found(&mut candidates, 7), [0; 0]);
        candidates.insert(SessionEntryNumber(1), &[7, 8]);
        assert_eq!(found(&mut candidates, 7), [1], "what was absent is not remembered");
        // The position code is not part of the hash.
        candidates.insert(SessionEntryNumber(2), &[7 | 5 << 48]);
        assert_eq!(found(&mut candidates, 7 | 9 << 48), [2, 1]);
        assert_eq!(hits(), SimilarHits { lru: 1, pages: 1, misses: 1 });
        candidates.insert(SessionEntryNumber(3), &[9]);
        assert_eq!((found(&mut candidates, 8), found(&mut candidates, 9)), (vec![1], vec![3]));
        assert_eq!(found(&mut candidates, 7), [2, 1]);
        assert_eq!(hits(), SimilarHits { lru: 1, pages: 4, misses: 1 });
        let without = Candidates::new(index.clone());
        assert_eq!(found(&mut { without }, 7), [2, 1]);
    }
}
