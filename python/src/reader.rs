//! Reads files of snapshots at any offset.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use fhrd::Result;
use fhrd::error::{Error, ErrorKind};
use fhrd::repo::Repository;
use fhrd::repo::content::ContentMap;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::reader::ChunkReader;
use fhrd::repo::recipe::ContentReference;
use fhrd::store::Reading;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Call;
use crate::errors::ArgumentError;
use crate::source::address;

/// Decoded frames that a reader caches, bytes.
const CACHE_BYTES: usize = 32 << 20;
/// Decoded recipes that a reader caches, bytes.
const RECIPE_BYTES: usize = 4 << 20;

/// What reads: one caller at a time.
struct Reading {
    reader: ChunkReader,
    map: ContentMap,
}

/// A file of a snapshot.
#[pyclass(frozen, module = "fhrd._engine")]
pub struct StoredBytes {
    repository: Repository,
    content: Option<ContentReference>,
    len: u64,
    reading: Mutex<Reading>,
    call: Call,
    process: u32,
}

/// Memory that a read fills.
struct Space {
    address: usize,
    len: usize,
}

impl StoredBytes {
    /// The file with this content.
    pub fn new(repository: &Repository, content: Option<ContentReference>, len: u64) -> Result<Self> {
        let call = Call::default();
        let repository = repository.stopped_by(&call.stop);
        let reading = Mutex::new(Reading::new(&repository)?);
        Ok(StoredBytes { repository, content, len, reading, call, process: std::process::id() })
    }

    fn read(&self, offset: u64, space: &mut [u8]) -> Result<()> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.copy(&mut reading, offset, space) {
            // A prune may have moved what is read into another container.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *reading = Reading::new(&self.repository)?;
                self.copy(&mut reading, offset, space)
            }
            read => read,
        }
    }

    fn copy(&self, reading: &mut Reading, offset: u64, space: &mut [u8]) -> Result<()> {
        let (end, mut filled) = (offset + space.len() as u64, 0);
        let Some(content) = self.content else { return Ok(()) };
        reading.map.copy_range(&mut reading.reader, content, (offset, end), &mut |bytes| {
            let too_long = || Error::internal("a read returned too many bytes");
            space.get_mut(filled..filled + bytes.len()).ok_or_else(too_long)?.copy_from_slice(bytes);
            filled += bytes.len();
            Ok(())
        })?;
        match filled == space.len() {
            true => Ok(()),
            false => {
                Err(Error::corrupt("content of a file", offset, format!("{} bytes", space.len()), filled.to_string()))
            }
        }
    }

    fn check(&self, offset: u64, len: usize) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(crate::repository::forked());
        }
        match offset.checked_add(len as u64).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => {
                Err(ArgumentError::new_err(format!("the file has {} bytes, not {len} from {offset} on", self.len)))
            }
        }
    }
}

impl Reading {
    fn new(repository: &Repository) -> Result<Self> {
        let listing = Arc::new(ContainerListing::take(&repository.store)?);
        let reader = ChunkReader::new(repository, listing, CACHE_BYTES);
        Ok(Reading { reader, map: ContentMap::new(RECIPE_BYTES) })
    }
}

#[pymethods]
impl StoredBytes {
    fn __len__(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// The bytes from `offset` on.
    fn read_bytes<'py>(&self, py: Python<'py>, offset: u64, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.check(offset, len)?;
        PyBytes::new_with(py, len, |space| self.read_into_slice(py, offset, space))
    }

    /// Fills a NumPy array of bytes from `offset` on.
    fn read_into(&self, py: Python<'_>, offset: u64, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let (address, len) = address(target, true)?;
        self.check(offset, len)?;
        let space = Space { address, len };
        if space.len == 0 {
            return Ok(());
        }
        // SAFETY: NumPy gave the address of `len` bytes that may be written to. The caller's frame refers to the array
        // until this call returns, and `fhrd.arrays` hands it out only afterwards.
        let space = unsafe { std::slice::from_raw_parts_mut(space.address as *mut u8, space.len) };
        self.read_into_slice(py, offset, space)
    }
}

impl StoredBytes {
    fn read_into_slice(&self, py: Python<'_>, offset: u64, space: &mut [u8]) -> PyResult<()> {
        let read = self.call.run(py, |_| self.read(offset, space));
        self.call.stop.store(false, Ordering::Relaxed);
        read
    }
}
