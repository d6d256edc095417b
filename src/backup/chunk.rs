//! Chunk: divides files into chunks.
//!
//! Opaque bytes are cut at content-defined boundaries. In a model file each block of a tensor is a chunk: blocks start
//! at fixed distances from the tensor's first byte. Bytes between tensors are cut like any other file.
//!
//! Chunks are slices of the buffers that Read filled. Bytes are copied only where a chunk crosses the end of a buffer:
//! the tail without a boundary is carried over and prepended to the next buffer.
//!
//! Read finds the anchors of each buffer, with several workers. Where it has, only those are scanned here whose windows
//! begin in one buffer and end in another.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::opening::OpenedParts;
use super::rest::FileRest;
use crate::backup::message::{
    Chunk, ChunkBatch, ChunkItem, CopySearch, ITEMS_MAX, Outcome, ReadBatch, ReadItem, TreeItem,
};
use crate::chunk::{Chunker, chunker};
use crate::config::RepositoryConfig;
use crate::error::Result;
use crate::kernel::sieve::{Anchor, WINDOW_BYTES};
use crate::model::{ModelFile, ModelRegion, TensorBlock};
use crate::pipeline::{Emit, Stage};
use crate::types::Fingerprint;

/// The stage.
pub struct ChunkStage {
    chunker: Box<dyn Chunker>,
    bytes_avg: usize,
    bytes_max: usize,
    /// Bytes of an unfinished chunk from buffers before.
    carry: Vec<u8>,
    /// The anchors of these bytes, if they are known.
    carried_anchors: Option<Vec<Anchor>>,
    /// The model file being cut.
    model: Option<Arc<ModelFile>>,
    /// Offset in the model file.
    offset: u64,
    /// The rest of the current file is ignored.
    is_broken: bool,
    /// How the rest of the current file was read.
    rest_outcome: Outcome,
    batch: ChunkBatch,
    batch_bytes: u64,
    /// When the input came from Read.
    read_at: Option<Instant>,
}

impl ChunkStage {
    /// Cuts with the chunker of `config`. `seed` is derived from the repository's key.
    pub fn new(config: &RepositoryConfig, seed: u64, batch_bytes: u64) -> Self {
        ChunkStage {
            chunker: chunker(config, seed),
            bytes_avg: config.chunk_bytes_avg.0 as usize,
            bytes_max: config.chunk_bytes_max.0 as usize,
            carry: Vec::new(),
            carried_anchors: None,
            model: None,
            offset: 0,
            is_broken: false,
            rest_outcome: Outcome::Complete,
            batch: ChunkBatch::default(),
            batch_bytes,
            read_at: None,
        }
    }

