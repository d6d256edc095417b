//! Choosing bases: which stored chunks a new chunk is compared with (ours).
//!
//! 1. *Similar entries*: up to 4 entries that share features with the chunk. Each must add features that the ones
//!    before it lack, so that versions of one chunk do not use up the bases.
//! 2. *Followers*: if these do not cover all features, up to 2 entries that were stored after the bases of the last
//!    chunk. They need no feature.
//! 3. *Budget*: an entry is recent if its neighbours were chosen or stored lately, so that its frames are probably in
//!    memory. Any other one takes a read from a budget per MiB of new chunks.
//! 4. *Worth*: an entry that shares 1 or 2 features, often only a licence text, and a follower must be fresh: recent by
//!    a stricter measure. Others are not worth the frames that are decoded for them.
//!
//! The choice depends on features and on the stream alone. So it is made before any base is read, and the workers of
//! Match read and compare the bases.

use std::sync::Arc;

use lru::LruCache;

use super::anchors::FEATURES;
use super::bases::{BaseChunk, Bases, Entries, SharedBases};
use super::candidates::Candidates;
use super::read_budget::ReadBudget;
use super::slices::Counterparts;
use super::slices::peaks::{PeakFeatures, is_exact};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::repo::container::{ContainerNumber, EntryAddress, EntryNumber, SessionEntryNumber};
use crate::repo::index::Locator;
use crate::repo::read::at_least_one;

/// Most candidates per feature.
const CANDIDATES_PER_FEATURE: usize = 8;
/// Fewest shared features for which an entry need not be fresh.
const READ_FEATURES_MIN: u32 = 3;
/// Most bases that follow the bases of the last chunk.
const FOLLOWERS: usize = 2;
/// Entries that count as neighbours, as a power of two. They share a few frames.
const REGION_POWER: u32 = 4;
/// Most counterparts of a block that share exact features of peaks, and near ones. Blocks that overlap have features of
/// their own, so some cover nothing more.
const EXACT_COUNTERPARTS: usize = 8;
const NEAR_COUNTERPARTS: usize = 4;
/// The bytes of similar chunks that are stored as literal bytes: one in this many.
const REGION_SHARE: u64 = 2;
/// Fresh regions: one of this many recent ones.
const FRESH_SHARE: usize = 4;

/// An entry that shares features with the chunk.
#[derive(Clone, Copy)]
struct SimilarEntry {
    entry: EntryNumber,
    /// Shared features: bit `i` for feature `i` of the chunk, of which there are at most 32.
    shared: u32,
    /// Position among the entries found. Equal entries count by it, because the newest is found first.
    found: usize,
}

/// Neighbouring entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EntryRegion {
    Stored(ContainerNumber, u32),
    Session(u64),
}

impl EntryRegion {
    /// Memory for the bases in a region, bytes, if chunks have `chunk_bytes_avg` on average.
    pub(super) fn bytes(chunk_bytes_avg: u64) -> u64 {
        ((chunk_bytes_avg << REGION_POWER) / REGION_SHARE).max(1)
    }

    /// The region of an entry.
    pub(super) fn of(entry: EntryNumber) -> Self {
        match entry.address() {
            EntryAddress::Stored { container, position } => EntryRegion::Stored(container, position >> REGION_POWER),
            EntryAddress::Session(number) => EntryRegion::Session(number.0 >> REGION_POWER),
        }
    }
}

/// Chooses the bases of each chunk (see the module).
pub struct Chooser {
    shared: Arc<SharedBases>,
    entries: Entries,
    candidates: Candidates,
    /// Most bases chosen by features.
    candidates_max: usize,
    /// Recent regions. In those of the session, bit `i` is set if entry `i` of the region may be a base.
    recent: LruCache<EntryRegion, u32>,
    /// Regions of entries that were stored, or chosen for enough shared features, not long ago.
    fresh: LruCache<EntryRegion, ()>,
    budget: ReadBudget,
    /// Entries chosen for the last chunk that had any, the best first.
    last_bases: Vec<EntryNumber>,
    /// Number of the next entry.
    next: SessionEntryNumber,
}

impl Chooser {
    /// A chooser among the entries that `bases` sees, for chunks of `chunk_bytes_avg` bytes on average. It finds chunks
    /// with `locator`, because it runs on another thread than that of `bases`.
    pub fn new(
        shared: Arc<SharedBases>,
        bases: &Bases,
        locator: Locator,
        candidates: Candidates,
        config: &SubdedupConfig,
        chunk_bytes_avg: u64,
    ) -> Self {
        let regions = config.base_cache_bytes.0 / EntryRegion::bytes(chunk_bytes_avg);
        Chooser {
            entries: bases.entries.sharing(locator, shared.extent_cache()),
            shared,
            candidates,
            candidates_max: config.candidates_max,
            recent: LruCache::new(at_least_one(regions as usize)),
            fresh: LruCache::new(at_least_one(regions as usize / FRESH_SHARE)),
            budget: ReadBudget::new(config.base_reads_per_mib),
            last_bases: Vec::new(),
            next: SessionEntryNumber::default(),
        }
    }

    /// Counts a new chunk that is neither compared nor a base.
    pub fn skip(&mut self, len: u32) {
        self.budget.grant(u64::from(len));
        self.next = self.next.plus(1);
    }

