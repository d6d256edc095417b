//! The four-level index cache of the backup (FHRD 4.3): is this chunk stored already?
//!
//! The levels, in the order of the paper:
//!
//! 1. *local*: container indexes, fetched after a hit in the last level;
//! 2. *temporary*: chunks in flight, whose container is not stored yet;
//! 3. *lru*: a global LRU of fingerprints;
//! 4. *segments*: the sorted index segments of the repository and of this run, the largest first. With
//!    `index.last_level = "redb"`, a local [database](super::database) of their records is asked before them, as in the
//!    paper, and its answer counts if it is yes.
//!
//! A hit counts only if its container is in the listing or was stored by this run, and its container index has a usable
//! entry of the chunk. Once something is known to be missing, bad or unreadable, all that the entry copies from must be
//! there, too ([`WholeEntries`]).
//! Timing decides which level answers, but not the answer.
//!
//! A [filter](super::chunk_filter) before the last level answers most look-ups of new chunks.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;

use super::chunk_filter::{ChunkFilter, IndexedChunks};
use super::container_indexes::ContainerIndexes;
use super::database::{ChunkDatabase, DatabaseFile};
use super::listing::ContainerListing;
use super::locate::Locator;
use super::merge::merge_written;
use super::segment::{IndexRecord, IndexSegment};
use super::segment_writer::write_segment;
use super::whole::WholeEntries;
use crate::config::IndexConfig;
use crate::error::{ErrorKind, Result};
use crate::metrics::Distribution;
use crate::repo::container::{Base, ContainerIndex};
use crate::repo::marks::{BadParts, Quarantine};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// Records after which a segment is written before the end. It bounds memory.
const SEGMENT_RECORDS_MAX: usize = 1 << 18;
/// Merges of a run that fail before it tries no more.
const MERGES_FAILED_MAX: u32 = 8;

/// Look-ups answered by each level, and how many came to the last ones.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Hits {
    /// Container indexes.
    pub local: u64,
    /// Chunks in flight.
    pub temporary: u64,
    /// Global LRU.
    pub lru: u64,
    /// Local database.
    pub database: u64,
    /// Segments.
    pub segments: u64,
    /// None: the chunk is new.
    pub misses: u64,
    /// Misses that the filter answered.
    pub absent: u64,
    /// Misses that passed the filter.
    pub filter_wrong: u64,
    /// Look-ups in the database.
    pub database_lookups: u64,
    /// Look-ups in the segments.
    pub segments_lookups: u64,
}

