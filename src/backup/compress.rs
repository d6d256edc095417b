//! Compress: encodes the frames that are not encoded yet: zstd or LZ4, or raw where that does not help.

use bytes::Bytes;

use crate::backup::message::{FrameKind, Packet};
use crate::codec::{Codec, Raw, Scratch};
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::StoredFrame;

/// One worker.
pub struct CompressWorker {
    /// What encodes.
    pub codec: &'static dyn Codec,
    /// zstd level.
    pub level: i32,
    /// Contexts and buffers.
    pub scratch: Scratch,
    /// Where it writes before the payload is cut to size.
    pub space: Vec<u8>,
}

/// The encoding of `raw` by `codec`, at `level` if that has levels, or raw where it is not smaller.
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
