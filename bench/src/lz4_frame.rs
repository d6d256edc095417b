//! LZ4 frames, the container around LZ4 blocks that Xet stores: a header of 7 bytes, the length of the block, the block
//! or the bytes as they are if that is shorter, and an end mark.
//!
//! Only lengths matter here, so the header's checksum byte is zero. A codec that puts bytes before its block keeps them
//! in front of the frame.

use fhrd::codec::{BitPlanes, ByteGroups, Codec, Lz4, Scratch};
use fhrd::error::{Error, Result};

/// A codec whose output is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed {
    /// LZ4 of the bytes as they are.
    Plain,
    /// LZ4 of the bytes in four groups.
    Bytes,
    /// LZ4 of the bits of elements of this width.
    Bits,
}

/// Header, length of the block, end mark.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0];
const END: [u8; 4] = [0; 4];
/// Bit of the length of a block that is stored as it is.
const STORED: u32 = 1 << 31;

impl Framed {
    /// Every framed codec with its name in configurations.
    pub const ALL: [(&str, Framed); 3] =
        [("lz4-frame", Framed::Plain), ("bytes-frame", Framed::Bytes), ("bits-frame", Framed::Bits)];

    /// The codec with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, framed)| *framed)
    }

    fn codec(self) -> &'static dyn Codec {
        match self {
            Framed::Plain => &Lz4,
            Framed::Bytes => &ByteGroups,
            Framed::Bits => &BitPlanes,
        }
    }

    /// Appends the frame of `raw`, elements of `width` bytes, to `out`.
    ///
    /// # Errors
    /// Errors of LZ4.
    pub fn encode(self, width: usize, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let mut block = Vec::new();
        match self {
            Framed::Bits => BitPlanes.encode_width(width, raw, scratch, &mut block)?,
            _ => self.codec().encode(raw, 0, scratch, &mut block)?,
        }
        out.extend_from_slice(&HEADER);
        let is_stored = block.len() >= raw.len();
        let (bytes, flag) = if is_stored { (raw, STORED) } else { (block.as_slice(), 0) };
        out.extend_from_slice(&(bytes.len() as u32 | flag).to_le_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(&END);
        Ok(())
    }

    /// Appends the `raw_len` bytes of a frame to `out`.
    ///
    /// # Errors
    /// [`Error::Internal`] if the payload is not a frame; errors of the codec.
    pub fn decode(self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let wrong = || Error::internal("a frame of a measurement is too short");
        let (len, rest) = payload.get(HEADER.len()..).and_then(<[u8]>::split_first_chunk).ok_or_else(wrong)?;
        let len = u32::from_le_bytes(*len);
        let bytes = rest.get(..(len & !STORED) as usize).ok_or_else(wrong)?;
        if len & STORED != 0 {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        self.codec().decode(bytes, raw_len, scratch, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_adds_fifteen_bytes_and_stores_noise_as_it_is() {
        let noise: Vec<u8> = blake3::Hasher::new().finalize_xof().bytes_of(5000);
        for raw in [b"it repeats, ".repeat(500), noise] {
            for (name, framed) in Framed::ALL {
                let (mut scratch, mut out, mut back) = (Scratch::default(), Vec::new(), Vec::new());
                Framed::named(name).unwrap().encode(2, &raw, &mut scratch, &mut out).unwrap();
                assert!(out.len() <= raw.len() + 15, "{name}: {}", out.len());
                framed.decode(&out, raw.len(), &mut scratch, &mut back).unwrap();
                assert!(back == raw, "{name}");
                assert!(framed.decode(&out[..10], raw.len(), &mut scratch, &mut back).is_err());
            }
        }
        assert_eq!(Framed::named("lz4"), None);
    }

    trait Bytes {
        fn bytes_of(self, len: usize) -> Vec<u8>;
    }

    impl Bytes for blake3::OutputReader {
        fn bytes_of(mut self, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            self.fill(&mut bytes);
            bytes
        }
    }
}
