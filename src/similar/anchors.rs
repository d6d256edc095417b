//! Anchors (ours): similar chunks by min-hash, and ranges of them by anchors, exact to the byte.
//!
//! 1. *Features*: the 8 smallest anchor hashes of a chunk (min-wise sampling, Broder 1997).
//! 2. *Bases*: stored chunks that share features, and those that were stored after them ([`Chooser`](super::Chooser)).
//! 3. *Edges*: the chunk is compared with the best base, from the first bytes forward and from the last bytes back. If
//!    that covers nearly all of the chunk, the search ends: no other base is read and no anchor is looked up.
//! 4. *Matches*: every anchor of the chunk is looked up among the anchors of the bases. A hit is extended byte by byte
//!    in both directions, and the longest one is used.
//! 5. *Gaps*: the bytes between two matches are compared at the distance of the match before and of the match after
//!    ([`Aligned`](super::aligned::Aligned)).
//! 6. *Long matches*: if the chunk proves repetitive ([`RateSampler`]), long matches alone are sought.
//!
//! Steps 3 to 6 are a pure function of a chunk, its bases and the chunks before it in its batch. Workers do them.

use std::sync::Arc;

use super::anchor_matches::{LoadedBase, anchor_matches, edge_matches, is_nearly_covered};
use super::bases::{BaseChunk, WorkerBases};
use super::price::{LiteralRate, RateSampler};
use super::{HASH_MASK, Match, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kernel::sieve::{Anchor, Sieve};
use crate::repo::container::EntryNumber;

/// Multiplier whose products order the hashes.
const ORDER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Features of a chunk.
pub const FEATURES: usize = 8;

/// Finds ranges of several similar chunks.
pub struct AnchorMatcher {
    bases: WorkerBases,
    sieve: Sieve,
    /// Shortest copy.
    copy_bytes_min: usize,
    rates: RateSampler,
}

impl AnchorMatcher {
    /// A matcher that reads `bases`, with the limits of `config`; `seed` keys the sieve that finds anchors.
    pub fn new(bases: WorkerBases, config: &SubdedupConfig, seed: u64) -> Self {
        AnchorMatcher {
            bases,
            sieve: Sieve::new(seed),
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            rates: RateSampler::default(),
        }
    }

    /// Starts a new batch, whose chunks take no rate from the chunks before it.
    pub fn next_batch(&mut self) {
        self.rates.forget();
    }

    /// Finds ranges of `chunk` in the chunks of `entries`, the best first.
    ///
    /// # Errors
    /// Only errors that fail the run. A base that cannot be read is skipped.
    pub fn find(&mut self, chunk: &BaseChunk, features: Vec<u64>, entries: &[EntryNumber]) -> Result<StrategyOutput> {
        let bytes = chunk.bytes();
        if let Some(matches) = self.nearly_covered(bytes, entries)? {
            let (rate, match_bytes_min) = self.worth(bytes, &matches)?;
            let long = matches.iter().copied().filter(|found| found.len as usize >= match_bytes_min);
            if match_bytes_min == self.copy_bytes_min || is_nearly_covered(bytes.len(), &long.collect::<Vec<_>>()) {
                return Ok(StrategyOutput { matches, features, rate: Some(rate) });
            }
        }
        let mut read: Vec<(EntryNumber, Arc<BaseChunk>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            read.extend(self.bases.chunk(*entry)?.map(|base| (*entry, base)));
        }
        let bases: Vec<LoadedBase<'_>> = read
            .iter()
            .map(|(entry, base)| LoadedBase { entry: *entry, bytes: base.bytes(), anchors: base.table(&self.sieve) })
            .collect();
        let anchors = chunk.anchors().unwrap_or_default();
        let text_min =
            if bases.is_empty() { 0 } else { self.rates.text_match_bytes_min(bytes, self.copy_bytes_min)? };
        let searched_min = self.copy_bytes_min.max(text_min);
        let mut matches = anchor_matches(bytes, anchors, &bases, searched_min);
        let (rate, match_bytes_min) = self.worth(bytes, &matches)?;
        if match_bytes_min > searched_min {
            matches = anchor_matches(bytes, anchors, &bases, match_bytes_min);
        }
        Ok(StrategyOutput { matches, features, rate: Some(rate) })
    }

    /// The edge matches with the first entry, if they cover nearly all of the chunk. That is so when the chunk differs
    /// in few bytes and in one insertion or deletion.
    fn nearly_covered(&mut self, chunk: &[u8], entries: &[EntryNumber]) -> Result<Option<Vec<Match>>> {
        let Some(first) = entries.first() else { return Ok(None) };
        let Some(base) = self.bases.chunk(*first)? else { return Ok(None) };
        let matches = edge_matches(chunk, base.bytes(), *first, self.copy_bytes_min);
        Ok(is_nearly_covered(chunk.len(), &matches).then_some(matches))
    }

    /// The literal rate of `chunk`, and the length from which on matches are worth searching for.
    fn worth(&mut self, chunk: &[u8], matches: &[Match]) -> Result<(LiteralRate, usize)> {
        let rate = self.rates.rate(chunk, matches)?;
        Ok((rate, self.rates.match_bytes_min(chunk, rate, self.copy_bytes_min)?))
    }
}

/// Features of a chunk: the anchor hashes that come first in a pseudo-random order of all hashes. The smallest hashes
/// themselves would crowd into one corner of the similarity index.
pub fn features(anchors: &[Anchor]) -> Vec<u64> {
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
