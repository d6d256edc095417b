//! Compress: encodes frames that ModelEncode left alone, with zstd or LZ4, or stores them raw if that is not larger.
//!
//! Long text without an earlier version and plain blocks of tensors are encoded at higher levels: nothing else makes
//! them small. The level follows from the bytes of the frame and from what SubDedup says of its chunks.

use bytes::Bytes;

use crate::backup::message::{FrameKind, Packet, PendingFrame};
use crate::chunk::text::is_text;
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
    /// zstd level of text in long chunks that copy little.
    pub text_level: i32,
    /// zstd level of plain blocks of tensors, which are encoded at `level`, too.
    pub plain_level: i32,
    /// The context and the buffers of the codec.
    pub scratch: Scratch,
    /// Output buffer of the codec; payloads are copied from it at their exact size.
    pub space: Vec<u8>,
}

impl CompressWorker {
    fn frame(&mut self, frame: &PendingFrame) -> Result<StoredFrame> {
        let CompressWorker { codec, scratch, space, .. } = self;
        match frame.kind {
            FrameKind::Incompressible => {
                Ok(StoredFrame { codec: Raw.id(), raw_len: frame.raw.len() as u32, payload: frame.raw.clone() })
            }
            FrameKind::Plain => {
                let [one, other] = [self.level, self.plain_level]
                    .map(|level| StoredFrame::encode(*codec, &frame.raw, level, scratch, space));
                let (one, other) = (one?, other?);
                // Level 3 has shorter matches, which single values of four bytes need.
                Ok(if one.payload.len() < other.payload.len() { one } else { other })
            }
            FrameKind::Solid { is_mostly_new: true } if self.text_level != self.level && is_text(&frame.raw) => {
                StoredFrame::encode(*codec, &frame.raw, self.text_level, scratch, space)
            }
            _ => StoredFrame::encode(*codec, &frame.raw, self.level, scratch, space),
        }
    }
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
                frame.stored = Some(self.frame(frame)?);
            }
            frame.raw = Bytes::new();
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Lz4, Zstandard};
    use crate::repo::container::SessionFrameNumber;

    /// The encoding of a frame by a worker with levels 3 and 6.
    fn stored(worker: &mut CompressWorker, kind: FrameKind, raw: &Bytes) -> Bytes {
        let frame = PendingFrame { number: SessionFrameNumber::default(), kind, raw: raw.clone(), stored: None };
        let Packet::Frame(frame) = worker.map(Packet::Frame(frame)).unwrap() else { panic!("another packet") };
        assert!(frame.raw.is_empty());
        frame.stored.unwrap().payload
    }

    fn worker(codec: &'static dyn Codec) -> CompressWorker {
        CompressWorker {
            codec,
            level: 3,
            text_level: 6,
            plain_level: 7,
            scratch: Scratch::default(),
            space: Vec::new(),
        }
    }

    /// Lines of a log of about 400 KiB.
    fn log() -> Vec<u8> {
        let line = |number: u64| {
            let size = number.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
            format!("2026-01-01 {number:08} GET /page/{}/{} 200 {size}\n", size % 977, size % 61).into_bytes()
        };
        (0..9000).flat_map(line).collect()
    }

    #[test]
    fn new_text_and_plain_blocks_have_levels_of_their_own() {
        let (text, mut binary) = (Bytes::from(log()), log());
        binary.iter_mut().step_by(500).for_each(|byte| *byte = 0);
        let binary = Bytes::from(binary);
        // Values of 4 bytes in no order.
        let values = (0..60_000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 25) as f32 / 255.0);
        let pixels = Bytes::from_iter(values.flat_map(f32::to_le_bytes));
        let at = |level, raw: &Bytes| {
            StoredFrame::encode(&Zstandard, raw, level, &mut Scratch::default(), &mut Vec::new()).unwrap().payload
        };
        let mut worker = worker(&Zstandard);
        // Twice, as a context that has encoded other frames must give the same bytes.
        for _ in 0..2 {
            let new = FrameKind::Solid { is_mostly_new: true };
            assert_eq!(stored(&mut worker, new.clone(), &text), at(6, &text));
            assert_eq!(stored(&mut worker, new, &binary), at(3, &binary));
            assert_eq!(stored(&mut worker, FrameKind::Solid { is_mostly_new: false }, &text), at(3, &text));
            assert_eq!(stored(&mut worker, FrameKind::Plain, &binary), at(7, &binary));
            assert_eq!(stored(&mut worker, FrameKind::Plain, &pixels), at(3, &pixels));
            assert_eq!(stored(&mut worker, FrameKind::Incompressible, &text), text);
        }
        assert!(at(6, &text).len() * 20 < at(3, &text).len() * 19, "{} {}", at(6, &text).len(), at(3, &text).len());
    }

    #[test]
    fn codecs_without_levels_encode_text_as_everything_else() {
        let text = Bytes::from(log());
        let mut worker = worker(&Lz4);
        let [new, other] = [true, false].map(|is_mostly_new| FrameKind::Solid { is_mostly_new });
        assert_eq!(stored(&mut worker, new, &text), stored(&mut worker, other, &text));
    }
}
