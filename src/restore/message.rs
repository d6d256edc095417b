//! The messages between the stages of a restore, and the counters and files that the stages share.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::{Counter, Progress};
use crate::pipeline::Weigh;
use crate::repo::container::{ExtentMap, FrameInfo, FrameNumber};
use crate::repo::tree::{Node, small_holes};
use crate::types::{ContainerId, Fingerprint};

/// Maximum number of files that are open at the same time.
const OPEN_FILES_MAX: usize = 256;

/// Counters of a restore.
#[derive(Debug, Default)]
pub struct RestoreCounts {
    /// Regular files that are complete.
    pub files: Counter,
    /// Directories.
    pub directories: Counter,
    /// Links and special files.
    pub others: Counter,
    /// Bytes of file content.
    pub bytes: Counter,
    /// Frames loaded.
    pub frames: Counter,
    /// Decoded bytes of those frames.
    pub frame_bytes: Counter,
    /// Entries that could not be written, or that only a newer version can read.
    pub problems: Counter,
    /// Files and directories lost to damage.
    pub damaged: Counter,
}

impl RestoreCounts {
    /// Logs and counts an entry that could not be written.
    pub fn problem(&self, error: &Error) {
        tracing::error!("{error}");
        self.problems.add(1);
    }

    /// Logs and counts a file, or the rest of a directory, that is not whole: its stored content is damaged or too new,
    /// or the target cannot be written there.
    pub fn unreadable(&self, error: &Error, path: &str) {
        let path = if path.is_empty() { String::new() } else { format!("cannot restore {path}: ") };
        tracing::error!("{path}{error}");
        let is_damaged = matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound);
        let count = if is_damaged { &self.damaged } else { &self.problems };
        count.add(1);
    }

    /// Counts written bytes, also for the progress bar. A restore reports written bytes as read bytes there.
    pub fn written(&self, progress: &Progress, bytes: u64) {
        progress.bytes_read.add(bytes);
        self.bytes.add(bytes);
    }
}

/// Limits the files that are open between Plan and Finish.
#[derive(Debug, Default)]
pub struct OpenFiles {
    open: Mutex<usize>,
    closed: Condvar,
}

/// Permission to keep one file open. Dropping it returns the permission.
#[derive(Debug)]
pub struct Permit(Arc<OpenFiles>);

impl OpenFiles {
    /// Whether [`OpenFiles::take`] would block.
    pub fn is_full(&self) -> bool {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) >= OPEN_FILES_MAX
    }

    /// Blocks until fewer than [`OPEN_FILES_MAX`] files are open. Every permit is in a later stage and is dropped when
    /// that stage succeeds or fails, so this call ends.
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

/// The restored names of one inode.
#[derive(Debug)]
pub struct InodeNames {
    /// Paths relative to the target.
    pub paths: Vec<PathBuf>,
    /// Whether the content is lost to damage. No further hard link is created then.
    pub is_lost: bool,
}

/// A file that is being restored.
#[derive(Debug)]
pub struct RestoreFile {
    /// Open for writing.
    pub file: File,
    /// Path relative to the target.
    pub path: PathBuf,
    /// Metadata to set.
    pub node: Node,
    /// All names of the inode.
    pub names: Arc<Mutex<InodeNames>>,
    /// Small holes to leave where zeros are stored, as ascending (start, end). `None`: the snapshot has no map of them.
    pub small_holes: Option<Vec<(u64, u64)>>,
    failure: Mutex<Option<Error>>,
    _permit: Permit,
}

impl RestoreFile {
    /// A file just created at `path`.
    pub fn new(file: File, path: PathBuf, node: Node, names: Arc<Mutex<InodeNames>>, permit: Permit) -> Self {
        let small_holes = small_holes(&node);
        RestoreFile { file, path, node, names, small_holes, failure: Mutex::new(None), _permit: permit }
    }

    /// Extends a sparse file to the length of its content, which may end with a hole.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !self.node.sparse {
            return Ok(());
        }
        self.file.set_len(len).map_err(|error| Error::io("extend", &self.path, error))
    }

    /// Records why the file cannot be completed. The first error counts.
    pub fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Takes the recorded error.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Bytes of a frame, or the damage that made it unreadable.
pub type LoadedFrame = Result<Bytes, Arc<Error>>;

/// Decoded frames by number.
pub type LoadedFrames = HashMap<FrameNumber, LoadedFrame>;

/// A frame to load.
#[derive(Debug)]
pub struct FrameLoad {
    /// Frame number.
    pub frame: FrameNumber,
    /// Container that holds the frame.
    pub container: ContainerId,
    /// Offset, lengths and codec of the frame.
    pub info: FrameInfo,
    /// Empty before Fetch, stored bytes before Decode, decoded bytes after it.
    pub bytes: LoadedFrame,
}

impl FrameLoad {
    /// A frame that is not loaded yet.
    pub fn new(frame: FrameNumber, container: ContainerId, info: FrameInfo) -> Self {
        FrameLoad { frame, container, info, bytes: Ok(Bytes::new()) }
    }
}

/// A chunk to write.
#[derive(Debug)]
pub struct WriteChunk {
    /// Destination.
    pub file: Arc<RestoreFile>,
    /// Byte offset in the file.
    pub offset: u64,
    /// Fingerprint that the assembled bytes must have.
    pub fingerprint: Fingerprint,
    /// Frame ranges that make up the chunk.
    pub extent_map: Arc<ExtentMap>,
}

/// Work for the stages after Plan.
#[derive(Debug, Default)]
pub struct RestoreJob {
    /// Frames to load before the chunks are written. Gather empties this list.
    pub loads: Vec<FrameLoad>,
    /// Frames that Gather evicts after this job.
    pub evicted: Vec<FrameNumber>,
    /// Chunks to write. Write empties this list.
    pub writes: Vec<WriteChunk>,
    /// Files that are complete after this job.
    pub finished: Vec<Arc<RestoreFile>>,
    /// The frames that `writes` need: set by Gather, cleared by Write.
    pub frames: LoadedFrames,
    /// Bytes of `writes`.
    pub bytes: u64,
    /// Decoded bytes of `loads`.
    pub load_bytes: u64,
}

impl Weigh for RestoreJob {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}
