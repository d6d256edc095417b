//! The local database (level 4): the records of the segments in redb, for look-ups in constant time.
//!
//! The database is a cache of the segments. Without its file, the next backup fills it again. It remembers which
//! segments it has imported. redb locks the file, and a process that cannot lock it uses the segments directly.

use std::path::Path;

use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::segment::IndexSegment;
use crate::error::{Error, Result};
use crate::types::{ContainerId, Fingerprint};

const CHUNKS: TableDefinition<'_, &[u8; 32], u64> = TableDefinition::new("chunks");
const CONTAINERS: TableDefinition<'_, u32, &[u8; 32]> = TableDefinition::new("containers");
const NUMBERS: TableDefinition<'_, &[u8; 32], u32> = TableDefinition::new("container numbers");
const SEGMENTS: TableDefinition<'_, &str, ()> = TableDefinition::new("segments");

/// Name of the database file in the local cache directory.
pub const DATABASE_FILE: &str = "index.redb";

/// The open database.
pub struct Database {
    database: redb::Database,
    path: std::path::PathBuf,
    dirty: bool,
}

impl Database {
    /// Opens or creates the file, and replaces a damaged one. `None` if another process has locked it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file can be neither opened nor created.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Option<Self>> {
        let failed = |error: redb::Error| Error::io("open index database", path, std::io::Error::other(error));
        let open = || {
            let database = redb::Database::builder().set_cache_size(cache_bytes).create(path)?;
            let database = Database { database, path: path.to_path_buf(), dirty: false };
            database.prepare()?;
            Ok::<_, redb::Error>(database)
        };
        match open() {
            Ok(database) => Ok(Some(database)),
            Err(redb::Error::DatabaseAlreadyOpen) => Ok(None),
            Err(redb::Error::Io(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(failed(error.into()))
            }
            Err(error) => {
                tracing::warn!("index database {} is unusable ({error}); rebuilding it", path.display());
                std::fs::remove_file(path).map_err(|error| Error::io("remove damaged index database", path, error))?;
                open().map(Some).map_err(failed)
            }
        }
    }

    fn prepare(&self) -> Result<(), redb::Error> {
        let read = self.database.begin_read()?;
        if read.open_table(SEGMENTS).is_ok() {
            return Ok(());
        }
        drop(read);
        let write = self.database.begin_write()?;
        write.open_table(CHUNKS)?;
        write.open_table(CONTAINERS)?;
        write.open_table(NUMBERS)?;
        write.open_table(SEGMENTS)?;
        write.commit()?;
        Ok(())
    }

    fn failed(&self, error: impl Into<redb::Error>) -> Error {
        Error::io("use index database", &self.path, std::io::Error::other(error.into()))
    }

    fn is_imported(&self, segment: &str) -> Result<bool> {
        let is_imported = || -> Result<bool, redb::Error> {
            let read = self.database.begin_read()?;
            Ok(read.open_table(SEGMENTS)?.get(segment)?.is_some())
        };
        is_imported().map_err(|error| self.failed(error))
    }

    /// Imports a segment, unless it was imported before, or all segments were that it replaces.
    pub fn import(&mut self, segment: &IndexSegment) -> Result<()> {
        if self.is_imported(segment.name())? {
            return Ok(());
        }
        // Every record of this segment is in one that it replaces.
        let replaced = segment.replaced().iter().map(|name| self.is_imported(name)).collect::<Result<Vec<bool>>>()?;
        if !replaced.is_empty() && replaced.into_iter().all(|is_known| is_known) {
            return self.mark_imported(segment.name());
        }
        let mut pages = segment.pages();
        loop {
            // A segment may be large: this bounds a transaction.
            let batch: Vec<_> = pages.by_ref().take(1000).collect::<Result<Vec<_>>>()?;
            let last = batch.is_empty();
            let records =
                batch.into_iter().flatten().map(|record| (record.fingerprint, record.container, record.entry));
            self.insert(segment.containers(), records, last.then_some(segment.name()))
                .map_err(|error| self.failed(error))?;
            if last {
                return Ok(());
            }
        }
    }

    /// Adds records; their containers are positions in `containers`. They are durable after [`Database::flush`].
    fn insert(
        &mut self,
        containers: &[ContainerId],
        records: impl Iterator<Item = (Fingerprint, u32, u32)>,
        segment: Option<&str>,
    ) -> Result<(), redb::Error> {
        self.dirty = true;
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::None)?;
        {
            let mut numbers = write.open_table(NUMBERS)?;
            let mut names = write.open_table(CONTAINERS)?;
            let mut chunks = write.open_table(CHUNKS)?;
            let mut number_of = vec![None; containers.len()];
            for (fingerprint, container, entry) in records {
                let (id, slot) = (containers[container as usize], &mut number_of[container as usize]);
                let number = match *slot {
                    Some(number) => number,
                    None => {
                        let known = numbers.get(&id.0)?.map(|known| known.value());
                        let number = match known {
                            Some(number) => number,
                            None => {
                                let number = names.last()?.map_or(0, |(last, _)| last.value() + 1);
                                names.insert(number, &id.0)?;
                                numbers.insert(&id.0, number)?;
                                number
                            }
                        };
                        *slot.insert(number)
                    }
                };
                chunks.insert(&fingerprint.0, u64::from(number) << 32 | u64::from(entry))?;
            }
            if let Some(segment) = segment {
                write.open_table(SEGMENTS)?.insert(segment, ())?;
            }
        }
        write.commit()?;
        Ok(())
    }

    /// Adds the chunks of a new container.
    pub fn add(
        &mut self,
        container: ContainerId,
        fingerprints: impl Iterator<Item = (Fingerprint, u32)>,
    ) -> Result<()> {
        let records = fingerprints.map(|(fingerprint, entry)| (fingerprint, 0, entry));
        self.insert(&[container], records, None).map_err(|error| self.failed(error))
    }

    /// Marks a segment as imported: its records were added before.
    pub fn mark_imported(&mut self, segment: &str) -> Result<()> {
        self.insert(&[], std::iter::empty(), Some(segment)).map_err(|error| self.failed(error))
    }

    /// Container and entry of a chunk, if this cache has it.
    pub fn find(&self, fingerprint: &Fingerprint) -> Result<Option<(ContainerId, u32)>> {
        let find = || -> Result<Option<(ContainerId, u32)>, redb::Error> {
            let read = self.database.begin_read()?;
            let Some(location) = read.open_table(CHUNKS)?.get(&fingerprint.0)?.map(|location| location.value()) else {
                return Ok(None);
            };
            let id = read.open_table(CONTAINERS)?.get((location >> 32) as u32)?.map(|id| ContainerId(*id.value()));
            Ok(id.map(|id| (id, location as u32)))
        };
        find().map_err(|error| self.failed(error))
    }

    /// Makes all added records durable.
    pub fn flush(&mut self) -> Result<()> {
        if !self.dirty {
            return Ok(());
        }
        let flush = || -> Result<(), redb::Error> {
            let write = self.database.begin_write()?;
            write.commit()?;
            Ok(())
        };
        flush().map_err(|error| self.failed(error))?;
        self.dirty = false;
        Ok(())
    }
}
