//! The store itself: reads, lists and deletes. `put` has the rest.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use lru::LruCache;
use parking_lot::Mutex;

use super::address::SftpAddress;
use super::blob::{OpenBlob, read_range};
use super::connection::SftpConnection;
use super::failure::SftpFailure;
use super::files::{self, RemoteFile};
use super::links::{self, LinkRole};
use super::packet::{Attributes, DirectoryEntry, Reply, Request, SftpRequestKind, StatusCode};
use super::put::BlobParts;
use super::session::{SftpSession, WaitKind};
use crate::error::{Error, Result};
use crate::store::directories::{NO_DIRECTORY, is_containers_part, no_directory, no_file};
use crate::store::name::{TEMPORARY_PREFIX, check_len, is_component, is_slot_id, missing};
use crate::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, Store, StoreOptions, StoreProperties, Thawing,
};

/// Entries of a listing, at most.
const LISTED_MAX: usize = 8_000_000;
/// Files that stay open for ranged reads.
const OPEN_FILES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);
/// Requests of callers that are worth having in flight at once, over one connection.
const REQUESTS_MAX: usize = 8;
/// Directories that are listed at the same time.
const DIRECTORIES_AT_ONCE: usize = 64;
/// A temporary file that nobody has written to for this time is one of a dead writer.
const TEMPORARY_AGE: Duration = Duration::from_secs(24 * 3600);

/// Whether directories can be synced, as far as it is known.
#[derive(Debug)]
pub(super) struct DirectorySync {
    pub is_possible: AtomicBool,
    pub has_worked: AtomicBool,
}

/// Blobs as files on an SFTP server.
#[derive(Debug)]
pub struct SftpStore {
    pub(super) connection: SftpConnection,
    pub(super) directory_sync: DirectorySync,
    pub(super) open_files: Mutex<LruCache<BlobName, Arc<OpenBlob>>>,
    /// Directories that this process has created or found.
    made: Mutex<HashSet<String>>,
    /// Directories of kinds of blobs, and the note that there are all, that were there once.
    pub(super) seen_directories: Mutex<HashSet<&'static str>>,
}

impl SftpStore {
    /// Opens the store in the existing directory of an URL, of which `rest` is what follows `sftp://`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid URL, or for a server that lacks what a put needs, unless the options allow it.
    /// [`Error::NoRepository`] if there is no such directory. [`Error::Io`] if the server cannot be reached.
    pub fn open(rest: &OsStr, options: &StoreOptions) -> Result<Self> {
        let store = Self::connect(rest, options)?;
        let found = store.connection.retry(WaitKind::Stoppable, |session, _| {
            store.see_directories(session)?;
            files::look(session, SftpRequestKind::Stat, &store.path(""), WaitKind::Stoppable)
        });
        let reason = match found.map_err(|failure| failure.into_error("open", &store.url("")))? {
            Some(found) if found.is_directory() => return Ok(store),
            Some(_) => NO_DIRECTORY,
            None => "the directory does not exist",
        };
        Err(Error::NoRepository { location: store.url(""), reason: reason.into() })
    }

    /// Opens the store. Creates the directory, accessible by its owner only, unless it exists.
    ///
    /// # Errors
    /// Errors of [`SftpStore::open`].
    pub fn create(rest: &OsStr, options: &StoreOptions) -> Result<Self> {
        let store = Self::connect(rest, options)?;
        let root = store.path("");
        let is_end = |at: &usize| *at > 0 && (*at == root.len() || root.get(*at) == Some(&b'/'));
        let created = store.connection.retry(WaitKind::ToTheEnd, |session, _| {
            for path in (0..=root.len()).filter(is_end).filter_map(|end| root.get(..end)) {
                let found = files::look(session, SftpRequestKind::Stat, path, WaitKind::ToTheEnd)?;
                if !found.is_some_and(|found| found.is_directory()) {
                    files::make_directory(session, path)?;
                }
            }
            Ok(())
        });
        created.map_err(|failure| failure.into_error("create", &store.url("")))?;
        Ok(store)
    }

    fn connect(rest: &OsStr, options: &StoreOptions) -> Result<Self> {
        let store = SftpStore {
            connection: SftpConnection::new(SftpAddress::parse(rest)?, options),
            directory_sync: DirectorySync { is_possible: AtomicBool::new(true), has_worked: AtomicBool::new(false) },
            open_files: Mutex::new(LruCache::new(OPEN_FILES_MAX)),
            made: Mutex::default(),
            seen_directories: Mutex::default(),
        };
        let session = store.connection.session(WaitKind::Stoppable);
        let has = session.map_err(|failure| failure.into_error("connect to", &store.url("")))?.extensions;
        let needed = [(has.hardlink, "hardlink@openssh.com"), (has.fsync, "fsync@openssh.com")];
        let lacks: Vec<&str> = needed.iter().filter(|(has, _)| !has).map(|(_, name)| *name).collect();
        if !lacks.is_empty() && !options.unsafe_sftp {
            return Err(Error::Usage(format!(
                "the server of {} lacks {}: without that, a blob can be lost in a power cut, or two writers can replace \
                 each other's; add --unsafe-sftp to use it nevertheless",
                store.url(""),
                lacks.join(" and ")
            )));
        }
        Ok(store)
    }

