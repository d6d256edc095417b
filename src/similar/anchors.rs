//! Anchors (ours): similar chunks by min-hash, and ranges of them by anchors, exact to the byte.
//!
//! 1. *Features*: the 8 smallest anchor hashes of a chunk (min-wise sampling, Broder 1997).
//! 2. *Edges*: the chunk is compared with the best base, from the first bytes forward and from the last bytes back. If
//!    that covers nearly all of the chunk, the search ends: no other base is fetched and no anchor is looked up.
//! 3. *Bases*: up to 4 stored chunks that share features. Each must add features that the ones before it lack, so that
//!    versions of one chunk do not use up the bases. If all features are not covered yet, up to 2 chunks that were
//!    stored after the bases of the last chunk follow. They must be in memory and need no feature.
//! 4. *Matches*: every anchor of the chunk is looked up among the anchors of the bases. A hit is extended byte by byte
//!    in both directions, and the longest one is used.
//! 5. *Gaps*: the bytes between two matches are compared at the distance of the match before and of the match after
//!    ([`Aligned`](super::aligned::Aligned)).
//! 6. *Long matches*: if the chunk proves repetitive ([`RateSampler`]), long matches alone are sought.

use super::anchor_matches::{CachedBase, anchor_matches, edge_matches, is_nearly_covered};
use super::bases::Bases;
use super::price::{LiteralRate, RateSampler};
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
    rates: RateSampler,
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
            rates: RateSampler::default(),
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

    /// The literal rate of `chunk`, and the length from which on matches are worth searching for.
    fn worth(&mut self, chunk: &[u8], matches: &[Match]) -> Result<(LiteralRate, usize)> {
        let rate = self.rates.rate(chunk, matches)?;
        Ok((rate, self.rates.match_bytes_min(chunk, rate, self.copy_bytes_min)?))
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

/// Features of a chunk: the anchor hashes that come first in a pseudo-random order of all hashes. The smallest hashes
/// themselves would crowd into one corner of the similarity index.
pub(super) fn features(anchors: &[Anchor]) -> Vec<u64> {
    let mut first: Vec<(u64, u64)> = Vec::with_capacity(FEATURES + 1);
    for anchor in anchors {
        let key = (anchor.hash.wrapping_mul(ORDER), anchor.hash & HASH_MASK);
        let at = first.partition_point(|other| *other < key);
        if at < FEATURES && first.get(at) != Some(&key) {
            first.insert(at, key);
            first.truncate(FEATURES);
        }
    }
    first.into_iter().map(|(_, hash)| hash).collect()
}

impl Strategy for Anchors {
    fn wants_anchors(&self) -> bool {
        true
    }

    fn find(&mut self, chunk: &[u8], anchors: &[Anchor], bases: &mut Bases) -> Result<StrategyOutput> {
        let features = features(anchors);
        let chosen = self.choose(&features, bases);
        if let Some(matches) = self.nearly_covered(chunk, &chosen, bases)? {
            let (rate, match_bytes_min) = self.worth(chunk, &matches)?;
            let long = matches.iter().copied().filter(|found| found.len as usize >= match_bytes_min);
            if match_bytes_min == self.copy_bytes_min || is_nearly_covered(chunk.len(), &long.collect::<Vec<_>>()) {
                self.remember(&matches);
                return Ok(StrategyOutput { matches, features, rate: Some(rate) });
            }
        }
        let fetched = self.fetch_all(&chosen, bases)?;
        let base_cache = bases.base_cache();
        // A later fetch may have evicted an earlier one.
        let cached = |entry: &EntryNumber| {
            let (bytes, anchors) = base_cache.get_with_table(*entry)?;
            Some(CachedBase { entry: *entry, bytes, anchors })
        };
        let bases: Vec<CachedBase<'_>> = fetched.iter().filter_map(cached).collect();
        let mut matches = anchor_matches(chunk, anchors, &bases, self.copy_bytes_min);
        let (rate, match_bytes_min) = self.worth(chunk, &matches)?;
        if match_bytes_min > self.copy_bytes_min {
            matches = anchor_matches(chunk, anchors, &bases, match_bytes_min);
        }
        self.remember(&matches);
        Ok(StrategyOutput { matches, features, rate: Some(rate) })
    }
}
