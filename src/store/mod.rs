//! The store: named, immutable blobs.
//!
//! 1. A blob is put once, whole, and never changes: [`Store::put_if_absent`] is atomic and durable, for any number
//!    of processes at a time.
//! 2. It is read whole, with a limit, or by range; it is deleted, or listed by directory.
//! 3. A name is relative, like `containers/ab/abcdef`: components of `a`-`z`, `0`-`9`, `.`, `-` and `_` that do not
//!    start with a dot. The directory `tmp` is the store's own.
//!
//! Every implementation and wrapper passes the one suite in `contract`.

mod counting;
mod faulty;
mod local;
mod memory;
mod name;
mod temporary;

#[cfg(test)]
mod contract;

pub use counting::{CountingStore, StoreCounts};
pub use faulty::{FaultyStore, Trouble};
pub use local::LocalStore;
pub use memory::MemoryStore;

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::Result;

/// What is known of a blob without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Length, bytes.
    pub len: u64,
    /// When it was put, by the store's clock: compare it only with times of the same store.
    pub modified: SystemTime,
}

/// A line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Full name.
    pub name: String,
    /// Length, bytes.
    pub len: u64,
}

/// Named, immutable blobs. A name that breaks the rules is [`Usage`](crate::Error::Usage) everywhere.
pub trait Store: Send + Sync {
    /// Stores the concatenation of `parts`; `false`: a blob of that name is there, and nothing was written.
    /// Either way the blob is durable on return.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) naming the path; the blob is then absent or whole, never partial.
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool>;

    /// The whole blob.
    ///
    /// # Errors
    /// [`BlobMissing`](crate::Error::BlobMissing); [`Corrupt`](crate::Error::Corrupt) when it is longer than
    /// `bytes_max`, before memory is taken.
    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>>;

    /// Exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`BlobMissing`](crate::Error::BlobMissing); [`Corrupt`](crate::Error::Corrupt) when the blob ends before, and
    /// then no memory is taken.
    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// Length and time; `None` if there is no such blob.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn head(&self, name: &str) -> Result<Option<Head>>;

    /// All blobs at any depth below `directory` (`""`: all there are), by ascending name. A directory that does not exist
    /// is empty. Blobs put or deleted meanwhile may or may not be there.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn list(&self, directory: &str) -> Result<Vec<Listed>>;

    /// Deletes a blob; one that is not there counts as deleted.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn delete(&self, name: &str) -> Result<()>;

    /// Where the blobs are, for messages.
    fn location(&self) -> String;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        (**self).put_if_absent(name, parts)
    }
    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        (**self).get(name, bytes_max)
    }
    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        (**self).get_range(name, offset, len)
    }
    fn head(&self, name: &str) -> Result<Option<Head>> {
        (**self).head(name)
    }
    fn list(&self, directory: &str) -> Result<Vec<Listed>> {
        (**self).list(directory)
    }
    fn delete(&self, name: &str) -> Result<()> {
        (**self).delete(name)
    }
    fn location(&self) -> String {
        (**self).location()
    }
}
