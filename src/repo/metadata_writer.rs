//! Metadata containers: recipes, directory listings and model records, in small solid frames. Records may copy ranges
//! of other records, listings may be differences to other listings; all else is stored whole.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::{Scratch, Zstandard, delta};
use crate::error::Result;
use crate::repo::container::{
    Base, ContainerKind, ContainerWriter, EntryFields, NewContainers, Operation, OperationList, SealedContainer,
    StoredFrame,
};
use crate::repo::index::ChunkIndex;
use crate::repo::metadata_copies::copies;
use crate::types::{Fingerprint, RepositoryKey};

/// Raw bytes of a metadata frame. Frames are small because readers of trees jump between them.
const FRAME_BYTES: usize = 256 << 10;
/// zstd level of metadata frames.
const LEVEL: i32 = 3;
/// What each base of a difference takes in a container index, bytes: its name and its operation.
const BASE_COST: usize = 44;
/// The quarters of its compressed bytes that a listing may take as a difference: the base stays as long as it does.
const QUARTERS_MAX: usize = 2;

/// A stored chunk of metadata that a new one may copy ranges of. It is whole.
#[derive(Debug)]
pub struct MetadataBase {
    /// Its entry.
    pub name: Base,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Whole stored chunks of a listing that a new one may be a difference to.
#[derive(Debug, Default)]
pub struct ListingBase {
    /// Their entries, with the lengths of their content.
    pub names: Vec<(Base, u32)>,
    /// Their content, one after another.
    pub bytes: Vec<u8>,
}

/// Literal bytes of an entry, and how they make the chunk.
struct MadeEntry {
    literals: Vec<u8>,
    operations: OperationList,
    depth: u8,
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
        let copied = like.and_then(|like| Some((copies(&bytes, &like.bytes)?, like.name)));
        let made = copied.map(|((operations, literals), name)| MadeEntry {
            literals,
            operations: OperationList { operations, bases: vec![name] },
            depth: 2,
        });
        self.push(fingerprint, bytes, made)
    }

    /// Adds a chunk of a listing unless it is stored already, as a difference to what `find` finds if that saves enough
    /// of it; returns its fingerprint.
    ///
    /// # Errors
    /// Errors of the index, of the codec and of `find`.
    pub fn put_listing(
        &mut self,
        bytes: Vec<u8>,
        find: impl FnOnce(&[u8]) -> Result<Option<ListingBase>>,
    ) -> Result<Fingerprint> {
        let fingerprint = self.key.fingerprint(&bytes);
        if self.index.lock().contains_or_claim(&fingerprint)? {
            return Ok(fingerprint);
        }
        let base = find(&bytes)?.filter(|base| base.names.iter().all(|(name, _)| name.fingerprint != fingerprint));
        let made = base.map(|base| self.difference(&bytes, &base)).transpose()?.flatten();
        self.push(fingerprint, bytes, made)
    }

    /// The difference of a listing to `base`; `None` if it does not save a quarter.
    fn difference(&mut self, bytes: &[u8], base: &ListingBase) -> Result<Option<MadeEntry>> {
        let Some(literals) = delta::encode_listing(bytes, &base.bytes) else { return Ok(None) };
        let mut compressed_len = |bytes: &[u8]| -> Result<usize> {
            self.space.clear();
            self.scratch.compress(bytes, LEVEL, &mut self.space)?;
            Ok(self.space.len().min(bytes.len()))
        };
        let taken = compressed_len(&literals)? + base.names.len() * BASE_COST;
        if taken * 4 > compressed_len(bytes)? * QUARTERS_MAX || literals.len() >= bytes.len() {
            return Ok(None);
        }
        let (mut bases, mut operations) = (Vec::new(), Vec::new());
        for (name, len) in &base.names {
            operations.push(Operation::Delta { base: bases.len() as u32, offset: 0, len: *len });
            bases.push(*name);
        }
        Ok(Some(MadeEntry { literals, operations: OperationList { operations, bases }, depth: 2 }))
    }

    /// Adds a new chunk: as it was made, or whole.
    fn push(&mut self, fingerprint: Fingerprint, bytes: Vec<u8>, made: Option<MadeEntry>) -> Result<Fingerprint> {
        let raw_len = bytes.len() as u32;
        let frame = 0; // end_frame sets the number
        let literal_offset = self.frame.len() as u32;
        let whole = || MadeEntry { literals: bytes, operations: OperationList::default(), depth: 1 };
        let MadeEntry { literals, operations, depth } = made.unwrap_or_else(whole);
        self.frame.extend_from_slice(&literals);
        let literal_len = literals.len() as u32;
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
