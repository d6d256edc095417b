//! Writing one container: frames and entries in stream order, sealed into an immutable blob.
//!
//! The container is built in memory and handed to the store whole, so a blob is never half there. When it is sealed
//! depends on the stream alone: stored bytes reach the target, or the entries' weight reaches [`ENTRY_WEIGHT_MAX`].

use bytes::Bytes;

use super::blob_name;
use super::container_index::{ContainerIndex, ContainerIndexBuilder, EntryFields};
use super::frame::{FrameInfo, StoredFrame};
use super::layout::{ContainerKind, Footer, HEADER_BYTES, header};
use super::operations::OperationList;
use crate::error::Result;
use crate::types::ContainerId;

/// Weight of entries at which a container is sealed whatever its size: bounds directories.
pub const ENTRY_WEIGHT_MAX: u64 = 32_768;

/// Weight of an entry with this many pieces.
pub fn entry_weight(operations: usize) -> u64 {
    1 + operations as u64 / 8
}

/// A container being filled.
pub struct Writer {
    parts: Vec<Bytes>,
    len: u64,
    weight: u64,
    container_index: ContainerIndexBuilder,
}

/// A container ready for the store.
pub struct Sealed {
    /// Its name: BLAKE3 of its bytes.
    pub id: ContainerId,
    /// Its bytes, in parts.
    pub parts: Vec<Bytes>,
    /// Length of all parts.
    pub len: u64,
    /// Its directory.
    pub container_index: ContainerIndex,
}

impl Sealed {
    /// Name in the store.
    pub fn blob_name(&self) -> String {
        blob_name(&self.id)
    }
}

impl Writer {
    /// An empty container.
    pub fn new(kind: ContainerKind) -> Self {
        let header = Bytes::copy_from_slice(&header(kind));
        Writer {
            parts: vec![header],
            len: HEADER_BYTES as u64,
            weight: 0,
            container_index: ContainerIndexBuilder::default(),
        }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.container_index.frames().is_empty() && self.container_index.entries().is_empty()
    }

    /// Stored bytes so far.
    pub fn stored_bytes(&self) -> u64 {
        self.len
    }

    /// Whether it is time to seal.
    pub fn is_full(&self, bytes_target: u64) -> bool {
        self.len >= bytes_target || self.weight >= ENTRY_WEIGHT_MAX
    }

    /// Appends a frame and gives its number in this container.
    pub fn push_frame(&mut self, frame: &StoredFrame) -> u32 {
        let info = FrameInfo {
            offset: self.len,
            stored_len: frame.payload.len() as u32,
            raw_len: frame.raw_len,
            codec: frame.codec,
        };
        self.parts.push(Bytes::copy_from_slice(&frame.header()));
        self.parts.push(frame.payload.clone());
        self.len += info.stored_bytes() as u64;
        self.container_index.push_frame(info)
    }

    /// Appends a chunk entry whose frame is in this container already.
    pub fn push_entry(&mut self, fields: EntryFields, body: &OperationList, features: &[u64]) {
        self.weight += entry_weight(body.operations.len());
        self.container_index.push_entry(fields, body, features);
    }

    /// Ends the container.
    pub fn seal(mut self) -> Result<Sealed> {
        let container_index = self.container_index.encode()?;
        let mut checksum = [0u8; 16];
        checksum.copy_from_slice(blake3::hash(&container_index).as_bytes().get(..16).unwrap_or_default());
        let footer = Footer {
            index_offset: self.len,
            index_len: container_index.len() as u64,
            entries: self.container_index.entries().len() as u32,
            frames: self.container_index.frames().len() as u32,
            index_checksum: checksum,
        };
        let footer = Bytes::copy_from_slice(&footer.encode());
        self.len += (container_index.len() + footer.len()) as u64;
        self.parts.push(container_index.into());
        self.parts.push(footer);
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(part);
        }
        let id = ContainerId(*hasher.finalize().as_bytes());
        Ok(Sealed { id, parts: self.parts, len: self.len, container_index: self.container_index.finish() })
    }
}
