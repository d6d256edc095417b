//! Trees: the metadata of every directory entry, and directories as sorted listings of them.

mod cursor;
mod find;
mod flags;
mod former_listing;
mod holes;
mod listing;
mod newer;
mod node;
mod object;
mod object_path;
mod open_directory;
mod tally;

pub use cursor::TreeCursor;
pub use find::find_entry;
pub use flags::FileFlags;
pub use former_listing::{FormerListing, ListingBases};
pub use holes::{HoleMap, KEY as HOLES_KEY, small_holes};
pub use listing::{NODE_BYTES_MAX, NodeReader};
pub use newer::NewerParts;
pub(super) use newer::look_at_node;
pub use node::{DeviceNumber, FileIdentity, FileState, Node, NodeKind, Timestamp, Xattr, name_defect};
pub use object::{OBJECT_KEY, ObjectFacts, is_hash_of_bytes};
pub use object_path::{BESIDE, ObjectPath, in_tree_order, is_beside, path_of_key};
pub use open_directory::{ListingTarget, OpenDirectory};
pub use tally::EntryTally;
