//! The trait that every store implements, and every wrapper.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::time::SystemTime;

use super::blob::{self, BlobMetadata, ListedBlob};
use super::cold::{ColdState, Thawing};
use super::kind::{BlobKind, BlobName, BlobPrefix};
use crate::error::{Error, ErrorKind, Result};

/// A stream that can be read twice.
pub trait ReadTwice: Read + Seek {}

impl<T: Read + Seek> ReadTwice for T {}

/// The name of a blob that is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewName<'a> {
    /// This one.
    Given(&'a BlobName),
    /// A blob of this kind, named by the BLAKE3 of the bytes that the store keeps. A store that encrypts keeps other
    /// bytes than it is given.
    Hashed(BlobKind),
}

impl NewName<'_> {
    /// What the blob is.
    pub fn kind(&self) -> BlobKind {
        match self {
            NewName::Given(name) => name.kind(),
            NewName::Hashed(kind) => *kind,
        }
    }

    /// The name for the concatenation of `parts`.
    pub fn for_parts(self, parts: &[&[u8]]) -> BlobName {
        match self {
            NewName::Given(name) => name.clone(),
            NewName::Hashed(kind) => {
                let mut hasher = blake3::Hasher::new();
                parts.iter().for_each(|part| _ = hasher.update(part));
                BlobName::hashed(kind, hasher.finalize().as_bytes())
            }
        }
    }

    /// The name for the content of a stream, which is left at its start.
    pub(super) fn for_stream(self, content: &mut dyn ReadTwice) -> Result<BlobName> {
        match self {
            NewName::Given(name) => Ok(name.clone()),
            NewName::Hashed(kind) => Ok(BlobName::hashed(kind, &blob::hash_stream(content)?)),
        }
    }
}

/// How a blob is put, or overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// The bytes from this offset on will be read again: a store with a cache on this machine keeps them there.
    pub read_again_from: Option<u64>,
    /// Only restores and checks read it: a store with classes of storage puts it into the one of data containers.
    pub is_cold: bool,
}

/// What a put has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBlob {
    /// The name of the blob.
    pub name: BlobName,
    /// `false` if there was a blob of that name. Nothing was written then.
    pub is_new: bool,
}

/// Where the bytes of a range may come from, and whether they stay near.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// They will be read again, as those of indexes and trees: a store with a cache on this machine keeps this range
    /// there, and may answer from it once it has seen that the blob exists.
    Again,
    /// They are read once, as data is.
    Once,
    /// They must come from the store itself and not from a copy, for a check.
    FromStore,
}

/// When a deletion is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durable {
    /// When the call returns.
    OnReturn,
    /// After [`Store::sync_deletions`]: for many blobs, of which none must be gone before another one.
    AfterSync,
}

/// What a store says of other copies of a blob whose bytes have proved wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherCopy {
    /// Whether there is one, so that a read may give other bytes now.
    pub is_there: bool,
    /// Why something that may give the right bytes was not tried. The blob does not count as damaged for good then.
    pub untried: Option<String>,
}

impl OtherCopy {
    /// What `error`, of reading the blob, says once no other copy has helped.
    pub fn explain(self, error: Error) -> Error {
        match self.untried {
            Some(reason) if error.kind() == ErrorKind::Damaged && !matches!(error, Error::Untried(..)) => {
                Error::Untried(Box::new(error), reason)
            }
            _ => error,
        }
    }
}

/// What never changes about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreProperties {
    /// Names the store in messages, and tells its caches from those of other stores.
    pub location: String,
    /// The directory of a store on the local file system. Backups skip it, and caches are named by its real path.
    pub local_path: Option<PathBuf>,
    /// Requests that are worth having in flight at once. More than one means that the store is remote: each request
    /// waits for a network, and what is read again is worth keeping on the local disk.
    pub requests_max: usize,
    /// What the user says of data containers in cold storage, such as `containers=GLACIER`, if anything.
    pub cold_option: Option<String>,
}

/// Named, immutable blobs. No method has a default, so that no wrapper forgets one; what follows from these methods is
/// in [`StoreExt`].
pub trait Store: Send + Sync {
    /// Stores the concatenation of `parts`, unless there is a blob of that name. In both cases the blob is durable on
    /// return.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) with the path. The blob is then absent or whole, never partial.
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob>;

    /// Stores the `len` bytes of `content`, which may exceed the memory, as [`Store::put`] does. They are read from the
    /// start, perhaps more than once.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), also if `content` fails or has another length. Nothing is stored then.
    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob>;

    /// Stores the concatenation of `parts` durably, in place of the blob that has the name, if any: for a damaged blob
    /// whose right bytes are known again. A store that can do so replaces it at once, so that the name is never free.
    /// Fails with [`Io`](crate::Error::Io).
    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()>;

