//! The filter before the last level of the chunk index, kept in a local file from run to run.
//!
//! 1. Filling a filter means reading all segments, and loading one means reading its file. Both wait until the misses
//!    of the run have cost as much. Small backups do neither.
//! 2. The file has the filter and the containers whose chunks it has. Segments that list other containers are read. A
//!    merged segment lists known ones only, so it is not read again.
//! 3. A filter cannot forget, and grows by parts. It is filled again if it has twice the chunks of the segments, if it
//!    has many parts, or if it can grow no more and its last part is full, which would take all new chunks. This is
//!    looked at whenever the misses of the run have grown by a quarter.
//! 4. The file is a cache under a checksum. Without it, or if it is damaged, the filter is filled from the segments.

use std::collections::HashSet;
use std::io::{BufReader, BufWriter, ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::filter::PresenceFilter;
use super::listing::ContainerListing;
use super::segment::{IndexRecord, IndexSegment};
use crate::error::{Error, ErrorKind, Result};
use crate::store::LocalFile;
use crate::types::{ContainerId, Fingerprint};
use crate::wire::open_regular;

/// Name of the filter file in the local cache directory.
pub const FILTER_FILE: &str = "chunks.filter";

const MAGIC: [u8; 8] = *b"FHRDFILT";
/// Records that can be added to a filter in the time of one missed look-up in a segment.
const RECORDS_PER_MISS: u64 = 128;
/// Records of a stored filter that can be loaded in that time.
const LOADED_RECORDS_PER_MISS: u64 = 1 << 15;
/// A filter of fewer chunks is not stored: it is filled in milliseconds.
const STORED_CHUNKS_MIN: u64 = 1 << 17;
/// Listings of the segments that filling takes because a segment has vanished.
const LISTINGS_MAX: usize = 10;
/// Parts of a filter that is not filled again.
const PARTS_MAX: usize = 4;
const BUFFER_BYTES: usize = 1 << 20;

/// A filter, and the first eight bytes of the ids of the containers that it has.
struct FilledFilter {
    filter: PresenceFilter,
    containers: HashSet<u64>,
    /// Chunks in the file.
    stored: u64,
}

enum FilterState {
    /// Not configured, or a segment cannot be read.
    Off,
    /// Not filled yet. The file was loaded, or there is none.
    Waiting(Option<FilledFilter>),
    /// Has every chunk of the last level.
    Ready(FilledFilter),
}

/// See the module.
pub(super) struct ChunkFilter {
    path: Option<PathBuf>,
    bytes_max: u64,
    state: FilterState,
    misses: u64,
    /// Number of misses at which the next step may pay.
    next: Option<u64>,
    is_loaded: bool,
}

/// What the filter must have: the segments of the listing and those of the run, and records that are in none yet.
pub(super) struct IndexedChunks<'a> {
    pub(super) listing: &'a ContainerListing,
    pub(super) written: &'a [Arc<IndexSegment>],
    pub(super) log_containers: &'a [ContainerId],
    pub(super) log: &'a [IndexRecord],
}

impl IndexedChunks<'_> {
    /// Whether a segment of the run is gone: another process has merged it. The last level does not find its chunks
    /// either, except in what that process wrote.
    fn has_lost(&self, segment: &IndexSegment, error: &Error) -> bool {
        error.kind() == ErrorKind::NotFound && self.written.iter().any(|it| it.name() == segment.name())
    }

    fn segments(&self) -> Vec<Arc<IndexSegment>> {
        self.listing.segments().iter().chain(self.written).cloned().collect()
    }
}