    fn push(&mut self, item: ChunkItem, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        if let ChunkItem::Chunk(chunk) = &item {
            self.batch.bytes += u64::from(chunk.len);
        }
        if self.batch.items.is_empty() {
            self.batch.read_at = self.read_at;
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

    /// Sends the first chunk of `bytes[start..]`; returns its end.
    fn cut(&mut self, bytes: &Bytes, start: usize, emit: &mut Emit<ChunkBatch>) -> Result<usize> {
        let mut anchors = Vec::new();
        let end = start + self.chunker.cut(bytes.get(start..).unwrap_or_default(), &mut anchors);
        self.push_chunk(bytes.slice(start..end), anchors, emit)?;
        Ok(end)
    }

    fn push_chunk(&mut self, bytes: Bytes, anchors: Vec<Anchor>, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let (len, fingerprint, class) = (bytes.len() as u32, Fingerprint([0; 32]), None);
        let anchors = self.chunker.by_anchors().map(|_| anchors);
        let (is_new, is_borrowed, block, search, slices) = (false, false, None, CopySearch::None, None);
        let chunk = Chunk { bytes, len, fingerprint, is_borrowed, is_new, class, anchors, search, slices, block };
        self.push(ChunkItem::Chunk(chunk), emit)
    }

    fn push_block(&mut self, bytes: Bytes, block: TensorBlock, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let (len, fingerprint, class) = (bytes.len() as u32, Fingerprint([0; 32]), None);
        let (is_new, is_borrowed, anchors, block) = (false, false, None, Some(block));
        let (search, slices) = (CopySearch::None, None);
        let chunk = Chunk { bytes, len, fingerprint, is_borrowed, is_new, class, anchors, search, slices, block };
        self.push(ChunkItem::Chunk(chunk), emit)
    }

    /// Sends a chunk that was cut before. A stored one has no bytes, only a fingerprint.
    fn ready_chunk(
        &mut self,
        (bytes, is_borrowed): (Bytes, bool),
        (fingerprint, len): (Fingerprint, u32),
        emit: &mut Emit<ChunkBatch>,
    ) -> Result<()> {
        let region = self.model.as_ref().map(|model| model.record.region(self.offset));
        self.offset += u64::from(len);
        // A block of this model only if it was cut like one.
        let block = region.filter(|region| region.end == self.offset).and_then(|region| region.block);
        let (is_new, class, anchors) = (false, None, None);
        let (search, slices) = (CopySearch::None, None);
        let chunk = Chunk { bytes, len, fingerprint, is_borrowed, is_new, class, anchors, search, slices, block };
        self.push(ChunkItem::Chunk(chunk), emit)
    }

    /// Cuts the next bytes of a model file, region by region.
    fn model_data(&mut self, file: &ModelFile, mut bytes: Bytes, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        while !bytes.is_empty() {
            let ModelRegion { end, block } = file.record.region(self.offset);
            let taken = bytes.split_to((end - self.offset).min(bytes.len() as u64) as usize);
            self.offset += taken.len() as u64;
            let Some(block) = block else {
                self.data(taken, emit)?;
                if self.offset == end {
                    self.end_data(emit)?;
                }
                continue;
            };
            if self.offset < end {
                if self.carry.is_empty() {
                    self.carry.reserve(file.record.block_bytes as usize);
                }
                self.carry.extend_from_slice(&taken);
            } else if self.carry.is_empty() {
                self.push_block(taken, block, emit)?;
            } else {
                self.carry.extend_from_slice(&taken);
                let whole = Bytes::from(std::mem::take(&mut self.carry));
                self.push_block(whole, block, emit)?;
            }
        }
        Ok(())
    }

    /// The first chunk of `len` bytes, by the anchors that `scanned` gives of them. `None` if no anchors cut.
    fn cut_scanned(&self, len: usize, mut scanned: impl Iterator<Item = Anchor>) -> Option<(usize, Vec<Anchor>)> {
        let mut anchors = Vec::new();
        let end = self.chunker.by_anchors()?.cut_scanned(len, &mut scanned, &mut anchors);
        Some((end, anchors))
    }

    /// The anchors, counted from the start of the carried bytes, whose windows end in `bytes` and begin before.
    fn straddling(&self, bytes: &[u8]) -> Vec<Anchor> {
        let old = self.carry.len();
        let (tail, head) = (old.min(WINDOW_BYTES - 1), bytes.len().min(WINDOW_BYTES - 1));
        let joint = [self.carry.get(old - tail..), bytes.get(..head)].map(Option::unwrap_or_default).concat();
        let anchors = self.chunker.by_anchors().map(|chunker| chunker.scan(&joint)).unwrap_or_default();
        anchors.into_iter().map(|anchor| moved(anchor, old - tail)).collect()
    }

    /// Like [`Self::data`], for bytes of which `scanned` are the anchors.
    fn scanned_data(&mut self, bytes: Bytes, scanned: &[Anchor], emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let (old, mut start) = (self.carry.len(), 0);
        if old > 0 {
            let Some(carried) = self.carried_anchors.take() else { return self.data(bytes, emit) };
            let straddling = self.straddling(&bytes);
            let all = carried.into_iter().chain(straddling);
            let all = all.chain(scanned.iter().map(|anchor| moved(*anchor, old)));
            let Some((end, anchors)) = self.cut_scanned(old + bytes.len(), all) else { return self.data(bytes, emit) };
            if !self.is_final(end, old + bytes.len()) {
                self.carry.extend_from_slice(&bytes);
                self.carried_anchors = Some(anchors);
                return Ok(());
            }
            start = end.saturating_sub(old);
            self.carry.extend_from_slice(bytes.get(..start).unwrap_or_default());
            let whole = Bytes::from(std::mem::take(&mut self.carry));
            self.push_chunk(whole, anchors, emit)?;
        }
        while start < bytes.len() {
            let len = bytes.len() - start;
            let Some((end, anchors)) = self.cut_scanned(len, behind(scanned, start)) else {
                return self.data(bytes.slice(start..), emit);
            };
            if !self.is_final(end, len) {
                self.carry = bytes.get(start..).unwrap_or_default().to_vec();
                self.carried_anchors = Some(anchors);
                break;
            }
            self.push_chunk(bytes.slice(start..start + end), anchors, emit)?;
            start += end;
        }
        Ok(())
    }

    /// Cuts the next bytes of opaque data.
    fn data(&mut self, bytes: Bytes, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        self.carried_anchors = None;
        let Some(mut start) = self.finish_carried(&bytes, emit)? else { return Ok(()) };
        while start < bytes.len() {
            let rest = bytes.get(start..).unwrap_or_default();
            let mut anchors = Vec::new();
            let end = self.chunker.cut(rest, &mut anchors);
            if !self.is_final(end, rest.len()) {
                self.carry = rest.to_vec();
                break;
            }
            self.push_chunk(bytes.slice(start..start + end), anchors, emit)?;
            start += end;
        }
        Ok(())
    }

    /// Reads and cuts the rest of a file that is longer than its metadata say.
    fn rest(&mut self, mut rest: FileRest, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        while let Some(bytes) = rest.next() {
            emit.check()?;
            self.file_data(bytes, emit)?;
        }
        self.rest_outcome = match (rest.is_failed(), rest.is_changed()) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Changed,
            (false, false) => Outcome::Complete,
        };
        Ok(())
    }

    /// Cuts the parts of an opened file.
    fn opened(&mut self, mut parts: OpenedParts, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        while let Some(bytes) = parts.next_plain()? {
            emit.check()?;
            self.data(bytes, emit)?;
        }
        self.end_data(emit)?;
        self.push(ChunkItem::Tree(TreeItem::Corrections), emit)?;
        while let Some(bytes) = parts.next_corrections()? {
            self.data(bytes, emit)?;
        }
        self.end_data(emit)?;
        let OpenedParts { hash, len, .. } = parts;
        self.push(ChunkItem::Tree(TreeItem::Rebuilt { hash, len }), emit)
    }

    /// Cuts the next bytes of a file.
    fn file_data(&mut self, bytes: Bytes, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        match self.model.clone() {
            Some(model) => self.model_data(&model, bytes, emit),
            None => self.data(bytes, emit),
        }
    }

    /// Whether more bytes than these `len` would leave the boundary at `end`.
    fn is_final(&self, end: usize, len: usize) -> bool {
        end < len || len >= self.bytes_max
    }

    /// Completes the chunk of the carried bytes with the first bytes of `bytes`. Returns where the next chunk starts in
    /// `bytes`, or `None` if all of `bytes` are carried over.
    fn finish_carried(&mut self, bytes: &Bytes, emit: &mut Emit<ChunkBatch>) -> Result<Option<usize>> {
        if self.carry.is_empty() {
            return Ok(Some(0));
        }
        let old = self.carry.len();
        // Most chunks end within the average length; the second round copies up to the largest length.
        for more in [self.bytes_avg, self.bytes_max] {
            let taken = self.carry.len() - old;
            self.carry.extend_from_slice(bytes.get(taken..more.min(bytes.len()).max(taken)).unwrap_or_default());
            let mut anchors = Vec::new();
            let end = self.chunker.cut(&self.carry, &mut anchors);
            if !self.is_final(end, self.carry.len()) {
                continue;
            }
            let whole = Bytes::from(std::mem::take(&mut self.carry));
            self.push_chunk(whole.slice(..end), anchors, emit)?;
            let mut at = end;
            while at < old {
                // Happens only if the largest length cut the carried bytes.
                at = self.cut(&whole, at, emit)?;
            }
            return Ok(Some(at - old));
        }
        Ok(None)
    }

    /// Cuts the carried bytes at the end of a file, before a hole, or before a tensor.
    fn end_data(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let (rest, carried) = (Bytes::from(std::mem::take(&mut self.carry)), self.carried_anchors.take());
        let mut start = 0;
        while start < rest.len() {
            let scanned = carried.as_ref().map(|carried| behind(carried, start));
            match scanned.and_then(|scanned| self.cut_scanned(rest.len() - start, scanned)) {
                Some((end, anchors)) => {
                    self.push_chunk(rest.slice(start..start + end), anchors, emit)?;
                    start += end;
                }
                None => start = self.cut(&rest, start, emit)?,
            }
        }
        Ok(())
    }
}

/// An anchor of bytes that begin `distance` bytes behind the start of others, as an anchor of these.
fn moved(anchor: Anchor, distance: usize) -> Anchor {
    Anchor { position: anchor.position + distance as u32, ..anchor }
}

/// The anchors of a chunk that begins at `start`.
fn behind(scanned: &[Anchor], start: usize) -> impl Iterator<Item = Anchor> {
    let first = scanned.partition_point(|anchor| (anchor.position as usize) < start + WINDOW_BYTES);
    let of_chunk = scanned.get(first..).unwrap_or_default().iter();
    of_chunk.map(move |anchor| Anchor { position: anchor.position - start as u32, ..*anchor })
}

impl Stage for ChunkStage {
    type In = ReadBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "chunk"
    }

