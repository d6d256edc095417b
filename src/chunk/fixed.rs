//! `fixed`: a chunk boundary every `chunk_bytes_avg` bytes.
//!
//! The oldest chunker (Venti: Quinlan, Dorward, FAST 2002). It suits comparisons and files whose records do not move,
//! such as disk images. An insertion moves all later boundaries.

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

pub(super) struct FixedChunker {
    len: usize,
}

impl FixedChunker {
    pub(super) fn new(config: &RepositoryConfig) -> Self {
        FixedChunker { len: config.chunk_bytes_avg.0 as usize }
    }
}

impl Chunker for FixedChunker {
    fn cut(&self, bytes: &[u8], _: &mut Vec<Anchor>) -> usize {
        bytes.len().min(self.len)
    }
}
