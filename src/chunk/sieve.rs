//! `sieve`: cuts at anchors whose hash is small for the distance to the anchor before.
//!
//! 1. Anchors are found from the chunk's start on. Those before the smallest length serve sub-block deduplication.
//! 2. From the smallest length on an anchor ends the chunk with a probability that is proportional to the bytes since
//!    the anchor before it (or since the smallest length): the upper half of its hash lies under a fixed rate times
//!    these bytes. So a byte adds the same chance in every kind of content, whether anchors are 270 bytes apart (random
//!    bytes) or 450 (source code), and about the average that is configured comes out. Where bytes without anchors end,
//!    such as padding, a cut is likely.
//! 3. At the largest length a chunk ends.
//!
//! Similarity goes by the lower 48 bits of hashes, about which the bits that decide say little. Lengths spread as
//! random distances do: a second rate, stricter before the average and laxer beyond (FastCDC's normalised chunking: Xia
//! et al., USENIX ATC 2016), found fewer equal chunks at the same average on source code and file systems.

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::{Anchor, Sieve};

pub(super) struct SieveChunker {
    sieve: Sieve,
    min: usize,
    max: usize,
    /// Chance of a cut that each byte adds, in units of 2^-32.
    rate: u64,
}

impl SieveChunker {
    pub(super) fn new(config: &RepositoryConfig, seed: u64) -> Self {
        let (min, avg) = (config.chunk_bytes_min.0, config.chunk_bytes_avg.0);
        // Repeated content has few hashes to choose from, so real chunks are longer than random ones: a sixth less.
        let span = avg.saturating_sub(min) * 5 / 6;
        SieveChunker {
            sieve: Sieve::new(seed),
            min: min as usize,
            max: config.chunk_bytes_max.0 as usize,
            rate: (1 << 32) / span.max(1),
        }
    }
}

impl Chunker for SieveChunker {
    fn cut(&self, bytes: &[u8], anchors: &mut Vec<Anchor>) -> usize {
        let mut end = bytes.len().min(self.max);
        let mut before = self.min;
        self.sieve.scan(bytes.get(..end).unwrap_or_default(), |anchor| {
            anchors.push(anchor);
            let position = anchor.position as usize;
            let Some(distance) = position.checked_sub(before) else { return true };
            before = position;
            let cuts = anchor.hash >> 32 < self.rate * distance as u64;
            if cuts {
                end = position;
            }
            !cuts
        });
        end
    }

    fn gives_anchors(&self) -> bool {
        true
    }
}
