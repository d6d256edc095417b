//! ModelEncode: encodes float chunks and blocks of tensors, alone or as deltas. Other packets pass unchanged.
//!
//! The bases of deltas are read here, in parallel; SubDedup has planned which frames they consist of. A worker waits
//! for a frame of this run that is not stored yet. That frame precedes in the stream, so the wait ends without further
//! input. If a base turns out to be damaged, the block is stored without it. So are the blocks that were to be deltas
//! to that block, even if they can read its base: they name an entry that is not there.
//!
//! With `model.verify` every encoded frame is decoded again before it is stored, and the chunks that a base is made of
//! must have their names. So a defect of a codec or of the machine costs compression ratio, not data.

use std::sync::Arc;

use bytes::Bytes;

use crate::backup::message::{FrameKind, Packet, PendingFrame};
use crate::codec::{BlockHint, Codec, Raw, Scratch, delta};
use crate::config::FloatCodec;
use crate::error::{Error, Result};
use crate::model::DeltaPlan;
use crate::pipeline::Map;
use crate::repo::container::{
    DecodeLimits, FrameLocation, FrameReference, FramesInFlight, StoredFrame, assemble_base, blob_name, read_frame,
};
use crate::repo::index::ContainerIndexes;
use crate::similar::base_problem;
use crate::store::{Reading, Store};
use crate::types::RepositoryKey;

/// Frames that a worker reads for the base of a delta, bytes at most: a quarter of what readers accept.
const BASE_FRAMES_BYTES_MAX: usize = 256 << 20;

/// A worker of ModelEncode.
pub struct ModelEncodeWorker {
    /// Codec of frames that are not deltas.
    pub codec: FloatCodec,
    /// zstd level of that codec.
    pub level: i32,
    /// Decode every encoded frame again.
    pub verify: bool,
    /// Buffer for decoded frames.
    pub decoded: Vec<u8>,
    /// Contexts and buffers of the codecs.
    pub scratch: Scratch,
    /// Reads bases.
    pub bases: BaseReader,
}

/// Reads the frames of bases.
pub struct BaseReader {
    /// Holds the stored containers.
    pub store: Arc<dyn Store>,
    /// Frames of this run.
    pub in_flight: Arc<FramesInFlight>,
    /// Container indexes of this worker.
    pub container_indexes: ContainerIndexes,
    /// Names chunks, if those of bases are to be checked.
    pub key: Option<RepositoryKey>,
}

impl BaseReader {
    fn frame(&mut self, source: FrameReference, scratch: &mut Scratch) -> Result<Bytes> {
        let (container, info) = match source {
            FrameReference::Stored(container, info) => (container, info),
            FrameReference::Session(number) => match self.in_flight.frame(number)? {
                FrameLocation::Memory(frame) => return frame.decode(scratch).map(Bytes::from),
                FrameLocation::Stored { container, frame } => {
                    let container_index = self.container_indexes.load(&container)?;
                    let info = container_index.frames.get(frame as usize).copied();
                    let missing = || Error::corrupt(blob_name(&container), 0, "a frame of the container index", "none");
                    (container, info.ok_or_else(missing)?)
                }
            },
        };
        let name = blob_name(&container);
        let stored = self.store.get_range(&name, info.offset, info.stored_bytes(), Reading::Once);
        let stored = stored.as_deref().map_err(Error::duplicate);
        read_frame(self.store.as_ref(), &name, &info, stored, scratch).map(Bytes::from)
    }

    /// The base of a delta of `raw_len` bytes. `None` if it would take more than a reader of the delta may, or if a
    /// delta that it is made of is none after all.
    fn read(&mut self, plan: &DeltaPlan, raw_len: u32, scratch: &mut Scratch) -> Result<Option<Bytes>> {
        let (mut numbers, mut frames) = (Vec::with_capacity(plan.frames.len()), Vec::with_capacity(plan.frames.len()));
        let mut bytes = 0;
        for (number, source) in &plan.frames {
            let frame = self.frame(*source, scratch)?;
            bytes += frame.len();
            if bytes > BASE_FRAMES_BYTES_MAX {
                return Ok(None);
            }
            if let FrameReference::Session(number) = source
                && self.in_flight.is_made_whole(*number)
            {
                return Ok(None);
            }
            numbers.push(*number);
            frames.push(frame);
        }
        // The usual case: a block in a frame of its own.
        if let ([(extent_map, range)], [frame]) = (plan.base.as_slice(), frames.as_slice())
            && extent_map.only_extent().is_some_and(|only| only.offset == 0 && only.len as usize == frame.len())
            && range.start <= range.end
            && range.end as usize <= frame.len()
            && self.key.is_none_or(|key| plan.chunks.iter().all(|chunk| key.fingerprint(frame) == chunk.name))
        {
            return Ok(Some(frame.slice(range.start as usize..range.end as usize)));
        }
        let checked = self.key.as_ref().map(|key| (key, plan.chunks.as_slice()));
        let base = assemble_base(DecodeLimits::WRITERS, &plan.base, checked, raw_len, &numbers, &frames, scratch)?;
        Ok(base.map(Bytes::from))
    }
}

