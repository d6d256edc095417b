//! `gear-xet`: the chunk boundaries of Hugging Face's Xet storage.
//!
//! 1. The gear hash (`h = 2 h + table[byte]`, the table of the `gearhash` crate) restarts at each chunk. It depends on
//!    the last 64 bytes, so hashing starts 65 bytes before the smallest length.
//! 2. A chunk ends where the top `log2(average)` bits of the hash are zero, between the smallest and the largest
//!    length. Otherwise it ends at the largest length.
//!
//! Sources: the protocol's specification ("Content-Defined Chunking Algorithm", huggingface.co/docs/xet/chunking) and
//! the client (huggingface/xet-core, `deduplication/src/chunking.rs`). The tests assert the client's test vectors.
//! Early clients could end a chunk up to 64 bytes below the smallest length, because their hash saw less than its
//! window. The specification, later clients and this chunker do not. Xet's limits are 8, 64 and 128 KiB.
//!
//! The table is public and has no key: whoever has the same content can recognise it by its chunk lengths.

use gearhash::Hasher;

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

/// Bytes hashed before the smallest length: one more than the hash's window.
const WARM_UP_BYTES: usize = 65;

pub(super) struct GearXet {
    min: usize,
    max: usize,
    mask: u64,
}

impl GearXet {
    /// Requires an average length that is a power of two.
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
