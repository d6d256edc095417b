//! Chunkers: they divide opaque bytes into chunks.
//!
//! A chunker takes the bytes from a chunk's start and returns the chunk's length. It has no state, so chunk boundaries
//! depend on the bytes alone.
//!
//! A new chunker is one file here, one line in the table of [`ChunkerKind`] and one arm of [`chunker`].

pub mod classify;
mod fastcdc;
mod fixed;
pub mod floats_like;
mod gear_xet;
pub mod plain;
mod sieve;
#[cfg(test)]
mod tests;
pub mod text;
mod ultracdc;

use crate::config::{ChunkerKind, RepositoryConfig};
use crate::kernel::sieve::Anchor;

/// Finds the chunk boundaries of a file.
pub trait Chunker: Send {
    /// Returns the length of the first chunk of `bytes`, which must not be empty.
    ///
    /// A length below `bytes.len()`, or of the largest chunk, is final: later bytes do not change it. Otherwise the
    /// chunk may grow when the file goes on. A chunker that finds anchors appends the chunk's anchors to `anchors`.
    fn cut(&self, bytes: &[u8], anchors: &mut Vec<Anchor>) -> usize;

    /// The same chunker by anchors alone, if it cuts by them. [`Self::cut`] then appends anchors.
    fn by_anchors(&self) -> Option<&dyn AnchorChunker> {
        None
    }
}

/// A chunker that cuts by anchors alone, so that several workers can find them.
pub trait AnchorChunker {
    /// The anchors of `bytes`, ascending. Those of a chunk are the ones that are at least
    /// [`WINDOW_BYTES`](crate::kernel::sieve::WINDOW_BYTES) behind its start.
    fn scan(&self, bytes: &[u8]) -> Vec<Anchor>;

    /// Does what [`Chunker::cut`] does, for `len` bytes from the chunk's start on. `scanned` gives their anchors,
    /// ascending.
    fn cut_scanned(&self, len: usize, scanned: &mut dyn Iterator<Item = Anchor>, anchors: &mut Vec<Anchor>) -> usize;
}

/// Creates the configured chunker; `seed` keys the chunkers that have a key.
pub fn chunker(config: &RepositoryConfig, seed: u64) -> Box<dyn Chunker> {
    match config.chunker {
        ChunkerKind::Sieve => Box::new(sieve::SieveChunker::new(config, seed)),
        ChunkerKind::FastCdc => Box::new(fastcdc::FastCdc::new(config, seed)),
        ChunkerKind::GearXet => Box::new(gear_xet::GearXet::new(config)),
        ChunkerKind::UltraCdc => Box::new(ultracdc::UltraCdc::new(config)),
        ChunkerKind::Fixed => Box::new(fixed::FixedChunker::new(config)),
    }
}

/// UltraCDC with the configured lengths and its paper's masks, which do not follow the lengths. For comparisons.
pub fn ultracdc_with_papers_masks(config: &RepositoryConfig) -> Box<dyn Chunker> {
    Box::new(ultracdc::UltraCdc::with_papers_masks(config))
}
