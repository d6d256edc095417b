//! Anchors (ours): similar chunks by min-hash, and ranges of them by anchors, exact to the byte.
//!
//! 1. *Features*: the 8 smallest anchor hashes of a chunk (min-wise sampling, Broder 1997). Where anchors repeat, as in
//!    the rows of a table, all chunks would share them; there the bytes between anchors are hashed instead.
//! 2. *Edges*: the chunk is compared with the best base, from the first bytes forward and from the last bytes back. If
//!    that covers nearly all of the chunk, the search ends: no other base is fetched and no anchor is looked up.
//! 3. *Bases*: up to 4 stored chunks that share features. Each must add features that the ones before it lack, so that
//!    versions of one chunk do not use up the bases. If all features are not covered yet, up to 2 chunks that were
//!    stored after the bases of the last chunk follow. They must be in memory and need no feature.
//! 4. *Matches*: every anchor of the chunk is looked up among the anchors of the bases. A hit is extended byte by byte
//!    in both directions, and the longest one is used.
//! 5. *Gaps*: the bytes between two matches are compared at the distance of the match before and of the match after
//!    ([`Aligned`](super::aligned::Aligned)).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::anchor_matches::{CachedBase, anchor_matches, edge_matches, is_nearly_covered};
use super::bases::Bases;
use super::{HASH_MASK, Match, Strategy, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kernel::sieve::{Anchor, Sieve};
use crate::repo::container::EntryNumber;

/// Multiplier whose products order the hashes.
const ORDER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Features of a chunk.
const FEATURES: usize = 8;
/// Most candidates per feature.
const CANDIDATES_PER_FEATURE: usize = 8;
/// Anchors of a chunk from which on they may count as repeating, ...
const REPEATING_ANCHORS_MIN: usize = 32;
/// ... which they do if one in this many of them repeats a feature.
const REPEATING_SHARE: usize = 8;
/// Fewest shared features for which frames of a base are read or decoded. One or two shared features are often only a
/// licence text.
const DECODE_FEATURES_MIN: u32 = 3;
/// Most bases that follow the bases of the last chunk.
const FOLLOWERS: usize = 2;

/// Finds ranges of several similar chunks.
pub struct Anchors {
    sieve: Sieve,
    /// Shortest copy.
    copy_bytes_min: usize,
    /// Most bases chosen by features.
    candidates_max: usize,
    /// Bases of the last chunk that had any, the most used first.
    last_bases: Vec<EntryNumber>,
}

/// An entry that shares features with the chunk.
#[derive(Clone, Copy)]
struct SimilarEntry {
    entry: EntryNumber,
    /// Shared features: bit `i` for feature `i` of the chunk.
    shared: u32,
}

impl SimilarEntry {
    /// Whether it shares enough features to read or decode frames.
    fn may_decode(&self) -> bool {
        self.shared.count_ones() >= DECODE_FEATURES_MIN
    }
}

impl Anchors {
    /// With the limits of `config`; `seed` keys the sieve that finds anchors.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        Anchors {
            sieve: Sieve::new(seed),
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            last_bases: Vec::new(),
        }
    }

    /// Chooses the entries to compare with, best first. Each one shares the most features that those before it lack.
    /// Among equals, cached entries come first, then newer ones.
    fn choose(&self, features: &[u64], bases: &mut Bases) -> Vec<SimilarEntry> {
        let mut similar: Vec<SimilarEntry> = Vec::new();
        bases.each_candidate(features, CANDIDATES_PER_FEATURE, |feature, entry| {
            match similar.iter_mut().find(|known| known.entry == entry) {
                Some(known) => known.shared |= 1 << feature,
                None => similar.push(SimilarEntry { entry, shared: 1 << feature }),
            }
        });
        let mut chosen = Vec::new();
        let mut covered = 0;
        while chosen.len() < self.candidates_max {
            let gain = |found: &SimilarEntry| (found.shared & !covered).count_ones();
            let rank = |found: &&SimilarEntry| (gain(found), bases.base_cache().contains(found.entry), found.entry);
            let Some(best) = similar.iter().max_by_key(rank).filter(|best| gain(best) > 0) else { break };
            chosen.push(*best);
            covered |= best.shared;
        }
        chosen
    }

    /// The entries stored after the bases of the last chunk; empty if `chosen` covers all features.
    fn followers(&self, chosen: &[SimilarEntry], bases: &mut Bases) -> Result<Vec<EntryNumber>> {
        let shared = chosen.iter().fold(0, |all: u32, base| all | base.shared).count_ones() as usize;
        if shared == FEATURES {
            return Ok(Vec::new());
        }
        let mut followers = Vec::with_capacity(FOLLOWERS);
        for base in &self.last_bases {
            if followers.len() < FOLLOWERS
                && let Some(next) = bases.following(*base)?
                && chosen.iter().all(|base| base.entry != next)
            {
                followers.push(next);
            }
        }
        Ok(followers)
    }

    /// The edge matches with the first of `chosen`, if they cover nearly all of the chunk. That is so when the chunk
    /// differs in few bytes and in one insertion or deletion.
    fn nearly_covered(&self, chunk: &[u8], chosen: &[SimilarEntry], bases: &mut Bases) -> Result<Option<Vec<Match>>> {
        let Some(first) = chosen.first() else { return Ok(None) };
        if !bases.fetch(first.entry, first.may_decode())? {
            return Ok(None);
        }
        let base = bases.base_cache().get(first.entry).unwrap_or_default();
        let matches = edge_matches(chunk, base, first.entry, self.copy_bytes_min);
        Ok(is_nearly_covered(chunk.len(), &matches).then_some(matches))
    }

    /// Fetches the chosen entries and their followers, with anchor tables, and returns those that are cached.
    fn fetch_all(&self, chosen: &[SimilarEntry], bases: &mut Bases) -> Result<Vec<EntryNumber>> {
        let followers = self.followers(chosen, bases)?;
        let chosen = chosen.iter().map(|base| (base.entry, base.may_decode()));
        let mut fetched = Vec::new();
        for (entry, may_decode) in chosen.chain(followers.into_iter().map(|entry| (entry, false))) {
            let find = |bytes: &[u8], anchors: &mut Vec<Anchor>| {
                self.sieve.scan(bytes, |anchor| {
                    anchors.push(anchor);
                    true
                });
            };
            if bases.fetch_with_anchors(entry, may_decode, find)? {
                fetched.push(entry);
            }
        }
        Ok(fetched)
    }

    /// Remembers the bases of a chunk, the most used first.
    fn remember(&mut self, matches: &[Match]) {
        let mut used: Vec<(u32, EntryNumber)> = Vec::new();
        for found in matches {
            match used.iter_mut().find(|used| used.1 == found.base) {
                Some(used) => used.0 += found.len,
                None => used.push((found.len, found.base)),
            }
        }
        used.sort_by_key(|used| std::cmp::Reverse(used.0));
        if !used.is_empty() {
            self.last_bases = used.into_iter().map(|used| used.1).collect();
        }
    }
}

