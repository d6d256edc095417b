//! Writing segments of any size in bounded memory.
//!
//! Records arrive in order. The bytes of a small segment stay in memory, those of a large one go to an unnamed file in
//! a scratch directory. The counts of the header are known at the end, so the name, the hash of all bytes, is computed
//! from what was written. Then the store copies it.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::{SpooledData, SpooledTempFile};

use super::segment::{HEADER_BYTES, IndexRecord, MAGIC, PAGE_BYTES, PAGE_RECORDS, RECORD_BYTES};
use crate::error::{Error, Result};
use crate::repo::salts::Salt;
use crate::store::{BlobKind, BlobName, NewName, StoppingReader, Store, StoreExt};
use crate::types::ContainerId;
use crate::wire::{FORMAT_VERSION, checksum};

/// Bytes of a segment that is written in memory, at most.
const MEMORY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Sorts `records`, writes them as a segment and returns its store name. Readers skip the segments called `replaced`
/// from then on. The salt must be new, so that its name is.
///
/// # Errors
/// Errors of the store.
pub fn write_segment(
    store: &dyn Store,
    salt: &Salt,
    containers: &[ContainerId],
    replaced: &[BlobName],
    mut records: Vec<IndexRecord>,
) -> Result<BlobName> {
    records.sort_unstable();
    let mut writer = SegmentWriter::new(salt, containers, replaced, &std::env::temp_dir())?;
    records.iter().try_for_each(|record| writer.push(record))?;
    writer.finish(store, &AtomicBool::new(false))
}

/// Writes a segment from records in ascending order.
pub(super) struct SegmentWriter {
    salt: Salt,
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
    /// A segment of `containers` that replaces the segments called `replaced`. A large one needs its size in `scratch`.
    ///
    /// # Errors
    /// [`Error::Internal`] if `replaced` holds a name that is not that of a segment.
    pub(super) fn new(salt: &Salt, containers: &[ContainerId], replaced: &[BlobName], scratch: &Path) -> Result<Self> {
        let mut names = Vec::with_capacity((containers.len() + replaced.len()) * 32 + 16);
        containers.iter().for_each(|id| names.extend_from_slice(&id.0));
        for name in replaced {
            let id = name.rsplit('/').next().and_then(ContainerId::parse);
            let id = id.ok_or_else(|| Error::internal(format!("`{name}` is no name of an index segment")))?;
            names.extend_from_slice(&id.0);
        }
        let names_checksum = checksum::<16>(&[&names]);
        names.extend_from_slice(&names_checksum);
        let mut file = SpooledTempFile::new_in(MEMORY_BYTES_MAX, scratch);
        file.write_all(&[0; HEADER_BYTES]).and_then(|()| file.write_all(&names)).map_err(failed)?;
        let (container_count, replaced_count) = (containers.len() as u32, replaced.len() as u32);
        Ok(SegmentWriter {
            salt: *salt,
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
        self.page.resize(PAGE_BYTES - 16, 0);
        let page_checksum = checksum::<16>(&[&self.page]);
        self.page.extend_from_slice(&page_checksum);
        self.file.write_all(&self.page).map_err(failed)?;
        self.page.clear();
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
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
        header
    }

    /// Stores the segment and returns its store name.
    ///
    /// # Errors
    /// Errors of the store and of the scratch directory, and [`Error::Interrupted`] if `stop` is set while a large
    /// segment is hashed.
    pub(super) fn finish(mut self, store: &dyn Store, stop: &AtomicBool) -> Result<BlobName> {
        if !self.page.is_empty() {
            self.end_page()?;
        }
        let header = self.header();
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
