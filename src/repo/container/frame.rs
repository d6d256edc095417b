//! Frames: the unit of compression and of reading.
//!
//! A frame on disk is a 32-byte header and the codec's payload. Header: codec id (`u8`), zero (3), raw length,
//! stored length (`u32` each), zero (4), BLAKE3-128 of the first 16 header bytes and the payload (16).

use bytes::Bytes;

use crate::codec::{Codec, Raw, Scratch, codec};
use crate::config::FRAME_BYTES_LIMIT;
use crate::error::{Error, Result};
use crate::wire::{WireReader, checksum, verify};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 32;

/// Position, lengths and codec of a frame in its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameInfo {
    /// Offset of the frame header in the container.
    pub offset: u64,
    /// Bytes of the payload.
    pub stored_len: u32,
    /// Bytes after decoding.
    pub raw_len: u32,
    /// Codec id.
    pub codec: u8,
}

impl FrameInfo {
    /// Bytes of header and payload.
    pub fn stored_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.stored_len as usize
    }
}

/// An encoded frame in memory.
#[derive(Debug, Clone)]
pub struct StoredFrame {
    /// Codec id.
    pub codec: u8,
    /// Bytes after decoding.
    pub raw_len: u32,
    /// The encoded bytes.
    pub payload: Bytes,
}

impl StoredFrame {
    /// The header before the payload.
    pub fn header(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut header = [0u8; FRAME_HEADER_BYTES];
        let (fields, recorded) = header.split_at_mut(16);
        fields[0] = self.codec;
        fields[4..8].copy_from_slice(&self.raw_len.to_le_bytes());
        fields[8..12].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        recorded.copy_from_slice(&checksum::<16>(&[fields, &self.payload]));
        header
    }

    /// Encodes `raw` with `codec`, or stores it raw if the encoding is not smaller. Codecs without levels ignore
    /// `level`. `space` is a buffer for the output.
    ///
    /// # Errors
    /// Errors of the codec.
    pub fn encode(
        codec: &dyn Codec,
        raw: &Bytes,
        level: i32,
        scratch: &mut Scratch,
        space: &mut Vec<u8>,
    ) -> Result<StoredFrame> {
        space.clear();
        codec.encode(raw, level, scratch, space)?;
        let raw_len = raw.len() as u32;
        if space.len() < raw.len() {
            return Ok(StoredFrame { codec: codec.id(), raw_len, payload: Bytes::copy_from_slice(space) });
        }
        Ok(StoredFrame { codec: Raw.id(), raw_len, payload: raw.clone() })
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the payload does not decode to `raw_len` bytes.
    pub fn decode(&self, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let mut raw = Vec::new();
        decode_payload(self.codec, self.raw_len as usize, &self.payload, scratch, &mut raw)?;
        Ok(raw)
    }
}

fn decode_payload(id: u8, raw_len: usize, payload: &[u8], scratch: &mut Scratch, raw: &mut Vec<u8>) -> Result<()> {
    raw.clear();
    raw.reserve(raw_len);
    codec(id)?.decode(payload, raw_len, scratch, raw)?;
    if raw.len() != raw_len {
        return Err(Error::corrupt("frame payload", 0, format!("{raw_len} bytes"), raw.len().to_string()));
    }
    Ok(())
}

/// Checks header and checksum of a frame of the container `what` and returns its payload; `bytes` are header and
/// payload.
///
/// # Errors
/// [`Error::Corrupt`] if the header differs from `info`, and [`Error::ChecksumMismatch`].
pub fn parse_frame<'a>(what: &str, info: &FrameInfo, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let (covered, recorded, payload) = parts_of(what, info, bytes)?;
    verify(what, info.offset, recorded, &[covered, payload])?;
    Ok(payload)
}

/// What the checksum of a frame covers of its header, the checksum, and the payload.
fn parts_of<'a>(what: &str, info: &FrameInfo, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8], &'a [u8])> {
    let mut reader = WireReader::new(what, info.offset, bytes);
    let fields = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
    let expected = [u32::from(info.codec), info.raw_len, info.stored_len, 0];
    if fields != expected || u64::from(info.raw_len) > FRAME_BYTES_LIMIT {
        return Err(Error::corrupt(what, info.offset, format!("frame {expected:?}"), format!("{fields:?}")));
    }
    let covered = reader.consumed().len();
    reader.bytes(16)?;
    let (head, payload) = bytes.split_at(FRAME_HEADER_BYTES);
    if payload.len() != info.stored_len as usize {
        return Err(reader.error(format!("{} payload bytes", info.stored_len), payload.len().to_string()));
    }
    let (covered, recorded) = head.split_at(covered);
    Ok((covered, recorded, payload))
}

/// Checks and decodes a frame of the container `what`; `bytes` are header and payload.
///
/// # Errors
/// Errors of [`parse_frame`], and [`Error::Corrupt`] for a payload that does not decode.
pub fn decode_frame(what: &str, info: &FrameInfo, bytes: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>> {
    let payload = parse_frame(what, info, bytes)?;
    let mut raw = Vec::new();
    let decoded = decode_payload(info.codec, info.raw_len as usize, payload, scratch, &mut raw);
    decoded.map(|()| raw).map_err(|error| match error {
        Error::Corrupt { expected, got, .. } => {
            Error::Corrupt { what: what.into(), offset: info.offset, expected, got }
        }
        Error::Unsupported { unknown, .. } => {
            Error::unsupported(format!("{what}, frame at byte {},", info.offset), unknown)
        }
        other => other,
    })
}

/// Decodes a frame into `raw` without its checksum: for callers that check what it decodes to.
///
/// # Errors
/// [`Error::Corrupt`] if the header differs from `info`, and errors of decoding. They do not say what is damaged.
pub fn decode_unverified(
    what: &str,
    info: &FrameInfo,
    bytes: &[u8],
    scratch: &mut Scratch,
    raw: &mut Vec<u8>,
) -> Result<()> {
    let (.., payload) = parts_of(what, info, bytes)?;
    decode_payload(info.codec, info.raw_len as usize, payload, scratch, raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intact_frame_of_an_unknown_codec_is_unsupported_and_a_changed_one_is_damaged() {
        let frame = StoredFrame { codec: 9, raw_len: 5, payload: Bytes::from_static(b"hello") };
        let info = FrameInfo { offset: 48, stored_len: 5, raw_len: 5, codec: 9 };
        let mut bytes = [&frame.header()[..], &frame.payload].concat();
        let decode = |bytes: &[u8]| decode_frame("x", &info, bytes, &mut Scratch::default()).map(drop);
        let error = decode(&bytes).expect_err("must fail");
        assert_eq!(error.to_string(), "x, frame at byte 48, needs a newer fhrd: unknown codec 9");
        assert!(error.is_unreadable() && error.kind() == crate::error::ErrorKind::Unsupported);
        bytes[FRAME_HEADER_BYTES] ^= 1;
        assert!(matches!(decode(&bytes), Err(Error::ChecksumMismatch { .. })));
    }
}
