//! Look-ups in the levels of the chunk index in real backups.
//!
//! Each level has the look-ups that came to it, *asked*, and those that it answered, *hits*. `last` is what a scheme
//! has as its last level: the database if it was asked, else the segments. Shares make backups comparable.

use std::collections::BTreeMap;

use fhrd::repo::index::{Hits, SimilarHits};
use serde::Serialize;

/// Name of the last level, whatever it is.
const LAST: &str = "last";

/// Look-ups in one level.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct LevelShares {
    /// Look-ups that came to the level.
    pub asked: u64,
    /// Look-ups that it answered.
    pub hits: u64,
    /// Fraction of all look-ups that came to it.
    pub asked_share: f64,
    /// Fraction of the look-ups of stored chunks that it answered.
    pub hit_share: f64,
}

/// The levels by name, of the sum of some backups.
pub fn shares(backups: &[Hits]) -> BTreeMap<&'static str, LevelShares> {
    let misses: u64 = backups.iter().map(|hits| hits.misses).sum();
    let mut levels = summed(backups.iter().flat_map(Hits::levels), misses);
    let last = ["database", "segments"].iter().filter_map(|name| levels.get(name)).find(|level| level.asked > 0);
    if let Some(last) = last.copied() {
        levels.insert(LAST, last);
    }
    levels
}

/// The levels of look-ups of similar blocks by name, of the sum of some backups.
pub fn similar_shares(backups: &[SimilarHits]) -> BTreeMap<&'static str, LevelShares> {
    let misses = backups.iter().map(|hits| hits.misses).sum();
    summed(backups.iter().flat_map(SimilarHits::levels), misses)
}

/// The sum of the look-ups and hits of each level, and their shares.
fn summed(backups: impl Iterator<Item = (&'static str, u64, u64)>, misses: u64) -> BTreeMap<&'static str, LevelShares> {
    let mut levels: BTreeMap<&'static str, LevelShares> = BTreeMap::new();
    for (name, asked, hits) in backups {
        let level = levels.entry(name).or_default();
        (level.asked, level.hits) = (level.asked + asked, level.hits + hits);
    }
    let stored: u64 = levels.values().map(|level| level.hits).sum();
    for level in levels.values_mut() {
        level.asked_share = level.asked as f64 / (stored + misses).max(1) as f64;
        level.hit_share = level.hits as f64 / stored.max(1) as f64;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_backups_and_the_last_level_is_the_one_that_was_asked() {
        let first = Hits { misses: 50, absent: 50, ..Hits::default() };
        let second = Hits { local: 30, temporary: 5, lru: 5, segments: 10, segments_lookups: 20, ..Hits::default() };
        let levels = shares(&[first, second]);
        let of = |name: &str| levels[name];
        assert_eq!((of("local").asked, of("local").hits), (100, 30));
        assert_eq!((of("local").asked_share, of("local").hit_share), (1.0, 0.6));
        assert_eq!((of("lru").asked, of("segments").asked_share), (65, 0.2));
        assert_eq!((of("last"), of("database").asked), (of("segments"), 0));
        let database = Hits { database: 7, database_lookups: 9, segments_lookups: 2, misses: 2, ..Hits::default() };
        assert_eq!(shares(&[database])["last"].hits, 7);
        let similar = SimilarHits { lru: 3, pages: 1, misses: 4 };
        let similar = similar_shares(&[similar, SimilarHits::default()]);
        assert_eq!((similar["lru"].asked, similar["pages"].asked), (8, 5));
        assert_eq!((similar["lru"].hit_share, similar["pages"].asked_share), (0.75, 0.625));
        let unused = shares(&[Hits::default()]);
        assert!(!unused.contains_key("last") && unused["local"].hit_share == 0.0 && shares(&[]).is_empty());
    }
}
