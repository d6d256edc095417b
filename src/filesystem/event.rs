//! What a walk tells, entry by entry.

use crate::error::Error;
use crate::repo::tree::Node;
use std::path::PathBuf;

/// A step of the walk. Paths are those in the snapshot: relative, without a leading slash.
#[derive(Debug)]
pub enum Event {
    /// A directory; its entries follow, then its [`Event::Leave`].
    Enter {
        /// Where it is stored.
        path: PathBuf,
        /// Its metadata.
        node: Node,
    },
    /// Anything that is not a directory.
    Entry {
        /// Where it is stored.
        path: PathBuf,
        /// Its metadata.
        node: Node,
    },
    /// The end of the directory entered last and not yet left.
    Leave {
        /// Where it is stored.
        path: PathBuf,
    },
    /// Something could not be read. The walk goes on without it.
    Problem {
        /// Where it would be stored.
        path: PathBuf,
        /// What happened, with the path on disk.
        error: Error,
    },
    /// A directory that the walk was told to leave out.
    Skipped {
        /// Where it would be stored.
        path: PathBuf,
    },
}
