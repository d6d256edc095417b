//! Containers: sealed, immutable files of encoded chunks.
//!
//! A container is a header, frames, a directory and a footer (docs/FORMAT.md draws them byte by byte). Frames are
//! the units of compression and of reading; the directory says which chunks the frames hold and how each chunk's
//! bytes are put together from literal bytes and from ranges of other chunks. Every index of the repository can be
//! rebuilt from container directories alone.

mod body;
mod directory;
mod flat;
mod flats;
mod frame;
mod layout;
mod resolve;
mod shelf;
mod writer;

pub use body::{Base, Body, Piece, WHOLE_DIGEST, body_digest};
pub use directory::{Directory, DirectoryBuilder, Entry, EntryFields, FEATURES_MAX};
pub use flat::{Flat, TO_THE_END};
pub use flats::Flats;
pub use frame::{FRAME_HEADER_BYTES, FrameInfo, StoredFrame, decode_frame, parse_frame};
pub use layout::{ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, header, parse_header};
pub use resolve::{Bodies, BodyView, Pieces, Run, SessionBody};
pub use shelf::{FrameSource, Place, Shelf, Stretch};
pub use writer::{ENTRY_WEIGHT_MAX, Sealed, Writer, entry_weight};

use crate::types::ContainerId;

/// Store folder of containers.
pub const FOLDER: &str = "containers";

/// Store name of a container: fanned out by the first byte.
pub fn blob_name(id: &ContainerId) -> String {
    let hex = id.to_string();
    format!("{FOLDER}/{}/{hex}", hex.get(..2).unwrap_or_default())
}

/// The container a store name belongs to.
pub fn parse_name(name: &str) -> Option<ContainerId> {
    ContainerId::parse(name.rsplit('/').next()?)
}
