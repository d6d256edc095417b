//! Chunk: cuts the bytes of each file at content-defined places.
//!
//! Chunks are slices of the buffers that Read filled. Only where a chunk runs over a buffer's end are bytes copied: the
//! tail in which no cut was found is joined with the beginning of the next buffer.

use bytes::Bytes;

use crate::chunker::{Cutter, cutter};
use crate::config::RepositoryConfig;
use crate::error::Result;
use crate::identify::Class;
use crate::kernel::sieve::Anchor;
use crate::message::{Chunk, ChunkBatch, ChunkItem, ReadBatch, ReadItem, TreeItem};
use crate::pipeline::{Emit, Stage};
use crate::types::Fingerprint;

/// Items of a batch, at most.
const ITEMS_MAX: usize = 1024;

/// The stage.
pub struct ChunkStage {
    cutter: Box<dyn Cutter>,
    bytes_avg: usize,
    bytes_max: usize,
    carry: Vec<u8>,
    batch: ChunkBatch,
    batch_bytes: u64,
}

impl ChunkStage {
    /// Cuts as `config` says; `seed` comes from the repository's key.
    pub fn new(config: &RepositoryConfig, seed: u64, batch_bytes: u64) -> Self {
        ChunkStage {
            cutter: cutter(config, seed),
            bytes_avg: config.chunk_bytes_avg.0 as usize,
            bytes_max: config.chunk_bytes_max.0 as usize,
            carry: Vec::new(),
            batch: ChunkBatch::default(),
            batch_bytes,
        }
    }

    fn push(&mut self, item: ChunkItem, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        if let ChunkItem::Chunk(chunk) = &item {
            self.batch.bytes += u64::from(chunk.len);
        }
        self.batch.items.push(item);
        if self.batch.bytes >= self.batch_bytes || self.batch.items.len() >= ITEMS_MAX {
            self.flush(emit)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        if self.batch.items.is_empty() { Ok(()) } else { emit.emit(std::mem::take(&mut self.batch)) }
    }

    /// Cuts the first chunk of `bytes[start..]` and gives its end.
    fn cut(&mut self, bytes: &Bytes, start: usize, emit: &mut Emit<ChunkBatch>) -> Result<usize> {
        let mut anchors = Vec::new();
        let end = start + self.cutter.cut(bytes.get(start..).unwrap_or_default(), &mut anchors);
        self.push_chunk(bytes.slice(start..end), anchors, emit)?;
        Ok(end)
    }

    fn push_chunk(&mut self, bytes: Bytes, anchors: Vec<Anchor>, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let (len, fingerprint, class) = (bytes.len() as u32, Fingerprint([0; 32]), Class::Ordinary);
        let anchors = self.cutter.gives_anchors().then_some(anchors);
        self.push(ChunkItem::Chunk(Chunk { bytes, len, fingerprint, is_new: false, class, anchors }), emit)
    }

    fn data(&mut self, bytes: Bytes, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let Some(mut start) = self.finish_carried(&bytes, emit)? else { return Ok(()) };
        while start < bytes.len() {
            let rest = bytes.get(start..).unwrap_or_default();
            let mut anchors = Vec::new();
            let end = self.cutter.cut(rest, &mut anchors);
            if !self.is_final(end, rest.len()) {
                self.carry = rest.to_vec();
                break;
            }
            self.push_chunk(bytes.slice(start..start + end), anchors, emit)?;
            start += end;
        }
        Ok(())
    }

    /// Whether a cut at `end` stays where it is when more than `len` bytes are there.
    fn is_final(&self, end: usize, len: usize) -> bool {
        end < len || len >= self.bytes_max
    }

    /// Joins the carried bytes with as many of `bytes` as their chunk needs and gives where the next one starts in
    /// `bytes`; `None` if they do not suffice, and are all carried on.
    fn finish_carried(&mut self, bytes: &Bytes, emit: &mut Emit<ChunkBatch>) -> Result<Option<usize>> {
        if self.carry.is_empty() {
            return Ok(Some(0));
        }
        let old = self.carry.len();
        // Most chunks end soon; copying up to the largest length is for those that do not.
        for more in [self.bytes_avg, self.bytes_max] {
            let taken = self.carry.len() - old;
            self.carry.extend_from_slice(bytes.get(taken..more.min(bytes.len()).max(taken)).unwrap_or_default());
            let mut anchors = Vec::new();
            let end = self.cutter.cut(&self.carry, &mut anchors);
            if !self.is_final(end, self.carry.len()) {
                continue;
            }
            let joined = Bytes::from(std::mem::take(&mut self.carry));
            self.push_chunk(joined.slice(..end), anchors, emit)?;
            let mut at = end;
            while at < old {
                // Only where the largest length cut the carried bytes.
                at = self.cut(&joined, at, emit)?;
            }
            return Ok(Some(at - old));
        }
        Ok(None)
    }

    /// Cuts what is left: the file, or a stretch of data before a hole, has ended.
    fn end_data(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let rest = Bytes::from(std::mem::take(&mut self.carry));
        let mut start = 0;
        while start < rest.len() {
            start = self.cut(&rest, start, emit)?;
        }
        Ok(())
    }
}

impl Stage for ChunkStage {
    type In = ReadBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "chunk"
    }

    fn process(&mut self, input: ReadBatch, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        for item in input.items {
            match item {
                ReadItem::Data(bytes) => self.data(bytes, emit)?,
                ReadItem::Hole(len) => {
                    self.end_data(emit)?;
                    self.push(ChunkItem::Hole(len), emit)?;
                }
                ReadItem::Tree(item) => {
                    if matches!(item, TreeItem::End { .. }) {
                        self.end_data(emit)?;
                    }
                    self.push(ChunkItem::Tree(item), emit)?;
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        self.flush(emit)
    }
}
