//! Anchors (ours): similar chunks by min-hash, ranges of them by anchors, byte by byte.
//!
//! 1. *Features*: the 8 smallest anchor hashes of a chunk (min-wise sampling, Broder 1997).
//! 2. *Edges*: the chunk and the best base are laid side by side, from their first bytes on and from their last bytes
//!    back. Where that covers nearly all of the chunk, it is done: nothing else is fetched or looked up.
//! 3. *Bases*: up to 4 stored chunks that share features, and the 2 that follow the bases of the chunk before in
//!    the order they were stored, where their bytes are at hand: they need no feature at all. Of the similar ones each
//!    adds features that those before it lack, so that versions of one thing do not take all places. Where those have
//!    all of the chunk's features, nothing is left for the others to add.
//! 4. *Matches*: every anchor of the chunk is looked up among the anchors of the bases; a hit is extended byte by byte
//!    in both directions, and the longest one is kept.
//! 5. *Gaps*: between two matches the bytes are compared with those at the same distance as in the match before, and
//!    as in the match behind ([`Aligned`]).

use super::aligned::Aligned;
use super::anchor_table::AnchorTable;
use super::bases::Bases;
use super::{HASH_MASK, Match, Strategy, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::kernel::sieve::{Anchor, Sieve};
use crate::repo::container::EntryNumber;

/// Multiplier whose products order the hashes.
const ORDER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Features of a chunk.
const FEATURES: usize = 8;
/// Entries looked at for each feature.
const CANDIDATES_PER_FEATURE: usize = 8;

/// A base whose frames must be decoded, or even read, has to share this many features: one or two are often a licence's
/// text, and the base good for nothing else.
const DECODE_FEATURES_MIN: u32 = 3;

/// Where what a chunk's edges have in common with a base leaves out one in this many bytes or less,
const UNCOVERED_SHARE: usize = 32;
/// and no more than so many in one place, nothing more is looked for.
const UNCOVERED_BYTES_MAX: usize = 1 << 10;

/// A base at hand: its entry, its bytes and its anchors.
type Base<'a> = (EntryNumber, &'a [u8], &'a AnchorTable);

/// Bases taken by order.
const FOLLOWERS: usize = 2;

/// The strategy.
pub struct Anchors {
    sieve: Sieve,
    /// Copies shorter than this do not pay.
    copy_bytes_min: usize,
    /// Bases taken by features.
    candidates_max: usize,
    /// Bases of the chunk before, the most used first.
    before: Vec<EntryNumber>,
}

impl Anchors {
    /// A strategy whose anchors come from a sieve keyed by `seed`.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        Anchors {
            sieve: Sieve::new(seed),
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            before: Vec::new(),
        }
    }

    /// The entries worth comparing with, the most promising first: each one shares most of the features that those
    /// before it do not have. Of several, one at hand is preferred, then the newest.
    fn choose(&self, features: &[u64], bases: &mut Bases) -> Vec<(EntryNumber, u32)> {
        // Each entry with the set of features it shares.
        let mut sharing: Vec<(EntryNumber, u32)> = Vec::new();
        bases.each_candidate(features, CANDIDATES_PER_FEATURE, |feature, entry| {
            match sharing.iter_mut().find(|found| found.0 == entry) {
                Some(found) => found.1 |= 1 << feature,
                None => sharing.push((entry, 1 << feature)),
            }
        });
        let mut chosen = Vec::new();
        let mut covered = 0;
        while chosen.len() < self.candidates_max {
            let gain = |found: &(EntryNumber, u32)| (found.1 & !covered).count_ones();
            let rank = |found: &&(EntryNumber, u32)| (gain(found), bases.base_cache().contains(found.0), found.0);
            let Some(best) = sharing.iter().max_by_key(rank).filter(|best| gain(best) > 0) else { break };
            chosen.push(*best);
            covered |= best.1;
        }
        chosen
    }

    /// The entries stored after the bases of the chunk before, unless the chosen ones have all features.
    fn followers(&self, chosen: &[(EntryNumber, u32)], bases: &mut Bases) -> Result<Vec<EntryNumber>> {
        let shared = chosen.iter().fold(0, |all: u32, base| all | base.1).count_ones() as usize;
        if shared == FEATURES {
            return Ok(Vec::new());
        }
        let mut followers = Vec::with_capacity(FOLLOWERS);
        for base in &self.before {
            if followers.len() < FOLLOWERS
                && let Some(next) = bases.following(*base)?
                && chosen.iter().all(|base| base.0 != next)
            {
                followers.push(next);
            }
        }
        Ok(followers)
    }

    /// The matches of a chunk that is the first of `chosen` but for little and for one place where bytes came in or
    /// went out: then no anchors are needed.
    fn nearly_whole(
        &self,
        chunk: &[u8],
        chosen: &[(EntryNumber, u32)],
        bases: &mut Bases,
    ) -> Result<Option<Vec<Match>>> {
        let Some((entry, shared)) = chosen.first() else { return Ok(None) };
        if !bases.fetch(*entry, shared.count_ones() >= DECODE_FEATURES_MIN)? {
            return Ok(None);
        }
        let base = bases.base_cache().get(*entry).unwrap_or_default();
        let matches = edges(chunk, base, *entry, self.copy_bytes_min);
        Ok(is_nearly_whole(chunk.len(), &matches).then_some(matches))
    }

    /// The bases for a chunk with these features, their contents and anchors at hand.
    fn prepare(&self, chosen: Vec<(EntryNumber, u32)>, bases: &mut Bases) -> Result<Vec<EntryNumber>> {
        let followers = self.followers(&chosen, bases)?;
        let chosen = chosen.into_iter().map(|(entry, shared)| (entry, shared.count_ones() >= DECODE_FEATURES_MIN));
        let mut prepared = Vec::new();
        for (entry, may_decode) in chosen.chain(followers.into_iter().map(|entry| (entry, false))) {
            let find = |bytes: &[u8], anchors: &mut Vec<Anchor>| {
                self.sieve.scan(bytes, |anchor| {
                    anchors.push(anchor);
                    true
                });
            };
            if bases.tabulate(entry, may_decode, find)? {
                prepared.push(entry);
            }
        }
        Ok(prepared)
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
            self.before = used.into_iter().map(|used| used.1).collect();
        }
    }
}

