//! Sub-block deduplication of ordinary chunks: strategies that find ranges of a new chunk in chunks stored before.
//!
//! A strategy says which bytes of a chunk are copies of which base; one encoder turns that into pieces, one decoder
//! ([`crate::repo::container::resolve`]) reads them, whatever the strategy.

mod aligned;
mod anchor_table;
mod anchors;
mod base_cache;
mod bases;
mod bidirectional;
mod burst;
mod candidates;
mod capping;
mod delta;
mod encode;
mod ring;
mod sub_blocks;
mod superfeature;
mod uniform;

pub use anchors::Anchors;
pub use bases::Bases;
pub use burst::Burst;
pub use candidates::Candidates;
pub use delta::DeltaMatcher;
pub use encode::{EncodedChunk, encode};
pub use ring::{Ring, SessionEntry};
pub use sub_blocks::{SubBlock, SubBlockLayout, SubBlocks};
pub use superfeature::Superfeature;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::{StrategyKind, SubdedupConfig};
use crate::error::Result;
use crate::kernel::sieve::Anchor;
use crate::repo::container::EntryNumber;

/// The bits of a feature that are its hash; eight bits of position lie above them.
pub const HASH_MASK: u64 = (1 << 48) - 1;

/// A range of the new chunk that equals a range of a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Offset in the new chunk.
    pub position: u32,
    /// Entry number of the base.
    pub base: EntryNumber,
    /// Offset in the base.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// What a strategy found.
#[derive(Debug, Default)]
pub struct StrategyOutput {
    /// Ascending, not overlapping.
    pub matches: Vec<Match>,
    /// Features under which later chunks find this one: 48 bits of hash, above them 8 bits of position.
    pub features: Vec<u64>,
}

/// Finds duplicates below the chunk.
pub trait Strategy: Send {
    /// Whether it wants the anchors of each new chunk.
    fn wants_anchors(&self) -> bool {
        false
    }

    /// Whether it looks into bases at all.
    fn wants_bases(&self) -> bool {
        true
    }

    /// Looks for ranges of `chunk` in the chunks that `bases` offers. `anchors` are those of the chunk, empty for a
    /// strategy that does not ask for them.
    ///
    /// # Errors
    /// Only when the run is failing; a base that cannot be read is no base.
    fn find(&mut self, chunk: &[u8], anchors: &[Anchor], bases: &mut Bases) -> Result<StrategyOutput>;
}

/// Stores every new chunk whole (BASE: exact deduplication only).
pub struct Whole;

impl Strategy for Whole {
    fn wants_bases(&self) -> bool {
        false
    }

    fn find(&mut self, _: &[u8], _: &[Anchor], _: &mut Bases) -> Result<StrategyOutput> {
        Ok(StrategyOutput::default())
    }
}

/// The strategy that the configuration names; `seed` keys its hashes, `anchor_seed` the sieve.
pub fn strategy(config: &SubdedupConfig, seed: u64, anchor_seed: u64) -> Box<dyn Strategy> {
    // A repository may be written by several strategies in turn: each hashes under a key of its own.
    let own_seed = xxh3_64_with_seed(config.strategy.name().as_bytes(), seed);
    let (chunk_bytes_min, copy_bytes_min) = (config.chunk_bytes_min.0 as usize, config.copy_bytes_min.0 as usize);
    let candidates_max = config.candidates_max;
    let sub_blocks = |layout, seed| SubBlocks {
        layout,
        extend_matches: config.extend_matches,
        chunk_bytes_min,
        copy_bytes_min,
        candidates_max,
        seed,
    };
    match config.strategy {
        StrategyKind::None => Box::new(Whole),
        StrategyKind::Burst => Box::new(Burst { chunk_bytes_min, copy_bytes_min, candidates_max, seed: own_seed }),
        StrategyKind::Uniform => Box::new(sub_blocks(uniform::layout, own_seed)),
        StrategyKind::Bidirectional => Box::new(sub_blocks(bidirectional::layout, seed)),
        StrategyKind::Superfeature => {
            Box::new(Superfeature::new(chunk_bytes_min, copy_bytes_min, candidates_max, own_seed))
        }
        StrategyKind::Anchors => Box::new(Anchors::new(config, anchor_seed)),
    }
}