    /// Like [`Store::overwrite`], unless no blob has the name: what somebody has deleted stays deleted. Returns whether
    /// there was one. Local stores and buckets look and replace at once. Servers of SFTP, and of buckets without
    /// conditional puts, are asked first.
    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        match self.head(name)? {
            Some(_) => self.overwrite(name, parts, options).map(|()| true),
            None => Ok(false),
        }
    }

    /// Reads the whole blob.
    ///
    /// # Errors
    /// [`BlobMissing`](crate::Error::BlobMissing). [`Corrupt`](crate::Error::Corrupt) if the blob is longer than
    /// `bytes_max`, before any memory is allocated. [`Unreadable`](crate::Error::Unreadable) if the device has lost it.
    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>>;

    /// Reads exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// Errors of [`Store::get`]; [`Corrupt`](crate::Error::Corrupt) if the blob ends before that.
    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>>;

    /// Returns length and time, or `None` if there is no such blob.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io). [`Unreadable`](crate::Error::Unreadable) if the device has lost the metadata.
    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>>;

    /// The length of a blob, bytes, or `None` if there is no such blob. It may come from the last listing, so the blob
    /// may be gone.
    ///
    /// # Errors
    /// Errors of [`Store::head`].
    fn len_of(&self, name: &BlobName) -> Result<Option<u64>>;

    /// Lists the blobs that `prefix` covers, at any depth, by ascending name. A blob that is put or deleted during the
    /// call may or may not be listed.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io). [`Unreadable`](crate::Error::Unreadable) if the device has lost a part of the list.
    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>>;

    /// Deletes a blob. Deleting a missing blob succeeds. In both cases it is durable, when `durable` says, that the
    /// blob is gone. Fails with [`Io`](crate::Error::Io).
    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()>;

    /// Makes it durable that the blobs `names` were deleted with [`Durable::AfterSync`], and that those of them which
    /// are missing stay so: another process may have deleted them and been killed before its sync.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) if a directory cannot be synced.
    fn sync_deletions(&self, names: &[BlobName]) -> Result<()>;

    /// Turns to another copy of a blob whose bytes have proved wrong, and says whether there is one. A cache deletes
    /// its copies. See [`read_again`](super::read_again).
    fn other_copy(&self, name: &BlobName) -> OtherCopy;

    /// What never changes about the store.
    fn properties(&self) -> StoreProperties;

    /// Whether the repository is cold, in a store that keeps copies of the indexes of cold containers.
    fn cold_state(&self) -> Option<&ColdState>;

    /// What asks for blobs in cold storage, if the store can ask.
    fn thawing(&self) -> Option<&dyn Thawing>;

    /// The locks of its blobs, if the store has any.
    fn locks(&self) -> Option<&dyn Locks>;

    /// The bytes that are kept, if the store keeps others than it is given.
    fn sealing(&self) -> Option<&dyn Sealing>;

    /// Whether nothing was ever stored here, so that a repository may be created: no blobs and no foreign files.
    ///
    /// # Errors
    /// Errors of [`Store::list`].
    fn is_unused(&self) -> Result<bool>;

    /// Whether of several puts of one name at the same time only one is new. A store that cannot know may put the
    /// existing blob `name` once more to find out.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn puts_exclusively(&self, name: &BlobName) -> Result<bool>;

    /// Makes the directories of all kinds of blobs, if the store has directories, and notes that they were made. From
    /// then on one that is missing is [`Unreadable`](crate::Error::Unreadable): somebody has moved it, or a share is
    /// away. It is not empty. A `dry_run` only looks.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io). [`Unreadable`](crate::Error::Unreadable) if one that was there before is missing.
    fn make_directories(&self, dry_run: bool) -> Result<()>;

    /// Removes what killed processes left half written, but nothing that live processes are writing. Returns the
    /// number of files removed.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    fn clean_temporaries(&self) -> Result<usize>;
}

/// Locks of blobs: until when the store lets nobody destroy what it keeps.
pub trait Locks {
    /// Until when a blob is locked. `None` if it has no lock.
    ///
    /// # Errors
    /// Errors of [`Store::get`]; [`Usage`](crate::Error::Usage) if the store turns out to have no locks.
    fn locked_until(&self, name: &BlobName) -> Result<Option<SystemTime>>;

    /// Makes the lock of a blob last until `until`, if it ends before.
    ///
    /// # Errors
    /// Errors of [`Locks::locked_until`].
    fn lock(&self, name: &BlobName, until: SystemTime) -> Result<()>;
}

