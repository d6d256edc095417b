//! Reads files of snapshots at any offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
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
/// Bytes that are worth a thread of their own.
const THREAD_BYTES_MIN: usize = 1 << 20;

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
    /// Threads of one read, at most.
    threads: usize,
    process: u32,
}

/// An offset in a file, and the memory that a read fills from there on.
type Piece<'a> = (u64, &'a mut [u8]);

impl StoredBytes {
    /// The file with this content. A read uses at most `threads` threads.
    pub fn new(repository: &Repository, content: Option<ContentReference>, len: u64, threads: usize) -> Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let repository = repository.stopped_by(&stop);
        let file = Mutex::new(open(&repository, content)?);
        Ok(StoredBytes { repository, content, len, file, stop, threads, process: std::process::id() })
    }

    fn file(&self) -> MutexGuard<'_, StoredFile> {
        self.file.lock()
    }

    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        if self.content.is_none() {
            return Ok(());
        }
        let file = self.file().clone();
        match copy_all(&file, pieces, self.threads) {
            // A prune may have moved what is read into another container.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let file = open(&self.repository, self.content)?;
                *self.file() = file.clone();
                copy_all(&file, pieces, self.threads)
            }
            read => read,
        }
    }

    /// Reads to the end, although a signal that another thread received stops its read, and with it this one.
    fn read_unless_stopped(&self, pieces: &mut [Piece<'_>], call: &Call) -> Result<()> {
        loop {
            match self.read(pieces) {
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

/// Fills all pieces, on as many threads as are worth it.
fn copy_all(file: &StoredFile, pieces: &mut [Piece<'_>], threads: usize) -> Result<()> {
    let total: usize = pieces.iter().map(|(_, space)| space.len()).sum();
    let share = total.div_ceil(threads.max(1)).max(THREAD_BYTES_MIN);
    let mut shares = shares(pieces, share).into_iter();
    let first = shares.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let start = |share| {
            std::thread::Builder::new().name("fhrd read".into()).spawn_scoped(scope, || copy_share(file, share))
        };
        let others: Vec<_> = shares.map(start).collect();
        let mut result = copy_share(file, first);
        for other in others {
            let read = match other.map(ScopedJoinHandle::join) {
                Ok(Ok(read)) => read,
                Ok(Err(_)) => Err(Error::internal("a read panicked")),
                Err(error) => Err(Error::io("start", "a thread", error)),
            };
            result = result.and(read);
        }
        result
    })
}

/// Pieces in shares of `share_bytes`, in order. A piece that is longer is in several.
fn shares<'a>(pieces: &'a mut [Piece<'_>], share_bytes: usize) -> Vec<Vec<Piece<'a>>> {
    let (mut shares, mut share, mut free) = (Vec::new(), Vec::new(), share_bytes);
    for (offset, space) in pieces {
        let (mut at, mut rest) = (*offset, &mut **space);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at_mut(free.min(rest.len()));
            (free, rest) = (free - piece.len(), behind);
            let len = piece.len() as u64;
            share.push((at, piece));
            at += len;
            if free == 0 {
                shares.push(std::mem::take(&mut share));
                free = share_bytes;
            }
        }
    }
    shares.push(share);
    shares
}

/// Fills pieces in order. Those that are neighbours in the file are one read.
fn copy_share(file: &StoredFile, share: Vec<Piece<'_>>) -> Result<()> {
    let (mut start, mut end, mut spaces) = (0, 0, Vec::new());
    for (offset, space) in share {
        if offset != end {
            copy(file, start, end, &mut spaces)?;
            spaces.clear();
            (start, end) = (offset, offset);
        }
        end += space.len() as u64;
        spaces.push(space);
    }
    copy(file, start, end, &mut spaces)
}

/// Fills `spaces`, one after another, with the bytes from `start` to `end`.
fn copy(file: &StoredFile, start: u64, end: u64, spaces: &mut [&mut [u8]]) -> Result<()> {
    let (mut at, mut filled, mut total) = (0, 0, 0u64);
    file.copy((start, end), &mut |mut bytes| {
        total += bytes.len() as u64;
        while !bytes.is_empty() {
            let space = spaces.get_mut(at).and_then(|space| space.get_mut(filled..));
            let space = space.ok_or_else(|| Error::internal("a read returned too many bytes"))?;
            let count = space.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            space[..count].copy_from_slice(now);
            bytes = later;
            filled += count;
            if count == space.len() {
                (at, filled) = (at + 1, 0);
            }
        }
        Ok(())
    })?;
    match total == end - start {
        true => Ok(()),
        false => Err(Error::corrupt("content of a file", start, format!("{} bytes", end - start), total.to_string())),
    }
}

#[pymethods]
impl StoredBytes {
    fn __len__(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// The bytes from `offset` on.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        offset: &Bound<'py, PyAny>,
        len: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (Ok(at), Ok(count)) = (offset.extract::<u64>(), len.extract::<usize>()) else {
            let text = format!("the file has {} bytes, not {len} from {offset} on", self.len);
            return Err(ArgumentError::new_err(text));
        };
        self.check(at, count)?;
        PyBytes::new_with(py, count, |space| self.read_pieces(py, &mut [(at, space)]))
    }

    /// Fills NumPy arrays of bytes, each from its offset on.
    fn read_into(&self, py: Python<'_>, targets: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut spaces = Vec::with_capacity(targets.len());
        for (offset, target) in &targets {
            let (address, len) = address(target, true)?;
            self.check(*offset, len)?;
            if len > 0 {
                spaces.push((address, len, *offset));
            }
        }
        spaces.sort_unstable();
        let is_shared = |pair: &[(usize, usize, u64)]| matches!(pair, [(at, len, _), (next, ..)] if at + len > *next);
        if spaces.windows(2).any(is_shared) {
            return Err(ArgumentError::new_err("two arrays share memory"));
        }
        // SAFETY: NumPy gave the address of `len` bytes that may be written to, and no two arrays share any. `targets`
        // refers to the arrays until this call returns, and `fhrd.checkpoint` hands them out only afterwards.
        let slice = |address, len| unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) };
        let mut pieces: Vec<Piece<'_>> =
            spaces.into_iter().map(|(address, len, offset)| (offset, slice(address, len))).collect();
        // Threads read neighbours in the file.
        pieces.sort_unstable_by_key(|(offset, _)| *offset);
        self.read_pieces(py, &mut pieces)
    }
}

impl StoredBytes {
    fn read_pieces(&self, py: Python<'_>, pieces: &mut [Piece<'_>]) -> PyResult<()> {
        let call = Call::stopping(&self.stop);
        let read = call.run(py, |_| self.read_unless_stopped(pieces, &call));
        // Others read on.
        if call.is_stopped() {
            self.stop.store(false, Ordering::Relaxed);
        }
        read
    }
}
