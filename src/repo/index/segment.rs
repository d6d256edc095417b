//! Index segments: immutable, sorted lists of (fingerprint, container, entry) for the containers of one backup.
//!
//! A segment is an 80-byte header, a table of container ids, a table of the segments that it replaces, and pages. Each
//! has 4096 bytes: 102 records of 40 bytes in order of their fingerprints, and a checksum. The last page has the rest:
//! it is padded with zeros, or *short*, as a feature bit of the header says. Fingerprints are spread evenly, so a
//! look-up guesses its page by interpolation and reads one or two pages. The container table stays in memory, and of
//! small segments the pages, once look-ups have read some.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::repo::salts::SALT_BYTES;
use crate::store::{BlobKind, BlobName, Reading, Store, again, read_again};
use crate::types::{ContainerId, Fingerprint};
use crate::wire::{WireReader, check_key_generation, check_readable, verify};

pub(super) const MAGIC: [u8; 8] = *b"FHRDSEGM";
pub(super) const HEADER_BYTES: usize = 80;
pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const PAGE_RECORDS: usize = 102;
pub(super) const RECORD_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 16;
/// Reader-required feature of a segment: its last page has no zeros between records and checksum.
pub(super) const SHORT_PAGE: u64 = 1 << 0;
/// Pages of one read when all pages are read.
pub(super) const PAGES_READ: u64 = 64;
/// Pages that a look-up guesses before it halves the rest.
const GUESSES_MAX: u32 = 8;
/// Pages read for look-ups after which a small segment stays in memory.
const PAGES_BEFORE_CACHED: u32 = 4;
const CONTAINERS_LIMIT: u32 = 1 << 24;
/// Keeps page offsets within 64 bits.
const RECORDS_LIMIT: u64 = 1 << 48;

/// An entry of a segment: where one chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRecord {
    /// Name of the chunk.
    pub fingerprint: Fingerprint,
    /// Position of the container in the segment's table.
    pub container: u32,
    /// Position of the entry in the container index.
    pub entry: u32,
}

/// An open segment.
pub struct IndexSegment {
    store: Arc<dyn Store>,
    name: BlobName,
    containers: Vec<ContainerId>,
    replaced: Vec<BlobName>,
    records: u64,
    pages_offset: u64,
    /// Bytes of the whole segment.
    len: u64,
    /// Positions of the containers in the order of their names, once one was looked for.
    by_name: OnceLock<Vec<u32>>,
    /// All pages, if they may stay in memory and look-ups have read some.
    cached: OnceLock<Option<Vec<u8>>>,
    may_cache: bool,
    pages_read: AtomicU32,
}

impl IndexSegment {
    /// Reads the header and the tables of the segment called `name`.
    ///
    /// # Errors
    /// Errors of [`Self::open_listed`].
    pub fn open(store: Arc<dyn Store>, name: &BlobName) -> Result<Self> {
        let len = store.len_of(name)?.ok_or_else(|| Error::BlobMissing { what: name.into() })?;
        Self::open_listed(store, name, len)
    }

    /// Reads the header and the tables of the segment called `name`, which has `blob_len` bytes. The counts of the
    /// header must give exactly this length, so no later step works for records that are not there.
    ///
    /// # Errors
    /// Errors of the store. [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for damage, [`Error::Unsupported`] for
    /// an intact segment of another version, and for an encrypted one.
    pub fn open_listed(store: Arc<dyn Store>, name: &BlobName, blob_len: u64) -> Result<Self> {
        Self::open_once(store.clone(), name, blob_len).or_else(|error| {
            // Another copy may have another length, as what parity gives back of a blob that was cut.
            again(store.as_ref(), name, error, || {
                let len = store.len_of(name)?.ok_or_else(|| Error::BlobMissing { what: name.into() })?;
                Self::open_once(store.clone(), name, len)
            })
        })
    }

