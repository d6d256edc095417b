//! Finds the anchors of what was read, in the workers that read it.

use super::message::ReadItem;
use crate::chunk::{Chunker, chunker};
use crate::config::RepositoryConfig;
use crate::repo::Repository;

/// Names the seed of the chunker, which the key gives.
pub const CHUNKER_SEED: &str = "chunker";
/// Bytes of an item that is scanned, at most: positions are 32-bit numbers.
const SCANNED_BYTES_MAX: usize = 1 << 30;

/// Bytes of data for each anchor, at least. Random bytes have one in 270.
const ANCHOR_BYTES_MIN: usize = 64;

/// Finds anchors with the chunker of a repository.
pub struct AnchorScanner(Box<dyn Chunker>);

impl AnchorScanner {
    /// For the chunks of a repository.
    pub fn of(repository: &Repository) -> Self {
        Self::new(&repository.config, repository.key.seed(CHUNKER_SEED))
    }

    /// For the chunker of `config` with this seed.
    pub fn new(config: &RepositoryConfig, seed: u64) -> Self {
        AnchorScanner(chunker(config, seed))
    }

    /// Adds the anchors to the data among these items of a file that is no model, if the chunker cuts by them.
    pub fn scan(&self, items: &mut [ReadItem]) {
        let Some(chunker) = self.0.by_anchors() else { return };
        for item in items {
            if let ReadItem::Data(bytes) = item
                && bytes.len() <= SCANNED_BYTES_MAX
            {
                let mut anchors = chunker.scan(bytes);
                // Batches are weighed without anchors. Crafted data has one in 16 bytes.
                if anchors.len() <= bytes.len() / ANCHOR_BYTES_MIN + 1 {
                    anchors.shrink_to_fit();
                    *item = ReadItem::Scanned(std::mem::take(bytes), anchors);
                }
            }
        }
    }
}