/// The hashes of a chunk's anchors that come first in a random order of all hashes. (The smallest ones as they are
/// would crowd into one corner of the similarity index.)
pub(super) fn features(anchors: &[Anchor]) -> Vec<u64> {
    let mut first: Vec<(u64, u64)> = Vec::with_capacity(FEATURES + 1);
    for anchor in anchors {
        let key = (anchor.hash.wrapping_mul(ORDER), anchor.hash & HASH_MASK);
        let at = first.partition_point(|kept| *kept < key);
        if at < FEATURES && first.get(at) != Some(&key) {
            first.insert(at, key);
            first.truncate(FEATURES);
        }
    }
    first.into_iter().map(|(_, hash)| hash).collect()
}

/// What `chunk` has in common with `base`, both laid side by side from their first bytes on, then from their last bytes
/// back.
fn edges(chunk: &[u8], base: &[u8], entry: EntryNumber, bytes_min: usize) -> Vec<Match> {
    let len = chunk.len();
    let mut matches = Vec::new();
    let heads = Match { position: 0, base: entry, offset: 0, len: 0 };
    Aligned::new(chunk, base, &heads, bytes_min).forward(0..len, &mut matches);
    let end = matches.last().map_or(0, |last| (last.position + last.len) as usize);
    let tails = Match { position: len as u32, base: entry, offset: base.len() as u32, len: 0 };
    Aligned::new(chunk, base, &tails, bytes_min).backward(end..len, &mut matches);
    matches
}

/// Whether `matches` (ascending) leave out little of a chunk of `len` bytes.
fn is_nearly_whole(len: usize, matches: &[Match]) -> bool {
    let ends = std::iter::once(0).chain(matches.iter().map(|found| found.position + found.len));
    let starts = matches.iter().map(|found| found.position).chain([len as u32]);
    let gaps = ends.zip(starts).map(|(end, start)| (start - end) as usize);
    gaps.clone().sum::<usize>() * UNCOVERED_SHARE <= len && gaps.max().is_none_or(|gap| gap <= UNCOVERED_BYTES_MAX)
}

/// Fills the gaps between `matches` (ascending) back from the matches behind them.
fn fill_gaps(chunk: &[u8], matches: &[Match], bases: &[Base<'_>], bytes_min: usize) -> Vec<Match> {
    let mut out = Vec::with_capacity(matches.len());
    let mut end = 0;
    for behind in matches {
        let position = behind.position as usize;
        if position - end >= bytes_min
            && let Some((_, base, _)) = bases.iter().find(|base| base.0 == behind.base)
        {
            Aligned::new(chunk, base, behind, bytes_min).backward(end..position, &mut out);
        }
        out.push(*behind);
        end = position + behind.len as usize;
    }
    out
}

/// The longest match through an anchor, not before `covered`, and the bytes of its base.
fn longest<'a>(chunk: &[u8], covered: usize, anchor: &Anchor, bases: &[Base<'a>]) -> Option<(Match, &'a [u8])> {
    let position = anchor.position as usize;
    let (before, after) = (chunk.get(covered..position)?, chunk.get(position..)?);
    let mut best: Option<(Match, &[u8])> = None;
    for (entry, base, table) in bases {
        let Some(at) = table.find(anchor.hash as u32) else { continue };
        let Some((base_before, base_after)) = base.split_at_checked(at as usize) else { continue };
        let back = common_suffix_len(before, base_before) as u32;
        let len = back + common_prefix_len(after, base_after) as u32;
        if best.as_ref().is_none_or(|best| len > best.0.len) {
            best = Some((Match { position: anchor.position - back, base: *entry, offset: at - back, len }, *base));
        }
    }
    best
}

impl Strategy for Anchors {
    fn wants_anchors(&self) -> bool {
        true
    }