    /// The counterparts of the next new block of weights, which has these features of peaks. Later blocks may find this
    /// one.
    pub fn counterparts(&mut self, features: &PeakFeatures) -> Counterparts {
        if features.sought.is_empty() {
            return Counterparts::default();
        }
        let (exact, near) = features.sought.split_at(features.sought.partition_point(|feature| is_exact(*feature)));
        let similar = self.sharing(exact);
        let mut exact: Vec<EntryNumber> =
            self.best(&similar, EXACT_COUNTERPARTS).into_iter().map(|found| found.entry).collect();
        // An entry may have all of the block, and only features that parts of it have, too.
        let mut others: Vec<&SimilarEntry> = similar.iter().filter(|found| !exact.contains(&found.entry)).collect();
        others.sort_by_key(|found| (std::cmp::Reverse(found.shared.count_ones()), found.found));
        others.truncate(EXACT_COUNTERPARTS - exact.len());
        exact.extend(others.into_iter().map(|found| found.entry));
        let similar = self.sharing(near);
        let near = self.best(&similar, NEAR_COUNTERPARTS).into_iter().map(|found| found.entry);
        let near = near.filter(|entry| !exact.contains(entry)).collect();
        self.candidates.insert(self.next, &features.stored);
        Counterparts { exact, near }
    }

    /// The bases of a new chunk with these features, best first. If `is_base`, later chunks may be compared with it.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn choose(&mut self, features: &[u64], chunk: &Arc<BaseChunk>, is_base: bool) -> Result<Vec<EntryNumber>> {
        let len = chunk.bytes().len() as u32;
        self.budget.grant(u64::from(len));
        let similar = self.similar(features);
        let covered = similar.iter().fold(0, |all, entry| all | entry.shared).count_ones() as usize;
        let mut chosen: Vec<EntryNumber> = Vec::new();
        for entry in similar {
            if self.may_read(&entry) {
                chosen.push(entry.entry);
            }
        }
        let followers = if covered < FEATURES { self.followers(&chosen)? } else { Vec::new() };
        chosen.extend(followers);
        if !chosen.is_empty() {
            self.last_bases.clone_from(&chosen);
        }
        let number = self.next;
        self.next = number.plus(1);
        if is_base && SharedBases::may_hold(len) {
            self.candidates.insert(number, features);
            self.shared.pin(number, chunk.clone());
            let region = EntryRegion::of(EntryNumber::session(number));
            let bit = 1 << (number.0 & ((1 << REGION_POWER) - 1));
            *self.recent.get_or_insert_mut(region, || 0) |= bit;
            self.fresh.put(region, ());
        }
        Ok(chosen)
    }

    /// The entries that share features, best first. Each one shares the most features that those before it lack. Among
    /// equals, recent entries come first, then newer ones.
    fn similar(&mut self, features: &[u64]) -> Vec<SimilarEntry> {
        let similar = self.sharing(features);
        self.best(&similar, self.candidates_max)
    }

    /// All entries that share features.
    fn sharing(&mut self, features: &[u64]) -> Vec<SimilarEntry> {
        let mut similar: Vec<SimilarEntry> = Vec::new();
        self.candidates.find(features, CANDIDATES_PER_FEATURE, self.entries.resolver(), |feature, entry| {
            let found = similar.len();
            match similar.iter_mut().find(|known| known.entry == entry) {
                Some(known) => known.shared |= 1 << feature,
                None => similar.push(SimilarEntry { entry, shared: 1 << feature, found }),
            }
        });
        similar
    }

    /// At most `count_max` of these entries.
    fn best(&self, similar: &[SimilarEntry], count_max: usize) -> Vec<SimilarEntry> {
        let mut chosen: Vec<SimilarEntry> = Vec::new();
        let mut covered = 0;
        while chosen.len() < count_max {
            let gain = |found: &SimilarEntry| (found.shared & !covered).count_ones();
            let rank = |found: &&SimilarEntry| {
                let is_recent = self.recent.contains(&EntryRegion::of(found.entry));
                (gain(found), is_recent, found.entry.as_session(), std::cmp::Reverse(found.found))
            };
            let Some(best) = similar.iter().max_by_key(rank).filter(|best| gain(best) > 0) else { break };
            chosen.push(*best);
            covered |= best.shared;
        }
        chosen
    }

    /// Whether an entry is worth reading, and its frames are probably in memory or a read is allowed. Takes that from
    /// the budget.
    fn may_read(&mut self, entry: &SimilarEntry) -> bool {
        let region = EntryRegion::of(entry.entry);
        if entry.shared.count_ones() < READ_FEATURES_MIN {
            return self.fresh.contains(&region) && self.recent.get(&region).is_some();
        }
        if self.recent.get(&region).is_none() {
            if !self.budget.take() {
                return false;
            }
            self.recent.put(region, 0);
        }
        self.fresh.put(region, ());
        true
    }

    /// The entries stored after the bases of the last chunk.
    fn followers(&mut self, chosen: &[EntryNumber]) -> Result<Vec<EntryNumber>> {
        let mut followers = Vec::with_capacity(FOLLOWERS);
        for base in std::mem::take(&mut self.last_bases) {
            self.last_bases.push(base);
            if followers.len() < FOLLOWERS
                && let Some(next) = self.entries.following(base)?
                && self.is_fresh_base(next)
                && !chosen.contains(&next)
            {
                followers.push(next);
            }
        }
        Ok(followers)
    }

    /// Whether an entry is fresh and may be a base.
    fn is_fresh_base(&self, entry: EntryNumber) -> bool {
        let region = EntryRegion::of(entry);
        let Some(bases) = self.recent.peek(&region).filter(|_| self.fresh.contains(&region)) else { return false };
        entry.as_session().is_none_or(|number| bases >> (number.0 & ((1 << REGION_POWER) - 1)) & 1 == 1)
    }
}

#[cfg(test)]
#[path = "chooser_tests.rs"]
mod tests;