    fn process(&mut self, input: ReadBatch, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        self.read_at = Some(Instant::now());
        for item in input.items {
            match item {
                ReadItem::Broken => self.is_broken = true,
                ReadItem::Data(_) | ReadItem::Scanned(..) | ReadItem::Hole(_) | ReadItem::Rest(_) if self.is_broken => {
                }
                ReadItem::Data(bytes) => self.file_data(bytes, emit)?,
                ReadItem::Scanned(bytes, _) if self.model.is_some() => self.file_data(bytes, emit)?,
                ReadItem::Scanned(bytes, anchors) => self.scanned_data(bytes, &anchors, emit)?,
                ReadItem::Rest(rest) => self.rest(*rest, emit)?,
                ReadItem::Opened(parts) => self.opened(*parts, emit)?,
                ReadItem::Chunk(bytes) => {
                    let len = bytes.len() as u32;
                    self.ready_chunk((bytes, false), (Fingerprint([0; 32]), len), emit)?;
                }
                ReadItem::Borrowed(bytes) => {
                    let len = bytes.len() as u32;
                    self.ready_chunk((bytes, true), (Fingerprint([0; 32]), len), emit)?;
                }
                ReadItem::Stored { fingerprint, len } => {
                    self.ready_chunk((Bytes::new(), false), (fingerprint, len), emit)?;
                }
                ReadItem::Model(model) => {
                    (self.model, self.offset) = (Some(model.clone()), 0);
                    self.push(ChunkItem::Model(model), emit)?;
                }
                ReadItem::PreviousVersion(content) => self.push(ChunkItem::PreviousVersion(content), emit)?,
                ReadItem::Hole(len) => {
                    self.end_data(emit)?;
                    self.push(ChunkItem::Hole(len), emit)?;
                }
                ReadItem::Tree(mut item) => {
                    if matches!(item, TreeItem::Corrections | TreeItem::Rebuilt { .. }) {
                        self.end_data(emit)?;
                    }
                    if let TreeItem::End { outcome, .. } = &mut item {
                        self.end_data(emit)?;
                        *outcome = std::mem::replace(&mut self.rest_outcome, Outcome::Complete).max(*outcome);
                        (self.model, self.is_broken) = (None, false);
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

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
