//! Metadata containers: recipes, directory listings and model records, in small solid frames. Records may copy ranges
//! of other records; all else is stored whole.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::{Scratch, Zstandard};
use crate::error::Result;
use crate::repo::container::{
    Base, ContainerKind, ContainerWriter, EntryFields, NewContainers, OperationList, SealedContainer, StoredFrame,
};
use crate::repo::index::ChunkIndex;
use crate::repo::metadata_copies::copies;
use crate::types::{Fingerprint, RepositoryKey};

/// Raw bytes of a metadata frame. Frames are small because readers of trees jump between them.
const FRAME_BYTES: usize = 256 << 10;
/// zstd level of metadata frames.
const LEVEL: i32 = 3;

/// A stored chunk of metadata that a new one may copy ranges of. It is whole.
#[derive(Debug)]
pub struct MetadataBase {
    /// Its entry.
    pub name: Base,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Collects metadata chunks into frames and containers.
pub struct MetadataWriter {
    key: RepositoryKey,
    index: Arc<Mutex<ChunkIndex>>,
    bytes_target: u64,
    containers: NewContainers,
    writer: ContainerWriter,
    frame: Vec<u8>,
    pending: Vec<(EntryFields, OperationList)>,
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
        self.put_like(bytes, None)
    }

    /// Adds a chunk unless it is stored already, with copies of ranges of `like` if these save most of it; returns its
    /// fingerprint.
    ///
    /// # Errors
    /// Errors of the index and of the codec.
    pub fn put_like(&mut self, bytes: Vec<u8>, like: Option<&MetadataBase>) -> Result<Fingerprint> {
        let fingerprint = self.key.fingerprint(&bytes);
        if self.index.lock().contains_or_claim(&fingerprint)? {
            return Ok(fingerprint);
        }
        let raw_len = bytes.len() as u32;
        let frame = 0; // end_frame sets the number
        let literal_offset = self.frame.len() as u32;
        let (operations, depth) = match like.and_then(|like| Some((copies(&bytes, &like.bytes)?, like.name))) {
            Some(((operations, literals), name)) => {
                self.frame.extend_from_slice(&literals);
                (OperationList { operations, bases: vec![name] }, 2)
            }
            None => {
                self.frame.extend_from_slice(&bytes);
                (OperationList::default(), 1)
            }
        };
        let literal_len = self.frame.len() as u32 - literal_offset;
        self.pending
            .push((EntryFields { fingerprint, raw_len, frame, literal_offset, literal_len, depth }, operations));
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
        for (fields, operations) in self.pending.drain(..) {
            self.writer.push_entry(EntryFields { frame: number, ..fields }, &operations, &[])?;
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
