//! Containers: sealed, immutable files of encoded chunks.
//!
//! A container is a header, frames, a container index and a footer (docs/FORMAT.md has every byte). Frames are the
//! units of compression and of reading. The container index lists the chunks in the frames, and how to make each chunk
//! from literal bytes and from ranges of other chunks. All other indexes can be rebuilt from container indexes alone.

mod columns;
mod container_index;
mod delta_decoder;
mod entry_check;
mod extent_cache;
mod extent_map;
mod frame;
mod in_flight;
mod layout;
mod numbers;
mod operation_source;
mod operations;
mod stored_frame;
mod writer;

pub use columns::{ENTRIES_LIMIT, INDEX_BYTES_LIMIT};
pub use container_index::{ContainerEntry, ContainerIndex, ContainerIndexBuilder, EntryFields, FEATURES_MAX};
pub use extent_cache::ExtentCache;
pub use extent_map::{
    DECODED_CACHE_BYTES_MAX, DecodeLimits, EXTENTS_LIMIT, ExtentMap, NamedChunk, TO_THE_END, assemble_base,
};
pub use frame::{FRAME_HEADER_BYTES, FrameInfo, StoredFrame, decode_frame, decode_unverified, parse_frame};
pub use in_flight::{ContainerRange, FrameLocation, FrameReference, FramesInFlight};
pub use layout::{ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, header, parse_header};
pub use numbers::{
    ContainerNumber, EntryAddress, EntryNumber, FrameAddress, FrameNumber, OpenFrame, SessionEntryNumber,
    SessionFrameNumber,
};
pub use operation_source::{DEPTH_LIMIT, Extent, OperationSlice, OperationSource, OperationView, SessionOperations};
pub use operations::{Base, BaseUse, Operation, OperationList, WHOLE_DIGEST, operations_digest};
pub use stored_frame::{read_frame, read_kind};
pub use writer::{ContainerWriter, ENTRY_WEIGHT_MAX, NewContainers, SealedContainer, entry_weight};

use crate::store::{BlobKind, BlobName};
use crate::types::ContainerId;

/// Store name of a container. The first byte of the id spreads containers over 256 directories.
pub fn blob_name(id: &ContainerId) -> BlobName {
    BlobName::hashed(BlobKind::Container, &id.0)
}

/// The container with this store name.
pub fn parse_name(name: &str) -> Option<ContainerId> {
    ContainerId::parse(name.rsplit('/').next()?)
}
