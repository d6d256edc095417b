//! What a store reports about a blob without its content, and streams of content.

use std::io::Read;
use std::time::SystemTime;

use crate::error::{Error, Result};

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

/// Reads a stream that must have `len` bytes, for the blob `name`.
pub(super) fn read_stream(name: &str, len: u64, content: &mut dyn Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match content.take(len.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(read) if read as u64 == len => Ok(bytes),
        Ok(_) => Err(Error::io("write", name, std::io::Error::other(format!("the stream does not have {len} bytes")))),
        Err(error) => Err(Error::io("write", name, error)),
    }
}
