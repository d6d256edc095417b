//! Marks: small blobs that change how a repository may be used, because `config` never changes.
//!
//! 1. [`Marks::read`] reads all of them. A writer calls it when it begins and again before it commits.
//! 2. A mark below `marks/required/` stops every writer that does not know its kind, or cannot read it. One below
//!    `marks/optional/` can be ignored.
//! 3. Marks of the kind `quarantine` list frames and entries whose bytes proved bad ([`Quarantine`]).

mod blob;
mod quarantine;
mod read;

pub use blob::{Mark, MarkKind};
pub use quarantine::{BadParts, PositionSet, Quarantine};
pub use read::{Marks, check_writable};
