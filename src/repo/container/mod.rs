//! Containers: sealed, immutable files of encoded chunks.
//!
//! A container is a header, frames, a directory and a footer (docs/FORMAT.md draws them byte by byte). Frames are
//! the units of compression and of reading; the directory says which chunks the frames hold and how each chunk's
//! bytes are put together from literal bytes and from ranges of other chunks. Every index of the repository can be
//! rebuilt from container directories alone.

mod container_index;
mod extent_cache;
mod extent_map;
mod frame;
mod in_flight;
mod layout;
mod numbers;
mod operations;
mod resolve;
mod writer;

pub use container_index::{ContainerIndex, ContainerIndexBuilder, Entry, EntryFields, FEATURES_MAX};
pub use extent_cache::ExtentCache;
pub use extent_map::{ExtentMap, TO_THE_END};
pub use frame::{FRAME_HEADER_BYTES, FrameInfo, StoredFrame, decode_frame, parse_frame};
pub use in_flight::{ContainerRange, FrameLocation, FrameSource, FramesInFlight};
pub use layout::{ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, header, parse_header};
pub use numbers::{
    ContainerNumber, EntryAddress, EntryNumber, FrameAddress, FrameNumber, OpenFrame, SessionEntryNumber,
    SessionFrameNumber,
};
pub use operations::{Base, Operation, OperationList, WHOLE_DIGEST, operations_digest};
pub use resolve::{Extent, OperationSlice, OperationSource, OperationView, SessionOperations};
pub use writer::{ENTRY_WEIGHT_MAX, Sealed, Writer, entry_weight};

use crate::types::ContainerId;

/// Store directory of containers.
pub const PREFIX: &str = "containers";

/// Store name of a container: fanned out by the first byte.
pub fn blob_name(id: &ContainerId) -> String {
    let hex = id.to_string();
    format!("{PREFIX}/{}/{hex}", hex.get(..2).unwrap_or_default())
}

/// The container a store name belongs to.
pub fn parse_name(name: &str) -> Option<ContainerId> {
    ContainerId::parse(name.rsplit('/').next()?)
}
