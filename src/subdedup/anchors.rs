//! Anchors (ours): similar chunks by min-hash, ranges of them by anchors, byte by byte.
//!
//! 1. *Features*: the 8 smallest anchor hashes of a chunk (min-wise sampling, Broder 1997).
//! 2. *Bases*: up to 4 stored chunks that share features, and the 2 that follow the bases of the chunk before in
//!    the order they were stored, where their bytes are at hand: they need no feature at all. Of the similar ones each
//!    adds features that those before it lack, so that versions of one thing do not take all places. Where those have
//!    all of the chunk's features, nothing is left for the others to add.
//! 3. *Matches*: every anchor of the chunk is looked up among the anchors of the bases; a hit is extended byte by byte
//!    in both directions, and the longest one is kept.
//! 4. *Gaps*: between two matches the bytes are compared with those at the same distance as in the match before, and
//!    as in the match behind ([`Aligned`]).

use std::sync::Arc;

use super::aligned::Aligned;
use super::bases::{Bases, whole_bytes_max};
use super::{Found, HASH_MASK, Match, Strategy};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kept::Kept;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::kernel::sieve::{Anchor, Sieve};

/// Multiplier whose products order the hashes.
const ORDER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Features of a chunk.
const FEATURES: usize = 8;
/// Entries looked at for each feature.
const CANDIDATES_PER_FEATURE: usize = 8;

/// A base whose frames must be decoded, or even read, has to share this many features: one or two are often a licence's
/// text, and the base good for nothing else.
const DECODE_FEATURES_MIN: u32 = 3;
/// Bases of which only the memory is kept.
const SPARE_MAX: usize = 8;

/// The anchors of a chunk, to be looked up by hash.
#[derive(Default)]
struct AnchorTable {
    /// Hashes, each with its position plus one, or 0; open addressing.
    slots: Vec<(u32, u32)>,
    shift: u32,
}

impl AnchorTable {
    /// The table of `anchors`, in the memory of an older one.
    fn new(anchors: &[Anchor], mut slots: Vec<(u32, u32)>) -> Self {
        let bits = (anchors.len() * 2).max(2).next_power_of_two().trailing_zeros();
        slots.clear();
        slots.resize(1 << bits, (0, 0));
        let mut table = AnchorTable { slots, shift: 32 - bits };
        for anchor in anchors {
            let hash = anchor.hash as u32;
            let mut at = (hash >> table.shift) as usize;
            let mask = table.slots.len() - 1;
            // The first of equal hashes stays.
            while let Some(slot) = table.slots.get_mut(at) {
                if slot.1 == 0 {
                    *slot = (hash, anchor.position + 1);
                    break;
                }
                if slot.0 == hash {
                    break;
                }
                at = (at + 1) & mask;
            }
        }
        table
    }

    fn find(&self, hash: u32) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        while let Some((found, position)) = self.slots.get(at) {
            if *position == 0 {
                return None;
            }
            if *found == hash {
                return Some(position - 1);
            }
            at = (at + 1) & mask;
        }
        None
    }
}

/// A base made ready.
#[derive(Default)]
struct Prepared {
    bytes: Vec<u8>,
    table: AnchorTable,
}

impl Prepared {
    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.table.slots.capacity() * size_of::<(u32, u32)>()
    }
}

/// Bases taken by order.
const FOLLOWERS: usize = 2;

/// The strategy.
pub struct Anchors {
    sieve: Sieve,
    /// Copies shorter than this do not pay.
    copy_bytes_min: usize,
    /// Bases taken by features.
    candidates_max: usize,
    prepared: Kept<u64, Arc<Prepared>>,
    /// The memory of bases that are not kept any more.
    spare: Vec<Prepared>,
    anchors: Vec<Anchor>,
    /// Bases of the chunk before, the most used first.
    before: Vec<u64>,
}

impl Anchors {
    /// A strategy whose anchors come from a sieve keyed by `seed`.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        Anchors {
            sieve: Sieve::new(seed),
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            prepared: Kept::new(whole_bytes_max(config)),
            spare: Vec::new(),
            anchors: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The entries worth comparing with, the most promising first: each one shares most of the features that those
    /// before it do not have. Of several, one at hand is preferred, then the newest.
    fn choose(&self, features: &[u64], bases: &mut Bases) -> Vec<(u64, u32)> {
        // Each entry with the set of features it shares.
        let mut sharing: Vec<(u64, u32)> = Vec::new();
        for (number, feature) in features.iter().enumerate() {
            for entry in bases.candidates(*feature, CANDIDATES_PER_FEATURE) {
                match sharing.iter_mut().find(|found| found.0 == entry) {
                    Some(found) => found.1 |= 1 << number,
                    None => sharing.push((entry, 1 << number)),
                }
            }
        }
        let mut chosen = Vec::new();
        let mut covered = 0;
        while chosen.len() < self.candidates_max {
            let gain = |found: &(u64, u32)| (found.1 & !covered).count_ones();
            let rank = |found: &&(u64, u32)| (gain(found), self.prepared.contains(&found.0), found.0);
            let Some(best) = sharing.iter().max_by_key(rank).filter(|best| gain(best) > 0) else { break };
            chosen.push(*best);
            covered |= best.1;
        }
        chosen
    }

