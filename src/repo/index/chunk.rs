//! The four-level index cache of the backup (FHRD 4.3): is this chunk stored already?
//!
//! The levels, in the order of the paper:
//!
//! 1. *local*: container indexes, fetched after a hit in the last level;
//! 2. *temporary*: chunks in flight, whose container is not stored yet;
//! 3. *lru*: a global LRU of fingerprints;
//! 4. *database*: the local database or, if another process has locked it, the segments.
//!
//! A hit counts only if its container is in the listing or was stored by this run, and its container index has a usable
//! entry of the chunk.
//! Timing decides which level answers, but not the answer.
//!
//! A [filter](super::filter) before the last level answers most look-ups of new chunks. Building it means reading all
//! segments, so it is built after enough look-ups have missed to pay for it.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::container_indexes::ContainerIndexes;
use super::database::Database;
use super::filter::PresenceFilter;
use super::listing::ContainerListing;
use super::segment::{IndexRecord, IndexSegment, write_segment};
use crate::config::IndexConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::ContainerIndex;
use crate::repo::marks::{BadParts, Quarantine};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// Records after which a segment is written before the end. It bounds memory.
const SEGMENT_RECORDS_MAX: usize = 1 << 18;

/// Times that the segments are imported because one of them has vanished.
const IMPORTS_MAX: usize = 10;

/// Records that can be added to the filter in the time of one missed look-up in the last level.
const RECORDS_PER_MISS: u64 = 32;

/// Look-ups answered by each level.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Hits {
    /// Container indexes.
    pub local: u64,
    /// Chunks in flight.
    pub temporary: u64,
    /// Global LRU.
    pub lru: u64,
    /// Database or segments.
    pub database: u64,
    /// None: the chunk is new.
    pub misses: u64,
    /// Misses that the filter answered.
    pub absent: u64,
    /// Misses that passed the filter.
    pub filter_wrong: u64,
}

/// State of the filter before the last level.
enum FilterState {
    /// Not built yet, with the number of misses so far.
    Waiting(u64),
    /// Has every chunk of the last level.
    Ready(PresenceFilter),
    /// Not configured, or a segment cannot be read.
    Off,
}

/// Called with the containers of the run before a segment names them.
pub type SegmentGuard = Box<dyn Fn(&HashSet<ContainerId>) -> Result<()> + Send>;

/// The chunk index of one backup.
pub struct ChunkIndex {
    store: Arc<dyn Store>,
    listing: Arc<ContainerListing>,
    /// Entries that do not count.
    quarantine: Arc<Quarantine>,
    local: ContainerIndexes,
    temporary: HashSet<Fingerprint>,
    recent: LruCache<Fingerprint, ()>,
    database: Option<Database>,
    /// Segments of this run, as far as the last level or the filter needs them.
    written: Vec<Arc<IndexSegment>>,
    filter: FilterState,
    filter_bytes: u64,
    stored: HashSet<ContainerId>,
    guard: Option<SegmentGuard>,
    log_containers: Vec<ContainerId>,
    log: Vec<IndexRecord>,
    /// Counters.
    pub hits: Hits,
}

impl ChunkIndex {
    /// An index of `listing`. Segments that `database` lacks are imported.
    pub fn new(
        store: Arc<dyn Store>,
        listing: Arc<ContainerListing>,
        local: ContainerIndexes,
        config: &IndexConfig,
        mut database: Option<Database>,
    ) -> Result<Self> {
        if let Some(database) = &mut database {
            import(&listing, database)?;
        }
        let capacity = NonZeroUsize::new(config.lru_entries).unwrap_or(NonZeroUsize::MIN);
        Ok(ChunkIndex {
            store,
            quarantine: listing.quarantine(),
            listing,
            local,
            temporary: HashSet::new(),
            recent: LruCache::new(capacity),
            database,
            written: Vec::new(),
            filter: if config.filter_bytes.0 == 0 { FilterState::Off } else { FilterState::Waiting(0) },
            filter_bytes: config.filter_bytes.0,
            stored: HashSet::new(),
            guard: None,
            log_containers: Vec::new(),
            log: Vec::new(),
            hits: Hits::default(),
        })
    }

    /// Forgets the chunks in flight if they are more than `claims_max`: for a run that stores nothing.
    pub fn bound_claims(&mut self, claims_max: usize) {
        if self.temporary.len() > claims_max {
            self.temporary.clear();
        }
    }

