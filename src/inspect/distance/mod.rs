//! Distance: in how many bits the values of two models differ, exactly.
//!
//! 1. Each tensor of one model is paired with a tensor of the other: by name, or else by shape and order (`pairs`).
//! 2. Both tensors of a pair are read in batches, and the differing bits of every value are counted (`bit_tally`). FP32
//!    is rounded to BF16 or FP16 to compare with these types (to nearest, ties to even).
//! 3. The counts are summed by type. ZipLLM (section 4.2) takes two BF16 models as one family if their values differ in
//!    fewer than [`THRESHOLD`] bits on average. FP32 is rounded to BF16 for that test.

mod bit_tally;
mod compare;
mod open_model;
mod pairs;

pub use bit_tally::{BitField, BitTally};
pub use compare::{Distance, LeftOut, THRESHOLD, TypeDistance, distance};
pub use open_model::{OpenModel, SnapshotModels};
