//! A store whose blobs are the objects of a bucket below a prefix.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};

use super::failure::{Cause, RequestFailure};
use super::locks::ObjectLocks;
use super::requests::{RequestKind, Requests};
use crate::error::{Error, ErrorKind, Result};
use crate::store::name::{check_len, check_range, is_left_by_init, missing};
use crate::store::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, ObjectTag, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, StorageClasses, Store, StoreOptions, StoreProperties, Thawing,
};

/// Entries of a listing that may repeat earlier ones, besides one for each that is new.
const REPEATED_ENTRIES_MAX: usize = 10_000;

/// Blobs of a listing, at most: containers of 32 MiB then hold 256 TB, and their names
/// take about 1 GB of memory.
const LISTED_MAX: usize = 8_000_000;

/// Requests that are worth having in flight at once: with more, one connection of 1 Gbit/s gets no faster.
const REQUESTS_MAX: usize = 8;

/// The client of a service.
pub(super) trait Objects: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Objects for T {}

/// Blobs as objects.
#[derive(Debug)]
pub struct RemoteStore {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) requests: Requests,
    /// Whether the service has not yet refused to put only if the name is free.
    pub(super) puts_conditionally: AtomicBool,
    /// What sends requests about locks, if the service has any.
    pub(super) locks: Option<ObjectLocks>,
    pub(super) location: String,
    /// Classes of storage of new objects.
    pub(super) classes: StorageClasses,
    /// The tag of data containers in a cold repository, and of their parity.
    pub(super) tag: Option<ObjectTag>,
    prefix: Path,
}

/// How far one listing has come.
#[derive(Default)]
struct Listing {
    blobs: Vec<ListedBlob>,
    /// The last object, if all came in ascending order.
    last: Option<Path>,
    is_unordered: bool,
    repeated: usize,
    /// Objects so far, also those that are no blobs.
    seen: usize,
}

impl RemoteStore {
    /// The objects of `objects` below `prefix`. `location` is how messages and caches name the store.
    pub(super) fn new(objects: Arc<dyn Objects>, prefix: Path, location: String, options: &StoreOptions) -> Self {
        let requests = Requests::new(options);
        let puts_conditionally = AtomicBool::new(true);
        let (classes, tag) = (options.classes.clone(), options.data_tag.clone());
        RemoteStore { objects, requests, puts_conditionally, locks: None, location, classes, tag, prefix }
    }

    /// The same store, whose objects can be locked.
    pub(super) fn with_locks(self, locks: Option<ObjectLocks>) -> Self {
        RemoteStore { locks, ..self }
    }

    /// The object of a blob. `name` must be valid.
    pub(super) fn object(&self, name: &str) -> Path {
        let parts = self.prefix.parts().chain(name.split('/').map(Into::into));
        parts.collect()
    }

    /// The error of a failed request for the blob `name`, which may be empty for all of them.
    pub(super) fn error(&self, failure: RequestFailure, action: &'static str, name: &str) -> Error {
        let kind =
            if ["write", "delete", "lock", "thaw"].contains(&action) { RequestKind::Write } else { RequestKind::Read };
        match failure.cause() {
            Cause::Missing => missing(name),
            _ if name.is_empty() => failure.into_error(action, &self.location, kind),
            _ => failure.into_error(action, &format!("{name} in {}", self.location), kind),
        }
    }

    /// Sends a read for the blob `name`.
    pub(super) fn read<T>(
        &self,
        action: &'static str,
        name: &str,
        request: impl AsyncFn() -> Result<T, RequestFailure>,
    ) -> Result<T> {
        self.requests.run(RequestKind::Read, request)?.map_err(|failure| self.error(failure, action, name))
    }

    /// Reads `len` bytes at `offset`, at most: fewer if the object ends before. `None` if it ends before the first.
    /// Also the length of the object. Fails without reading if that does not pass `check`.
    fn read_range(
        &self,
        name: &BlobName,
        offset: u64,
        len: u64,
        check: impl Fn(u64) -> Result<()>,
    ) -> Result<Option<Vec<u8>>> {
        let object = self.object(name);
        self.read("read", name, async || match self.fetch(&object, offset, len, &check).await {
            Err(failure) if failure.cause() == Cause::Range => Ok(Ok(None)),
            fetched => fetched.map(|fetched| fetched.map(Some)),
        })?
    }

