//! ModelEncode: encodes float chunks by byte groups. All other packets pass.

use bytes::Bytes;

use crate::codec::{Codec, Planes, Scratch};
use crate::container::StoredFrame;
use crate::error::Result;
use crate::message::{FrameKind, Packet};
use crate::pipeline::Map;

/// One worker.
pub struct ModelEncodeWorker {
    /// zstd level of the low-entropy groups.
    pub level: i32,
    /// Contexts and buffers.
    pub scratch: Scratch,
}

impl Map for ModelEncodeWorker {
    type In = Packet;
    type Out = Packet;

    fn name(&self) -> &'static str {
        "model encode"
    }

    fn map(&mut self, mut packet: Packet) -> Result<Packet> {
        if let Packet::Frame(frame) = &mut packet
            && let FrameKind::Float(layout) = frame.kind
        {
            let mut payload = Vec::new();
            Planes.encode_layout(layout, &frame.raw, self.level, &mut self.scratch, &mut payload)?;
            // Where the groups do not pay after all, Compress takes the frame.
            if payload.len() < frame.raw.len() {
                let (codec, raw_len) = (Planes.id(), frame.raw.len() as u32);
                payload.shrink_to_fit();
                frame.stored = Some(StoredFrame { codec, raw_len, payload: Bytes::from(payload) });
            }
        }
        Ok(packet)
    }
}