    /// Calls `guard` before each segment that is written before [`Self::finish`].
    pub fn set_guard(&mut self, guard: SegmentGuard) {
        self.guard = Some(guard);
    }

    /// Whether the chunk is stored or in flight. A new chunk counts as in flight from now on: the caller must send it.
    pub fn contains_or_claim(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let quarantine = &self.quarantine;
        if self.local.find_cached(|id, container_index| usable(quarantine, id, container_index, fingerprint)).is_some()
        {
            self.hits.local += 1;
            return Ok(true);
        }
        if self.temporary.contains(fingerprint) {
            self.hits.temporary += 1;
            return Ok(true);
        }
        if self.recent.get(fingerprint).is_some() {
            self.hits.lru += 1;
            return Ok(true);
        }
        let passes = match &self.filter {
            FilterState::Ready(filter) => filter.may_hold(fingerprint),
            _ => true,
        };
        if passes && self.last_level(fingerprint)? {
            self.hits.database += 1;
            self.recent.put(*fingerprint, ());
            return Ok(true);
        }
        self.hits.misses += 1;
        self.count_miss(passes);
        self.temporary.insert(*fingerprint);
        Ok(false)
    }

    /// Counts a miss, which passes the filter or not, and builds the filter when it is time.
    fn count_miss(&mut self, passes: bool) {
        match &mut self.filter {
            FilterState::Off => {}
            FilterState::Ready(_) if passes => self.hits.filter_wrong += 1,
            FilterState::Ready(_) => self.hits.absent += 1,
            FilterState::Waiting(misses) => {
                *misses += 1;
                let segments = self.listing.segments();
                let in_segments = segments.iter().chain(&self.written).map(|segment| segment.records()).sum::<u64>();
                let records = in_segments + self.log.len() as u64;
                if *misses * RECORDS_PER_MISS >= records {
                    self.filter = self.build_filter(records);
                }
            }
        }
    }

    fn build_filter(&self, records: u64) -> FilterState {
        let mut filter = PresenceFilter::new(records, self.filter_bytes);
        for page in self.listing.segments().iter().chain(&self.written).flat_map(|segment| segment.pages()) {
            match page {
                Ok(page) => page.iter().for_each(|record| filter.insert(&record.fingerprint)),
                Err(error) => {
                    tracing::debug!("no presence filter: {error}");
                    return FilterState::Off;
                }
            }
        }
        self.log.iter().for_each(|record| filter.insert(&record.fingerprint));
        FilterState::Ready(filter)
    }

