//! Index segments: immutable, sorted lists of (fingerprint, container, entry) for the containers of one backup.
//!
//! A segment is an 80-byte header, a table of container ids, a table of the segments that it replaces, and pages. Each
//! has 4096 bytes: 102 records of 40 bytes in order of their fingerprints, and a checksum. Fingerprints are spread
//! evenly, so a look-up guesses its page by interpolation and reads one or two pages. Only the container table stays in
//! memory.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::repo::salts::{SALT_BYTES, Salt};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint, hex};
use crate::wire::{FORMAT_VERSION, WireReader, check_key_generation, check_readable, checksum, verify};

/// Prefix of the store names of segments.
pub const PREFIX: &str = "index";

const MAGIC: [u8; 8] = *b"FHRDSEGM";
const HEADER_BYTES: usize = 80;
const PAGE_BYTES: usize = 4096;
const PAGE_RECORDS: usize = 102;
const RECORD_BYTES: usize = 40;
/// Pages of one read when all pages are read.
const PAGES_READ: u64 = 64;
/// Pages that a look-up guesses before it halves the rest.
const GUESSES_MAX: u32 = 8;
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

/// Sorts `records`, writes them as a segment and returns its store name. Readers skip the segments called `replaced`
/// from then on. The salt must be new, so that its name is.
///
/// # Errors
/// Those of the store.
pub fn write_segment(
    store: &dyn Store,
    salt: &Salt,
    containers: &[ContainerId],
    replaced: &[String],
    mut records: Vec<IndexRecord>,
) -> Result<String> {
    records.sort_unstable();
    let mut builder = SegmentBuilder::new(salt, containers, replaced, records.len())?;
    records.iter().for_each(|record| builder.push(record));
    builder.finish(store)
}

/// Builds the blob of a segment in memory from records in ascending order.
pub(super) struct SegmentBuilder {
    salt: Salt,
    blob: Vec<u8>,
    container_count: u32,
    replaced_count: u32,
    records: u64,
    page_start: usize,
}

impl SegmentBuilder {
    /// A segment of `containers` that replaces the segments called `replaced`; `records_expected` reserves memory.
    ///
    /// # Errors
    /// [`Error::Internal`] if `replaced` holds a name that is not that of a segment.
    pub(super) fn new(
        salt: &Salt,
        containers: &[ContainerId],
        replaced: &[String],
        records_expected: usize,
    ) -> Result<Self> {
        let names_len = (containers.len() + replaced.len()) * 32;
        let capacity = HEADER_BYTES + names_len + 16 + records_expected.div_ceil(PAGE_RECORDS) * PAGE_BYTES;
        let mut blob = Vec::with_capacity(capacity);
        blob.resize(HEADER_BYTES, 0);
        containers.iter().for_each(|id| blob.extend_from_slice(&id.0));
        for name in replaced {
            let id = name.rsplit('/').next().and_then(ContainerId::parse);
            let id = id.ok_or_else(|| Error::internal(format!("`{name}` is no name of an index segment")))?;
            blob.extend_from_slice(&id.0);
        }
        let names_checksum = checksum::<16>(&[&blob[HEADER_BYTES..]]);
        blob.extend_from_slice(&names_checksum);
        let (container_count, replaced_count) = (containers.len() as u32, replaced.len() as u32);
        let page_start = blob.len();
        Ok(SegmentBuilder { salt: *salt, blob, container_count, replaced_count, records: 0, page_start })
    }

    /// Appends a record.
    pub(super) fn push(&mut self, record: &IndexRecord) {
        self.blob.extend_from_slice(&record.fingerprint.0);
        self.blob.extend_from_slice(&record.container.to_le_bytes());
        self.blob.extend_from_slice(&record.entry.to_le_bytes());
        self.records += 1;
        if self.blob.len() - self.page_start == PAGE_RECORDS * RECORD_BYTES {
            self.end_page();
        }
    }

    fn end_page(&mut self) {
        self.blob.resize(self.page_start + PAGE_BYTES - 16, 0);
        let page_checksum = checksum::<16>(&[&self.blob[self.page_start..]]);
        self.blob.extend_from_slice(&page_checksum);
        self.page_start = self.blob.len();
    }

    /// Stores the segment and returns its store name.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn finish(mut self, store: &dyn Store) -> Result<String> {
        if self.blob.len() > self.page_start {
            self.end_page();
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&self.container_count.to_le_bytes());
        header.extend_from_slice(&self.replaced_count.to_le_bytes());
        header.extend_from_slice(&[0; 4]); // key generation: not encrypted
        header.extend_from_slice(&self.records.to_le_bytes());
        header.extend_from_slice(&[0; 8 + 8]);
        header.extend_from_slice(&self.salt);
        header.extend_from_slice(&checksum::<16>(&[&header]));
        self.blob[..HEADER_BYTES].copy_from_slice(&header);
        let name = format!("{PREFIX}/{}", hex(blake3::hash(&self.blob).as_bytes()));
        store.put_if_absent(&name, &[&self.blob])?;
        Ok(name)
    }
}

