//! Header and footer of a container.

use crate::error::{Error, Result};
use crate::repo::salts::{SALT_BYTES, Salt};
use crate::wire::{FORMAT_VERSION, WireReader, check_key_generation, check_readable, checksum, verify};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;

const HEADER_MAGIC: [u8; 8] = *b"FHRDCONT";
const FOOTER_MAGIC: [u8; 8] = *b"FHRDFOOT";

/// Content of a container. Data and metadata never share one, so reading trees reads few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContainerKind {
    /// Chunks of files.
    #[default]
    Data,
    /// Recipes and trees.
    Metadata,
}

/// The header: magic (8), version (`u16`), kind (`u16`), reader and writer features (`u64` each), key generation
/// (`u32`, 0: not encrypted), salt (16), BLAKE3-128 of the preceding bytes (16).
pub fn header(kind: ContainerKind, salt: &Salt) -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    let (fields, recorded) = header.split_at_mut(HEADER_BYTES - 16);
    fields[..8].copy_from_slice(&HEADER_MAGIC);
    fields[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    fields[10..12].copy_from_slice(&u16::from(kind == ContainerKind::Metadata).to_le_bytes());
    fields[32..].copy_from_slice(salt);
    recorded.copy_from_slice(&checksum::<16>(&[fields]));
    header
}

/// Checks the header of the container called `what` and returns its kind. The checksum comes before the version: a
/// flipped bit is damage, not a newer version.
///
/// # Errors
/// [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for damage. [`Error::Unsupported`] for another version, unknown
/// features or an encrypted container, in an intact header.
pub fn parse_header(what: &str, bytes: &[u8]) -> Result<ContainerKind> {
    let mut reader = WireReader::new(what, 0, bytes);
    let magic: [u8; 8] = reader.array()?;
    if magic != HEADER_MAGIC {
        return Err(Error::corrupt(what, 0, "FHRDCONT", format!("{:?}", String::from_utf8_lossy(&magic))));
    }
    let (version, kind) = (reader.u16()?, reader.u16()?);
    let reader_features = reader.u64()?;
    reader.bytes(8)?;
    let key_generation = reader.u32()?;
    reader.bytes(SALT_BYTES)?;
    let covered = reader.consumed();
    verify(what, 0, reader.bytes(16)?, &[covered])?;
    check_readable(what, version, reader_features)?;
    check_key_generation(what, key_generation)?;
    match kind {
        0 => Ok(ContainerKind::Data),
        1 => Ok(ContainerKind::Metadata),
        other => Err(Error::unsupported(what, format!("kind of container {other}"))),
    }
}

/// The last bytes of a container: position and checksum of the container index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Offset of the container index.
    pub index_offset: u64,
    /// Bytes of the container index.
    pub index_len: u64,
    /// Number of chunk entries.
    pub entries: u32,
    /// Number of frames.
    pub frames: u32,
    /// BLAKE3-128 of the container index.
    pub index_checksum: [u8; 16],
    /// Zeros between the last frame and the container index.
    pub padding: u64,
}

impl Footer {
    /// Offset and length of the container index (`u64`), entries, frames (`u32`), checksum of the container index (16),
    /// padding (`u64`), BLAKE3-64 of the preceding bytes (8), magic (8).
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut footer = [0u8; FOOTER_BYTES];
        let (fields, recorded) = footer.split_at_mut(FOOTER_BYTES - 16);
        fields[..8].copy_from_slice(&self.index_offset.to_le_bytes());
        fields[8..16].copy_from_slice(&self.index_len.to_le_bytes());
        fields[16..20].copy_from_slice(&self.entries.to_le_bytes());
        fields[20..24].copy_from_slice(&self.frames.to_le_bytes());
        fields[24..40].copy_from_slice(&self.index_checksum);
        fields[40..].copy_from_slice(&self.padding.to_le_bytes());
        recorded[..8].copy_from_slice(&checksum::<8>(&[fields]));
        recorded[8..].copy_from_slice(&FOOTER_MAGIC);
        footer
    }

    /// Parses the last [`FOOTER_BYTES`] bytes of the container called `what`, which has `file_len` bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::ChecksumMismatch`].
    pub fn parse(what: &str, file_len: u64, bytes: &[u8]) -> Result<Self> {
        let base = file_len.saturating_sub(FOOTER_BYTES as u64);
        let mut reader = WireReader::new(what, base, bytes);
        let footer = Footer {
            index_offset: reader.u64()?,
            index_len: reader.u64()?,
            entries: reader.u32()?,
            frames: reader.u32()?,
            index_checksum: reader.array()?,
            padding: reader.u64()?,
        };
        let covered = reader.consumed();
        let recorded = reader.bytes(8)?;
        let magic: [u8; 8] = reader.array()?;
        if magic != FOOTER_MAGIC {
            return Err(Error::corrupt(what, base + 56, "FHRDFOOT", format!("{:?}", String::from_utf8_lossy(&magic))));
        }
        verify(what, base, recorded, &[covered])?;
        let end = footer.index_offset.checked_add(footer.index_len);
        if footer.index_offset < HEADER_BYTES as u64 || end != Some(base) {
            let got = format!("bytes {}+{}", footer.index_offset, footer.index_len);
            return Err(Error::corrupt(what, base, format!("a container index that ends at {base}"), got));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_flipped_bit_of_a_container_header_is_damage() {
        let intact = header(ContainerKind::Metadata, &[7; 16]);
        assert_eq!(parse_header("x", &intact).ok(), Some(ContainerKind::Metadata));
        for bit in 0..HEADER_BYTES * 8 {
            let mut header = intact;
            header[bit / 8] ^= 1 << (bit % 8);
            let error = parse_header("x", &header).expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_footer_is_damage() {
        let intact =
            Footer { index_offset: 64, index_len: 9, entries: 1, frames: 1, index_checksum: [7; 16], padding: 0 }
                .encode();
        let len = 64 + 9 + FOOTER_BYTES as u64;
        assert!(Footer::parse("x", len, &intact).is_ok());
        for bit in 0..FOOTER_BYTES * 8 {
            let mut footer = intact;
            footer[bit / 8] ^= 1 << (bit % 8);
            let error = Footer::parse("x", len, &footer).expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
        }
    }

    #[test]
    fn an_intact_header_of_another_version_or_key_generation_names_it() {
        for (offset, reason) in [(8, "format version 3"), (28, "key generation 2")] {
            let mut header = header(ContainerKind::Data, &[7; 16]);
            header[offset] += 2;
            let recorded = checksum::<16>(&[&header[..HEADER_BYTES - 16]]);
            header[HEADER_BYTES - 16..].copy_from_slice(&recorded);
            let error = parse_header("x", &header).expect_err(reason);
            assert_eq!(error.to_string(), format!("x needs a newer fhrd: unknown {reason}"));
        }
    }
}
