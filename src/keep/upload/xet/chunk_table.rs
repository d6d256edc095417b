//! The table of a stored xorb: for each chunk its hash, its length, and where its bytes are.
//!
//! A record has 48 bytes: the hash (32), the length (4), the number of the part that has the bytes (4), and the offset
//! there (8), numbers in little endian. The parts are files of the same snapshot.

use super::hash::XetHash;
use super::{CHUNK_BYTES_MAX, CHUNKS_MAX, RECORD_BYTES};
use crate::error::{Error, Result};

/// Where a chunk of a stored xorb is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XorbChunkRange {
    pub hash: XetHash,
    pub len: u32,
    /// Number of the part.
    pub part: u32,
    /// Offset in the part.
    pub offset: u64,
}

impl XorbChunkRange {
    /// Where its bytes end in its part.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }
}

/// Bytes of a table, at most.
pub(super) const TABLE_BYTES_MAX: u64 = (CHUNKS_MAX * RECORD_BYTES) as u64;

/// The bytes of a table.
pub(super) fn encoded(chunks: &[XorbChunkRange]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chunks.len() * RECORD_BYTES);
    for XorbChunkRange { hash, len, part, offset } in chunks {
        bytes.extend_from_slice(&hash.0);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&part.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
    }
    bytes
}

/// The chunks of a table, whose parts have `parts` bytes.
///
/// # Errors
/// [`Error::Corrupt`] with the offset of a record that is not valid.
pub(super) fn decoded(bytes: &[u8], parts: &[u64]) -> Result<Vec<XorbChunkRange>> {
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() || records.is_empty() || records.len() > CHUNKS_MAX {
        return Err(Error::corrupt("chunks of a xorb", 0, "records of 48 bytes", format!("{} bytes", bytes.len())));
    }
    let range = |(at, record): (usize, &[u8; RECORD_BYTES])| {
        let number = |bytes: std::ops::Range<usize>| {
            record[bytes].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(&record[..32]);
        let (len, part, offset) = (number(32..36) as u32, number(36..40) as u32, number(40..48));
        let range = XorbChunkRange { hash: XetHash(hash), len, part, offset };
        let is_inside = parts.get(part as usize).is_some_and(|part_len| range.end() <= *part_len);
        if !(1..=CHUNK_BYTES_MAX).contains(&(len as usize)) || !is_inside {
            let got = format!("{len} bytes at {offset} of part {part}");
            return Err(Error::corrupt("chunks of a xorb", (at * RECORD_BYTES) as u64, "a chunk in a part", got));
        }
        Ok(range)
    };
    records.iter().enumerate().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hex;

    #[test]
    fn the_encoding_never_changes_and_names_chunks_inside_parts_only() {
        let range =
            |at: u8| XorbChunkRange { hash: XetHash([at; 32]), len: 256 + 1, part: 1, offset: u64::from(at) << 8 };
        let (ranges, parts) = ([range(0), range(3)], [0, 0x401]);
        let bytes = encoded(&ranges);
        let (first, second) = ("00".repeat(32), "03".repeat(32));
        let expected = format!("{first}01010000010000000000000000000000{second}01010000010000000003000000000000");
        assert_eq!(hex(&bytes), expected);
        assert_eq!(decoded(&bytes, &parts).unwrap(), ranges);
        for (wrong, parts) in [
            (&bytes[..], &[0, 0x400][..]),
            (&bytes, &[0x401]),
            (&bytes[1..], &parts),
            (&[], &parts),
            (&[0xff; RECORD_BYTES], &[0, u64::MAX]),
            (&[0; RECORD_BYTES], &parts),
        ] {
            assert!(decoded(wrong, parts).is_err(), "{parts:?}");
        }
    }
}