    fn open_once(store: Arc<dyn Store>, name: &BlobName, blob_len: u64) -> Result<Self> {
        let head = store.get_range(name, 0, HEADER_BYTES, Reading::Once)?;
        // A store lists 0 bytes of what it could not look at.
        let blob_len = if blob_len == 0 { store.len_of(name)?.unwrap_or(0) } else { blob_len };
        let mut reader = WireReader::new(name, 0, &head);
        let magic: [u8; 8] = reader.array()?;
        if magic != MAGIC {
            return Err(Error::corrupt(name, 0, "FHRDSEGM", format!("{:?}", String::from_utf8_lossy(&magic))));
        }
        let version = reader.u16()?;
        reader.u16()?;
        let (container_count, replaced_count) = (reader.u32()?, reader.u32()?);
        let key_generation = reader.u32()?;
        let records = reader.u64()?;
        let reader_features = reader.u64()?;
        reader.bytes(8 + SALT_BYTES)?;
        let covered = reader.consumed();
        verify(name, 0, reader.bytes(16)?, &[covered])?;
        check_readable(name, version, reader_features & !SHORT_PAGE)?;
        check_key_generation(name, key_generation)?;
        if container_count > CONTAINERS_LIMIT || replaced_count > CONTAINERS_LIMIT {
            return Err(reader.error(format!("at most {CONTAINERS_LIMIT} names"), container_count.to_string()));
        }
        if records > RECORDS_LIMIT {
            return Err(reader.error(format!("at most {RECORDS_LIMIT} records"), records.to_string()));
        }
        // A container without a record would never be asked: a program that could not read it has written this.
        if records < u64::from(container_count) {
            let expected = format!("a record of each of the {container_count} containers");
            return Err(Error::corrupt(name, 24, expected, format!("{records} records")));
        }
        let names_len = (container_count as usize + replaced_count as usize) * 32;
        let pages_offset = (HEADER_BYTES + names_len + 16) as u64;
        let len = pages_offset + pages_len(records, reader_features & SHORT_PAGE != 0);
        if blob_len != len {
            let expected = format!("{len} bytes for {records} records");
            return Err(Error::corrupt(name, 24, expected, format!("{blob_len} bytes")));
        }
        let table = store.get_range(name, HEADER_BYTES as u64, names_len + 16, Reading::Once)?;
        let (names, recorded) = table.split_at(names_len);
        verify(name, HEADER_BYTES as u64, recorded, &[names])?;
        let mut reader = WireReader::new(name, HEADER_BYTES as u64, names);
        let containers = (0..container_count).map(|_| Ok(ContainerId(reader.array()?))).collect::<Result<_>>()?;
        let replaced = (0..replaced_count)
            .map(|_| Ok(BlobName::hashed(BlobKind::Segment, &reader.array::<32>()?)))
            .collect::<Result<_>>()?;
        Ok(IndexSegment {
            store,
            name: name.clone(),
            containers,
            replaced,
            records,
            pages_offset,
            len,
            by_name: OnceLock::new(),
            cached: OnceLock::new(),
            may_cache: false,
            pages_read: AtomicU32::new(0),
        })
    }

    /// Lets look-ups keep all pages in memory.
    pub(super) fn cache_pages(&mut self) {
        self.may_cache = true;
    }

    /// Bytes of all pages.
    pub(super) fn page_bytes(&self) -> u64 {
        self.len - self.pages_offset
    }

    /// Store name.
    pub fn name(&self) -> &BlobName {
        &self.name
    }
    /// Containers that it lists.
    pub fn containers(&self) -> &[ContainerId] {
        &self.containers
    }
    /// The position of a container among those that it lists.
    pub(super) fn position_of(&self, id: &ContainerId) -> Option<u32> {
        let name_of = |position: &u32| self.containers.get(*position as usize).copied();
        let by_name = self.by_name.get_or_init(|| {
            let mut positions: Vec<u32> = (0..self.containers.len() as u32).collect();
            positions.sort_unstable_by_key(name_of);
            positions
        });
        let found = by_name.binary_search_by_key(&Some(*id), name_of).ok()?;
        by_name.get(found).copied()
    }
    /// Store names of the segments that it replaces.
    pub fn replaced(&self) -> &[BlobName] {
        &self.replaced
    }
    /// Number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of pages.
    pub(super) fn page_count(&self) -> u64 {
        self.records.div_ceil(PAGE_RECORDS as u64)
    }

