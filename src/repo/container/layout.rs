//! Header and footer of a container.

use crate::error::{Error, Result};
use crate::wire::{FORMAT_VERSION, READER_FEATURES_KNOWN, WireReader, verify};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;

const HEADER_MAGIC: [u8; 8] = *b"FHRDCONT";
const FOOTER_MAGIC: [u8; 8] = *b"FHRDFOOT";

/// What a container holds; data and metadata never share one, so walking trees reads little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Chunks of files.
    Data,
    /// Recipes and trees.
    Metadata,
}

/// The header: magic (8), version (`u16`), kind (`u16`), reader and writer features (`u64` each), zero (4),
/// BLAKE3-128 of what precedes (16).
pub fn header(kind: ContainerKind) -> [u8; HEADER_BYTES] {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&HEADER_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&u16::from(kind == ContainerKind::Metadata).to_le_bytes());
    out.extend_from_slice(&[0; 8 + 8 + 4]);
    let digest = blake3::hash(&out);
    let mut header = [0u8; HEADER_BYTES];
    let (fields, checksum) = header.split_at_mut(HEADER_BYTES - 16);
    fields.copy_from_slice(&out);
    checksum.copy_from_slice(digest.as_bytes().get(..16).unwrap_or_default());
    header
}

/// Checks a header read from the container called `what`.
pub fn parse_header(what: &str, bytes: &[u8]) -> Result<ContainerKind> {
    let mut reader = WireReader::new(what, 0, bytes);
    let magic: [u8; 8] = reader.array()?;
    if magic != HEADER_MAGIC {
        return Err(Error::corrupt(what, 0, "FHRDCONT", format!("{:?}", String::from_utf8_lossy(&magic))));
    }
    let (version, kind) = (reader.u16()?, reader.u16()?);
    let unknown = reader.u64()? & !READER_FEATURES_KNOWN;
    if version != FORMAT_VERSION || unknown != 0 {
        return Err(Error::unknown_features(what, unknown));
    }
    reader.bytes(8 + 4)?;
    let recorded = reader.bytes(16)?;
    verify(what, 0, recorded, &[bytes.get(..HEADER_BYTES - 16).unwrap_or_default()])?;
    match kind {
        0 => Ok(ContainerKind::Data),
        1 => Ok(ContainerKind::Metadata),
        other => Err(Error::corrupt(what, 10, "container kind 0 or 1", other.to_string())),
    }
}

/// The last bytes of a container: where its directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Offset of the directory.
    pub index_offset: u64,
    /// Bytes of the directory.
    pub index_len: u64,
    /// Chunk entries.
    pub entries: u32,
    /// Frames.
    pub frames: u32,
    /// BLAKE3-128 of the directory's bytes.
    pub index_checksum: [u8; 16],
}

impl Footer {
    /// Directory offset, length (`u64`), entries, frames (`u32`), directory checksum (16), zero (8), BLAKE3-64 of
    /// what precedes (8), magic (8).
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.index_offset.to_le_bytes());
        out.extend_from_slice(&self.index_len.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.frames.to_le_bytes());
        out.extend_from_slice(&self.index_checksum);
        out.extend_from_slice(&[0; 8]);
        let digest = blake3::hash(&out);
        out.extend_from_slice(digest.as_bytes().get(..8).unwrap_or_default());
        out.extend_from_slice(&FOOTER_MAGIC);
        let mut footer = [0u8; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Parses the last [`FOOTER_BYTES`] of the container called `what`, which has `file_len` bytes.
    pub fn parse(what: &str, file_len: u64, bytes: &[u8]) -> Result<Self> {
        let base = file_len.saturating_sub(FOOTER_BYTES as u64);
        let mut reader = WireReader::new(what, base, bytes);
        let footer = Footer {
            index_offset: reader.u64()?,
            index_len: reader.u64()?,
            entries: reader.u32()?,
            frames: reader.u32()?,
            index_checksum: reader.array()?,
        };
        reader.bytes(8)?;
        let recorded = reader.bytes(8)?;
        let magic: [u8; 8] = reader.array()?;
        if magic != FOOTER_MAGIC {
            return Err(Error::corrupt(what, base + 56, "FHRDFOOT", format!("{:?}", String::from_utf8_lossy(&magic))));
        }
        verify(what, base, recorded, &[bytes.get(..48).unwrap_or_default()])?;
        let end = footer.index_offset.checked_add(footer.index_len);
        if footer.index_offset < HEADER_BYTES as u64 || end != Some(base) {
            let got = format!("bytes {}+{}", footer.index_offset, footer.index_len);
            return Err(Error::corrupt(what, base, format!("a directory that ends at {base}"), got));
        }
        Ok(footer)
    }
}
