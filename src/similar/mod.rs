//! Sub-block deduplication of opaque chunks: strategies that find ranges of a new chunk in stored chunks.
//!
//! 1. A [`Strategy`] finds which ranges of a chunk equal ranges of which bases. For anchors, a [`Chooser`] chooses the
//!    bases first, and an [`AnchorMatcher`] of each worker finds the ranges. Sub-blocks have a [`SubBlockHasher`], a
//!    [`SubBlockChooser`] and a [`SubBlockMatcher`].
//! 2. [`Encoder`] turns these matches into copy and add operations where they pay, and bounds the depth of the chain.
//! 3. [`crate::repo::container`] resolves operations to literal bytes. It does not depend on the strategy.
//! 4. Blocks of weights are found by peaks ([`PeakFinder`]) and compared by a [`SliceSearch`].
//!
//! A new strategy is one file here, one line in the table of [`StrategyKind`] and one arm of [`strategy`].

mod aligned;
mod anchor_matches;
mod anchor_table;
mod anchors;
mod base_cache;
mod bases;
mod bidirectional;
mod burst;
mod candidates;
mod capping;
mod chooser;
mod delta;
mod encode;
mod head_only;
mod none;
mod price;
mod read_budget;
mod ring;
mod slices;
mod sub_blocks;
mod superfeature;
mod uniform;

pub use anchors::{AnchorMatcher, features};
pub use bases::{BaseChunk, Bases, SharedBases, WorkerBases, base_problem};
pub use burst::Burst;
pub use candidates::Candidates;
pub use chooser::Chooser;
pub use delta::DeltaMatcher;
pub use encode::{EncodeBounds, EncodedChunk, Encoder};
pub use none::WholeChunks;
pub use price::LiteralRate;
pub use ring::SessionEntry;
pub use slices::*;
pub use sub_blocks::{FoundSubBlock, HashedSubBlock, SubBlockChooser, SubBlockHasher, SubBlockMatcher};
pub use superfeature::Superfeature;

pub use crate::repo::index::similarity::HASH_MASK;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::{StrategyKind, SubdedupConfig};
use crate::error::Result;
use crate::repo::container::EntryNumber;

/// A range of the new chunk that equals a range of a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Offset in the new chunk.
    pub position: u32,
    /// Entry number of the base.
    pub base: EntryNumber,
    /// Offset in the base.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A range of a base.
#[derive(Debug, Clone, Copy)]
pub struct BaseRange {
    /// Entry number of the base.
    pub entry: EntryNumber,
    /// Offset in the base.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Matches and features of one chunk.
#[derive(Debug, Default)]
pub struct StrategyOutput {
    /// Matches in ascending order, without overlap.
    pub matches: Vec<Match>,
    /// Features by which later chunks find this one: 48 bits of hash, and 8 bits of position code above them.
    pub features: Vec<u64>,
    /// The literal rate, if the strategy knows it.
    pub rate: Option<LiteralRate>,
}

/// Finds duplicates below the chunk, one chunk after the other: those of BURST+ and Odess.
pub trait Strategy: Send {
    /// Whether the strategy reads bases.
    fn wants_bases(&self) -> bool {
        true
    }

    /// Finds ranges of `chunk` in the chunks of `bases`. A base that cannot be read is skipped.
    ///
    /// # Errors
    /// Only errors that fail the run.
    fn find(&mut self, chunk: &[u8], bases: &mut Bases) -> Result<StrategyOutput>;
}

/// Creates the configured strategy; `seed` keys its hashes. `None` for those that other threads find ahead: anchors
/// ([`Chooser`], [`AnchorMatcher`]), and sub-blocks ([`SubBlockHasher`], [`SubBlockChooser`], [`SubBlockMatcher`]).
pub fn strategy(config: &SubdedupConfig, seed: u64) -> Option<Box<dyn Strategy>> {
    // Runs with different strategies share one similarity index, so each strategy hashes with a key of its own.
    let own_seed = xxh3_64_with_seed(config.strategy.name().as_bytes(), seed);
    Some(match config.strategy {
        StrategyKind::None => Box::new(WholeChunks),
        StrategyKind::Burst => Box::new(Burst::new(config, own_seed)),
        StrategyKind::Superfeature => Box::new(Superfeature::new(config, own_seed)),
        StrategyKind::Anchors | StrategyKind::Uniform | StrategyKind::HeadOnly | StrategyKind::Bidirectional => {
            return None;
        }
    })
}