    /// The path of a blob or directory on the server. The empty name is the store itself.
    pub(super) fn path(&self, name: &str) -> Vec<u8> {
        let root = self.connection.address.path.as_slice();
        match (root, name) {
            (_, "") => root.to_vec(),
            (b"/", _) => [b"/", name.as_bytes()].concat(),
            _ => [root, b"/", name.as_bytes()].concat(),
        }
    }

    /// The URL of a blob, for messages. The empty name is the store itself.
    pub(super) fn url(&self, name: &str) -> String {
        let url = self.connection.address.to_string();
        if name.is_empty() { url } else { format!("{}/{name}", url.trim_end_matches('/')) }
    }

    pub(super) fn is_made(&self, directory: &str) -> bool {
        self.made.lock().contains(directory)
    }

    pub(super) fn remember_made(&self, directory: &str) {
        self.made.lock().insert(directory.into());
    }

    pub(super) fn forget_directories(&self) {
        self.made.lock().clear();
    }

    /// Does `work`, which reads the blob `name`.
    fn read<T>(&self, name: &str, mut work: impl FnMut(&Arc<SftpSession>) -> Result<T, SftpFailure>) -> Result<T> {
        let read = self.connection.retry(WaitKind::Stoppable, |session, _| {
            work(session).map_err(|failure| self.explain_missing(session, name, LinkRole::Blob, failure))
        });
        read.map_err(|failure| match failure {
            failure if failure.is_missing() => missing(name),
            failure => failure.into_error("read", &self.url(name)),
        })
    }

    /// All entries of the directories, with the name of each directory. Directories that do not exist are left out.
    /// Takes the entries from `entries_left`, and fails if there are more.
    fn read_directories(
        &self,
        session: &Arc<SftpSession>,
        directories: Vec<String>,
        entries_left: &mut usize,
    ) -> Result<Vec<(String, Vec<DirectoryEntry>)>, SftpFailure> {
        let mut asked = Vec::new();
        for name in directories {
            let request = Request::new(SftpRequestKind::Opendir).text(&self.path(&name));
            asked.push((name, session.send(request)?));
        }
        let mut open = Vec::new();
        for (name, request) in asked {
            match files::opened(session, request.wait(WaitKind::Stoppable)?) {
                Ok(directory) => open.push((name, directory, Vec::new())),
                Err(failure) => match self.explain_missing(session, &name, LinkRole::Directory, failure) {
                    failure if failure.is_missing() => {}
                    SftpFailure::Other(Error::Unreadable { source, .. }) => {
                        let what = format!("the directory {name}");
                        return Err(Error::Unreadable { what, offset: 0, source }.into());
                    }
                    failure => return Err(failure),
                },
            }
        }
        let mut done = Vec::new();
        while !open.is_empty() {
            let ask =
                |directory: &RemoteFile| session.send(Request::new(SftpRequestKind::Readdir).text(&directory.handle));
            let asked: Vec<_> = open.iter().map(|(_, directory, _)| ask(directory)).collect::<Result<_, _>>()?;
            let mut unfinished = Vec::new();
            for ((name, directory, mut entries), request) in open.into_iter().zip(asked) {
                match request.wait(WaitKind::Stoppable)? {
                    Reply::Names(more) if !more.is_empty() => {
                        *entries_left = entries_left.checked_sub(more.len()).ok_or_else(|| {
                            let text = format!("the server lists more than {LISTED_MAX} entries");
                            SftpFailure::Status(StatusCode::Failure, text)
                        })?;
                        entries.extend(more);
                        unfinished.push((name, directory, entries));
                    }
                    Reply::Names(_) | Reply::Status(StatusCode::EndOfFile, _) => done.push((name, entries)),
                    reply => return Err(SftpFailure::of(reply)),
                }
            }
            open = unfinished;
        }
        Ok(done)
    }