    /// One try of [`Self::read_range`].
    pub(super) async fn fetch(
        &self,
        object: &Path,
        offset: u64,
        len: u64,
        check: &impl Fn(u64) -> Result<()>,
    ) -> Result<Result<Vec<u8>>, RequestFailure> {
        let range = GetRange::Bounded(offset..offset.saturating_add(len));
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let answer = self.objects.get_opts(object, options).await?;
        if let Err(error) = check(answer.meta.size) {
            return Ok(Err(error));
        }
        // The server says twice how much comes: by the range, and by the length of the answer.
        let expected = answer.range.end.saturating_sub(answer.range.start);
        let mut bytes = Vec::new();
        let mut stream = answer.into_stream();
        while let Some(part) = stream.next().await {
            let part = part?;
            if (bytes.len() + part.len()) as u64 > expected {
                return Err(RequestFailure::new(
                    Cause::Transient,
                    format!("more than the {expected} bytes asked for came"),
                ));
            }
            bytes.extend_from_slice(&part);
        }
        if (bytes.len() as u64) < expected {
            let text = format!("only {} of {expected} bytes came", bytes.len());
            return Err(RequestFailure::new(Cause::Transient, text));
        }
        Ok(Ok(bytes))
    }

    /// Length and time of an object.
    pub(super) async fn look(&self, object: &Path) -> Result<Option<BlobMetadata>, RequestFailure> {
        match self.objects.head(object).await {
            Ok(found) => Ok(Some(BlobMetadata { len: found.size, modified: found.last_modified.into() })),
            Err(error) => {
                let failure = RequestFailure::from(error);
                if failure.cause() == Cause::Missing { Ok(None) } else { Err(failure) }
            }
        }
    }

    /// Goes on with a listing. Returns whether that was its end. A failure after new entries is no failure.
    async fn list_on(&self, directory: &Path, listing: &RefCell<Listing>) -> Result<bool, RequestFailure> {
        let before = listing.borrow().blobs.len();
        let after = listing.borrow().last.clone();
        let mut stream = match &after {
            Some(after) => self.objects.list_with_offset(Some(directory), after),
            None => self.objects.list(Some(directory)),
        };
        while let Some(entry) = stream.next().await {
            let mut listing = listing.borrow_mut();
            let found = match entry.map_err(RequestFailure::from) {
                Ok(found) => found,
                Err(failure) if failure.is_transient() && !listing.is_unordered && listing.blobs.len() > before => {
                    tracing::debug!("a listing goes on after {:?}: {failure}", listing.last);
                    return Ok(false);
                }
                Err(failure) => {
                    if listing.is_unordered {
                        *listing = Listing { is_unordered: true, ..Listing::default() };
                    }
                    return Err(failure);
                }
            };
            if listing.last.as_ref().is_some_and(|last| *last >= found.location) {
                listing.is_unordered = true;
                listing.repeated += 1;
                if listing.repeated > listing.blobs.len() + REPEATED_ENTRIES_MAX {
                    return Err(RequestFailure::new(Cause::Other, "the server repeats the same entries without end"));
                }
            } else if !listing.is_unordered {
                listing.last = Some(found.location.clone());
            }
            if !found.location.prefix_matches(directory) {
                let text = format!("the server lists {} for {directory}", found.location);
                return Err(RequestFailure::new(Cause::Other, text));
            }
            listing.seen += 1;
            if listing.seen > LISTED_MAX {
                let text = format!("the server lists more than {LISTED_MAX} objects");
                return Err(RequestFailure::new(Cause::Other, text));
            }
            let Some(name) = self.name(&found.location) else { continue };
            listing.blobs.push(ListedBlob { name, len: found.size });
        }
        Ok(true)
    }

    /// The name of the blob in an object, or `None` for an object that is no blob.
    fn name(&self, object: &Path) -> Option<BlobName> {
        let rest = object.as_ref().strip_prefix(self.prefix.as_ref())?;
        let name = if self.prefix.as_ref().is_empty() { rest } else { rest.strip_prefix('/')? };
        BlobName::parse(name).inspect_err(|_| tracing::debug!("ignoring the object {object}, which is no blob")).ok()
    }
}

