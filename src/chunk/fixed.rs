//! `fixed`: cuts every `chunk_bytes_avg` bytes.
//!
//! The oldest cutter (Venti: Quinlan, Dorward, FAST 2002), for comparison and for files whose records keep their
//! places, such as disk images. An insertion moves all cuts behind it.

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
