//! The trait that every store implements, and every wrapper.

use std::io::{Read, Seek};
use std::path::Path;
use std::time::SystemTime;

use super::blob::{self, BlobMetadata, ListedBlob};
use super::name::is_left_by_init;
use crate::error::{Error, Result};

/// Makes the name of a blob from the BLAKE3 of the bytes that the store keeps.
pub type NameOfHash = fn(&[u8; 32]) -> String;

/// A stream that can be read twice.
pub trait ReadTwice: Read + Seek {}

impl<T: Read + Seek> ReadTwice for T {}

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

    /// As [`Store::overwrite`], with the bytes that the store kept for the blob: see [`Store::get_stored`].
    ///
    /// # Errors
    /// As of [`Store::overwrite`].
    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        self.overwrite(name, &[stored])
    }

    /// Stores the concatenation of `parts` as [`Store::put_if_absent`] does, under a name made of the BLAKE3 of what is
    /// kept, which it returns. A store that encrypts keeps other bytes than it is given.
    ///
    /// # Errors
    /// Those of [`Store::put_if_absent`].
    fn put_hashed(&self, name_of: NameOfHash, parts: &[&[u8]]) -> Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        let hash = *hasher.finalize().as_bytes();
        self.put_if_absent(&name_of(&hash), parts)?;
        Ok(hash)
    }

    /// Stores the `len` bytes of `content`, which is read twice from its start, as [`Store::put_hashed`] does.
    ///
    /// # Errors
    /// Those of [`Store::put_stream_if_absent`].
    fn put_stream_hashed(&self, name_of: NameOfHash, len: u64, content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
        let hash = blob::hash_stream(content)?;
        self.put_stream_if_absent(&name_of(&hash), len, content)?;
        Ok(hash)
    }

    /// As [`Store::put_hashed`], for a blob whose bytes from `cached_from` on will be read again: a store with a cache
    /// on this machine keeps these there.
    ///
    /// # Errors
    /// Those of [`Store::put_if_absent`].
    fn put_hashed_cached(&self, name_of: NameOfHash, parts: &[&[u8]], _cached_from: u64) -> Result<[u8; 32]> {
        self.put_hashed(name_of, parts)
    }

    /// Reads the bytes that the store keeps for a blob, at most those of a blob of `bytes_max` bytes. They differ from
    /// those of [`Store::get`] if the store encrypts.
    ///
    /// # Errors
    /// As of [`Store::get`].
    fn get_stored(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.get(name, bytes_max)
    }

    /// The blob whose kept bytes are `stored`.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if the store encrypts and these are not bytes that it kept under such a name.
    fn open_stored(&self, _name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        Ok(stored)
    }

    /// The BLAKE3 of the bytes that the store keeps for a blob. Every one is read. `check_stop` is called in between,
    /// and its error ends the reading.
    ///
    /// # Errors
    /// As of [`Store::get`].
    fn stored_hash(&self, name: &str, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        blob::stored_hash(self, name, check_stop)
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

    /// As [`Store::get_range`], for what will be read again, such as indexes and trees: a store with a cache on this
    /// machine keeps this range there, and may answer from it once it has seen that the blob exists.
    ///
    /// # Errors
    /// As of [`Store::get_range`].
    fn get_range_cached(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.get_range(name, offset, len)
    }

    /// Deletes the copies on this machine of a blob whose bytes have proved wrong. Returns whether there were any, so
    /// that the store may give other bytes now. See [`read_again`](super::read_again).
    fn forget_copies(&self, _name: &str) -> bool {
        false
    }

    /// The length of a blob, bytes, or `None` if there is no such blob. It may come from the last listing, so the blob
    /// may be gone.
    ///
    /// # Errors
    /// As of [`Store::head`].
    fn len_of(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.head(name)?.map(|head| head.len))
    }

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

    /// Deletes a blob. Deleting a missing blob succeeds. In both cases it is durable on return that the blob is gone.
    /// Fails with [`Io`](crate::Error::Io).
    fn delete(&self, name: &str) -> Result<()>;

    /// As [`Store::delete`], but durable only after [`sync_deletions`](super::sync_deletions): for many blobs, of which
    /// none must be gone before another one.
    ///
    /// # Errors
    /// As of [`Store::delete`].
    fn delete_unsynced(&self, name: &str) -> Result<()> {
        self.delete(name)
    }

    /// Until when the store lets nobody destroy what it keeps for a blob. `None` if the blob has no such lock.
    ///
    /// # Errors
    /// [`Usage`](crate::Error::Usage) if the store has no locks. As of [`Store::get`].
    fn locked_until(&self, _name: &str) -> Result<Option<SystemTime>> {
        Err(no_locks(&self.location()))
    }

    /// Makes the lock of a blob last until `until`, if it ends before.
    ///
    /// # Errors
    /// As of [`Store::locked_until`].
    fn lock(&self, _name: &str, _until: SystemTime) -> Result<()> {
        Err(no_locks(&self.location()))
    }

    /// The location of the store: names it in messages and tells its caches from those of other stores.
    fn location(&self) -> String;

    /// The directory of a store on the local file system. Backups skip it, and caches are named by its real path.
    fn local_path(&self) -> Option<&Path> {
        None
    }

    /// Requests that are worth having in flight at once. More than one means that the store is remote: each request
    /// waits for a network, and what is read again is worth keeping on the local disk.
    fn requests_max(&self) -> usize {
        1
    }

    /// Whether nothing was ever stored here, so that a repository may be created: no blobs and no foreign files, except
    /// for what a killed `init` leaves.
    ///
    /// # Errors
    /// Those of [`Store::list`].
    fn is_unused(&self) -> Result<bool> {
        Ok(self.list("")?.iter().all(|listed| is_left_by_init(&listed.name)))
    }

    /// Whether of several puts of one name at the same time only one returns `true`. A store that cannot know may put
    /// the existing blob `name` once more to find out.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn puts_exclusively(&self, _name: &str) -> Result<bool> {
        Ok(true)
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

/// The error of a store that has no locks.
pub(super) fn no_locks(location: &str) -> Error {
    Error::Usage(format!("{location} has no locks to extend; that needs a bucket of S3 with Object Lock"))
}
