//! Writing segments of any size in bounded memory.
//!
//! Records arrive in order. The bytes of a small segment stay in memory, those of a large one go to an unnamed file in
//! a scratch directory. The counts of the header are known at the end, so the name, the hash of all bytes, is computed
//! from what was written. Then the store copies it.
//!
//! Older programs cannot read a segment with a short last page, and read the indexes of its containers instead. So only
//! segments of few records have one, in repositories with the feature for it.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::{SpooledData, SpooledTempFile};

use super::segment::{HEADER_BYTES, IndexRecord, MAGIC, PAGE_BYTES, PAGE_RECORDS, RECORD_BYTES, SHORT_PAGE};
use crate::error::{Error, Result};
use crate::repo::salts::{Salt, Salts};
use crate::store::{BlobKind, BlobName, NewName, StoppingReader, Store, StoreExt};
use crate::types::ContainerId;
use crate::wire::{FORMAT_VERSION, checksum};

/// Bytes of a segment that is written in memory, at most.
pub(super) const MEMORY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Records of a segment with a short last page, at most. With more, it would save less than a tenth.
const SHORT_RECORDS_MAX: u64 = 1024;

/// What the new segments of a repository have in common. Clones draw salts from the same source.
#[derive(Debug, Clone, Default)]
pub struct NewSegments {
    salts: Salts,
    shortens_pages: bool,
}

impl NewSegments {
    /// Segments with salts of `salts`. If `shortens_pages`, the last page of small ones is short.
    pub fn new(salts: Salts, shortens_pages: bool) -> Self {
        NewSegments { salts, shortens_pages }
    }

    /// One segment, with a new salt.
    ///
    /// # Errors
    /// Errors of [`Salts::draw`].
    pub(super) fn draw(&self) -> Result<NewSegment> {
        Ok(NewSegment { salt: self.salts.draw()?, shortens_page: self.shortens_pages })
    }
}

/// What a segment has besides its content.
#[derive(Debug, Clone, Copy)]
pub struct NewSegment {
    /// It must be new, so that the name of the segment is.
    pub salt: Salt,
    /// Whether the last page is short if the segment is small.
    pub shortens_page: bool,
}

impl NewSegment {
    /// A segment whose last page is padded, as every version reads it.
    pub const fn padded(salt: Salt) -> Self {
        NewSegment { salt, shortens_page: false }
    }
}

/// Sorts `records`, writes them as a segment and returns its store name. Readers skip the segments called `replaced`
/// from then on.
///
/// # Errors
/// Errors of the store.
pub fn write_segment(
    store: &dyn Store,
    new: NewSegment,
    containers: &[ContainerId],
    replaced: &[BlobName],
    mut records: Vec<IndexRecord>,
) -> Result<BlobName> {
    records.sort_unstable();
    let mut writer = SegmentWriter::new(new, containers, replaced, &std::env::temp_dir(), MEMORY_BYTES_MAX)?;
    records.iter().try_for_each(|record| writer.push(record))?;
    writer.finish(store, &AtomicBool::new(false))
}

/// Writes a segment from records in ascending order.
pub(super) struct SegmentWriter {
    new: NewSegment,
    file: SpooledTempFile,
    container_count: u32,
    replaced_count: u32,
    records: u64,
    /// Encoded records of the page that is not full yet.
    page: Vec<u8>,
}

fn failed(error: std::io::Error) -> Error {
    Error::io("write an index segment in", "the scratch directory", error)
}

impl SegmentWriter {
    /// A segment of `containers` that replaces the segments called `replaced`. One of more than `memory` bytes needs
    /// its size in `scratch`.
    ///
    /// # Errors
    /// [`Error::Internal`] if `replaced` holds a name that is not that of a segment.
    pub(super) fn new(
        new: NewSegment,
        containers: &[ContainerId],
        replaced: &[BlobName],
        scratch: &Path,
        memory: usize,
    ) -> Result<Self> {
        let mut names = Vec::with_capacity((containers.len() + replaced.len()) * 32 + 16);
        containers.iter().for_each(|id| names.extend_from_slice(&id.0));
        for name in replaced {
            let id = name.rsplit('/').next().and_then(ContainerId::parse);
            let id = id.ok_or_else(|| Error::internal(format!("`{name}` is no name of an index segment")))?;
            names.extend_from_slice(&id.0);
        }
        let names_checksum = checksum::<16>(&[&names]);
        names.extend_from_slice(&names_checksum);
        let mut file = SpooledTempFile::new_in(memory, scratch);
        file.write_all(&[0; HEADER_BYTES]).and_then(|()| file.write_all(&names)).map_err(failed)?;
        let (container_count, replaced_count) = (containers.len() as u32, replaced.len() as u32);
        Ok(SegmentWriter {
            new,
            file,
            container_count,
            replaced_count,
            records: 0,
            page: Vec::with_capacity(PAGE_BYTES),
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`Error::Io`] if the scratch directory is full.
    pub(super) fn push(&mut self, record: &IndexRecord) -> Result<()> {
        self.page.extend_from_slice(&record.fingerprint.0);
        self.page.extend_from_slice(&record.container.to_le_bytes());
        self.page.extend_from_slice(&record.entry.to_le_bytes());
        self.records += 1;
        if self.page.len() == PAGE_RECORDS * RECORD_BYTES { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> Result<()> {
        let page_checksum = checksum::<16>(&[&self.page]);
        self.page.extend_from_slice(&page_checksum);
        self.file.write_all(&self.page).map_err(failed)?;
        self.page.clear();
        Ok(())
    }

    fn header(&self, reader_features: u64) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&self.container_count.to_le_bytes());
        header.extend_from_slice(&self.replaced_count.to_le_bytes());
        header.extend_from_slice(&[0; 4]); // key generation: not encrypted
        header.extend_from_slice(&self.records.to_le_bytes());
        header.extend_from_slice(&reader_features.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&self.new.salt);
        header.extend_from_slice(&checksum::<16>(&[&header]));
        header
    }

    /// Stores the segment and returns its store name.
    ///
    /// # Errors
    /// Errors of the store and of the scratch directory, and [`Error::Interrupted`] if `stop` is set while a large
    /// segment is hashed.
    pub(super) fn finish(mut self, store: &dyn Store, stop: &AtomicBool) -> Result<BlobName> {
        let mut reader_features = 0;
        if !self.page.is_empty() {
            if self.new.shortens_page && self.records <= SHORT_RECORDS_MAX {
                reader_features = SHORT_PAGE;
            } else {
                self.page.resize(PAGE_BYTES - 16, 0);
            }
            self.end_page()?;
        }
        let header = self.header(reader_features);
        self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header)).map_err(failed)?;
        match self.file.into_inner() {
            SpooledData::InMemory(cursor) => {
                let blob = cursor.into_inner();
                store.put_hashed(BlobKind::Segment, &[&blob])
            }
            SpooledData::OnDisk(mut file) => {
                let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
                let mut file = StoppingReader { inner: &mut file, stop };
                match store.put_stream(NewName::Hashed(BlobKind::Segment), len, &mut file) {
                    Err(_) if stop.load(Ordering::Relaxed) => Err(Error::Interrupted),
                    put => Ok(put?.name),
                }
            }
        }
    }
}
