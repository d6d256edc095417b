//! Codecs: reversible transforms of one frame.
//!
//! A codec implements [`Codec`] in a file of its own and has a row in the table. [`delta`] encodes a chunk against a
//! base and is not in the table: the container index, not the frame header, marks deltas.

mod bit_planes;
mod byte_groups;
#[cfg(test)]
mod contract_tests;
pub mod delta;
mod element_rows;
mod element_type;
pub mod entropy;
mod float_codec;
pub mod floats;
mod lz4;
mod planes;
mod raw;
mod table;
mod zstandard;

pub use bit_planes::BitPlanes;
pub use byte_groups::ByteGroups;
pub use element_rows::ElementRows;
pub use element_type::ElementType;
pub use float_codec::BlockHint;
pub use floats::Floats;
pub use lz4::Lz4;
pub use planes::{ByteGroupLayout, Planes};
pub use raw::Raw;
pub use table::{CODECS, CodecInfo, codec, compress_codec};
pub use zstandard::Zstandard;

use crate::error::{Error, Result};

/// Work space of one worker, reused between frames: compression contexts are expensive to create.
#[derive(Default)]
pub struct Scratch {
    encoder: Option<(i32, zstd::bulk::Compressor<'static>)>,
    decoder: Option<zstd::bulk::Decompressor<'static>>,
    /// Buffer of codecs that rearrange bytes.
    pub planes: Vec<u8>,
    /// High bits of a plane, which a prefix code encodes.
    high_bits: Vec<u8>,
    zeros: floats::ZeroBuffers,
    coded: floats::CodedBuffers,
    delta: Option<Box<delta::DeltaBuffers>>,
    /// Encoders may leave out zeros and encode floats as codes, which a repository must have a feature for.
    has_derivations: bool,
}

impl Scratch {
    /// Work space of an encoder. With `has_derivations`, floats and deltas may be encoded without their zeros,
    /// floats as codes, and bytes by classes.
    pub fn of_writer(has_derivations: bool) -> Self {
        Scratch { has_derivations, ..Scratch::default() }
    }
}

/// A reversible transform of one frame's bytes.
pub trait Codec: Sync {
    /// The codec's row in the table.
    fn info(&self) -> CodecInfo;
    /// Number in frame headers.
    fn id(&self) -> u8 {
        self.info().id
    }
    /// Name in reports.
    fn name(&self) -> &'static str {
        self.info().name
    }
    /// Appends the encoding of `raw` to `out`. `setting` is the codec's own parameter; for zstd it is the level.
    fn encode(&self, raw: &[u8], setting: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()>;
    /// Appends exactly `raw_len` bytes to `out`. Allocates at most `raw_len` bytes plus a constant.
    ///
    /// The caller has verified the payload's checksum, so a mode that no version defines means a newer writer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if `payload` is not an encoding of `raw_len` bytes, [`Error::Unsupported`] for an unknown
    /// mode.
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()>;
}

/// The error of a payload that does not decode.
pub(crate) fn undecodable(codec: &dyn Codec, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::corrupt(format!("frame payload ({})", codec.name()), 0, expected, got)
}
