//! What a store reports about a blob without its content.

use std::time::SystemTime;

/// Properties of a blob that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobMetadata {
    /// Length, bytes.
    pub len: u64,
    /// When it was put, by the store's clock. Compare it only with times of the same store.
    pub modified: SystemTime,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedBlob {
    /// Full name.
    pub name: String,
    /// Length, bytes.
    pub len: u64,
}