impl ModelEncodeWorker {
    /// Encodes a frame without a base; `None` if that does not pay.
    fn elements(&mut self, hint: BlockHint, raw: &Bytes) -> Result<Option<StoredFrame>> {
        let mut payload = Vec::new();
        let codec = self.codec.encode(hint, raw, self.level, &mut self.scratch, &mut payload)?;
        Ok(self.stored(codec, payload, raw))
    }

    /// The stored frame; `None` if the encoding is not smaller or decodes wrongly. Compress then encodes the frame.
    fn stored(&mut self, codec: &dyn Codec, mut payload: Vec<u8>, raw: &Bytes) -> Option<StoredFrame> {
        let decode = |scratch: &mut Scratch, back: &mut Vec<u8>| codec.decode(&payload, raw.len(), scratch, back);
        if payload.len() >= raw.len() || !self.is_reversible(raw, decode) {
            return None;
        }
        payload.shrink_to_fit();
        Some(StoredFrame { codec: codec.id(), raw_len: raw.len() as u32, payload: Bytes::from(payload) })
    }

    /// Whether `decode` gives `raw`; `true` without verification.
    fn is_reversible(&mut self, raw: &[u8], decode: impl FnOnce(&mut Scratch, &mut Vec<u8>) -> Result<()>) -> bool {
        if !self.verify {
            return true;
        }
        self.decoded.clear();
        let decoded = decode(&mut self.scratch, &mut self.decoded);
        if decoded.is_ok() && self.decoded == raw {
            return true;
        }
        let defect = decoded.err().map_or_else(|| "other bytes".into(), |error| error.to_string());
        tracing::error!("an encoded float block decodes wrongly ({defect}); storing it without that encoding");
        false
    }

