//! Distance: in how many bits the values of two models differ, exactly.
//!
//! 1. Each tensor of one model is paired with a tensor of the other: by name, or else by shape and order (`pairs`).
//! 2. Both tensors of a pair are read in batches, and the differing bits of every value are counted (`bit_tally`).
//!    Floats of different types are compared in the one with the shorter fraction (to nearest, ties to even), quantised
//!    blocks with what the floats give with the scales of the blocks.
//! 3. The counts are summed by type. Whether the models are of one family is decided as for `models`, from all values
//!    instead of a sample ([`crate::model::Relation`]).

mod bit_tally;
mod compare;
mod open_model;
mod pairs;

pub use bit_tally::{BitField, BitTally};
pub use compare::{Distance, LeftOut, TypeDistance, distance};
pub use open_model::{OpenModel, SnapshotModels};
