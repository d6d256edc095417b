//! Delta: a chunk encoded against a base, in the smallest of several modes.
//!
//! A payload starts with its mode:
//!
//! | mode | then | tried for |
//! |---|---|---|
//! | 0 same | nothing: the chunk is a prefix of the base | always |
//! | 1 standalone | a [`super::floats`] payload | a base that does not seem to help |
//! | 2 XOR | a zstd frame of the XOR of chunk and base | few changes, repeats |
//! | 3 context | differences of elements as tokens, see `context` | floats of 2 and 4 bytes |
//! | 4 masked | a mask of changed element groups, and these groups as in mode 3 | few changes |
//! | 5 planes | a [`super::floats`] payload of the XOR of chunk and base | bytes, FP64, BF16 in FP32 |
//! | 6 differences | a [`super::floats`] payload of the byte differences | bytes, BF16 in FP32 |
//! | 7 pruned | a mask of elements that became zero, and the others in another mode | many elements became zero |
//! | 8 classes | differences of bytes or nibbles by those of the base, see `classes` | bytes |
//! | 9 sparse | gaps between changed elements, and these elements, see `sparse` | few changes |
//! | 10 listing | what became of the nodes of a directory listing, see `listing` | [`encode_listing`] only |
//!
//! In modes 1, 2, 5 and 6 a base shorter than the chunk is padded with zeros. Modes 3, 4 and 9 encode the whole
//! elements that both have. A rest shorter than an element is stored at the end of the payload. For a longer rest,
//! the length of the mode's own bytes (varint) follows the mode, and a [`super::floats`] payload of the rest ends the
//! payload. In mode 7 the rest follows the elements that are not left out.
//!
//! The payload of a cast starts with one more byte, the conversion of the base's elements: 0 exact, or rounded to
//! nearest with ties to even; 1 truncated. The rest is a payload against the converted base. Quantised blocks are made
//! from the base in a similar way, see `quantised`, as are codes by scales, see `scaled`, elements of other float
//! formats, see `converted`, and means of two bases, see `blended`.

mod blended;
#[cfg(test)]
mod blended_tests;
mod bytes;
mod cast;
mod classes;
#[cfg(test)]
mod classes_tests;
mod context;
mod converted;
#[cfg(test)]
mod converted_tests;
mod derivation;
mod elements;
mod float_source;
mod listing;
mod listing_column;
mod listing_node;
#[cfg(test)]
mod listing_tests;
mod masked;
mod payload;
mod pruned;
#[cfg(test)]
mod pruned_tests;
mod quantised;
#[cfg(test)]
mod quantised_tests;
mod scaled;
mod scaled_choice;
mod scaled_fit;
mod scaled_sample;
#[cfg(test)]
mod scaled_tests;
mod sparse;
#[cfg(test)]
mod sparse_tests;
mod tagged;
#[cfg(test)]
mod tests;
mod tile_grid;

pub use blended::Blended;
pub use cast::Cast;
pub use classes::BlockGrid;
pub use converted::Converted;
pub use derivation::Derivation;
pub use listing::encode_listing;
pub use payload::{apply, decode, encode};
pub use quantised::Quantised;
pub use scaled::Scaled;
pub use scaled_fit::{CodePacking, following};
pub use tagged::{apply_tagged, decode_tagged, encode_tagged};

use crate::kernel::windows::WindowTable;

/// Name of a payload in errors.
const WHAT: &str = "delta payload";

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct DeltaBuffers {
    classes: classes::ClassBuffers,
    context: context::ContextBuffers,
    masked: masked::MaskedBuffers,
    pruned: pruned::PrunedBuffers,
    quantised: quantised::QuantisedBuffers,
    scaled: scaled::ScaledBuffers,
    sparse: sparse::SparseBuffers,
    combined: Vec<u8>,
    converted: Vec<u8>,
    second: Vec<u8>,
    wide: Vec<u8>,
    trial: Vec<u8>,
    windows: WindowTable,
}