/// Features of `chunk`, from the hashes of its anchors, or of the bytes between its anchors if many anchors repeat.
pub(super) fn features(chunk: &[u8], anchors: &[Anchor]) -> Vec<u64> {
    let mut first = FirstHashes::default();
    anchors.iter().for_each(|anchor| first.insert(anchor.hash));
    if anchors.len() >= REPEATING_ANCHORS_MIN && first.repeated * REPEATING_SHARE >= anchors.len() {
        first = FirstHashes::default();
        for (anchor, next) in anchors.iter().zip(anchors.iter().skip(1)) {
            let between = chunk.get(anchor.position as usize..next.position as usize).unwrap_or_default();
            // The hash of the anchor is keyed, so this one is, too.
            first.insert(xxh3_64_with_seed(between, anchor.hash));
        }
    }
    first.hashes.into_iter().map(|(_, hash)| hash).collect()
}

/// The hashes that come first in a pseudo-random order of all hashes. The smallest hashes themselves would crowd into
/// one corner of the similarity index.
#[derive(Default)]
struct FirstHashes {
    /// Place in the order, and hash.
    hashes: Vec<(u64, u64)>,
    /// Insertions of a hash that was among the first already.
    repeated: usize,
}

impl FirstHashes {
    fn insert(&mut self, hash: u64) {
        let key = (hash.wrapping_mul(ORDER), hash & HASH_MASK);
        let at = self.hashes.partition_point(|other| *other < key);
        if self.hashes.get(at) == Some(&key) {
            self.repeated += 1;
        } else if at < FEATURES {
            self.hashes.insert(at, key);
            self.hashes.truncate(FEATURES);
        }
    }
}

impl Strategy for Anchors {
    fn wants_anchors(&self) -> bool {
        true
    }

    fn find(&mut self, chunk: &[u8], anchors: &[Anchor], bases: &mut Bases) -> Result<StrategyOutput> {
        let features = features(chunk, anchors);
        let chosen = self.choose(&features, bases);
        if let Some(matches) = self.nearly_covered(chunk, &chosen, bases)? {
            self.remember(&matches);
            return Ok(StrategyOutput { matches, features });
        }
        let fetched = self.fetch_all(&chosen, bases)?;
        let base_cache = bases.base_cache();
        // A later fetch may have evicted an earlier one.
        let cached = |entry: &EntryNumber| {
            let (bytes, anchors) = base_cache.get_with_table(*entry)?;
            Some(CachedBase { entry: *entry, bytes, anchors })
        };
        let bases: Vec<CachedBase<'_>> = fetched.iter().filter_map(cached).collect();
        let matches = anchor_matches(chunk, anchors, &bases, self.copy_bytes_min);
        self.remember(&matches);
        Ok(StrategyOutput { matches, features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_repeating_anchors_share_features_where_they_share_rows() {
        // Rows of 128 bytes with a number. The anchor behind each number is the same in all of them.
        let chunk = |first: u32| -> (Vec<u8>, Vec<Anchor>) {
            let rows = (first..first + 1000).flat_map(|number| format!("{number:<128}").into_bytes());
            let anchors = (0..1000).map(|row| Anchor { position: row * 128 + 64, hash: u64::from(row % 20) + 7 });
            (rows.collect(), anchors.collect())
        };
        let features_of = |first: u32| {
            let (bytes, anchors) = chunk(first);
            features(&bytes, &anchors)
        };
        let shared = |a: &[u64], b: &[u64]| a.iter().filter(|feature| b.contains(feature)).count();
        let here = features_of(5000);
        assert_eq!(here.len(), FEATURES);
        assert_eq!(shared(&here, &features_of(5000)), FEATURES);
        assert!(shared(&here, &features_of(5100)) >= FEATURES / 2);
        assert_eq!(shared(&here, &features_of(7000)), 0);
        let (bytes, mut anchors) = chunk(5000);
        anchors.iter_mut().for_each(|anchor| anchor.hash = u64::from(anchor.position).wrapping_mul(ORDER));
        let distinct = features(&bytes, &anchors);
        assert!(distinct.iter().all(|feature| anchors.iter().any(|anchor| anchor.hash & HASH_MASK == *feature)));
    }
}
