//! Opened streams: deflate taken apart into plain content and corrections, and rebuilt bit for bit.
//!
//! 1. [`open_stream`] finds members (gzip, zip, PNG, zlib) and inflates them.
//! 2. It tries the compressors it knows on the first tokens, and takes the one that predicts them best.
//! 3. What the compressor would have done otherwise goes to the corrections, through a range coder.
//! 4. [`Rebuilder`] predicts the same tokens from the plain content, and writes the same bits.
//!
//! The decoder is transform 1 of docs/TRANSFORM-DEFLATE.md. It is frozen and depends on no library.

mod chains;
mod codes;
mod containers;
mod corrections;
mod deflate_writer;
mod directive;
mod finders;
mod framer;
mod go_fast;
#[cfg(test)]
mod hostile_tests;
mod huffman;
mod inflate;
mod input;
mod lazy;
#[cfg(test)]
mod made_streams_tests;
mod medium;
mod member;
mod miniz;
mod open;
mod predictor;
mod queue;
mod range_coder;
mod rebuild;
#[cfg(test)]
mod round_trip_tests;
mod symbols;
mod trial;
#[cfg(test)]
mod vectors_tests;

pub use containers::looks_open;
pub use open::{OpenLimits, OpenedSummary, open_stream};
pub use rebuild::Rebuilder;