/// An open segment.
pub struct IndexSegment {
    store: Arc<dyn Store>,
    name: String,
    containers: Vec<ContainerId>,
    replaced: Vec<String>,
    records: u64,
    pages_offset: u64,
}

impl IndexSegment {
    /// Reads the header and the tables of the segment called `name`.
    ///
    /// # Errors
    /// As of [`Self::open_listed`].
    pub fn open(store: Arc<dyn Store>, name: &str) -> Result<Self> {
        let head = store.head(name)?.ok_or_else(|| Error::BlobMissing { what: name.into() })?;
        Self::open_listed(store, name, head.len)
    }

    /// Reads the header and the tables of the segment called `name`, which has `blob_len` bytes. The counts of the
    /// header must give exactly this length, so no later step works for records that are not there.
    ///
    /// # Errors
    /// Those of the store. [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for damage, [`Error::Unsupported`] for an
    /// intact segment of another version, and for an encrypted one.
    pub fn open_listed(store: Arc<dyn Store>, name: &str, blob_len: u64) -> Result<Self> {
        let head = store.get_range(name, 0, HEADER_BYTES)?;
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
        check_readable(name, version, reader_features)?;
        check_key_generation(name, key_generation)?;
        if container_count > CONTAINERS_LIMIT || replaced_count > CONTAINERS_LIMIT {
            return Err(reader.error(format!("at most {CONTAINERS_LIMIT} names"), container_count.to_string()));
        }
        if records > RECORDS_LIMIT {
            return Err(reader.error(format!("at most {RECORDS_LIMIT} records"), records.to_string()));
        }
        let names_len = (container_count as usize + replaced_count as usize) * 32;
        let pages = records.div_ceil(PAGE_RECORDS as u64);
        let expected_len = (HEADER_BYTES + names_len + 16) as u64 + pages * PAGE_BYTES as u64;
        if blob_len != expected_len {
            let expected = format!("{expected_len} bytes for {records} records");
            return Err(Error::corrupt(name, 24, expected, format!("{blob_len} bytes")));
        }
        let table = store.get_range(name, HEADER_BYTES as u64, names_len + 16)?;
        let (names, recorded) = table.split_at(names_len);
        verify(name, HEADER_BYTES as u64, recorded, &[names])?;
        let mut reader = WireReader::new(name, HEADER_BYTES as u64, names);
        let containers = (0..container_count).map(|_| Ok(ContainerId(reader.array()?))).collect::<Result<_>>()?;
        let replaced = (0..replaced_count)
            .map(|_| Ok(format!("{PREFIX}/{}", hex(&reader.array::<32>()?))))
            .collect::<Result<_>>()?;
        let pages_offset = (HEADER_BYTES + names_len + 16) as u64;
        Ok(IndexSegment { store, name: name.into(), containers, replaced, records, pages_offset })
    }

    /// Store name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Containers that it lists.
    pub fn containers(&self) -> &[ContainerId] {
        &self.containers
    }
    /// Store names of the segments that it replaces.
    pub fn replaced(&self) -> &[String] {
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

    /// Reads and checks page `number`.
    pub fn page(&self, number: u64) -> Result<Vec<IndexRecord>> {
        let bytes = self.store.get_range(&self.name, self.offset_of(number), PAGE_BYTES)?;
        self.parse_page(number, &bytes)
    }

    fn offset_of(&self, page: u64) -> u64 {
        self.pages_offset + page * PAGE_BYTES as u64
    }

    fn parse_page(&self, number: u64, page: &[u8]) -> Result<Vec<IndexRecord>> {
        let offset = self.offset_of(number);
        let Some((records, recorded)) = page.split_at_checked(PAGE_BYTES - 16) else {
            let expected = format!("a page of {PAGE_BYTES} bytes");
            return Err(Error::corrupt(&self.name, offset, expected, page.len().to_string()));
        };
        verify(&self.name, offset, recorded, &[records])?;
        let count = (self.records - number * PAGE_RECORDS as u64).min(PAGE_RECORDS as u64);
        let mut reader = WireReader::new(&self.name, offset, records);
        let record = |_| {
            let record = IndexRecord {
                fingerprint: Fingerprint(reader.array()?),
                container: reader.u32()?,
                entry: reader.u32()?,
            };
            if record.container as usize >= self.containers.len() {
                let expected = format!("a container below {}", self.containers.len());
                return Err(reader.error(expected, record.container.to_string()));
            }
            Ok(record)
        };
        (0..count).map(record).collect()
    }

    /// All records, page by page. One read fetches `PAGES_READ` pages.
    pub fn pages(&self) -> impl Iterator<Item = Result<Vec<IndexRecord>>> + '_ {
        self.pages_in(0..self.page_count())
    }

