//! The table of codecs: a codec is one file, one row here and one line in [`CODECS`].

use super::{BitPlanes, ByteGroups, Codec, Floats, Lz4, Planes, Raw, Zstandard};
use crate::config::CompressCodec;
use crate::error::{Error, Result};

/// How stored data and reports identify a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodecInfo {
    /// Number in frame headers; never reused.
    pub id: u8,
    /// Name in reports.
    pub name: &'static str,
    /// Feature bits that a container with this codec must require of its readers: 0 for the codecs of format 1.
    pub reader_features: u64,
}

pub(super) const RAW: CodecInfo = CodecInfo { id: 0, name: "raw", reader_features: 0 };
pub(super) const ZSTANDARD: CodecInfo = CodecInfo { id: 1, name: "zstd", reader_features: 0 };
pub(super) const PLANES: CodecInfo = CodecInfo { id: 2, name: "planes", reader_features: 0 };
pub(super) const FLOATS: CodecInfo = CodecInfo { id: 3, name: "floats", reader_features: 0 };
pub(super) const LZ4: CodecInfo = CodecInfo { id: 4, name: "lz4", reader_features: 0 };
pub(super) const BYTE_GROUPS: CodecInfo = CodecInfo { id: 5, name: "bg4-lz4", reader_features: 0 };
pub(super) const BIT_PLANES: CodecInfo = CodecInfo { id: 6, name: "bit-planes", reader_features: 0 };

/// Every codec, by ascending id.
pub static CODECS: &[&dyn Codec] = &[&Raw, &Zstandard, &Planes, &Floats, &Lz4, &ByteGroups, &BitPlanes];

/// The codec with this id.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown id. Ids are under a checksum, so a newer fhrd wrote it.
pub fn codec(id: u8) -> Result<&'static dyn Codec> {
    let found = CODECS.iter().find(|codec| codec.id() == id).copied();
    found.ok_or_else(|| Error::unsupported("frame", format!("codec {id}")))
}

/// The codec of a configuration.
pub fn compress_codec(name: CompressCodec) -> &'static dyn Codec {
    match name {
        CompressCodec::Zstandard => &Zstandard,
        CompressCodec::Lz4 => &Lz4,
    }
}
