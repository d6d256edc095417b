//! Quantise: blocks of GGML's quantised types from float values, as llama.cpp computes them.
//!
//! A block has scales and a code for each value. Blocks of 32 values follow from the values alone. Of the larger ones,
//! whose scales are the result of a search, the codes follow from the values and the scales. Each step is one operation
//! of IEEE 754 on 32 bits, rounded to nearest, ties to even; nothing depends on what a NaN looks like. docs/FORMAT.md
//! has every step.

mod block_type;
mod codes;
mod large;
mod small;
#[cfg(test)]
mod tests;

pub use block_type::{BlockType, ScaleSource};
pub use codes::unpack;

use super::dispatch::dispatch;

dispatch! {
    /// Fills `blocks` from `values`, FP32 and little-endian, up to the shorter of the two. Scales that are given are in
    /// the blocks; a source that the type does not have counts as given.
    pub fn quantise(block_type: BlockType, source: ScaleSource, values: &[u8], blocks: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => codes::quantise_loop,
    }
}
