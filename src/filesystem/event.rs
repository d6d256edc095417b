//! Events of a walk.

use super::choice::Exclusion;
use crate::error::Error;
use crate::repo::tree::Node;
use std::path::PathBuf;

/// One event of a walk. Paths are those in the snapshot: relative, without a leading slash.
#[derive(Debug)]
pub enum Event {
    /// Start of a directory. Its entries follow, then its [`Event::Leave`].
    Enter {
        /// Path in the snapshot.
        path: PathBuf,
        /// Metadata.
        node: Node,
    },
    /// An entry that is not a directory.
    Entry {
        /// Path in the snapshot.
        path: PathBuf,
        /// Metadata.
        node: Node,
    },
    /// End of the innermost open directory.
    Leave {
        /// Path in the snapshot.
        path: PathBuf,
    },
    /// An entry that could not be read. The walk continues without it.
    Problem {
        /// Path that it would have in the snapshot.
        path: PathBuf,
        /// The error, with the path on disk.
        error: Error,
    },
    /// A directory that the walk skips on request.
    Skipped {
        /// Path that it would have in the snapshot.
        path: PathBuf,
    },
    /// An entry that the user's choice leaves out.
    Excluded {
        /// Path that it would have in the snapshot.
        path: PathBuf,
        /// Why.
        reason: Exclusion,
    },
}