impl Hits {
    /// The name of each level, the look-ups that came to it, and those that it answered.
    pub fn levels(&self) -> [(&'static str, u64, u64); 5] {
        let past_lru = self.database + self.segments + self.misses;
        let (at_lru, at_temporary) = (past_lru + self.lru, past_lru + self.lru + self.temporary);
        [
            ("local", at_temporary + self.local, self.local),
            ("temporary", at_temporary, self.temporary),
            ("lru", at_lru, self.lru),
            ("database", self.database_lookups, self.database),
            ("segments", self.segments_lookups, self.segments),
        ]
    }
}

/// Called with the containers of the run before a segment names them.
pub type SegmentGuard = Box<dyn Fn(&HashSet<ContainerId>) -> Result<()> + Send>;

/// A chunk that this run stores.
#[derive(Debug, Default)]
struct ClaimedChunk {
    /// When it was read, until it is durable.
    read_at: Option<Instant>,
    /// Position of its container in the log, and that of its entry, once it is durable.
    stored: Option<(u32, u32)>,
}

/// The chunk index of one backup.
pub struct ChunkIndex {
    store: Arc<dyn Store>,
    listing: Arc<ContainerListing>,
    /// Entries that do not count.
    quarantine: Arc<Quarantine>,
    local: ContainerIndexes,
    whole: WholeEntries,
    /// Whether `recent` has only chunks whose entries lack nothing.
    is_doubtful: bool,
    /// Chunks in flight, and those whose container is durable but in no segment yet.
    temporary: HashMap<Fingerprint, ClaimedChunk>,
    recent: LruCache<Fingerprint, ()>,
    /// Segments of this run.
    written: Vec<Arc<IndexSegment>>,
    /// Where large ones are merged; `None` if nothing may be deleted.
    scratch: Option<PathBuf>,
    /// Merges of this run that have failed.
    merges_failed: u32,
    /// Records after which a segment is written. Tests set a small one.
    segment_records_max: usize,
    filter: ChunkFilter,
    database: Option<ChunkDatabase>,
    stored: HashSet<ContainerId>,
    guard: Option<SegmentGuard>,
    log_containers: Vec<ContainerId>,
    log: Vec<IndexRecord>,
    /// Counters.
    pub hits: Hits,
    /// When the chunks that are asked for now were read; `None` if they do not count for `durable_us`.
    pub read_at: Option<Instant>,
    /// Microseconds from then until the container of a new chunk is durable.
    pub durable_us: Distribution,
}

impl ChunkIndex {
    /// An index of `listing`. The file of the filter is in directory `cache`, if any.
    pub fn new(
        store: Arc<dyn Store>,
        listing: Arc<ContainerListing>,
        local: ContainerIndexes,
        config: &IndexConfig,
        cache: Option<&Path>,
    ) -> Self {
        let capacity = NonZeroUsize::new(config.lru_entries).unwrap_or(NonZeroUsize::MIN);
        ChunkIndex {
            store,
            quarantine: listing.quarantine(),
            whole: WholeEntries::new(Locator::new(listing.clone(), local.sharing_with())),
            is_doubtful: listing.is_doubtful(),
            listing,
            local,
            temporary: HashMap::new(),
            recent: LruCache::new(capacity),
            written: Vec::new(),
            // Without a cache, its directory does not exist.
            scratch: Some(cache.filter(|it| it.is_dir()).map_or_else(std::env::temp_dir, Path::to_path_buf)),
            merges_failed: 0,
            segment_records_max: SEGMENT_RECORDS_MAX,
            filter: ChunkFilter::new(cache, config.filter_bytes.0),
            database: None,
            stored: HashSet::new(),
            guard: None,
            log_containers: Vec::new(),
            log: Vec::new(),
            hits: Hits::default(),
            read_at: None,
            durable_us: Distribution::default(),
        }
    }

    /// Forgets the chunks in flight if they are more than `claims_max`: for a run that stores nothing.
    pub fn bound_claims(&mut self, claims_max: usize) {
        if self.temporary.len() > claims_max {
            self.temporary.clear();
        }
    }

    /// Asks the database at `location` before the segments.
    pub fn set_database(&mut self, location: DatabaseFile) {
        self.database = Some(ChunkDatabase::new(location));
    }

    /// Opens the database, if there is one. Otherwise the first look-up that needs it does.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted).
    pub fn open_database(&mut self) -> Result<bool> {
        self.database.as_mut().map_or(Ok(false), |database| database.open(&self.listing))
    }

    /// Calls `guard` before each segment that is written before [`Self::finish`].
    pub fn set_guard(&mut self, guard: SegmentGuard) {
        self.guard = Some(guard);
    }

    /// Whether the chunk is stored or in flight. A new chunk counts as in flight from now on: the caller must send it.
    pub fn contains_or_claim(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        if !self.is_doubtful && self.listing.is_doubtful() {
            self.is_doubtful = true;
            self.recent.clear();
        }
        let (quarantine, stored) = (&self.quarantine, &self.stored);
        // The own containers lack nothing.
        let counts = |id: &ContainerId| !self.is_doubtful || stored.contains(id);
        let find = |id: &ContainerId, index: &ContainerIndex| {
            usable(quarantine, id, index, fingerprint).filter(|_| counts(id))
        };
        if self.local.find_cached(find).is_some() {
            self.hits.local += 1;
            return Ok(true);
        }
        if self.temporary.contains_key(fingerprint) {
            self.hits.temporary += 1;
            return Ok(true);
        }
        if self.recent.get(fingerprint).is_some() {
            self.hits.lru += 1;
            return Ok(true);
        }
        let may_hold = self.filter.may_hold(fingerprint);
        if may_hold.unwrap_or(true) && (self.in_database(fingerprint)? || self.in_segments(fingerprint)?) {
            self.recent.put(*fingerprint, ());
            return Ok(true);
        }
        self.hits.misses += 1;
        self.hits.filter_wrong += u64::from(may_hold == Some(true));
        self.hits.absent += u64::from(may_hold == Some(false));
        let indexed = IndexedChunks {
            listing: &self.listing,
            written: &self.written,
            log_containers: &self.log_containers,
            log: &self.log,
        };
        self.filter.count_miss(&indexed)?;
        self.temporary.insert(*fingerprint, ClaimedChunk { read_at: self.read_at, stored: None });
        Ok(false)
    }

