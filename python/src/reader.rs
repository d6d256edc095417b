//! Reads files of snapshots at any offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fhrd::Result;
use fhrd::error::{Error, ErrorKind};
use fhrd::repo::Repository;
use fhrd::repo::read::{Reader, StoredFile};
use fhrd::repo::recipe::ContentReference;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Call;
use crate::errors::ArgumentError;
use crate::source::address;

/// Time between two looks whether another read has been stopped.
const LOOK: Duration = Duration::from_millis(1);

/// A file of a snapshot. Several threads may read it at once.
#[pyclass(frozen, module = "fhrd._engine")]
pub struct StoredBytes {
    repository: Repository,
    content: Option<ContentReference>,
    len: u64,
    /// Replaced after a prune.
    file: Mutex<StoredFile>,
    /// Stops all reads of the file.
    stop: Arc<AtomicBool>,
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
        let stop = Arc::<AtomicBool>::default();
        let repository = repository.stopped_by(&stop);
        let file = Mutex::new(open(&repository, content)?);
        Ok(StoredBytes { repository, content, len, file, stop, process: std::process::id() })
    }

    fn file(&self) -> MutexGuard<'_, StoredFile> {
        self.file.lock()
    }

    fn read(&self, offset: u64, space: &mut [u8]) -> Result<()> {
        if self.content.is_none() {
            return Ok(());
        }
        let file = self.file().clone();
        match copy(&file, offset, space) {
            // A prune may have moved what is read into another container.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let file = open(&self.repository, self.content)?;
                *self.file() = file.clone();
                copy(&file, offset, space)
            }
            read => read,
        }
    }

    /// Reads to the end, although a signal that another thread received stops its read, and with it this one.
    fn read_unless_stopped(&self, offset: u64, space: &mut [u8], call: &Call) -> Result<()> {
        loop {
            match self.read(offset, space) {
                Err(Error::Interrupted) if !call.is_stopped() => {
                    while self.stop.load(Ordering::Relaxed) && !call.is_stopped() {
                        std::thread::sleep(LOOK);
                    }
                }
                read => return read,
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

/// The file with this content, among the containers that the repository has now.
fn open(repository: &Repository, content: Option<ContentReference>) -> Result<StoredFile> {
    Reader::open(repository)?.file(content, content.map_or(0, |content| content.content_len()))
}

/// Fills `space` from byte `offset` on.
fn copy(file: &StoredFile, offset: u64, space: &mut [u8]) -> Result<()> {
    let (end, mut filled) = (offset + space.len() as u64, 0);
    file.copy((offset, end), &mut |bytes| {
        let too_long = || Error::internal("a read returned too many bytes");
        space.get_mut(filled..filled + bytes.len()).ok_or_else(too_long)?.copy_from_slice(bytes);
        filled += bytes.len();
        Ok(())
    })?;
    match filled == space.len() {
        true => Ok(()),
        false => Err(Error::corrupt("content of a file", offset, format!("{} bytes", space.len()), filled.to_string())),
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
        let call = Call::stopping(&self.stop);
        let read = call.run(py, |_| self.read_unless_stopped(offset, space, &call));
        // Others read on.
        if call.is_stopped() {
            self.stop.store(false, Ordering::Relaxed);
        }
        read
    }
}
