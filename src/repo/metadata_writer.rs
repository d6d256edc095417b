//! Metadata containers: recipes, directory listings and model records, stored whole in small solid frames.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::{Scratch, Zstandard};
use crate::error::Result;
use crate::repo::container::{
    ContainerKind, ContainerWriter, EntryFields, NewContainers, OperationList, SealedContainer, StoredFrame,
};
use crate::repo::index::ChunkIndex;
use crate::types::{Fingerprint, RepositoryKey};

/// Raw bytes of a metadata frame. Frames are small because readers of trees jump between them.
const FRAME_BYTES: usize = 256 << 10;
/// zstd level of metadata frames.
const LEVEL: i32 = 3;

/// Collects metadata chunks into frames and containers.
pub struct MetadataWriter {
    key: RepositoryKey,
    index: Arc<Mutex<ChunkIndex>>,
    bytes_target: u64,
    containers: NewContainers,
    writer: ContainerWriter,
    frame: Vec<u8>,
    pending: Vec<EntryFields>,
    scratch: Scratch,
    space: Vec<u8>,
}

impl MetadataWriter {
    /// A writer whose containers are full at `bytes_target` bytes.
    ///
    /// # Errors
    /// Errors of [`NewContainers::begin`].
    pub fn new(
        key: RepositoryKey,
        containers: NewContainers,
        index: Arc<Mutex<ChunkIndex>>,
        bytes_target: u64,
    ) -> Result<Self> {
        let writer = containers.begin(ContainerKind::Metadata)?;
        Ok(MetadataWriter {
            key,
            containers,
            index,
            bytes_target,
            writer,
            frame: Vec::new(),
            pending: Vec::new(),
            scratch: Scratch::default(),
            space: Vec::new(),
        })
    }

    /// Adds a chunk unless it is stored already; returns its fingerprint.
    ///
    /// # Errors
    /// Errors of the index and of the codec.
    pub fn put(&mut self, bytes: Vec<u8>) -> Result<Fingerprint> {
        let fingerprint = self.key.fingerprint(&bytes);
        if self.index.lock().contains_or_claim(&fingerprint)? {
            return Ok(fingerprint);
        }
        let len = bytes.len() as u32;
        let frame = 0; // end_frame sets the number
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
        let stored = StoredFrame::encode(&Zstandard, &raw, LEVEL, &mut self.scratch, &mut self.space)?;
        let number = self.writer.push_frame(&stored)?;
        for fields in self.pending.drain(..) {
            self.writer.push_entry(EntryFields { frame: number, ..fields }, &OperationList::default(), &[])?;
        }
        Ok(())
    }

    /// The sealed container if it is full, or if the stream has ended and it is not empty.
    ///
    /// # Errors
    /// Errors of encoding.
    pub fn take_full(&mut self, at_end: bool) -> Result<Option<SealedContainer>> {
        if at_end {
            self.end_frame()?;
        }
        if self.writer.is_full(self.bytes_target) || at_end && !self.writer.is_empty() {
            let next = self.containers.begin(ContainerKind::Metadata)?;
            let full = std::mem::replace(&mut self.writer, next);
            return full.seal().map(Some);
        }
        Ok(None)
    }
}