fn prefix(id: &ContainerId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl ChunkFilter {
    /// A filter of at most `bytes_max` bytes, 0 for none, whose file is in directory `cache`, if any.
    pub(super) fn new(cache: Option<&Path>, bytes_max: u64) -> Self {
        let state = if bytes_max == 0 { FilterState::Off } else { FilterState::Waiting(None) };
        let path = cache.map(|directory| directory.join(FILTER_FILE));
        ChunkFilter { path, bytes_max, state, misses: 0, next: None, is_loaded: false }
    }

    /// `false` proves that the last level does not have a chunk. `None` if the filter is not filled.
    pub(super) fn may_hold(&self, fingerprint: &Fingerprint) -> Option<bool> {
        match &self.state {
            FilterState::Ready(filled) => Some(filled.filter.may_hold(fingerprint)),
            _ => None,
        }
    }

    /// Adds the chunks of a new container.
    pub(super) fn insert<'f>(&mut self, id: &ContainerId, chunks: impl Iterator<Item = &'f Fingerprint>) {
        if let FilterState::Ready(filled) = &mut self.state {
            filled.containers.insert(prefix(id));
            chunks.for_each(|fingerprint| filled.filter.insert(fingerprint));
        }
    }

    /// Counts a miss. Loads or fills the filter when it is time.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted).
    pub(super) fn count_miss(&mut self, indexed: &IndexedChunks<'_>) -> Result<()> {
        self.misses += 1;
        if matches!(self.state, FilterState::Off) || self.next.is_some_and(|next| self.misses < next) {
            return Ok(());
        }
        let segments = indexed.segments();
        let records = segments.iter().map(|segment| segment.records()).sum::<u64>() + indexed.log.len() as u64;
        if let FilterState::Ready(filled) = &self.state {
            if is_stale(&filled.filter, records) && self.pays(records, segments.len()) {
                self.state = FilterState::Waiting(None);
                self.fill(FilledFilter::empty(records, self.bytes_max), indexed)?;
            }
            if matches!(self.state, FilterState::Ready(_)) {
                self.next = Some(self.misses + self.misses.div_ceil(4));
            }
            return Ok(());
        }
        if !self.is_loaded {
            if self.misses * LOADED_RECORDS_PER_MISS < records {
                self.next = Some(records.div_ceil(LOADED_RECORDS_PER_MISS));
                return Ok(());
            }
            self.is_loaded = true;
            self.state = FilterState::Waiting(self.load());
        }
        let FilterState::Waiting(loaded) = &mut self.state else { return Ok(()) };
        let unknown = match loaded {
            Some(filled) => segments.iter().filter(|it| !filled.has(it)).map(|it| it.records()).sum(),
            None => records,
        };
        if !self.pays(unknown, segments.len()) {
            self.next = Some(unknown.div_ceil(RECORDS_PER_MISS * segments.len().max(1) as u64));
            return Ok(());
        }
        let FilterState::Waiting(loaded) = &mut self.state else { return Ok(()) };
        let filled = loaded.take().unwrap_or_else(|| FilledFilter::empty(records, self.bytes_max));
        self.next = None;
        self.fill(filled, indexed)
    }

    /// Whether the misses in `segments` segments have cost as much as adding `records`.
    fn pays(&self, records: u64, segments: usize) -> bool {
        self.misses * RECORDS_PER_MISS * segments.max(1) as u64 >= records
    }

    /// Adds the segments that `filled` lacks.
    fn fill(&mut self, mut filled: FilledFilter, indexed: &IndexedChunks<'_>) -> Result<()> {
        for _ in 0..LISTINGS_MAX {
            match filled.add_all(indexed) {
                Ok(()) => {
                    indexed.log.iter().for_each(|record| filled.filter.insert_absent(&record.fingerprint));
                    filled.containers.extend(indexed.log_containers.iter().map(prefix));
                    self.state = FilterState::Ready(filled);
                    return Ok(());
                }
                Err(error) if error.stops_reading() => return Err(error),
                // Another process has merged it.
                Err(error) if error.kind() == ErrorKind::NotFound => _ = indexed.listing.refresh()?,
                Err(error) if error.is_unreadable() => {
                    tracing::debug!("no presence filter: {error}");
                    self.state = FilterState::Off;
                    return Ok(());
                }
                Err(error) => {
                    tracing::debug!("the presence filter is filled later: {error}");
                    break;
                }
            }
        }
        self.next = Some(self.misses * 2);
        self.state = FilterState::Waiting(Some(filled));
        Ok(())
    }

    fn load(&self) -> Option<FilledFilter> {
        let path = self.path.as_ref()?;
        match read_file(path, self.bytes_max) {
            Ok(filled) => filled,
            Err(error) if matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory) => None,
            Err(error) => {
                tracing::warn!("filling the presence filter again: {} is unusable: {error}", path.display());
                None
            }
        }
    }

    /// Writes the file if it lacks many of the chunks. The run goes on if that fails.
    pub(super) fn save(&mut self) {
        let (FilterState::Ready(filled), Some(path)) = (&mut self.state, &self.path) else { return };
        let chunks = filled.filter.chunks();
        if chunks < STORED_CHUNKS_MIN || chunks.abs_diff(filled.stored) < chunks / 8 {
            return;
        }
        match write_file(path, filled) {
            Ok(()) => filled.stored = chunks,
            Err(error) => tracing::warn!("the presence filter is not stored in {}: {error}", path.display()),
        }
    }
}

