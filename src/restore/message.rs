//! The messages between the stages of a restore, and the counters and files that the stages share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::lost::{DamagedFile, DamagedFiles, is_damage};
use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::filesystem::{FileToken, TargetName};
use crate::metrics::{Counter, Progress};
use crate::pipeline::Weigh;
use crate::repo::container::{ExtentMap, FrameInfo, FrameNumber};
use crate::repo::tree::{Node, NodeKind};
use crate::types::{ContainerId, Fingerprint};

/// Existing entries that stay and are logged.
const LEFT_ALONE_LOGGED_MAX: u64 = 20;
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
    /// Entries that were the same already.
    pub unchanged: Counter,
    /// Existing entries that were replaced.
    pub replaced: Counter,
    /// Existing entries that differ and stay.
    pub left_alone: Counter,
    /// Bytes of content that the target held already and that were not read from the repository.
    pub bytes_reused: Counter,
    /// Hard links that became copies.
    pub copied_links: Counter,
    /// Entries that were compared after the restore and are the same.
    pub verified: Counter,
    /// Entries that the snapshot does not have and that were deleted.
    pub deleted: Counter,
    /// Entries that could not be written, or that only a newer version can read.
    pub problems: Counter,
    /// Files and directories that damage has cost bytes.
    pub damaged: Counter,
    /// The files that are not whole.
    pub damaged_files: DamagedFiles,
}

/// Logs an existing entry that differs and stays, after `before` others. Of many only the first ones are warnings.
pub fn log_left_alone(before: u64, path: &str) {
    match before {
        0..LEFT_ALONE_LOGGED_MAX => tracing::warn!("{path}: left alone: it exists and differs"),
        LEFT_ALONE_LOGGED_MAX => tracing::warn!("more existing entries are left alone"),
        _ => tracing::info!("{path}: left alone: it exists and differs"),
    }
}

impl RestoreCounts {
    /// Logs and counts an entry that could not be written.
    pub fn problem(&self, error: &Error) {
        tracing::error!("{error}");
        self.problems.add(1);
    }

    /// Logs and counts an existing entry that differs and stays. Of many entries only the first ones are logged.
    pub fn keep(&self, path: &str) {
        let before = self.left_alone.get();
        self.left_alone.add(1);
        log_left_alone(before, path);
    }

    /// Counts entries of a kind.
    pub fn created(&self, kind: NodeKind, count: u64) {
        let counter = if kind == NodeKind::File { &self.files } else { &self.others };
        counter.add(count);
    }

    /// Logs and counts the rest of a directory whose stored listing is unreadable: damaged or too new.
    pub fn unreadable(&self, error: &Error, path: &str) {
        let path = if path.is_empty() { "/" } else { path };
        tracing::error!("cannot restore {path}: {error}");
        self.count(error);
    }

    /// Logs, counts and reports a file that is not whole: its stored content is damaged or too new, or the target
    /// cannot be written there.
    pub fn damaged_file(&self, error: &Error, file: DamagedFile) {
        let rest = file.saved_as.as_ref().map(|saved_as| format!("; what is good of it is in {saved_as}"));
        tracing::error!("cannot restore {}: {error}{}", file.path, rest.unwrap_or_default());
        self.count(error);
        self.damaged_files.add(file);
    }

    fn count(&self, error: &Error) {
        let count = if is_damage(error) { &self.damaged } else { &self.problems };
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
        *self.open.lock() >= OPEN_FILES_MAX
    }

    /// Blocks until fewer than [`OPEN_FILES_MAX`] files are open. Every permit is in a later stage and is dropped when
    /// that stage succeeds or fails, so this call ends.
    pub fn take(self: &Arc<Self>) -> Permit {
        let mut open = self.open.lock();
        while *open >= OPEN_FILES_MAX {
            self.closed.wait(&mut open);
        }
        *open += 1;
        Permit(self.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.open.lock() -= 1;
        self.0.closed.notify_one();
    }
}

/// What became of an inode with several names. Paths are relative to the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InodeState {
    /// Its content is being written.
    Pending,
    /// It was restored here.
    Complete(PathBuf),
    /// It is not whole.
    Incomplete {
        /// Where the rest of it is, if it was kept.
        saved_as: Option<PathBuf>,
        /// Whether the repository is at fault, and not the target.
        is_damage: bool,
    },
}

/// A further hard link to create.
#[derive(Debug)]
pub struct RestoreLink {
    /// Where to create it.
    pub at: TargetName,
    /// Path relative to the target.
    pub path: PathBuf,
    /// Metadata, if it becomes a copy.
    pub node: Node,
    /// Names the copy until it is whole.
    pub token: FileToken,
    /// The entry that has the name now.
    pub existing: Option<Node>,
    /// What became of the inode.
    pub inode: Arc<Mutex<InodeState>>,
    /// For the directory, which stays open until then.
    pub _permit: Permit,
}

/// An entry that Finish completes.
#[derive(Debug)]
pub enum FinishedEntry {
    /// A file whose bytes are all written.
    File(Arc<RestoreFile>),
    /// A hard link. The first name of its inode comes before it.
    Link(Box<RestoreLink>),
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
#[derive(Debug, Clone)]
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

impl WriteChunk {
    /// Records that the chunk cannot be written, and why.
    pub fn lose(&self, error: Error) {
        self.file.lose(self.offset, u64::from(self.extent_map.len()), error);
    }

    /// Takes the failure of writing the chunk as a lost range of its file, if it concerns this chunk alone: damage, or
    /// a bad sector of the target.
    ///
    /// # Errors
    /// The failures that concern all files, such as a full disk.
    pub fn lost_after(&self, written: Result<()>) -> Result<()> {
        match written {
            Err(error @ Error::Io { .. }) if error.is_full_disk() => Err(error),
            Err(error) if error.is_unreadable() || matches!(error, Error::Io { .. }) => {
                self.lose(error);
                Ok(())
            }
            other => other,
        }
    }
}

/// A step of the plan.
#[derive(Debug)]
pub enum PlannedItem {
    /// A file of a new directory, for Locate to create.
    Create(Arc<RestoreFile>),
    /// A chunk of a file, for Locate to find.
    Find {
        /// Destination.
        file: Arc<RestoreFile>,
        /// Byte offset in the file.
        offset: u64,
        /// The chunk.
        fingerprint: Fingerprint,
        /// Its length in the recipe.
        len: u64,
    },
    /// A chunk that is found.
    Write(WriteChunk),
    /// A file whose content ends with a hole, and its length.
    Extend(Arc<RestoreFile>, u64),
    /// An entry that is complete after all items before it.
    Finished(FinishedEntry),
}

/// What Plan sends, in the order of the snapshot.
#[derive(Debug, Default)]
pub struct PlannedBatch {
    /// The steps.
    pub items: Vec<PlannedItem>,
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Whether Plan waits for files to be closed: Order then sends half of its window.
    pub is_urgent: bool,
}

impl Weigh for PlannedBatch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Work for the stages after Order.
#[derive(Debug, Default)]
pub struct RestoreJob {
    /// Number of the job, from 1 on.
    pub number: u64,
    /// Frames to load before the chunks are written. Gather empties this list.
    pub loads: Vec<FrameLoad>,
    /// Frames that Gather evicts after this job.
    pub evicted: Vec<FrameNumber>,
    /// Chunks to write. Write empties this list.
    pub writes: Vec<WriteChunk>,
    /// Files that are complete after this job, and hard links, in the order of the snapshot.
    pub finished: Vec<FinishedEntry>,
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
