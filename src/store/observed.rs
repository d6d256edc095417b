//! A store whose calls somebody watches, and may refuse: to count them, to stop them, to let them fail.
//!
//! All wrappers that only watch are this one, so the methods of the trait are passed on in one place.

use std::io::{Read, Seek, SeekFrom};
use std::time::SystemTime;

use super::interface::StoreExt;
use super::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::{Error, Result};

/// Which method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreCall {
    /// [`Store::put`].
    Put,
    /// [`Store::put_stream`].
    PutStream,
    /// [`Store::overwrite`].
    Overwrite,
    /// [`Store::get`] or [`Sealing::get_stored`].
    Get,
    /// [`Store::get_range`].
    GetRange,
    /// [`Sealing::stored_hash`].
    StoredHash,
    /// [`Store::head`].
    Head,
    /// [`Store::len_of`].
    LenOf,
    /// [`Store::list`].
    List,
    /// [`Store::delete`].
    Delete,
    /// [`Store::sync_deletions`].
    SyncDeletions,
    /// [`Locks::locked_until`].
    LockedUntil,
    /// [`Locks::lock`].
    Lock,
    /// [`Store::is_unused`].
    IsUnused,
    /// [`Store::puts_exclusively`].
    PutsExclusively,
    /// [`Store::make_directories`].
    MakeDirectories,
    /// [`Store::clean_temporaries`].
    CleanTemporaries,
}

impl StoreCall {
    /// Whether the call may change what is stored.
    pub fn is_write(self) -> bool {
        use StoreCall::{Get, GetRange, Head, IsUnused, LenOf, List, LockedUntil, StoredHash};
        !matches!(self, Get | GetRange | StoredHash | Head | LenOf | List | LockedUntil | IsUnused)
    }

    /// What the call does, for messages: an infinitive.
    pub fn action(self) -> &'static str {
        match self {
            StoreCall::Put | StoreCall::PutStream | StoreCall::Overwrite | StoreCall::PutsExclusively => "write",
            StoreCall::Get | StoreCall::GetRange | StoreCall::StoredHash => "read",
            StoreCall::Head | StoreCall::LenOf | StoreCall::LockedUntil => "inspect",
            StoreCall::List | StoreCall::IsUnused => "list",
            StoreCall::Delete | StoreCall::SyncDeletions => "delete",
            StoreCall::Lock => "lock",
            StoreCall::MakeDirectories => "create",
            StoreCall::CleanTemporaries => "clean",
        }
    }
}

/// Watches the calls of a store.
pub trait StoreObserver: Send + Sync {
    /// Called before the call, with the name of the blob or the directory. An error refuses it. What is returned is
    /// given to [`Self::after`].
    ///
    /// # Errors
    /// Whatever the caller shall see.
    fn before(&self, call: StoreCall, name: &str) -> Result<u64>;

    /// Called after a call that succeeded, with the bytes that it has moved. An error becomes the result.
    ///
    /// # Errors
    /// Whatever the caller shall see.
    fn after(&self, _call: StoreCall, _name: &str, _number: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Called while a stream is put. An error ends it.
    ///
    /// # Errors
    /// Whatever the caller shall see.
    fn during(&self) -> Result<()> {
        Ok(())
    }

    /// How many of the `len` bytes of a put are stored.
    fn stored_len(&self, _number: u64, len: u64) -> u64 {
        len
    }
}

/// See the module.
#[derive(Debug)]
pub struct ObservedStore<S, O> {
    pub(super) inner: S,
    pub(super) observer: O,
}

impl<S: Store, O: StoreObserver> ObservedStore<S, O> {
    /// `observer` watches the calls of `inner`.
    pub fn with(inner: S, observer: O) -> Self {
        ObservedStore { inner, observer }
    }

    /// The store that is watched.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn watch<T>(
        &self,
        call: StoreCall,
        name: &str,
        bytes: impl Fn(&T) -> u64,
        run: impl FnOnce(u64) -> Result<T>,
    ) -> Result<T> {
        let number = self.observer.before(call, name)?;
        let result = run(number)?;
        self.observer.after(call, name, number, bytes(&result))?;
        Ok(result)
    }
}

fn no_bytes<T>(_: &T) -> u64 {
    0
}

#[expect(clippy::ptr_arg, reason = "what a call returns")]
fn bytes_of(read: &Vec<u8>) -> u64 {
    read.len() as u64
}

/// The name of a blob that is put, or its directory.
fn text_of<'a>(name: &NewName<'a>) -> &'a str {
    match name {
        NewName::Given(name) => name.as_str(),
        NewName::Hashed(kind) => kind.directory(),
    }
}

/// The first `len` bytes of the concatenation of `parts`.
fn cut<'a>(parts: &[&'a [u8]], len: u64) -> Vec<&'a [u8]> {
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    let cut = parts.iter().map(|part| {
        let first = part.get(..left.min(part.len())).unwrap_or_default();
        left -= first.len();
        first
    });
    cut.collect()
}

