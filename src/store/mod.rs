//! Stores: named, immutable blobs.
//!
//! 1. A blob is put once, whole, and never changes. [`Store::put_if_absent`] is atomic and durable, for any number of
//!    concurrent processes.
//! 2. A blob is read whole, with a limit, or by range. Blobs are listed by prefix and deleted by name.
//! 3. A name is relative, like `containers/ab/abcdef`. Its components consist of `a`-`z`, `0`-`9`, `.`, `-` and `_`
//!    and do not start with a dot. The prefix `tmp` is reserved for the store.
//! 4. [`open`] and [`create`] select the implementation by URL scheme. A new kind of store is one file here and one
//!    line in the table in `scheme`.
//!
//! Every implementation and every wrapper passes the suite in `contract`.

mod arc;
mod blob;
mod counting;
mod faulty;
mod local;
mod memory;
mod name;
mod scheme;
mod stopping;
mod temporary;

#[cfg(test)]
mod contract;

pub use blob::{BlobMetadata, ListedBlob};
pub use counting::{CountingStore, StoreCounts};
pub use faulty::{FaultyStore, InjectedFault};
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use scheme::{create, open};
pub use stopping::StoppingStore;

use std::io::Read;
use std::path::Path;

use crate::error::Result;

/// Named, immutable blobs. An invalid name is [`Usage`](crate::Error::Usage) in every method.
pub trait Store: Send + Sync {
    /// Stores the concatenation of `parts`. Returns `false`, and writes nothing, if a blob of that name exists. In both
    /// cases the blob is durable on return.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) with the path. The blob is then absent or whole, never partial.
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool>;

    /// Stores the `len` bytes of `content`, which may exceed the memory, as [`Store::put_if_absent`] does.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), also if `content` fails or has another length. Nothing is stored then.
    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        self.put_if_absent(name, &[&blob::read_stream(name, len, content)?])
    }

    /// Stores the concatenation of `parts` durably, in place of the blob that has the name, if any: for a damaged blob
    /// whose right bytes are known again. A store that can do so replaces it at once, so that the name is never free.
    /// Fails with [`Io`](crate::Error::Io).
    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.delete(name)?;
        self.put_if_absent(name, parts).map(drop)
    }

    /// Reads the whole blob.
    ///
    /// # Errors
    /// [`BlobMissing`](crate::Error::BlobMissing). [`Corrupt`](crate::Error::Corrupt) if the blob is longer than
    /// `bytes_max`, before any memory is allocated. [`Unreadable`](crate::Error::Unreadable) if the device has lost it.
    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>>;

    /// Reads exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// As of [`Store::get`]; [`Corrupt`](crate::Error::Corrupt) if the blob ends before that.
    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// Returns length and time, or `None` if there is no such blob.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io). [`Unreadable`](crate::Error::Unreadable) if the device has lost the metadata.
    fn head(&self, name: &str) -> Result<Option<BlobMetadata>>;

    /// Lists the blobs below `prefix`, at any depth, by ascending name. A prefix consists of whole components: `a`
    /// covers `a/b` but neither `a` nor `ab`. The empty prefix covers all blobs. A blob that is put or deleted during
    /// the call may or may not be listed.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io). [`Unreadable`](crate::Error::Unreadable) if the device has lost a part of the list.
    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>>;

    /// Deletes a blob. Deleting a missing blob succeeds. Fails with [`Io`](crate::Error::Io).
    fn delete(&self, name: &str) -> Result<()>;

    /// The location of the store: names it in messages and tells its caches from those of other stores.
    fn location(&self) -> String;

    /// The directory of a store on the local file system. Backups skip it, and caches are named by its real path.
    fn local_path(&self) -> Option<&Path> {
        None
    }

    /// Whether nothing was ever stored here, so that a repository may be created: no blobs and no foreign files.
    ///
    /// # Errors
    /// Those of [`Store::list`].
    fn is_unused(&self) -> Result<bool> {
        Ok(self.list("")?.is_empty())
    }

    /// Removes what killed processes left half written, but nothing that live processes are writing. Returns the
    /// number of files removed.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn clean_temporaries(&self) -> Result<usize> {
        Ok(0)
    }
}
