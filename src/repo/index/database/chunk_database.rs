//! From fingerprints to entries, in a redb database in the local cache directory.
//!
//! 1. The first look-up opens the file, and takes in the segments of the listing that the database does not know. A
//!    segment counts as known once all its records are in. So a killed run leaves rows, and its segment is read again.
//! 2. A row is a hint. Rows of deleted containers stay, and the caller counts a row only if its container is in the
//!    listing, a segment names it, and its index confirms it. For all else the segments decide, also for a chunk that
//!    has no row.
//! 3. A file that is damaged, foreign, of another format, or mostly rows of chunks that are gone, is emptied and filled
//!    again. If that fails, or the file cannot be locked or written, the run goes on without it.
//! 4. The file is checked below redb ([`super::checked_file`]). A panic of redb counts as damage.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, TableError,
};

use super::super::listing::ContainerListing;
use super::super::segment::IndexSegment;
use super::checked_file::{CheckedFile, may_change};
use super::quiet_panic::catch_quietly;
use crate::crypto::SecretKey;
use crate::error::{Error, Result};
use crate::repo::paths::lock_cache_file;
use crate::types::{ContainerId, Fingerprint};

/// Name of the database file in the local cache directory.
pub const DATABASE_FILE: &str = "chunks.redb";

/// Bytes of a location: a container id, and the position of an entry in the container index, little-endian.
const LOCATION_BYTES: usize = 36;
type Location = [u8; LOCATION_BYTES];

/// Fingerprint to location.
const ROWS: TableDefinition<'static, &[u8; 32], &[u8; LOCATION_BYTES]> = TableDefinition::new("chunks");
/// Names of the segments whose records are all in, and their numbers of records.
const SEGMENTS: TableDefinition<'static, &str, u64> = TableDefinition::new("segments");
/// Rows of one transaction, at most. It bounds memory and the loss of a kill.
const BATCH_ROWS: usize = 1 << 16;
/// Rows that may be there beyond twice the records of the segments.
const STALE_ROWS_MAX: u64 = 1 << 17;

/// Where the database of a repository is, and what it may use.
#[derive(Debug, Clone)]
pub struct DatabaseFile {
    /// Directory of the local caches.
    pub directory: PathBuf,
    /// Id of the repository.
    pub repository: String,
    /// Memory of redb's cache, bytes.
    pub cache_bytes: u64,
    /// Encrypts the pages, if the repository is encrypted.
    pub key: Option<SecretKey>,
}

/// Why the database does not answer.
pub(super) enum DatabaseFailure {
    /// The run ends: a segment could not be read because of it.
    Run(Error),
    /// The database is of no use.
    Database(String),
}

pub(super) type DatabaseResult<T> = std::result::Result<T, DatabaseFailure>;

pub(super) fn failed(error: impl Into<redb::Error>) -> DatabaseFailure {
    DatabaseFailure::Database(error.into().to_string())
}

/// Does `work`, a panic of which counts as damage. One of redb is not printed.
pub(super) fn guarded<T>(work: impl FnOnce() -> DatabaseResult<T>) -> DatabaseResult<T> {
    catch_quietly(work).unwrap_or_else(|| Err(DatabaseFailure::Database("redb panicked".into())))
}

enum DatabaseState {
    /// No look-up has come yet.
    Unopened,
    Open(Box<OpenDatabase>),
    /// The segments answer alone.
    Off,
}

/// A database in use.
struct OpenDatabase {
    rows: ReadOnlyTable<&'static [u8; 32], &'static [u8; LOCATION_BYTES]>,
    database: Database,
    /// Holds the lock.
    file: File,
    /// Listed containers that no segment names. Nothing may rely on them.
    orphans: HashSet<ContainerId>,
}

/// See the module.
pub(in crate::repo::index) struct ChunkDatabase {
    location: DatabaseFile,
    state: DatabaseState,
}

impl ChunkDatabase {
    pub(in crate::repo::index) fn new(location: DatabaseFile) -> Self {
        ChunkDatabase { location, state: DatabaseState::Unopened }
    }

