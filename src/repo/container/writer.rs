//! Writing one container: frames and entries in stream order, sealed into an immutable blob.
//!
//! The container is built in memory and stored whole, so no reader ever sees half a blob. The moment of sealing depends
//! only on the stream: stored bytes reach the target, or the weight of the entries reaches [`ENTRY_WEIGHT_MAX`].

use bytes::Bytes;

use super::blob_name;
use super::container_index::{ContainerIndex, ContainerIndexBuilder, EntryFields};
use super::frame::{FrameInfo, StoredFrame};
use super::layout::{ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, header};
use super::operations::OperationList;
use crate::error::Result;
use crate::repo::salts::{Salt, Salts};
use crate::store::{BlobKind, BlobName, NewName, PutOptions, Store};
use crate::types::ContainerId;
use crate::wire::checksum;

/// Weight of entries at which a container of any size is sealed. It bounds the bytes of the container index: an index
/// that grows fast, because copies are short, ends its container early.
pub const ENTRY_WEIGHT_MAX: u64 = 3 << 20;
/// Weight of an entry without operations: fingerprint, features and columns, bytes.
const ENTRY_WEIGHT: u64 = 96;
/// Weight of a base, bytes.
const BASE_WEIGHT: u64 = 40;
/// Weight of an operation: its bytes before compression, at most about 12.
const OPERATION_WEIGHT: u64 = 12;

/// Weight of an entry with these operations and bases: an upper bound of its usual bytes in the container index.
pub fn entry_weight(list: &OperationList) -> u64 {
    ENTRY_WEIGHT + list.bases.len() as u64 * BASE_WEIGHT + list.operations.len() as u64 * OPERATION_WEIGHT
}

/// What begins the containers of a repository. Clones draw salts from the same source.
#[derive(Debug, Clone)]
pub struct NewContainers {
    salts: Salts,
    is_padded: bool,
}

impl NewContainers {
    /// Containers with salts of `salts`, padded or not.
    pub fn new(salts: Salts, is_padded: bool) -> Self {
        NewContainers { salts, is_padded }
    }

    /// An empty container with a new salt.
    ///
    /// # Errors
    /// Errors of [`Salts::draw`].
    pub fn begin(&self, kind: ContainerKind) -> Result<ContainerWriter> {
        Ok(ContainerWriter { is_padded: self.is_padded, ..ContainerWriter::new(kind, &self.salts.draw()?) })
    }
}

/// A container that is being filled.
pub struct ContainerWriter {
    kind: ContainerKind,
    is_padded: bool,
    parts: Vec<Bytes>,
    len: u64,
    weight: u64,
    container_index: ContainerIndexBuilder,
}

/// A container that is ready for the store.
pub struct SealedContainer {
    /// The bytes, in parts.
    pub parts: Vec<Bytes>,
    /// Length of all parts.
    pub len: u64,
    /// Offset from which on the bytes will be read again soon: all of metadata, the container index of data.
    pub cached_from: u64,
    /// The container index.
    pub container_index: ContainerIndex,
}

impl SealedContainer {
    /// Stores the container and returns its id.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn store(&self, store: &dyn Store) -> Result<ContainerId> {
        let parts: Vec<&[u8]> = self.parts.iter().map(AsRef::as_ref).collect();
        let options = PutOptions { read_again_from: Some(self.cached_from), ..PutOptions::default() };
        let name = store.put(NewName::Hashed(BlobKind::Container), &parts, options)?.name;
        super::parse_name(&name).ok_or_else(|| crate::Error::internal(format!("a container got the name {name}")))
    }

    /// BLAKE3 of the bytes: the id, in a store that keeps them as they are.
    pub fn id(&self) -> ContainerId {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(part);
        }
        ContainerId(*hasher.finalize().as_bytes())
    }

    /// Name in a store that keeps the bytes as they are.
    pub fn blob_name(&self) -> BlobName {
        blob_name(&self.id())
    }
}

impl ContainerWriter {
    /// An empty container. The salt must be new, so that its name is.
    pub fn new(kind: ContainerKind, salt: &Salt) -> Self {
        let header = Bytes::copy_from_slice(&header(kind, salt));
        ContainerWriter {
            kind,
            is_padded: false,
            parts: vec![header],
            len: HEADER_BYTES as u64,
            weight: 0,
            container_index: ContainerIndexBuilder::default(),
        }
    }

    /// Whether it has neither frames nor entries.
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

    /// Appends a frame and returns its position in this container.
    ///
    /// # Errors
    /// Errors of [`ContainerIndexBuilder::push_frame`].
    pub fn push_frame(&mut self, frame: &StoredFrame) -> Result<u32> {
        let info = FrameInfo {
            offset: self.len,
            stored_len: frame.payload.len() as u32,
            raw_len: frame.raw_len,
            codec: frame.codec,
        };
        let position = self.container_index.push_frame(info)?;
        self.parts.push(Bytes::copy_from_slice(&frame.header()));
        self.parts.push(frame.payload.clone());
        self.len += info.stored_bytes() as u64;
        Ok(position)
    }

    /// Appends a chunk entry. Its frame must be in this container.
    ///
    /// # Errors
    /// Errors of [`ContainerIndexBuilder::push_entry`].
    pub fn push_entry(&mut self, fields: EntryFields, list: &OperationList, features: &[u64]) -> Result<()> {
        self.container_index.push_entry(fields, list, features)?;
        self.weight += entry_weight(list);
        Ok(())
    }

    /// Finishes the container.
    ///
    /// # Errors
    /// Errors of compressing the container index.
    pub fn seal(mut self) -> Result<SealedContainer> {
        let encoded = self.container_index.encode()?;
        let len = self.len + (encoded.len() + FOOTER_BYTES) as u64;
        let padding = if self.is_padded { padded_len(len) - len } else { 0 };
        self.parts.push(vec![0; padding as usize].into());
        self.len += padding;
        let index_offset = self.len;
        let footer = Footer {
            index_offset,
            index_len: encoded.len() as u64,
            entries: self.container_index.entries().len() as u32,
            frames: self.container_index.frames().len() as u32,
            index_checksum: checksum(&[&encoded]),
            padding,
        };
        let footer = Bytes::copy_from_slice(&footer.encode());
        self.len += (encoded.len() + footer.len()) as u64;
        self.parts.push(encoded.into());
        self.parts.push(footer);
        let container_index = ContainerIndex { kind: self.kind, ..self.container_index.finish() };
        let cached_from = if self.kind == ContainerKind::Metadata { 0 } else { index_offset };
        Ok(SealedContainer { parts: self.parts, len: self.len, cached_from, container_index })
    }
}

/// The length to which `len` bytes are padded: Padmé of Nikitin, Barman, Lueks, Underwood, Hubaux and Ford (*Reducing
/// Metadata Leakage from Encrypted Files and Communication with PURBs*, 2019). A length keeps as many leading bits as
/// its logarithm has, so few lengths remain, and none grows by more than 12 %.
fn padded_len(len: u64) -> u64 {
    if len < 2 {
        return len;
    }
    let exponent = len.ilog2();
    let unit = 1u64 << (exponent - (exponent.max(1).ilog2() + 1).min(exponent));
    len.checked_next_multiple_of(unit).unwrap_or(len)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