    /// The records of some pages, page by page.
    pub(super) fn pages_in(&self, pages: Range<u64>) -> impl Iterator<Item = Result<Vec<IndexRecord>>> + '_ {
        let end = pages.end.min(self.page_count());
        let read = move |first: u64| {
            let len = PAGES_READ.min(end - first) as usize * PAGE_BYTES;
            match self.store.get_range(&self.name, self.offset_of(first), len) {
                Ok(bytes) => {
                    let pages = bytes.chunks(PAGE_BYTES).zip(first..);
                    pages.map(|(page, number)| self.parse_page(number, page)).collect()
                }
                // A page that the device cannot read costs no other page.
                Err(error) if error.is_unreadable() => {
                    (first..end.min(first + PAGES_READ)).map(|number| self.page(number)).collect()
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
        let mut guess = ((u128::from(fingerprint.prefix().swap_bytes()) * u128::from(high)) >> 64) as u64;
        let mut steps = 0;
        while low < high {
            // Evenly spread fingerprints are found at once. With others, halving bounds the number of pages read.
            steps += 1;
            let number = if steps <= GUESSES_MAX { guess.clamp(low, high - 1) } else { low + (high - low) / 2 };
            let records = self.page(number)?;
            let (Some(first), Some(last)) = (records.first(), records.last()) else { break };
            if *fingerprint < first.fingerprint {
                (high, guess) = (number, number.saturating_sub(1).max(low + (number - low) / 2));
            } else if *fingerprint > last.fingerprint {
                (low, guess) = (number + 1, (number + 1).min(number + 1 + (high - number) / 2));
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
        records: Vec<IndexRecord>,
        fingerprint: &Fingerprint,
        found: &mut Vec<(ContainerId, u32)>,
    ) -> Result<()> {
        let at_start = records.first().is_some_and(|record| record.fingerprint == *fingerprint);
        let at_end = records.last().is_some_and(|record| record.fingerprint == *fingerprint);
        let mut pages = vec![records];
        if at_start && number > 0 {
            pages.push(self.page(number - 1)?);
        }
        if at_end && number + 1 < self.page_count() {
            pages.push(self.page(number + 1)?);
        }
        let equal = pages.iter().flatten().filter(|record| record.fingerprint == *fingerprint);
        found.extend(equal.map(|record| (self.containers[record.container as usize], record.entry)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::MemoryStore;

    /// A segment of 200 records, as bytes.
    fn segment() -> Vec<u8> {
        let store = MemoryStore::new();
        let fingerprint = |number: u8| Fingerprint(*blake3::hash(&[number]).as_bytes());
        let records =
            (0..200).map(|n| IndexRecord { fingerprint: fingerprint(n), container: 0, entry: n.into() }).collect();
        let name = write_segment(&store, &[7; 16], &[ContainerId([5; 32])], &[], records).unwrap();
        store.get(&name, 1 << 20).unwrap()
    }

    fn open(blob: &[u8]) -> Result<IndexSegment> {
        let store = MemoryStore::new();
        store.put_if_absent("index/x", &[blob]).unwrap();
        IndexSegment::open(Arc::new(store), "index/x")
    }

    /// `blob` with another header and the right checksum for it.
    fn with_header(mut blob: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        edit(&mut blob[..HEADER_BYTES - 16]);
        let recorded = checksum::<16>(&[&blob[..HEADER_BYTES - 16]]);
        blob[HEADER_BYTES - 16..HEADER_BYTES].copy_from_slice(&recorded);
        blob
    }

    #[test]
    fn every_flipped_bit_of_a_segment_header_is_damage() {
        let intact = segment();
        assert_eq!(open(&intact).unwrap().records(), 200);
        for bit in 0..HEADER_BYTES * 8 {
            let mut blob = intact.clone();
            blob[bit / 8] ^= 1 << (bit % 8);
            let error = open(&blob).map(drop).expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
        }
    }

    #[test]
    fn an_intact_segment_of_another_version_names_the_version() {
        let error = open(&with_header(segment(), |header| header[8] = 2)).map(drop).expect_err("another version");
        assert_eq!(error.to_string(), "index/x needs a newer fhrd: unknown format version 2");
    }

    #[test]
    fn counts_that_do_not_fit_the_length_of_the_blob_are_damage() {
        let claims = [(12, 1u64 << 23), (16, 1 << 23), (24, 1 << 48), (24, 205), (24, 102), (24, 0)];
        for (field, claim) in claims {
            let blob = with_header(segment(), |header| {
                let len = if field == 24 { 8 } else { 4 };
                header[field..field + len].copy_from_slice(&claim.to_le_bytes()[..len]);
            });
            let error = open(&blob).map(drop).expect_err("a wrong count");
            assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("index/x"), "{error}");
        }
    }
}
