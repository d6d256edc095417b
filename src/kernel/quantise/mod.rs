//! Quantise: blocks of GGML's quantised types from float values, as llama.cpp computes them.
//!
//! A block has scales and a code for each value. Blocks of 32 values follow from the values alone. Of the larger ones,
//! whose scales are the result of a search, the codes follow from the values and the scales. Each step is one operation
//! of IEEE 754 on 32 bits, rounded to nearest, ties to even; nothing depends on what a NaN looks like. docs/FORMAT.md
//! has every step.

mod block_type;
mod codes;
mod large;
mod scales;
mod small;
#[cfg(test)]
mod tests;

pub use block_type::{BlockType, ScaleSource};
pub use codes::unpack;
pub use scales::ScaleRows;

use super::dispatch::dispatch;

dispatch! {
    /// Fills `blocks` from `values`, FP32 and little-endian, up to the shorter of the two. Scales that are given are in
    /// the blocks; a source that the type does not have counts as given.
    pub fn quantise(block_type: BlockType, source: ScaleSource, values: &[u8], blocks: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => codes::quantise_loop,
    }
}

dispatch! {
    /// Fills rows of [`BlockType::row_bytes`] from the scales in `blocks`, or the other way round. A row has the
    /// differences of a block's scales from those that `values` suggest. Up to the shortest of the three.
    pub fn scale_rows(block_type: BlockType, direction: ScaleRows, values: &[u8], blocks: &mut [u8], rows: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => scales::scale_rows_loop,
    }
}