    /// Opens the database for look-ups in `listing`, unless that was tried. Returns whether it answers.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted), and a locked key, while segments are read.
    pub(in crate::repo::index) fn open(&mut self, listing: &ContainerListing) -> Result<bool> {
        if let DatabaseState::Unopened = self.state {
            self.state = DatabaseState::Off;
            if let Some(open) = self.location.open(listing)? {
                self.state = DatabaseState::Open(Box::new(open));
            }
        }
        Ok(matches!(self.state, DatabaseState::Open(_)))
    }

    /// The container and the entry in the row of a chunk. They may be gone.
    pub(in crate::repo::index) fn find(&mut self, fingerprint: &Fingerprint) -> Option<(ContainerId, u32)> {
        let DatabaseState::Open(open) = &self.state else { return None };
        match guarded(|| Ok(open.rows.get(&fingerprint.0).map_err(failed)?.map(|row| decode(row.value())))) {
            Ok(found) => found.filter(|(container, _)| !open.orphans.contains(container)),
            Err(failure) => {
                if let DatabaseFailure::Database(error) = failure {
                    let path = self.location.path();
                    tracing::warn!("the index segments answer alone: {} is unusable: {error}", path.display());
                }
                self.give_up();
                None
            }
        }
    }

    /// Closes the database and empties its file, so that the next run fills it again.
    fn give_up(&mut self) {
        if let Some(file) = self.close() {
            empty(&file);
        }
    }

    /// Closes the database. Returns its file, if it was open.
    fn close(&mut self) -> Option<File> {
        let DatabaseState::Open(open) = std::mem::replace(&mut self.state, DatabaseState::Off) else { return None };
        let OpenDatabase { rows, database, file, .. } = *open;
        let _ = guarded(|| {
            drop((rows, database));
            Ok(())
        });
        Some(file)
    }
}

impl Drop for ChunkDatabase {
    fn drop(&mut self) {
        self.close();
    }
}

/// Empties a file, which also gives its space back.
pub(super) fn empty(file: &File) -> bool {
    let emptied = may_change().and_then(|()| file.set_len(0));
    emptied.inspect_err(|error| tracing::debug!("a database cannot be emptied: {error}")).is_ok()
}

impl DatabaseFile {
    fn path(&self) -> PathBuf {
        self.directory.join(DATABASE_FILE)
    }

    /// Locks the file, opens the database and takes in new segments. `None` if the segments must answer alone.
    fn open(&self, listing: &ContainerListing) -> Result<Option<OpenDatabase>> {
        let path = self.path();
        let Some(file) = lock(&path) else { return Ok(None) };
        for is_last in [false, true] {
            match guarded(|| self.load(&file, listing)) {
                Ok(open) => return Ok(Some(open)),
                Err(DatabaseFailure::Run(error)) => return Err(error),
                Err(DatabaseFailure::Database(error)) if is_last => {
                    tracing::warn!("the index segments answer alone: {}: {error}", path.display());
                }
                Err(DatabaseFailure::Database(error)) => {
                    tracing::warn!("filling the database of chunks again: {}: {error}", path.display());
                }
            }
            if !empty(&file) {
                break;
            }
        }
        Ok(None)
    }

    fn load(&self, file: &File, listing: &ContainerListing) -> DatabaseResult<OpenDatabase> {
        let unusable = |error: std::io::Error| DatabaseFailure::Database(error.to_string());
        let share = || file.try_clone().map_err(unusable);
        let checked = CheckedFile::open(share()?, &self.repository, self.key.as_ref()).map_err(unusable)?;
        let cache_bytes = usize::try_from(self.cache_bytes).unwrap_or(usize::MAX);
        let database = Database::builder().set_cache_size(cache_bytes).create_with_backend(checked).map_err(failed)?;
        take_in(&database, listing)?;
        let rows = database.begin_read().map_err(failed)?.open_table(ROWS).map_err(failed)?;
        let orphans = listing.orphans().into_iter().collect();
        Ok(OpenDatabase { rows, database, file: share()?, orphans })
    }
}

/// Opens and locks the file. The lock lasts as long as the file is open.
pub(super) fn lock(path: &Path) -> Option<File> {
    let without = |error: &dyn std::fmt::Display| {
        tracing::debug!("{} is not used: {error}", path.display());
    };
    match lock_cache_file(path) {
        Ok(None) => without(&"another process has locked it"),
        Ok(file) => return file,
        Err(error) => without(&error),
    }
    None
}