/// Whether many more absent chunks pass than need to.
fn is_stale(filter: &PresenceFilter, records: u64) -> bool {
    let is_grown = filter.parts() > PARTS_MAX || filter.parts() > 1 && filter.is_full();
    is_grown || filter.chunks() > 2 * records + STORED_CHUNKS_MIN
}

impl FilledFilter {
    fn empty(records: u64, bytes_max: u64) -> Self {
        FilledFilter { filter: PresenceFilter::new(records, bytes_max), containers: HashSet::new(), stored: 0 }
    }

    /// Whether the filter has the chunks of all containers of a segment.
    fn has(&self, segment: &IndexSegment) -> bool {
        segment.containers().iter().all(|id| self.containers.contains(&prefix(id)))
    }

    /// Adds the segments whose containers it lacks, or copies of what is damaged.
    fn add_all(&mut self, indexed: &IndexedChunks<'_>) -> Result<()> {
        for segment in indexed.segments() {
            if self.has(&segment) {
                continue;
            }
            match self.add(&segment) {
                Err(error) if indexed.has_lost(&segment, &error) => {}
                Err(error) if error.is_unreadable() && error.kind() != ErrorKind::NotFound => {
                    let copies = indexed.listing.copies_of(&segment, &error)?;
                    copies.iter().try_for_each(|copy| self.add(copy))?;
                }
                added => added?,
            }
        }
        Ok(())
    }

    fn add(&mut self, segment: &IndexSegment) -> Result<()> {
        segment.visit_fingerprints(|fingerprint| self.filter.insert_absent(fingerprint))?;
        self.containers.extend(segment.containers().iter().map(prefix));
        Ok(())
    }
}

/// Hashes what it passes on.
struct Hashing<T> {
    inner: T,
    hasher: blake3::Hasher,
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..len).unwrap_or_default());
        Ok(len)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// The file: a type, the number of containers and their prefixes, the filter, and the BLAKE3 of all of it.
fn write_file(path: &Path, filled: &FilledFilter) -> std::io::Result<()> {
    let hashing = Hashing { inner: LocalFile::create(path)?, hasher: blake3::Hasher::new() };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, hashing);
    out.write_all(&MAGIC)?;
    out.write_all(&(filled.containers.len() as u64).to_le_bytes())?;
    filled.containers.iter().try_for_each(|prefix| out.write_all(&prefix.to_le_bytes()))?;
    filled.filter.write_to(&mut out)?;
    let Hashing { mut inner, hasher } = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    inner.write_all(hasher.finalize().as_bytes())?;
    inner.publish()
}

/// Reads the file. `None` if its filter is larger than configured.
fn read_file(path: &Path, bytes_max: u64) -> std::io::Result<Option<FilledFilter>> {
    let damaged = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let file = open_regular(path)?;
    let len = file.metadata()?.len();
    let content_len = len.checked_sub(32).ok_or_else(|| damaged("it is too short"))?;
    let mut rest = file.try_clone()?;
    let hashing = Hashing { inner: file.take(content_len), hasher: blake3::Hasher::new() };
    // A buffer of its own for the numbers: hashing needs large reads.
    let mut input = BufReader::with_capacity(BUFFER_BYTES, hashing);
    let mut number = [0; 8];
    input.read_exact(&mut number)?;
    if number != MAGIC {
        return Err(damaged("it does not begin with FHRDFILT"));
    }
    input.read_exact(&mut number)?;
    let count = u64::from_le_bytes(number);
    if count > content_len / 8 {
        return Err(damaged("it claims more containers than it has"));
    }
    let mut containers = HashSet::with_capacity(count as usize);
    for _ in 0..count {
        input.read_exact(&mut number)?;
        containers.insert(u64::from_le_bytes(number));
    }
    let Some(filter) = PresenceFilter::read_from(&mut input, bytes_max)? else { return Ok(None) };
    if std::io::copy(&mut input, &mut std::io::sink())? > 0 {
        return Err(damaged("bytes follow the filter"));
    }
    let computed = input.into_inner().hasher.finalize();
    let mut recorded = [0; 32];
    rest.read_exact(&mut recorded)?;
    if recorded != *computed.as_bytes() {
        return Err(damaged("its checksum is wrong"));
    }
    Ok(Some(FilledFilter { stored: filter.chunks(), filter, containers }))
}

#[cfg(test)]
#[path = "chunk_filter_tests.rs"]
mod tests;