/// The bytes that a store which encrypts keeps.
pub trait Sealing {
    /// Reads the bytes that are kept for a blob, at most those of a blob of `bytes_max` bytes.
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn get_stored(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>>;

    /// The blob whose kept bytes are `stored`.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if these are not bytes that the store kept under such a name.
    fn open_stored(&self, name: &BlobName, stored: Vec<u8>) -> Result<Vec<u8>>;

    /// Like [`Store::overwrite_if_present`], with the bytes that the store kept for the blob.
    ///
    /// # Errors
    /// Errors of [`Store::overwrite`].
    fn overwrite_stored(&self, name: &BlobName, stored: &[u8], options: PutOptions) -> Result<bool>;

    /// Like [`StoreExt::stored_again`].
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn stored_again(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// Like [`StoreExt::stored_hash`].
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn stored_hash(&self, name: &BlobName, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]>;
}

/// What follows from the methods of a store.
pub trait StoreExt: Store {
    /// Stores the concatenation of `parts`. Returns `false`, and writes nothing, if a blob of that name exists.
    ///
    /// # Errors
    /// Errors of [`Store::put`].
    fn put_if_absent(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.put(NewName::Given(name), parts, PutOptions::default()).map(|put| put.is_new)
    }

    /// Stores the concatenation of `parts` under the BLAKE3 of what is kept. Returns the name.
    ///
    /// # Errors
    /// Errors of [`Store::put`].
    fn put_hashed(&self, kind: BlobKind, parts: &[&[u8]]) -> Result<BlobName> {
        self.put(NewName::Hashed(kind), parts, PutOptions::default()).map(|put| put.name)
    }

    /// See [`StoreProperties::location`].
    fn location(&self) -> String {
        self.properties().location
    }

    /// See [`StoreProperties::local_path`].
    fn local_path(&self) -> Option<PathBuf> {
        self.properties().local_path
    }

    /// See [`StoreProperties::requests_max`].
    fn requests_max(&self) -> usize {
        self.properties().requests_max
    }

    /// The locks of the store.
    ///
    /// # Errors
    /// [`Usage`](crate::Error::Usage) if it has none.
    fn need_locks(&self) -> Result<&dyn Locks> {
        self.locks().ok_or_else(|| no_locks(&self.location()))
    }

    /// Reads the bytes that the store keeps for a blob, at most those of a blob of `bytes_max` bytes. They differ from
    /// those of [`Store::get`] if the store encrypts.
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn get_stored(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.sealing().map_or_else(|| self.get(name, bytes_max), |sealing| sealing.get_stored(name, bytes_max))
    }

    /// The blob whose kept bytes are `stored`.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if the store encrypts and these are not bytes that it kept under such a name.
    fn open_stored(&self, name: &BlobName, stored: Vec<u8>) -> Result<Vec<u8>> {
        match self.sealing() {
            Some(sealing) => sealing.open_stored(name, stored),
            None => Ok(stored),
        }
    }

    /// Deletes a blob that others replace. It stays, with a warning, if all that there is of another blob lies under
    /// its name. Returns whether it is deleted.
    ///
    /// # Errors
    /// Other errors of [`Store::delete`].
    fn delete_replaced(&self, name: &BlobName) -> Result<bool> {
        match self.delete(name, Durable::OnReturn) {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                tracing::warn!("{name} is not deleted, although others replace it: {error}");
                Ok(false)
            }
            deleted => deleted.map(|()| true),
        }
    }

    /// Like [`Store::overwrite_if_present`], with the bytes that the store kept for the blob: see
    /// [`StoreExt::get_stored`].
    ///
    /// # Errors
    /// Errors of [`Store::overwrite`].
    fn overwrite_stored(&self, name: &BlobName, stored: &[u8], options: PutOptions) -> Result<bool> {
        match self.sealing() {
            Some(sealing) => sealing.overwrite_stored(name, stored, options),
            None => self.overwrite_if_present(name, &[stored], options),
        }
    }

    /// The bytes that the store kept for the blob `name` when it was put, if its content is the concatenation of
    /// `parts`. `None` if they have not the hash that the name ends with.
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn stored_again(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        match self.sealing() {
            Some(sealing) => sealing.stored_again(name, parts),
            None => Ok(blob::named_bytes(name, parts.concat())),
        }
    }

    /// The BLAKE3 of the bytes that the store keeps for a blob. Every one is read. `check_stop` is called in between,
    /// and its error ends the reading.
    ///
    /// # Errors
    /// Errors of [`Store::get`].
    fn stored_hash(&self, name: &BlobName, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        match self.sealing() {
            Some(sealing) => sealing.stored_hash(name, check_stop),
            None => blob::stored_hash(self, name, check_stop),
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// The error of a store that has no locks.
pub(super) fn no_locks(location: &str) -> Error {
    Error::Usage(format!("{location} has no locks to extend; that needs a bucket of S3 with Object Lock"))
}
