//! Cutters: where opaque bytes are divided into chunks.
//!
//! A cutter sees the bytes from a chunk's start and says where it ends; it keeps no state, so what is cut depends on
//! the bytes alone.

pub mod classify;
mod fastcdc;
mod fixed;
mod gear_xet;
mod sieve;
#[cfg(test)]
mod tests;
mod ultracdc;

use crate::config::{ChunkerKind, RepositoryConfig};
use crate::kernel::sieve::Anchor;

/// Where chunks end.
pub trait Chunker: Send {
    /// Length of the first chunk of `bytes`, which are not empty. Where it is all of them, and less than the largest
    /// chunk, more bytes may make it longer, unless the file ends there; otherwise what follows has no influence. A
    /// cutter that finds anchors on the way appends those of the chunk.
    fn cut(&self, bytes: &[u8], anchors: &mut Vec<Anchor>) -> usize;

    /// Whether `cut` gives anchors.
    fn gives_anchors(&self) -> bool {
        false
    }
}

/// The cutter that the configuration names; `seed` keys those that have a key.
pub fn chunker(config: &RepositoryConfig, seed: u64) -> Box<dyn Chunker> {
    match config.chunker {
        ChunkerKind::Sieve => Box::new(sieve::SieveChunker::new(config, seed)),
        ChunkerKind::FastCdc => Box::new(fastcdc::FastCdc::new(config, seed)),
        ChunkerKind::GearXet => Box::new(gear_xet::GearXet::new(config)),
        ChunkerKind::UltraCdc => Box::new(ultracdc::UltraCdc::new(config)),
        ChunkerKind::Fixed => Box::new(fixed::FixedChunker::new(config)),
    }
}