    /// Encodes the block as a delta; `None` if its base is unreadable, or too dear to read.
    fn delta(&mut self, plan: &DeltaPlan, raw: &Bytes) -> Result<Option<StoredFrame>> {
        let base = match self.bases.read(plan, raw.len() as u32, &mut self.scratch) {
            Ok(Some(base)) => base,
            Ok(None) => {
                tracing::debug!(
                    "a part of a model is stored whole: its bases are too much to read, or stored otherwise"
                );
                return Ok(None);
            }
            Err(error) if error.is_unreadable() => {
                tracing::warn!("a part of a model is stored whole: {}", base_problem(&error));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut payload = Vec::new();
        delta::encode_tagged(plan.derivation, plan.phase, raw, &base, &mut self.scratch, &mut payload)?;
        payload.shrink_to_fit();
        let decode =
            |scratch: &mut Scratch, back: &mut Vec<u8>| delta::decode_tagged(&payload, &base, raw.len(), scratch, back);
        // A payload of the block's length is the block itself.
        let pays = payload.len() < raw.len() && self.is_reversible(raw, decode);
        let payload = if pays { Bytes::from(payload) } else { raw.clone() };
        Ok(Some(StoredFrame { codec: Raw.id(), raw_len: payload.len() as u32, payload }))
    }

    fn frame(&mut self, frame: &mut PendingFrame) -> Result<()> {
        let plan = match &frame.kind {
            FrameKind::Float(layout) => {
                frame.stored = self.elements(BlockHint::Layout(*layout), &frame.raw)?;
                return Ok(());
            }
            FrameKind::Elements(element_type) => {
                frame.stored = self.elements(BlockHint::ElementType(*element_type), &frame.raw)?;
                return Ok(());
            }
            FrameKind::Tensor(element_type, rows) => {
                frame.stored = self.elements(BlockHint::Tensor(*element_type, *rows), &frame.raw)?;
                return Ok(());
            }
            FrameKind::Delta(plan) => plan.clone(),
            FrameKind::Solid { .. } | FrameKind::Plain | FrameKind::Incompressible => return Ok(()),
        };
        frame.stored = self.delta(&plan, &frame.raw)?;
        if frame.stored.is_none() {
            self.bases.in_flight.make_whole(frame.number);
            frame.kind = FrameKind::Elements(plan.element_type);
            frame.stored = self.elements(BlockHint::ElementType(plan.element_type), &frame.raw)?;
        }
        Ok(())
    }
}

impl Map for ModelEncodeWorker {
    type In = Packet;
    type Out = Packet;

    fn name(&self) -> &'static str {
        "model encode"
    }

    fn map(&mut self, mut packet: Packet) -> Result<Packet> {
        if let Packet::Frame(frame) = &mut packet {
            self.frame(frame)?;
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::delta::Derivation;
    use crate::codec::{ElementType, Floats};
    use crate::repo::container::{
        BaseUse, EntryNumber, ExtentCache, FrameNumber, NamedChunk, OperationSlice, OperationSource, OperationView,
        SessionEntryNumber, SessionFrameNumber,
    };
    use crate::store::MemoryStore;

    fn worker(verify: bool, key: Option<RepositoryKey>) -> ModelEncodeWorker {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let container_indexes = ContainerIndexes::new(store.clone(), 1, 1 << 10);
        let bases = BaseReader { store, in_flight: Arc::default(), container_indexes, key };
        let (codec, scratch) = (FloatCodec::Floats, Scratch::default());
        ModelEncodeWorker { codec, level: 1, verify, decoded: vec![9], scratch, bases }
    }

    /// An entry that is all of a frame.
    struct Whole(OperationView);

    impl OperationSource for Whole {
        fn view(&mut self, _: EntryNumber) -> Result<OperationView> {
            Ok(self.0.clone())
        }

        fn base(&mut self, _: &OperationView, _: u32, _: BaseUse) -> Result<EntryNumber> {
            panic!("a whole entry has no bases")
        }
    }

    #[test]
    fn a_block_whose_base_has_another_name_is_stored_whole() {
        let base = Bytes::from_iter((0..30_000u32).flat_map(|value| [((value * value) >> 7) as u8, 0x3c]));
        let raw = Bytes::from_iter(base.iter().map(|byte| byte ^ u8::from(byte % 16 == 3)));
        let (key, number) = (RepositoryKey([3; 32]), SessionFrameNumber(0));
        let (entry, frame, len) = (EntryNumber::session(SessionEntryNumber(0)), FrameNumber::session(number), 60_000);
        let operations = OperationSlice::Whole;
        let view =
            OperationView { entry, raw_len: len, frame, literal_offset: 0, literal_len: len, depth: 1, operations };
        let extent_map = ExtentCache::new(1 << 16).extent_map(&mut Whole(view), entry).unwrap();
        for (name, verify, is_delta) in [
            (key.fingerprint(&base), true, true),
            (key.fingerprint(b"x"), true, false),
            (key.fingerprint(b"x"), false, true),
        ] {
            let mut worker = worker(verify, verify.then_some(key));
            let stored = StoredFrame { codec: Raw.id(), raw_len: len, payload: base.clone() };
            worker.bases.in_flight.publish(number, stored);
            let plan = DeltaPlan {
                derivation: Derivation::Context(ElementType::Bf16),
                phase: 0,
                element_type: ElementType::Bf16,
                base: vec![(extent_map.clone(), 0..len)],
                chunks: vec![NamedChunk { extent_map: extent_map.clone(), name }],
                frames: vec![(frame, FrameReference::Session(number))],
            };
            assert_eq!(worker.delta(&plan, &raw).unwrap().is_some(), is_delta, "{verify}");
        }
    }

    #[test]
    fn an_encoding_that_does_not_decode_is_not_stored() {
        let mut worker = worker(true, None);
        let raw = Bytes::from_iter((0..60_000u32).flat_map(|value| [value as u8 & 3, 0x3f]));
        let encoded = worker.elements(BlockHint::ElementType(ElementType::Bf16), &raw).unwrap().expect("pays");
        assert_eq!(encoded.decode(&mut worker.scratch).unwrap(), raw);
        let mut other = encoded.payload.to_vec();
        let last = other.len() - 1;
        other[last] ^= 1;
        assert!(worker.stored(&Floats, other.clone(), &raw).is_none());
        other.truncate(last);
        assert!(worker.stored(&Floats, other.clone(), &raw).is_none());
        worker.verify = false;
        assert!(worker.stored(&Floats, other, &raw).is_some());
    }
}
