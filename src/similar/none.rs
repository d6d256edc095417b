//! None: every new chunk is stored whole. Only equal chunks are deduplicated.

use super::bases::Bases;
use super::{Strategy, StrategyOutput};
use crate::error::Result;

/// The strategy that finds nothing, the baseline of comparisons.
pub struct WholeChunks;

impl Strategy for WholeChunks {
    fn wants_bases(&self) -> bool {
        false
    }

    fn find(&mut self, _: &[u8], _: &mut Bases) -> Result<StrategyOutput> {
        Ok(StrategyOutput::default())
    }
}
