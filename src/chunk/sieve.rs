//! `sieve`: a chunk ends at an anchor whose hash is small for its distance to the previous anchor.
//!
//! 1. Find anchors from the chunk's start on. Anchors before the smallest length serve sub-block deduplication only.
//! 2. After the smallest length, compare the upper half of each anchor's hash with a fixed rate times the bytes since
//!    the previous anchor (or since the smallest length). A smaller hash ends the chunk.
//! 3. End the chunk at the largest length at the latest.
//!
//! Each byte adds the same chance of a boundary in every kind of content: anchors are 270 bytes apart in random bytes
//! and 450 in source code, and both give about the configured average. The first anchor after bytes without anchors,
//! such as padding, is likely to end the chunk.
//!
//! Similarity uses the lower 48 bits of the hashes, which say little about the upper half. Chunk lengths spread like
//! random distances. A second rate, stricter before the average and laxer beyond it (FastCDC's normalised chunking: Xia
//! et al., USENIX ATC 2016), found fewer equal chunks at the same average in source code and file systems.

use super::{AnchorChunker, Chunker};
use crate::config::RepositoryConfig;
use crate::kernel::sieve::{Anchor, Sieve};

pub(super) struct SieveChunker {
    sieve: Sieve,
    min: usize,
    max: usize,
    /// Chance of a boundary that each byte adds, in units of 2^-32.
    rate: u64,
}

impl SieveChunker {
    pub(super) fn new(config: &RepositoryConfig, seed: u64) -> Self {
        let (min, avg) = (config.chunk_bytes_min.0, config.chunk_bytes_avg.0);
        // Real content repeats, offers fewer hashes and gives longer chunks than random bytes: aim a sixth lower.
        let span = avg.saturating_sub(min) * 5 / 6;
        SieveChunker {
            sieve: Sieve::new(seed),
            min: min as usize,
            max: config.chunk_bytes_max.0 as usize,
            rate: (1 << 32) / span.max(1),
        }
    }
}

impl SieveChunker {
    /// Whether the chunk ends at `anchor`. `previous` is the anchor before, or the smallest length.
    fn ends_at(&self, anchor: &Anchor, previous: &mut usize) -> bool {
        let position = anchor.position as usize;
        let Some(distance) = position.checked_sub(*previous) else { return false };
        *previous = position;
        anchor.hash >> 32 < self.rate * distance as u64
    }
}

impl Chunker for SieveChunker {
    fn cut(&self, bytes: &[u8], anchors: &mut Vec<Anchor>) -> usize {
        let mut end = bytes.len().min(self.max);
        let mut previous = self.min;
        self.sieve.scan(bytes.get(..end).unwrap_or_default(), |anchor| {
            anchors.push(anchor);
            let ends_chunk = self.ends_at(&anchor, &mut previous);
            if ends_chunk {
                end = anchor.position as usize;
            }
            !ends_chunk
        });
        end
    }

    fn by_anchors(&self) -> Option<&dyn AnchorChunker> {
        Some(self)
    }
}

impl AnchorChunker for SieveChunker {
    fn scan(&self, bytes: &[u8]) -> Vec<Anchor> {
        self.sieve.anchors(bytes)
    }

    fn cut_scanned(&self, len: usize, scanned: &mut dyn Iterator<Item = Anchor>, anchors: &mut Vec<Anchor>) -> usize {
        let end = len.min(self.max);
        let mut previous = self.min;
        for anchor in scanned.take_while(|anchor| anchor.position as usize <= end) {
            anchors.push(anchor);
            if self.ends_at(&anchor, &mut previous) {
                return anchor.position as usize;
            }
        }
        end
    }
}
