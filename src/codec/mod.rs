//! Codecs: reversible transforms of one frame. A codec is one file plus one line in [`CODECS`]; ids ascend and
//! are never reused.

mod bit_planes;
mod byte_groups;
mod choice;
#[cfg(test)]
mod contract_tests;
pub mod delta;
pub mod entropy;
pub mod floats;
mod lz4;
mod planes;
mod raw;
mod zstandard;

pub use bit_planes::BitPlanes;
pub use byte_groups::ByteGroups;
pub use choice::{FloatCodec, Known};
pub use floats::{ElementType, Floats};
pub use lz4::Lz4;
pub use planes::{Layout, Planes};
pub use raw::Raw;
pub use zstandard::Zstandard;

use crate::error::{Error, Result};

/// Work space of one worker: compression contexts are expensive to make.
#[derive(Default)]
pub struct Scratch {
    encoder: Option<(i32, zstd::bulk::Compressor<'static>)>,
    decoder: Option<zstd::bulk::Decompressor<'static>>,
    /// Buffer for codecs that rearrange bytes.
    pub planes: Vec<u8>,
    /// What a prefix code encodes of a plane.
    highs: Vec<u8>,
    delta: delta::Buffers,
}

/// A reversible transform of one frame's bytes.
pub trait Codec: Sync {
    /// Number in frame headers.
    fn id(&self) -> u8;
    /// Name in reports.
    fn name(&self) -> &'static str;
    /// Appends the encoding of `raw` to `out`. `setting` is the codec's own parameter (zstd: the level).
    fn encode(&self, raw: &[u8], setting: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()>;
    /// Appends exactly `raw_len` bytes to `out`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when `payload` is not an encoding of `raw_len` bytes. Never allocates more than
    /// `raw_len` plus a constant.
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()>;
}

/// Every codec, by ascending id.
pub static CODECS: &[&dyn Codec] = &[&Raw, &Zstandard, &Planes, &Floats, &Lz4, &ByteGroups, &BitPlanes];

/// The codec with this id.
pub fn codec(id: u8) -> Result<&'static dyn Codec> {
    let found = CODECS.iter().find(|codec| codec.id() == id).copied();
    found.ok_or_else(|| Error::corrupt("frame", 0, "a known codec id", id.to_string()))
}

/// The codec of this name.
pub fn codec_named(name: &str) -> Result<&'static dyn Codec> {
    let found = CODECS.iter().find(|codec| codec.name() == name).copied();
    found.ok_or_else(|| Error::Usage(format!("there is no codec `{name}`")))
}

/// The error of a payload that does not decode.
pub(crate) fn undecodable(codec: &dyn Codec, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::corrupt(format!("frame payload ({})", codec.name()), 0, expected, got)
}