    /// The entries stored after the bases of the chunk before, unless the chosen ones have all features.
    fn followers(&self, chosen: &[(u64, u32)], bases: &mut Bases) -> Result<Vec<u64>> {
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

    /// A base's bytes and anchors; see [`Bases::read`] for `may_decode`.
    fn prepare(&mut self, entry: u64, may_decode: bool, bases: &mut Bases) -> Result<Option<Arc<Prepared>>> {
        if let Some(found) = self.prepared.get(&entry) {
            return Ok(Some(found));
        }
        let mut spare = self.spare.pop().unwrap_or_default();
        match bases.take_recent(entry) {
            Some(recent) => {
                spare.table = AnchorTable::new(&recent.anchors, spare.table.slots);
                bases.recycle(std::mem::replace(&mut spare.bytes, recent.bytes));
            }
            None => {
                if !bases.read(entry, may_decode, &mut spare.bytes)? {
                    self.spare.push(spare);
                    return Ok(None);
                }
                self.anchors.clear();
                self.sieve.scan(&spare.bytes, |anchor| {
                    self.anchors.push(anchor);
                    true
                });
                spare.table = AnchorTable::new(&self.anchors, spare.table.slots);
            }
        }
        let prepared = Arc::new(spare);
        let retired = &mut self.spare;
        self.prepared.put_and(entry, prepared.clone(), prepared.memory_bytes(), |old| {
            retired.extend(Arc::into_inner(old).filter(|_| retired.len() < SPARE_MAX));
        });
        Ok(Some(prepared))
    }

    /// Remembers the bases of a chunk, the most used first.
    fn remember(&mut self, matches: &[Match]) {
        let mut used: Vec<(u32, u64)> = Vec::new();
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
fn features(anchors: &[Anchor]) -> Vec<u64> {
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

/// Fills the gaps between `matches` (ascending) back from the matches behind them.
fn fill_gaps(chunk: &[u8], matches: &[Match], prepared: &[(u64, Arc<Prepared>)], bytes_min: usize) -> Vec<Match> {
    let mut out = Vec::with_capacity(matches.len());
    let mut end = 0;
    for behind in matches {
        let position = behind.position as usize;
        if position - end >= bytes_min
            && let Some((_, base)) = prepared.iter().find(|base| base.0 == behind.base)
        {
            Aligned::new(chunk, &base.bytes, behind, bytes_min).backward(end..position, &mut out);
        }
        out.push(*behind);
        end = position + behind.len as usize;
    }
    out
}

/// The longest match through an anchor, not before `covered`, and its base.
fn longest<'a>(
    chunk: &[u8],
    covered: usize,
    anchor: &Anchor,
    prepared: &'a [(u64, Arc<Prepared>)],
) -> Option<(Match, &'a Prepared)> {
    let position = anchor.position as usize;
    let (before, after) = (chunk.get(covered..position)?, chunk.get(position..)?);
    let mut best: Option<(Match, &Prepared)> = None;
    for (entry, base) in prepared {
        let Some(at) = base.table.find(anchor.hash as u32) else { continue };
        let Some((base_before, base_after)) = base.bytes.split_at_checked(at as usize) else { continue };
        let back = common_suffix_len(before, base_before) as u32;
        let len = back + common_prefix_len(after, base_after) as u32;
        if best.as_ref().is_none_or(|best| len > best.0.len) {
            best = Some((Match { position: anchor.position - back, base: *entry, offset: at - back, len }, base));
        }
    }
    best
}

impl Strategy for Anchors {
    fn wants_anchors(&self) -> bool {
        true
    }

    fn find(&mut self, chunk: &[u8], anchors: &[Anchor], bases: &mut Bases) -> Result<Found> {
        let features = features(anchors);
        let mut prepared = Vec::new();
        let chosen = self.choose(&features, bases);
        for (entry, shared) in &chosen {
            let may_decode = shared.count_ones() >= DECODE_FEATURES_MIN;
            prepared.extend(self.prepare(*entry, may_decode, bases)?.map(|base| (*entry, base)));
        }
        for entry in self.followers(&chosen, bases)? {
            prepared.extend(self.prepare(entry, false, bases)?.map(|base| (entry, base)));
        }
        let mut matches: Vec<Match> = Vec::new();
        let mut covered = 0;
        for anchor in anchors {
            if anchor.position as usize <= covered || prepared.is_empty() {
                continue;
            }
            let Some((found, base)) = longest(chunk, covered, anchor, &prepared) else { continue };
            if (found.len as usize) < self.copy_bytes_min {
                continue;
            }
            matches.push(found);
            let end = (found.position + found.len) as usize;
            Aligned::new(chunk, &base.bytes, &found, self.copy_bytes_min).forward(end..chunk.len(), &mut matches);
            covered = matches.last().map_or(end, |last| (last.position + last.len) as usize);
        }
        let matches = fill_gaps(chunk, &matches, &prepared, self.copy_bytes_min);
        self.remember(&matches);
        Ok(Found { matches, features })
    }
}