impl Store for RemoteStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let name = name.for_parts(parts);
        let is_new = self.put_parts(&name, parts, options.is_cold)?;
        Ok(PutBlob { name, is_new })
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let name = name.for_stream(content)?;
        let is_new = self.upload(&name, len, content)?;
        Ok(PutBlob { name, is_new })
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.replace(name, parts, options.is_cold)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        self.replace_present(name, parts, options.is_cold)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        let check = |len| check_len(name, len, bytes_max).map(drop);
        // A range, so that a length comes with the answer that does not depend on how much of it arrives.
        if let Some(bytes) = self.read_range(name, 0, bytes_max.max(1), check)? {
            return Ok(bytes);
        }
        // No range of an empty blob exists.
        match self.head(name)? {
            None => Err(missing(name)),
            Some(head) if head.len == 0 => Ok(Vec::new()),
            Some(head) => Err(Error::Remote {
                action: "read",
                what: format!("{name} in {}", self.location),
                reason: format!("the server says that it has {} bytes, and gives none", head.len),
                kind: ErrorKind::Failed,
            }),
        }
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, _: Reading) -> Result<Vec<u8>> {
        let is_plain = len > 0 && offset.checked_add(len as u64).is_some();
        if is_plain
            && let Some(bytes) =
                self.read_range(name, offset, len as u64, |found| check_range(name, found, offset, len))?
        {
            return Ok(bytes);
        }
        let head = self.head(name)?.ok_or_else(|| missing(name))?;
        check_range(name, head.len, offset, len)?;
        match len {
            0 => Ok(Vec::new()),
            _ => Err(Error::corrupt(name, offset, format!("{len} bytes"), "none")),
        }
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let object = self.object(name);
        self.read("inspect", name, async || self.look(&object).await)
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.head(name)?.map(|head| head.len))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let prefix = prefix.directory();
        let directory = if prefix.is_empty() { self.prefix.clone() } else { self.object(&prefix) };
        let listing = RefCell::new(Listing::default());
        while !self.read("list", &prefix, async || self.list_on(&directory, &listing).await)? {}
        let mut blobs = listing.into_inner().blobs;
        blobs.sort_unstable();
        blobs.dedup_by(|left, right| left.name == right.name);
        Ok(blobs)
    }

    fn delete(&self, name: &BlobName, _: Durable) -> Result<()> {
        let object = self.object(name);
        let deleted = self
            .requests
            .run(RequestKind::Write, async || self.objects.delete(&object).await.map_err(RequestFailure::from))?;
        match deleted {
            Err(failure) if failure.cause() == Cause::Missing => Ok(()),
            deleted => deleted.map_err(|failure| self.error(failure, "delete", name)),
        }
    }

    fn sync_deletions(&self, _: &[BlobName]) -> Result<()> {
        // A service has deleted what it says that it has.
        Ok(())
    }

    fn other_copy(&self, _: &BlobName) -> OtherCopy {
        OtherCopy::default()
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties {
            location: self.location.clone(),
            local_path: None,
            requests_max: REQUESTS_MAX,
            cold_option: self
                .classes
                .cold_option()
                .or_else(|| self.tag.as_ref().map(|tag| format!("--data-tag {tag}"))),
        }
    }

    fn cold_state(&self) -> Option<&ColdState> {
        None
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        self.locks.as_ref().map(|_| self as &dyn Thawing)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.locks.as_ref().map(|_| self as &dyn Locks)
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        None
    }

    fn make_directories(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn clean_temporaries(&self) -> Result<usize> {
        Ok(0)
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.refuses_taken_names(name)
    }

    fn is_unused(&self) -> Result<bool> {
        self.read("list", "", async || {
            let mut stream = self.objects.list(Some(&self.prefix));
            while let Some(entry) = stream.next().await {
                // Consoles of the services make an object of the prefix's own name to show a directory.
                let location = entry?.location;
                if location != self.prefix && !self.name(&location).is_some_and(|name| is_left_by_init(&name)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}