impl<S: Store, O: StoreObserver> Store for ObservedStore<S, O> {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let bytes = |put: &PutBlob| if put.is_new { len } else { 0 };
        self.watch(StoreCall::Put, text_of(&name), bytes, |number| {
            match self.observer.stored_len(number, len) {
                all if all >= len => self.inner.put(name, parts, options),
                // What is stored is not what its name says.
                less => self.inner.put(NewName::Given(&name.for_parts(parts)), &cut(parts, less), options),
            }
        })
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let bytes = |put: &PutBlob| if put.is_new { len } else { 0 };
        self.watch(StoreCall::PutStream, text_of(&name), bytes, |number| {
            let content = &mut WatchedReader { inner: content, observer: &self.observer };
            let stored = self.observer.stored_len(number, len);
            let put = if stored >= len {
                self.inner.put_stream(name, len, content)
            } else {
                let whole = blob_of(content, len)?;
                self.inner.put(
                    NewName::Given(&name.for_parts(&[&whole])),
                    &cut(&[&whole], stored),
                    PutOptions::default(),
                )
            };
            if put.is_err() {
                self.observer.during()?;
            }
            put
        })
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.watch(
            StoreCall::Overwrite,
            name,
            |()| len,
            |number| self.inner.overwrite(name, &cut(parts, self.observer.stored_len(number, len)), options),
        )
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.watch(
            StoreCall::Overwrite,
            name,
            |_| len,
            |number| self.inner.overwrite_if_present(name, &cut(parts, self.observer.stored_len(number, len)), options),
        )
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.watch(StoreCall::Get, name, bytes_of, |_| self.inner.get(name, bytes_max))
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        self.watch(StoreCall::GetRange, name, bytes_of, |_| self.inner.get_range(name, offset, len, reading))
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.watch(StoreCall::Head, name, no_bytes, |_| self.inner.head(name))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        self.watch(StoreCall::LenOf, name, no_bytes, |_| self.inner.len_of(name))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.watch(StoreCall::List, &prefix.directory(), no_bytes, |_| self.inner.list(prefix))
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.watch(StoreCall::Delete, name, no_bytes, |_| self.inner.delete(name, durable))
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.watch(StoreCall::SyncDeletions, "", no_bytes, |_| self.inner.sync_deletions(names))
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        self.inner.other_copy(name)
    }

    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        self.inner.cold_state()
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        self.inner.thawing()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.inner.locks().map(|_| self as &dyn Locks)
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        self.inner.sealing().map(|_| self as &dyn Sealing)
    }

    fn is_unused(&self) -> Result<bool> {
        self.watch(StoreCall::IsUnused, "", no_bytes, |_| self.inner.is_unused())
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.watch(StoreCall::PutsExclusively, name, no_bytes, |_| self.inner.puts_exclusively(name))
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.watch(StoreCall::MakeDirectories, "", no_bytes, |_| self.inner.make_directories(dry_run))
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.watch(StoreCall::CleanTemporaries, "", no_bytes, |_| self.inner.clean_temporaries())
    }
}

impl<S: Store, O: StoreObserver> Locks for ObservedStore<S, O> {
    fn locked_until(&self, name: &BlobName) -> Result<Option<SystemTime>> {
        self.watch(StoreCall::LockedUntil, name, no_bytes, |_| self.inner.need_locks()?.locked_until(name))
    }

    fn lock(&self, name: &BlobName, until: SystemTime) -> Result<()> {
        self.watch(StoreCall::Lock, name, no_bytes, |_| self.inner.need_locks()?.lock(name, until))
    }
}

impl<S: Store, O: StoreObserver> Sealing for ObservedStore<S, O> {
    fn get_stored(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.watch(StoreCall::Get, name, bytes_of, |_| self.inner.get_stored(name, bytes_max))
    }

    fn open_stored(&self, name: &BlobName, stored: Vec<u8>) -> Result<Vec<u8>> {
        self.inner.open_stored(name, stored)
    }

    fn overwrite_stored(&self, name: &BlobName, stored: &[u8], options: PutOptions) -> Result<bool> {
        let len = stored.len() as u64;
        self.watch(StoreCall::Overwrite, name, |_| len, |_| self.inner.overwrite_stored(name, stored, options))
    }

    fn stored_again(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        self.inner.stored_again(name, parts)
    }

    fn stored_hash(&self, name: &BlobName, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        let check = || self.observer.during().and_then(|()| check_stop());
        self.watch(StoreCall::StoredHash, name, no_bytes, |_| self.inner.stored_hash(name, &check))
    }
}

fn blob_of(content: &mut dyn Read, len: u64) -> Result<Vec<u8>> {
    super::blob::read_stream("a blob", len, content)
}

/// A stream that ends with an error once the observer wants that.
struct WatchedReader<'a, O> {
    inner: &'a mut dyn ReadTwice,
    observer: &'a O,
}

impl<O: StoreObserver> Read for WatchedReader<'_, O> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // `ErrorKind::Interrupted` would be repeated.
        self.observer.during().map_err(|error: Error| std::io::Error::other(error.to_string()))?;
        self.inner.read(buffer)
    }
}

impl<O> Seek for WatchedReader<'_, O> {
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(position)
    }
}