    /// The blobs below `prefix`.
    fn walk(&self, session: &Arc<SftpSession>, prefix: &str) -> Result<Vec<ListedBlob>, SftpFailure> {
        let (mut listed, mut linked) = (Vec::new(), Vec::new());
        let (mut directories, mut entries_left) = (vec![prefix.to_string()], LISTED_MAX);
        while !directories.is_empty() {
            let batch = directories.split_off(directories.len().saturating_sub(DIRECTORIES_AT_ONCE));
            for (parent, entries) in self.read_directories(session, batch, &mut entries_left)? {
                for DirectoryEntry { name, attributes } in entries {
                    let Some(component) = std::str::from_utf8(&name).ok().filter(|name| is_component(name)) else {
                        continue;
                    };
                    let name = if parent.is_empty() { component.into() } else { format!("{parent}/{component}") };
                    if attributes.permissions.is_none() {
                        let text = "it does not say which entries are files".to_string();
                        return Err(SftpFailure::Status(StatusCode::Unsupported, text));
                    }
                    // A name that is too long, or in `tmp`, is nobody's.
                    let Ok(blob) = BlobName::parse(&name) else { continue };
                    let is_plain = attributes.is_file() || attributes.is_link();
                    if blob.is_own() && !is_plain {
                        // Whoever reads it learns that it cannot be read.
                        listed.push(ListedBlob { name: blob, len: 0 });
                    } else if attributes.is_directory() {
                        directories.push(name);
                    } else if is_containers_part(&parent, component) && !attributes.is_link() {
                        return Err(no_directory(&name).into());
                    } else if let Some(len) = attributes.size.filter(|_| attributes.is_file()) {
                        listed.push(ListedBlob { name: blob, len });
                    } else if attributes.is_link() {
                        linked.extend(LinkRole::of(&parent, component).map(|role| (blob, role)));
                    }
                }
            }
            for (name, role) in linked.drain(..) {
                match (self.behind(session, &name)?, role) {
                    (Some(found), LinkRole::Directory) if found.is_directory() => directories.push(name.into()),
                    (None, LinkRole::Directory) => {
                        return Err(links::unreadable(format!("the directory {name}")).into());
                    }
                    (Some(_), LinkRole::Directory)
                        if is_containers_part(&BlobKind::Container.to_string(), name.last()) =>
                    {
                        return Err(no_directory(&name).into());
                    }
                    (None, LinkRole::Blob) => listed.push(ListedBlob { name, len: 0 }),
                    (Some(found), LinkRole::Blob) if found.is_file() => {
                        listed.push(ListedBlob { name, len: found.size.unwrap_or(0) });
                    }
                    (Some(_), LinkRole::Blob) if name.is_own() => listed.push(ListedBlob { name, len: 0 }),
                    (Some(_), _) => {}
                }
            }
        }
        listed.sort_unstable();
        Ok(listed)
    }

    /// The names and attributes of the entries of one directory.
    fn entries(&self, directory: &str) -> Result<Vec<DirectoryEntry>> {
        let read = self.connection.retry(WaitKind::Stoppable, |session, _| {
            self.read_directories(session, vec![directory.to_string()], &mut LISTED_MAX.clone())
        });
        let read = read.map_err(|failure| failure.into_error("list", &self.url(directory)))?;
        let entries = read.into_iter().flat_map(|(_, entries)| entries);
        Ok(entries.filter(|entry| !matches!(entry.name.as_ref(), b"." | b"..")).collect())
    }

    /// The server's time, seconds since 1970: that of a file which is written now.
    fn server_time(&self) -> Result<Option<u32>> {
        let mut name = None;
        let time = self.connection.retry(WaitKind::ToTheEnd, |session, _| {
            let (created, file) = self.create_temporary(session)?;
            name = Some(created);
            let request = Request::new(SftpRequestKind::Fstat).text(&file.handle);
            Ok(files::attributes(session.call(request, WaitKind::ToTheEnd)?)?.and_then(|found| found.modified))
        });
        if let Some(name) = name {
            self.remove_temporary(&name);
        }
        time.map_err(|failure| failure.into_error("clean", &self.url(TEMPORARY_PREFIX)))
    }
}

/// Whether `name` has the form of a temporary file's name: 16 random bytes in hex.
fn is_temporary_name(name: &[u8]) -> bool {
    crate::store::temporary::is_temporary_name(std::os::unix::ffi::OsStrExt::from_bytes(name))
}