    /// Whether the database has a chunk, its container is listed, and its index confirms it. Otherwise the segments
    /// decide.
    fn in_database(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        // What a doubtful entry copies from must be there, too, which only the segments are asked.
        if self.is_doubtful || !database.open(&self.listing)? {
            return Ok(false);
        }
        self.hits.database_lookups += 1;
        let Some((container, _)) = database.find(fingerprint) else { return Ok(false) };
        let is_stored =
            self.listing.has(&container) && confirm(&mut self.local, &self.listing, &container, fingerprint)?;
        self.hits.database += u64::from(is_stored);
        Ok(is_stored)
    }

    fn in_segments(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        self.hits.segments_lookups += 1;
        let is_stored = self.search_segments(fingerprint)?;
        self.hits.segments += u64::from(is_stored);
        Ok(is_stored)
    }

    /// Whether the segments have a chunk, and a container index confirms it.
    fn search_segments(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        for segment in &self.written {
            match segment.find(fingerprint) {
                Ok(hits) => {
                    for (container, _) in &hits {
                        if confirm(&mut self.local, &self.listing, container, fingerprint)? {
                            return Ok(true);
                        }
                    }
                }
                Err(error) if error.is_unreadable() => tracing::debug!("{error}"),
                Err(error) => return Err(error),
            }
        }
        if self.is_doubtful {
            return self.whole.has(fingerprint);
        }
        let (local, listing, mut failure) = (&mut self.local, &self.listing, None);
        let search = |container, _| match confirm(local, listing, &container, fingerprint) {
            Ok(is_stored) => is_stored.then_some(()),
            Err(error) => {
                failure = Some(error);
                None
            }
        };
        let found = listing.search(fingerprint, search)?;
        match (found, failure) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found.is_some()),
        }
    }

    /// Adds a container of this run that is durable. Its chunks leave the temporary level.
    pub fn add_container(&mut self, id: ContainerId, container_index: Arc<ContainerIndex>) -> Result<()> {
        let number = self.log_containers.len() as u32;
        if !container_index.entries.is_empty() {
            self.log_containers.push(id);
        }
        let numbered = || container_index.entries.iter().zip(0u32..);
        self.log.extend(numbered().map(|(e, entry)| IndexRecord {
            fingerprint: e.fingerprint,
            container: number,
            entry,
        }));
        for (entry, position) in numbered() {
            let Some(claim) = self.temporary.get_mut(&entry.fingerprint) else { continue };
            claim.stored = Some((number, position));
            if let Some(read_at) = claim.read_at.take() {
                self.durable_us.record_duration(read_at.elapsed());
            }
        }
        self.filter.insert(&id, container_index.entries.iter().map(|entry| &entry.fingerprint));
        self.stored.insert(id);
        self.local.insert(id, container_index);
        if self.log.len() >= self.segment_records_max {
            self.guard.as_ref().map_or(Ok(()), |guard| guard(&self.stored))?;
            self.write_log()?;
            self.merge_written()?;
        }
        Ok(())
    }

    /// Merges the segments of this run. Each look-up that passes the filter asks all of them.
    fn merge_written(&mut self) -> Result<()> {
        let Some(scratch) = &self.scratch else { return Ok(()) };
        match merge_written(&self.listing, &mut self.written, scratch) {
            Err(error) if error.stops_reading() => return Err(error),
            Err(error) => {
                tracing::debug!("segments of this run are not merged: {error}");
                self.merges_failed += 1;
                self.scratch.take_if(|_| self.merges_failed > MERGES_FAILED_MAX);
            }
            Ok(may_delete) => _ = self.scratch.take_if(|_| !may_delete),
        }
        Ok(())
    }

    /// The container of this run that has the entry named `base`, and the position of the entry; `None` if no durable
    /// one has it.
    ///
    /// # Errors
    /// Errors of reading segments and container indexes.
    pub fn own_entry(&mut self, base: &Base) -> Result<Option<(ContainerId, u32)>> {
        let claimed = self.temporary.get(&base.fingerprint).and_then(|claim| claim.stored);
        let mut found: Vec<(ContainerId, u32)> = claimed
            .and_then(|(number, entry)| self.log_containers.get(number as usize).map(|container| (*container, entry)))
            .into_iter()
            .collect();
        for segment in &self.written {
            match segment.find(&base.fingerprint) {
                Ok(records) => found.extend(records),
                // Another process has merged it: the base is not used.
                Err(error) if error.kind() == ErrorKind::NotFound => tracing::debug!("{error}"),
                Err(error) => return Err(error),
            }
        }
        for (container, position) in found {
            let container_index = self.local.load(&container)?;
            let is_it = container_index.entries.get(position as usize).is_some_and(|entry| {
                entry.fingerprint == base.fingerprint && container_index.digest(entry) == base.digest
            });
            if is_it {
                return Ok(Some((container, position)));
            }
        }
        Ok(None)
    }

    /// Containers of this run so far.
    pub fn stored(&self) -> &HashSet<ContainerId> {
        &self.stored
    }

    fn leave_temporary(&mut self, fingerprint: &Fingerprint) {
        self.temporary.remove(fingerprint);
        self.recent.put(*fingerprint, ());
    }

    /// Writes the collected records as a segment.
    fn write_log(&mut self) -> Result<()> {
        if self.log_containers.is_empty() {
            return Ok(());
        }
        let containers = std::mem::take(&mut self.log_containers);
        let records = std::mem::take(&mut self.log);
        let prints: Vec<Fingerprint> = records.iter().map(|record| record.fingerprint).collect();
        let name = write_segment(self.store.as_ref(), self.listing.new_segments().draw()?, &containers, &[], records)?;
        match IndexSegment::open(self.store.clone(), &name) {
            Ok(segment) => self.written.push(Arc::new(segment)),
            // Another process has merged it already. Its chunks may be stored again.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        prints.iter().for_each(|fingerprint| self.leave_temporary(fingerprint));
        Ok(())
    }

    /// Writes the last segment. Its containers are durable.
    pub fn finish(&mut self) -> Result<()> {
        self.write_log()
    }

    /// Writes the file of the filter for the next run, if it is worth it.
    pub fn save_filter(&mut self) {
        self.filter.save();
    }
}

/// Position of a usable entry of a chunk.
fn usable(
    quarantine: &Quarantine,
    container: &ContainerId,
    container_index: &ContainerIndex,
    fingerprint: &Fingerprint,
) -> Option<u32> {
    container_index.find_where(fingerprint, |entry, position| {
        quarantine.is_usable(container, position) && container_index.check_known(entry).is_ok()
    })
}

/// Whether the index of a container has a usable entry of a chunk.
fn confirm(
    container_indexes: &mut ContainerIndexes,
    listing: &ContainerListing,
    container: &ContainerId,
    fingerprint: &Fingerprint,
) -> Result<bool> {
    let quarantine = listing.quarantine();
    if quarantine.of(container) == Some(&BadParts::Whole) {
        return Ok(false);
    }
    match container_indexes.load(container) {
        Ok(container_index) => Ok(usable(&quarantine, container, &container_index, fingerprint).is_some()),
        Err(error) if error.stops_reading() => Err(error),
        Err(error) => {
            tracing::warn!("{error}; its chunks are stored again");
            listing.note_unread(container, &error);
            Ok(false)
        }
    }
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
