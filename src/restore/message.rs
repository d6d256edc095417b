//! What travels between the stages of a restore.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::{Counter, Progress};
use crate::pipeline::Weigh;
use crate::repo::container::{ExtentMap, FrameInfo};
use crate::repo::tree::{Node, small_holes};
use crate::types::{ContainerId, Fingerprint};

/// Files open at a time, at most.
const OPEN_FILES_MAX: usize = 256;

/// Whether an error means that stored data is lost, rather than that the run fails.
pub fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound)
}

/// Counters of a restore.
#[derive(Debug, Default)]
pub struct RestoreCounts {
    /// Regular files written.
    pub files: Counter,
    /// Directories.
    pub directories: Counter,
    /// Links and special files.
    pub others: Counter,
    /// Bytes of content.
    pub bytes: Counter,
    /// LoadedFrames loaded.
    pub frames: Counter,
    /// Bytes they decode to.
    pub frame_bytes: Counter,
    /// Entries that could not be written.
    pub problems: Counter,
    /// Files and directories lost to damage.
    pub damaged: Counter,
}

impl RestoreCounts {
    /// Reports something that could not be written.
    pub fn problem(&self, error: &Error) {
        tracing::error!("{error}");
        self.problems.add(1);
    }

    /// Reports a file (or the rest of a directory) lost to damage.
    pub fn damage(&self, error: &Error, path: &str) {
        let path = if path.is_empty() { String::new() } else { format!("cannot restore {path}: ") };
        tracing::error!("{path}{error}");
        self.damaged.add(1);
    }
}

/// Counts the files that are open between Plan and Finish.
#[derive(Debug, Default)]
pub struct OpenFiles {
    open: Mutex<usize>,
    closed: Condvar,
}

/// One open file's share; dropping it lets another open.
#[derive(Debug)]
pub struct Permit(Arc<OpenFiles>);

impl OpenFiles {
    /// Whether taking a permit would wait.
    pub fn is_full(&self) -> bool {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) >= OPEN_FILES_MAX
    }

    /// Waits until fewer than the bound are open. What holds permits is on its way through later stages, or is
    /// dropped when they fail: either ends the wait.
    pub fn take(self: &Arc<Self>) -> Permit {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while *open >= OPEN_FILES_MAX {
            open = self.closed.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        *open += 1;
        Permit(self.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.closed.notify_one();
    }
}

/// The names an inode was given so far.
#[derive(Debug)]
pub struct NamesOfInode {
    /// Paths relative to the target.
    pub names: Vec<PathBuf>,
    /// Its content is lost.
    pub failed: bool,
}

/// A file being restored.
#[derive(Debug)]
pub struct RestoreFile {
    /// Open for writing.
    pub file: File,
    /// Path relative to the target.
    pub path: PathBuf,
    /// Its metadata.
    pub node: Node,
    /// Its names.
    pub names: Arc<Mutex<NamesOfInode>>,
    /// Holes to leave where zeros are stored, as (start, end); `None`: in a sparse file, all blocks of zeros.
    pub small_holes: Option<Vec<(u64, u64)>>,
    failure: Mutex<Option<Error>>,
    _permit: Permit,
}

impl RestoreFile {
    /// A file just created at `path`.
    pub fn new(file: File, path: PathBuf, node: Node, names: Arc<Mutex<NamesOfInode>>, permit: Permit) -> Self {
        let small_holes = small_holes(&node);
        RestoreFile { file, path, node, names, small_holes, failure: Mutex::new(None), _permit: permit }
    }

    /// Gives the file the length of its content: it may end with a hole.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !self.node.sparse {
            return Ok(());
        }
        self.file.set_len(len).map_err(|error| Error::io("extend", &self.path, error))
    }

    /// Remembers the first thing that went wrong with it.
    pub fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// What went wrong with it.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A decoded frame, or why there is none.
pub type LoadedFrame = Result<Bytes, Arc<Error>>;

/// A frame to load.
#[derive(Debug)]
pub struct FrameLoad {
    /// Its number.
    pub frame: u64,
    /// Its container.
    pub container: ContainerId,
    /// Where it lies in it.
    pub info: FrameInfo,
    /// Stored bytes after Fetch, decoded bytes after Decode.
    pub bytes: LoadedFrame,
}

impl FrameLoad {
    /// A frame not loaded yet.
    pub fn new(frame: u64, container: ContainerId, info: FrameInfo) -> Self {
        FrameLoad { frame, container, info, bytes: Ok(Bytes::new()) }
    }
}

/// A chunk to write.
#[derive(Debug)]
pub struct WriteChunk {
    /// Into this file.
    pub file: Arc<RestoreFile>,
    /// At this offset.
    pub offset: u64,
    /// Its name, to check it.
    pub fingerprint: Fingerprint,
    /// The literal bytes that make it.
    pub extent_map: Arc<ExtentMap>,
}

/// Work for the stages behind Plan.
#[derive(Debug, Default)]
pub struct RestoreJob {
    /// LoadedFrames to load first.
    pub loads: Vec<FrameLoad>,
    /// LoadedFrames to forget afterwards.
    pub dropped: Vec<u64>,
    /// Chunks to write.
    pub writes: Vec<WriteChunk>,
    /// Files that are complete after this job.
    pub finished: Vec<Arc<RestoreFile>>,
    /// The frames that `writes` needs: set by Gather.
    pub frames: super::plan::LoadedFrames,
    /// Bytes to write.
    pub bytes: u64,
    /// Bytes the loads decode to.
    pub load_bytes: u64,
}

impl Weigh for RestoreJob {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Progress of a restore: what is written counts as read.
pub fn count_written(progress: &Progress, counts: &RestoreCounts, bytes: u64) {
    progress.bytes_read.add(bytes);
    counts.bytes.add(bytes);
}