    /// Whether the last level has a chunk, and a container index confirms it.
    fn last_level(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        if let Some(database) = &self.database {
            let Some((container, _)) = database.find(fingerprint)? else { return Ok(false) };
            let counts = self.stored.contains(&container) || self.listing.containers.contains(&container);
            if counts && confirm(&mut self.local, &self.quarantine, &container, fingerprint) {
                return Ok(true);
            }
            if self.quarantine.is_empty() {
                return Ok(false);
            }
            // The database knows one entry of a chunk. Another one may be usable.
        }
        for segment in &self.written {
            match segment.find(fingerprint) {
                Ok(hits)
                    if hits
                        .iter()
                        .any(|(container, _)| confirm(&mut self.local, &self.quarantine, container, fingerprint)) =>
                {
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if error.is_unreadable() => tracing::debug!("{error}"),
                Err(error) => return Err(error),
            }
        }
        let (local, quarantine) = (&mut self.local, &self.quarantine);
        let search = |container, _| confirm(local, quarantine, &container, fingerprint).then_some(());
        Ok(self.listing.search(fingerprint, search)?.is_some())
    }

    /// Adds a container of this run that is durable. Its chunks leave the temporary level.
    pub fn add_container(&mut self, id: ContainerId, container_index: Arc<ContainerIndex>) -> Result<()> {
        let number = self.log_containers.len() as u32;
        self.log_containers.push(id);
        let numbered = || container_index.entries.iter().zip(0u32..);
        self.log.extend(numbered().map(|(e, entry)| IndexRecord {
            fingerprint: e.fingerprint,
            container: number,
            entry,
        }));
        if let FilterState::Ready(filter) = &mut self.filter {
            container_index.entries.iter().for_each(|entry| filter.insert(&entry.fingerprint));
        }
        self.stored.insert(id);
        if let Some(database) = &mut self.database {
            database.add(id, numbered().map(|(e, entry)| (e.fingerprint, entry)))?;
            container_index.entries.iter().for_each(|entry| self.leave_temporary(&entry.fingerprint));
        }
        self.local.insert(id, container_index);
        if self.log.len() >= SEGMENT_RECORDS_MAX {
            self.guard.as_ref().map_or(Ok(()), |guard| guard(&self.stored))?;
            self.write_log()?;
        }
        Ok(())
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
        let name = write_segment(self.store.as_ref(), &self.listing.salts().draw()?, &containers, &[], records)?;
        if self.database.is_none() || matches!(self.filter, FilterState::Waiting(_)) {
            match IndexSegment::open(self.store.clone(), &name) {
                Ok(segment) => self.written.push(Arc::new(segment)),
                // Another process has merged it already. Its chunks may be stored again.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        match &mut self.database {
            Some(database) => database.mark_imported(&name)?,
            None => {
                prints.iter().for_each(|fingerprint| self.leave_temporary(fingerprint));
            }
        }
        Ok(())
    }

    /// Writes the last segment. Its containers are durable.
    pub fn finish(&mut self) -> Result<()> {
        self.write_log()?;
        if let Some(database) = &mut self.database {
            database.flush()?;
        }
        Ok(())
    }
}

/// Position of a usable entry of a chunk.
fn usable(
    quarantine: &Quarantine,
    container: &ContainerId,
    container_index: &ContainerIndex,
    fingerprint: &Fingerprint,
) -> Option<u32> {
    container_index.find_where(fingerprint, |_, position| quarantine.is_usable(container, position))
}

/// Whether the index of a container has a usable entry of a chunk.
fn confirm(
    container_indexes: &mut ContainerIndexes,
    quarantine: &Quarantine,
    container: &ContainerId,
    fingerprint: &Fingerprint,
) -> bool {
    if quarantine.of(container) == Some(&BadParts::Whole) {
        return false;
    }
    match container_indexes.load(container) {
        Ok(container_index) => usable(quarantine, container, &container_index, fingerprint).is_some(),
        // The run ends.
        Err(Error::Interrupted) => false,
        Err(error) => {
            tracing::warn!("{error}; its chunks are stored again");
            false
        }
    }
}

/// Imports the segments that `database` lacks. Of a damaged segment it imports copies of the container indexes.
fn import(listing: &ContainerListing, database: &mut Database) -> Result<()> {
    for _ in 0..IMPORTS_MAX {
        let mut is_complete = true;
        for segment in listing.segments().iter() {
            match database.import(segment) {
                // Another process has merged it.
                Err(error) if error.kind() == ErrorKind::NotFound => is_complete = false,
                Err(error) if error.is_unreadable() => {
                    for copy in listing.copies_of(segment, &error)?.iter() {
                        database.import(copy)?;
                    }
                }
                other => other?,
            }
        }
        if is_complete {
            return Ok(());
        }
        listing.refresh()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn print(n: u64) -> Fingerprint {
        Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
    }

    fn index(filter_bytes: u64) -> ChunkIndex {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let records = (0..3200).map(|n| IndexRecord { fingerprint: print(n), container: 0, entry: 0 }).collect();
        write_segment(store.as_ref(), &[7; 16], &[ContainerId([0; 32])], &[], records).expect("writes");
        let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
        let config = IndexConfig { filter_bytes: bytesize::ByteSize::b(filter_bytes), ..IndexConfig::default() };
        let local = ContainerIndexes::new(store.clone(), 1, 1 << 20);
        ChunkIndex::new(store, listing, local, &config, None).expect("opens")
    }

    #[test]
    fn the_filter_is_built_after_enough_misses_and_passes_all_stored_chunks() {
        let mut index = index(1 << 20);
        for n in 10_000..10_300 {
            assert!(!index.contains_or_claim(&print(n)).expect("asks"));
        }
        let hits = index.hits;
        assert_eq!((hits.misses, hits.absent + hits.filter_wrong), (300, 200), "{hits:?}");
        assert!(hits.absent > 180, "{hits:?}");
        let FilterState::Ready(filter) = &index.filter else { panic!("no filter") };
        assert!((0..3200).all(|n| filter.may_hold(&print(n))));
    }

    #[test]
    fn a_filter_of_zero_bytes_is_not_built() {
        let mut index = index(0);
        for n in 10_000..10_300 {
            assert!(!index.contains_or_claim(&print(n)).expect("asks"));
        }
        assert_eq!((index.hits.misses, index.hits.absent, index.hits.filter_wrong), (300, 0, 0));
    }
}
