//! Metadata containers: recipes and directory listings, as chunks stored whole in small solid frames.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::compress::compress;
use crate::codec::{Scratch, Zstandard};
use crate::error::Result;
use crate::repo::container::{ContainerKind, EntryFields, OperationList, Sealed, Writer};
use crate::repo::index::ChunkIndex;
use crate::types::{Fingerprint, RepositoryKey};

/// Raw bytes of a metadata frame: small, because trees are read here and there.
const FRAME_BYTES: usize = 256 << 10;
/// Metadata chunks are compressed at this zstd level.
const LEVEL: i32 = 3;

/// Collects metadata chunks.
pub struct MetadataWriter {
    key: RepositoryKey,
    index: Arc<Mutex<ChunkIndex>>,
    bytes_target: u64,
    writer: Writer,
    frame: Vec<u8>,
    pending: Vec<EntryFields>,
    scratch: Scratch,
    space: Vec<u8>,
}

impl MetadataWriter {
    /// A writer of containers of `bytes_target` bytes.
    pub fn new(key: RepositoryKey, index: Arc<Mutex<ChunkIndex>>, bytes_target: u64) -> Self {
        MetadataWriter {
            key,
            index,
            bytes_target,
            writer: Writer::new(ContainerKind::Metadata),
            frame: Vec::new(),
            pending: Vec::new(),
            scratch: Scratch::default(),
            space: Vec::new(),
        }
    }

    /// Stores a chunk unless it is stored, and gives its fingerprint.
    pub fn put(&mut self, bytes: Vec<u8>) -> Result<Fingerprint> {
        let fingerprint = self.key.fingerprint(&bytes);
        if self.index.lock().unwrap_or_else(PoisonError::into_inner).contains_or_claim(&fingerprint)? {
            return Ok(fingerprint);
        }
        let len = bytes.len() as u32;
        let frame = 0; // set when the frame is full
        let literal_offset = self.frame.len() as u32;
        self.pending.push(EntryFields { fingerprint, raw_len: len, frame, literal_offset, literal_len: len, depth: 1 });
        self.frame.extend_from_slice(&bytes);
        if self.frame.len() >= FRAME_BYTES {
            self.end_frame()?
        }
        Ok(fingerprint)
    }

    fn end_frame(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let raw = Bytes::from(std::mem::take(&mut self.frame));
        let stored = compress(&Zstandard, &raw, LEVEL, &mut self.scratch, &mut self.space)?;
        let number = self.writer.push_frame(&stored);
        for fields in self.pending.drain(..) {
            self.writer.push_entry(EntryFields { frame: number, ..fields }, &OperationList::default(), &[]);
        }
        Ok(())
    }

    /// The container, if it is full or this is the end and there is anything in it.
    pub fn take_full(&mut self, at_end: bool) -> Result<Option<Sealed>> {
        if at_end {
            self.end_frame()?;
        }
        if self.writer.is_full(self.bytes_target) || at_end && !self.writer.is_empty() {
            let full = std::mem::replace(&mut self.writer, Writer::new(ContainerKind::Metadata));
            return full.seal().map(Some);
        }
        Ok(None)
    }
}