/// Takes in the segments that the database does not know, and forgets those that are gone.
fn take_in(database: &Database, listing: &ContainerListing) -> DatabaseResult<()> {
    let (segments, started) = (listing.segments(), Instant::now());
    let records: u64 = segments.iter().map(|segment| segment.records()).sum();
    let (known, rows) = known_segments(database)?;
    if rows > 2 * records + STALE_ROWS_MAX {
        return Err(DatabaseFailure::Database(format!("it has {rows} rows for {records} chunks")));
    }
    let mut taken = 0;
    for segment in segments.iter().filter(|segment| !known.contains(segment.name().as_str())) {
        taken += take_in_segment(database, segment)?;
    }
    let listed: HashSet<&str> = segments.iter().map(|segment| segment.name().as_str()).collect();
    let gone: Vec<&String> = known.iter().filter(|name| !listed.contains(name.as_str())).collect();
    if taken > 0 || rows == 0 || !gone.is_empty() {
        let mut transaction = database.begin_write().map_err(failed)?;
        // A run that is killed later leaves a file that opens at once.
        transaction.set_quick_repair(true);
        transaction.open_table(ROWS).map_err(failed)?;
        let mut names = transaction.open_table(SEGMENTS).map_err(failed)?;
        gone.into_iter().try_for_each(|name| names.remove(name.as_str()).map(drop)).map_err(failed)?;
        drop(names);
        transaction.commit().map_err(failed)?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::debug!("the database of chunks took in {taken} records in {seconds:.3} s");
    }
    Ok(())
}

/// Names of the known segments, and the number of rows.
fn known_segments(database: &Database) -> DatabaseResult<(HashSet<String>, u64)> {
    let reading = database.begin_read().map_err(failed)?;
    let names = match reading.open_table(SEGMENTS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok((HashSet::new(), 0)),
        names => names.map_err(failed)?,
    };
    let mut known = HashSet::new();
    for name in names.iter().map_err(failed)? {
        known.insert(name.map_err(failed)?.0.value().to_string());
    }
    Ok((known, reading.open_table(ROWS).map_err(failed)?.len().map_err(failed)?))
}

/// Takes in the records of a segment, and returns their number. One that cannot be read stays unknown.
fn take_in_segment(database: &Database, segment: &IndexSegment) -> DatabaseResult<u64> {
    let mut batch: Vec<(Fingerprint, Location)> = Vec::new();
    for page in segment.pages() {
        let page = match page {
            Ok(page) => page,
            Err(error) if error.stops_reading() => return Err(DatabaseFailure::Run(error)),
            Err(error) => {
                tracing::debug!("a segment is not taken into the database of chunks: {error}");
                return Ok(0);
            }
        };
        for record in page {
            let container = segment.containers().get(record.container as usize);
            batch.extend(container.map(|container| (record.fingerprint, encode(container, record.entry))));
        }
        if batch.len() >= BATCH_ROWS {
            write(database, &batch, None)?;
            batch.clear();
        }
    }
    write(database, &batch, Some(segment))?;
    Ok(segment.records())
}

/// Writes rows in one transaction, and with them that all those of a segment are in.
fn write(database: &Database, batch: &[(Fingerprint, Location)], whole: Option<&IndexSegment>) -> DatabaseResult<()> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut rows = transaction.open_table(ROWS).map_err(failed)?;
    for (fingerprint, location) in batch {
        // A merge only moves records. To look costs less than to write a page again.
        let is_known = rows.get(&fingerprint.0).map_err(failed)?.is_some_and(|row| row.value() == location);
        if !is_known {
            rows.insert(&fingerprint.0, location).map_err(failed)?;
        }
    }
    drop(rows);
    if let Some(segment) = whole {
        let mut names = transaction.open_table(SEGMENTS).map_err(failed)?;
        names.insert(segment.name().as_str(), segment.records()).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn encode(container: &ContainerId, entry: u32) -> Location {
    let mut location = [0; LOCATION_BYTES];
    let (id, position) = location.split_at_mut(32);
    id.copy_from_slice(&container.0);
    position.copy_from_slice(&entry.to_le_bytes());
    location
}

fn decode(location: &Location) -> (ContainerId, u32) {
    let mut id = [0; 32];
    id.iter_mut().zip(location).for_each(|(to, from)| *to = *from);
    (ContainerId(id), location.last_chunk().map_or(0, |entry| u32::from_le_bytes(*entry)))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