impl Store for SftpStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], _: PutOptions) -> Result<PutBlob> {
        let (name, len) = (name.for_parts(parts), parts.iter().map(|part| part.len() as u64).sum());
        let is_new = self.put_content(&name, len, &mut BlobParts { parts, at: 0 })?;
        Ok(PutBlob { name, is_new })
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let name = name.for_stream(content)?;
        let is_new = self.put_content(&name, len, content)?;
        Ok(PutBlob { name, is_new })
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], _: PutOptions) -> Result<()> {
        self.open_files.lock().pop(name);
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let replaced = self.put_over(name, len, &mut BlobParts { parts, at: 0 });
        self.open_files.lock().pop(name);
        replaced
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.read(name, |session| {
            let (_, bytes) = self.read_opened(session, name, |blob| {
                let len = check_len(name, blob.attributes.size.unwrap_or(0), bytes_max)?;
                read_range(blob, name, 0, len)
            })?;
            Ok(bytes)
        })
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, _: Reading) -> Result<Vec<u8>> {
        self.read(name, |session| {
            if let Some(bytes) = self.read_cached(session, name, offset, len)? {
                return Ok(bytes);
            }
            let (blob, bytes) = self.read_opened(session, name, |blob| read_range(blob, name, offset, len))?;
            self.open_files.lock().put(name.clone(), Arc::new(blob));
            Ok(bytes)
        })
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let found = self.connection.retry(WaitKind::Stoppable, |session, _| {
            let found = files::look(session, SftpRequestKind::Stat, &self.path(name), WaitKind::Stoppable);
            match found.map_err(|failure| self.explain_missing(session, name, LinkRole::Blob, failure))? {
                None => self.check_way(session, name, LinkRole::Blob).map(|()| None),
                Some(found) if !found.is_file() && name.is_own() => Err(no_file(name).into()),
                found => Ok(found),
            }
        });
        let found = found.map_err(|failure| failure.into_error("inspect", &self.url(name)))?;
        Ok(found.filter(Attributes::is_file).and_then(|found| {
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(found.modified.unwrap_or(0).into());
            found.size.map(|len| BlobMetadata { len, modified })
        }))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.head(name)?.map(|head| head.len))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        if prefix.is_blob() {
            return Ok(Vec::new());
        }
        let prefix = prefix.directory();
        let listed = self.connection.retry(WaitKind::Stoppable, |session, _| {
            let listed = self.walk(session, &prefix)?;
            self.check_others(session, &prefix).map(|()| listed)
        });
        listed.map_err(|failure| failure.into_error("list", &self.url(&prefix)))
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.open_files.lock().pop(name);
        let removed = self.connection.retry(WaitKind::ToTheEnd, |session, _| {
            let was_there = files::remove(session, &self.path(name))?;
            if was_there { Ok(()) } else { self.check_way(session, name, LinkRole::Blob) }
        });
        removed.map_err(|failure| failure.into_error("delete", &self.url(name)))?;
        match durable {
            Durable::OnReturn => self.sync_deletion(name),
            Durable::AfterSync => Ok(()),
        }
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        // One name of each directory.
        let directories: HashMap<&str, &BlobName> =
            names.iter().filter_map(|name| Some((name.rsplit_once('/')?.0, name))).collect();
        directories.into_values().try_for_each(|name| self.sync_deletion(name))
    }

    fn other_copy(&self, _: &BlobName) -> OtherCopy {
        OtherCopy::default()
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties { location: self.url(""), local_path: None, requests_max: REQUESTS_MAX, cold_option: None }
    }

    fn cold_state(&self) -> Option<&ColdState> {
        None
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        None
    }

    fn locks(&self) -> Option<&dyn Locks> {
        None
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        None
    }

    fn puts_exclusively(&self, _: &BlobName) -> Result<bool> {
        Ok(true)
    }

    fn is_unused(&self) -> Result<bool> {
        for entry in self.entries("")? {
            // All that a killed `init` leaves.
            let is_slot: fn(&[u8]) -> bool = |name| str::from_utf8(name).is_ok_and(is_slot_id);
            let (directory, is_own) = match str::from_utf8(&entry.name) {
                Ok(TEMPORARY_PREFIX) => (TEMPORARY_PREFIX, is_temporary_name as _),
                Ok(name) if name == BlobKind::Key.directory() => (name, is_slot),
                _ => return Ok(false),
            };
            if !entry.attributes.is_directory() || !self.entries(directory)?.iter().all(|entry| is_own(&entry.name)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.make_lasting_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        let old = self.entries(TEMPORARY_PREFIX)?;
        let old = old.into_iter().filter(|entry| entry.attributes.is_file() && is_temporary_name(&entry.name));
        let old: Vec<DirectoryEntry> = old.collect();
        let Some(now) = (if old.is_empty() { None } else { self.server_time()? }) else { return Ok(0) };
        let is_old = |entry: &&DirectoryEntry| {
            let age = entry.attributes.modified.map(|modified| now.saturating_sub(modified));
            age.is_some_and(|age| Duration::from_secs(age.into()) > TEMPORARY_AGE)
        };
        let names = old.iter().filter(is_old).map(|entry| String::from_utf8_lossy(&entry.name));
        Ok(names.map(|name| self.remove_temporary(&format!("{TEMPORARY_PREFIX}/{name}"))).count())
    }
}
