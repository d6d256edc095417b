//! Compress: encodes frames that ModelEncode left alone, with zstd or LZ4, or stores them raw if that is not larger.

use bytes::Bytes;

use crate::backup::message::{FrameKind, Packet};
use crate::codec::{Codec, Raw, Scratch};
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::StoredFrame;

/// A worker of Compress.
pub struct CompressWorker {
    /// The codec.
    pub codec: &'static dyn Codec,
    /// zstd level; other codecs ignore it.
    pub level: i32,
    /// Contexts and buffers of the codec.
    pub scratch: Scratch,
    /// Output buffer of the codec; payloads are copied from it at their exact size.
    pub space: Vec<u8>,
}

/// Encodes `raw` with `codec`, or stores it raw if the encoding is not smaller. Codecs without levels ignore `level`.
pub fn compress(
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

impl Map for CompressWorker {
    type In = Packet;
    type Out = Packet;

    fn name(&self) -> &'static str {
        "compress"
    }

    fn map(&mut self, mut packet: Packet) -> Result<Packet> {
        if let Packet::Frame(frame) = &mut packet {
            if frame.stored.is_none() {
                frame.stored = Some(match frame.kind {
                    FrameKind::Incompressible => {
                        StoredFrame { codec: Raw.id(), raw_len: frame.raw.len() as u32, payload: frame.raw.clone() }
                    }
                    _ => compress(self.codec, &frame.raw, self.level, &mut self.scratch, &mut self.space)?,
                });
            }
            frame.raw = Bytes::new();
        }
        Ok(packet)
    }
}