    fn find(&mut self, chunk: &[u8], anchors: &[Anchor], bases: &mut Bases) -> Result<StrategyOutput> {
        let features = features(anchors);
        let chosen = self.choose(&features, bases);
        if let Some(matches) = self.nearly_whole(chunk, &chosen, bases)? {
            self.remember(&matches);
            return Ok(StrategyOutput { matches, features });
        }
        let prepared = self.prepare(chosen, bases)?;
        let base_cache = bases.base_cache();
        let bases: Vec<Base<'_>> = prepared
            .iter()
            .filter_map(|entry| base_cache.tabulated(*entry).map(|(bytes, table)| (*entry, bytes, table)))
            .collect();
        let mut matches: Vec<Match> = Vec::new();
        let mut covered = 0;
        for anchor in anchors {
            if anchor.position as usize <= covered || bases.is_empty() {
                continue;
            }
            let Some((found, base)) = longest(chunk, covered, anchor, &bases) else { continue };
            if (found.len as usize) < self.copy_bytes_min {
                continue;
            }
            matches.push(found);
            let end = (found.position + found.len) as usize;
            Aligned::new(chunk, base, &found, self.copy_bytes_min).forward(end..chunk.len(), &mut matches);
            covered = matches.last().map_or(end, |last| (last.position + last.len) as usize);
        }
        let matches = fill_gaps(chunk, &matches, &bases, self.copy_bytes_min);
        self.remember(&matches);
        Ok(StrategyOutput { matches, features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;
    use proptest::prelude::*;

    /// Bytes without long repetitions.
    fn noise(len: usize, seed: u8) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn entry() -> EntryNumber {
        EntryNumber::stored(ContainerNumber(0), 7)
    }

    fn uncovered(chunk: &[u8], base: &[u8]) -> usize {
        let matches = edges(chunk, base, entry(), 32);
        let mut end = 0;
        for found in &matches {
            let (position, offset, len) = (found.position as usize, found.offset as usize, found.len as usize);
            assert!(position >= end && len >= 32 && found.base == entry());
            assert_eq!(chunk[position..position + len], base[offset..offset + len]);
            end = position + len;
        }
        assert!(end <= chunk.len());
        chunk.len() - matches.iter().map(|found| found.len as usize).sum::<usize>()
    }

    #[test]
    fn overwritten_bytes_and_one_change_of_length_leave_only_what_is_new() {
        let base = noise(20_000, 1);
        assert_eq!(uncovered(&base, &base), 0);
        for (range, new) in [(0..0, 300), (9000..9000, 700), (9000..9700, 0), (400..500, 40), (19_800..20_000, 100)] {
            let mut chunk = base.clone();
            chunk.splice(range, noise(new, 2));
            assert_eq!(uncovered(&chunk, &base), new);
            for at in [100, 5000, chunk.len() - 100] {
                chunk[at..at + 20].iter_mut().for_each(|byte| *byte ^= 1);
            }
            assert!(uncovered(&chunk, &base) <= new + 60 + 2 * 32);
        }
        let mut twice = base.clone();
        twice.splice(15_000..15_000, noise(600, 3));
        twice.splice(5000..5000, noise(600, 4));
        assert!(uncovered(&twice, &base) > 10_000);
    }

    #[test]
    fn nearly_whole_is_what_lacks_little_in_all_and_in_each_place() {
        let found = |ranges: &[(u32, u32)]| -> Vec<Match> {
            let of = |(start, end): &(u32, u32)| Match { position: *start, base: entry(), offset: 9, len: end - start };
            ranges.iter().map(of).collect()
        };
        assert!(is_nearly_whole(64_000, &found(&[(0, 64_000)])));
        for (start, end) in [(0, 1024), (9000, 10_024), (62_976, 64_000)] {
            assert!(is_nearly_whole(64_000, &found(&[(0, start), (end, 64_000)])));
            assert!(!is_nearly_whole(64_000, &found(&[(0, start.saturating_sub(1)), ((end + 1).min(64_000), 64_000)])));
        }
        assert!(is_nearly_whole(64_000, &found(&[(1000, 20_000), (21_000, 64_000)])));
        assert!(!is_nearly_whole(64_000, &found(&[(1000, 20_000), (21_001, 64_000)])));
        assert!(!is_nearly_whole(64_000, &[]) && !is_nearly_whole(1000, &found(&[(0, 968)])));
        assert!(is_nearly_whole(1000, &found(&[(0, 969)])));
    }

    proptest! {
        #[test]
        fn edges_are_true_and_in_order(
            parts in prop::collection::vec((0usize..3, 0usize..900, 0usize..900), 0..12),
            others in prop::collection::vec((0usize..3, 0usize..900, 0usize..900), 0..12),
        ) {
            let pools = [noise(900, 5), vec![0; 900], b"abc".repeat(300)];
            let bytes = |parts: &[(usize, usize, usize)]| -> Vec<u8> {
                parts.iter().flat_map(|(pool, from, to)| pools[*pool][*from.min(to)..*from.max(to)].to_vec()).collect()
            };
            let (chunk, base) = (bytes(&parts), bytes(&others));
            for (chunk, base) in [(&chunk, &base), (&base, &chunk), (&chunk, &chunk)] {
                uncovered(chunk, base);
            }
        }
    }
}