    /// The only place that reads pages: the bytes of `count` pages from page `first` on, which are sound.
    fn read_pages(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        let offset = self.offset_of(first);
        let len = (self.offset_of(first + count) - offset) as usize;
        // It may be a copy that is damaged, and parity may have another one.
        read_again(self.store.as_ref(), &self.name, || {
            let bytes = self.store.get_range(&self.name, offset, len, Reading::Once)?;
            for (number, page) in (first..).zip(bytes.chunks(PAGE_BYTES)) {
                self.verified(number, page)?;
            }
            Ok(bytes)
        })
    }

    /// The bytes of one page for a look-up.
    fn page(&self, number: u64) -> Result<Cow<'_, [u8]>> {
        if self.may_cache && self.pages_read.fetch_add(1, Ordering::Relaxed) >= PAGES_BEFORE_CACHED {
            let cached = self.cached.get_or_init(|| self.read_pages(0, self.page_count()).ok());
            let [start, end] = [number, number + 1].map(|page| (self.offset_of(page) - self.pages_offset) as usize);
            if let Some(page) = cached.as_ref().and_then(|cached| cached.get(start..end)) {
                return Ok(Cow::Borrowed(page));
            }
        }
        self.read_pages(number, 1).map(Cow::Owned)
    }

    /// Where a page begins, and where the page before it ends.
    fn offset_of(&self, page: u64) -> u64 {
        (self.pages_offset + page * PAGE_BYTES as u64).min(self.len)
    }

    /// Checks the bytes of page `number`, and returns its encoded records.
    fn verified<'p>(&self, number: u64, page: &'p [u8]) -> Result<&'p [[u8; RECORD_BYTES]]> {
        let offset = self.offset_of(number);
        let page_bytes = self.offset_of(number + 1) - offset;
        let Some((records, recorded)) =
            page.split_last_chunk::<CHECKSUM_BYTES>().filter(|_| page.len() as u64 == page_bytes)
        else {
            let expected = format!("a page of {page_bytes} bytes");
            return Err(Error::corrupt(&self.name, offset, expected, page.len().to_string()));
        };
        verify(&self.name, offset, recorded, &[records])?;
        let count = (self.records - number * PAGE_RECORDS as u64).min(PAGE_RECORDS as u64);
        Ok(records.as_chunks().0.get(..count as usize).unwrap_or_default())
    }

    /// Decodes a record of page `number`.
    fn decode(&self, number: u64, record: &[u8; RECORD_BYTES]) -> Result<IndexRecord> {
        let mut reader = WireReader::new(&self.name, self.offset_of(number), record);
        let record =
            IndexRecord { fingerprint: Fingerprint(reader.array()?), container: reader.u32()?, entry: reader.u32()? };
        if record.container as usize >= self.containers.len() {
            let expected = format!("a container below {}", self.containers.len());
            return Err(reader.error(expected, record.container.to_string()));
        }
        Ok(record)
    }

    fn parse_page(&self, number: u64, page: &[u8]) -> Result<Vec<IndexRecord>> {
        self.verified(number, page)?.iter().map(|record| self.decode(number, record)).collect()
    }

    /// Calls `visit` with all fingerprints, in order.
    ///
    /// # Errors
    /// Errors of the store, and that of the first damaged page.
    pub(super) fn visit_fingerprints(&self, mut visit: impl FnMut(&Fingerprint)) -> Result<()> {
        for first in (0..self.page_count()).step_by(PAGES_READ as usize) {
            let bytes = self.read_pages(first, PAGES_READ.min(self.page_count() - first))?;
            for (page, number) in bytes.chunks(PAGE_BYTES).zip(first..) {
                self.verified(number, page)?.iter().for_each(|record| visit(&fingerprint_of(record)));
            }
        }
        Ok(())
    }

    /// All records, page by page. One read fetches `PAGES_READ` pages.
    pub fn pages(&self) -> impl Iterator<Item = Result<Vec<IndexRecord>>> + '_ {
        self.pages_in(0..self.page_count())
    }

    /// The records of some pages, page by page.
    pub(super) fn pages_in(&self, pages: Range<u64>) -> impl Iterator<Item = Result<Vec<IndexRecord>>> + '_ {
        let end = pages.end.min(self.page_count());
        let read = move |first: u64| {
            let count = PAGES_READ.min(end - first);
            let parse = |(page, number): (&[u8], u64)| self.parse_page(number, page);
            match self.read_pages(first, count) {
                Ok(bytes) => bytes.chunks(PAGE_BYTES).zip(first..).map(parse).collect(),
                // A page that is damaged, or that the device cannot read, costs no other page.
                Err(error) if error.is_unreadable() => {
                    (first..first + count).map(|number| parse((&self.read_pages(number, 1)?, number))).collect()
                }
                Err(error) => vec![Err(error)],
            }
        };
        (pages.start..end).step_by(PAGES_READ as usize).flat_map(read)
    }

    /// The containers and entries of a fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Result<Vec<(ContainerId, u32)>> {
        let mut found = Vec::new();
        let (mut low, mut high) = (0, self.page_count());
        // The number of pages that hold the fingerprints between two, if they are evenly spread.
        let pages =
            |from: u64, to: u64| ((u128::from(to.saturating_sub(from)) * u128::from(self.page_count())) >> 64) as u64;
        let wanted = position_of(fingerprint);
        let mut guess = pages(0, wanted);
        let mut steps = 0;
        while low < high {
            // Evenly spread fingerprints are found in two or three pages. With others, halving bounds their number.
            steps += 1;
            let number = if steps <= GUESSES_MAX { guess.clamp(low, high - 1) } else { low + (high - low) / 2 };
            let page = self.page(number)?;
            let records = self.verified(number, &page)?;
            let (Some(first), Some(last)) = (records.first(), records.last()) else { break };
            if *fingerprint < fingerprint_of(first) {
                let distance = pages(wanted, position_of(&fingerprint_of(first)));
                (high, guess) = (number, number.saturating_sub(1 + distance));
            } else if *fingerprint > fingerprint_of(last) {
                let distance = pages(position_of(&fingerprint_of(last)), wanted);
                (low, guess) = (number + 1, number + 1 + distance);
            } else {
                self.collect(number, records, fingerprint, &mut found)?;
                break;
            }
        }
        Ok(found)
    }

    /// Collects the records of a fingerprint from page `number` and, if they continue there, from its neighbours.
    fn collect(
        &self,
        number: u64,
        records: &[[u8; RECORD_BYTES]],
        fingerprint: &Fingerprint,
        found: &mut Vec<(ContainerId, u32)>,
    ) -> Result<()> {
        let mut add = |number: u64, records: &[[u8; RECORD_BYTES]]| -> Result<()> {
            let first = records.partition_point(|record| fingerprint_of(record) < *fingerprint);
            let records = records.get(first..).unwrap_or_default();
            for record in records.iter().take_while(|record| fingerprint_of(record) == *fingerprint) {
                let record = self.decode(number, record)?;
                found.extend(self.containers.get(record.container as usize).map(|id| (*id, record.entry)));
            }
            Ok(())
        };
        add(number, records)?;
        let is_at = |record: Option<&[u8; RECORD_BYTES]>| record.is_some_and(|it| fingerprint_of(it) == *fingerprint);
        let before = (is_at(records.first()) && number > 0).then(|| number - 1);
        let after = (is_at(records.last()) && number + 1 < self.page_count()).then_some(number + 1);
        for number in before.into_iter().chain(after) {
            let page = self.page(number)?;
            add(number, self.verified(number, &page)?)?;
        }
        Ok(())
    }
}

/// Bytes of the pages of so many records.
fn pages_len(records: u64, is_last_short: bool) -> u64 {
    let pages = records.div_ceil(PAGE_RECORDS as u64);
    match is_last_short {
        true => records * RECORD_BYTES as u64 + pages * CHECKSUM_BYTES as u64,
        false => pages * PAGE_BYTES as u64,
    }
}

/// The place of a fingerprint among all, from 0 to 2^64.
fn position_of(fingerprint: &Fingerprint) -> u64 {
    fingerprint.prefix().swap_bytes()
}

fn fingerprint_of(record: &[u8; RECORD_BYTES]) -> Fingerprint {
    let mut fingerprint = Fingerprint([0; 32]);
    fingerprint.0.iter_mut().zip(record).for_each(|(to, from)| *to = *from);
    fingerprint
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
