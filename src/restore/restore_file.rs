//! A file that is being restored.
//!
//! 1. Plan creates a file itself if the target may hold something of it: an older file, or what an interrupted restore
//!    has left. In a directory that this restore has created, Locate creates it.
//! 2. What cannot be written is lost. Finish decides by that which name the file gets.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::lost::LostRanges;
use super::message::{InodeState, Permit};
use crate::error::{Error, Result};
use crate::filesystem::{FileToken, NewFile, TargetName};
use crate::repo::tree::{Node, small_holes};

/// A file that is being restored.
#[derive(Debug)]
pub struct RestoreFile {
    /// Open for writing, under a temporary name. Empty until it is created.
    created: OnceLock<NewFile>,
    /// Where to create it, if that is planned.
    planned_at: PlannedPath,
    /// Path relative to the target.
    pub path: PathBuf,
    /// Metadata to set.
    pub node: Node,
    /// For the other names of the inode.
    pub inode: Arc<Mutex<InodeState>>,
    /// Small holes to leave where zeros are stored, as ascending (start, end). `None`: the snapshot has no map of them.
    pub small_holes: Option<Vec<(u64, u64)>>,
    lost: Mutex<LostRanges>,
    has_content: AtomicBool,
    /// Number of the first job with a chunk of the file; 0: there is none.
    first_job: AtomicU64,
    has_metadata: AtomicBool,
    _permit: Permit,
}

impl RestoreFile {
    /// A file just created, that is to appear at `path`.
    pub fn created(created: NewFile, path: PathBuf, node: Node, permit: Permit) -> Self {
        let file = RestoreFile::new(path, node, permit);
        RestoreFile { created: OnceLock::from(created), ..file }
    }

    /// A file that is created later, at `at`, in a directory that this restore has created.
    pub fn planned(at: TargetName, token: FileToken, path: PathBuf, node: Node, permit: Permit) -> Self {
        let file = RestoreFile::new(path, node, permit);
        RestoreFile { planned_at: PlannedPath(Mutex::new(Some((at, token)))), ..file }
    }

    fn new(path: PathBuf, node: Node, permit: Permit) -> Self {
        RestoreFile {
            created: OnceLock::new(),
            planned_at: PlannedPath::default(),
            path,
            small_holes: small_holes(&node),
            node,
            inode: Arc::new(Mutex::new(InodeState::Pending)),
            lost: Mutex::default(),
            has_content: AtomicBool::new(false),
            first_job: AtomicU64::new(0),
            has_metadata: AtomicBool::new(false),
            _permit: permit,
        }
    }

    /// Creates a planned file. If that fails, [`RestoreFile::exists`] stays false, and the reference to the directory
    /// is given back. Appends errors of the directory's metadata to `problems`.
    ///
    /// # Errors
    /// Errors of [`NewFile::create_in_new_directory`].
    pub fn create(&self, problems: &mut Vec<Error>) -> Result<()> {
        let (at, token) = self.planned_at.take().ok_or_else(|| Error::internal("a file was created twice"))?;
        let created = NewFile::create_in_new_directory(at, &token, &self.node, problems)?;
        self.created.set(created).map_err(|_| Error::internal("a file was created twice"))
    }

    /// Whether the file is created.
    pub fn exists(&self) -> bool {
        self.created.get().is_some()
    }

    /// The open file.
    ///
    /// # Errors
    /// [`Error::Internal`] if it is not created yet.
    pub fn new_file(&self) -> Result<&NewFile> {
        self.created.get().ok_or_else(|| Error::internal("a file was used before it was created"))
    }

    /// Whether an interrupted restore began the file.
    pub fn is_begun(&self) -> bool {
        self.created.get().is_some_and(|created| created.is_begun)
    }

    /// Extends the file to the length of its content, `len`, if the content ends with a hole.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.new_file()?.file.set_len(len).map_err(|error| Error::io("extend", &self.path, error))
    }

    /// Extends the file to the length of its content. A failure that concerns only this file makes it incomplete.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk is full.
    pub fn extend(&self, len: u64) -> Result<()> {
        match self.set_len(len) {
            Err(error) if !error.is_full_disk() => {
                self.fail(error);
                Ok(())
            }
            other => other,
        }
    }

    /// Extends a file whose end is lost.
    pub fn fill_up(&self) -> Result<()> {
        // No file can be so long: the directory entry is wrong.
        if i64::try_from(self.node.size).is_err() {
            return Ok(());
        }
        let metadata = self.new_file()?.file.metadata();
        let len = metadata.map_err(|error| Error::io("inspect", &self.path, error))?.len();
        if len < self.node.size { self.set_len(self.node.size) } else { Ok(()) }
    }

    /// Records that bytes of the file are written.
    pub fn set_has_content(&self) {
        self.has_content.store(true, Ordering::Relaxed);
    }

    /// Whether any bytes were written.
    pub fn has_content(&self) -> bool {
        self.has_content.load(Ordering::Relaxed)
    }

    /// Records that a chunk of the file is in job `number`. Jobs are filled one after the other.
    pub fn enter_job(&self, number: u64) {
        let _ = self.first_job.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether job `number`, which has the end of the file, has all its chunks.
    pub fn is_within_job(&self, number: u64) -> bool {
        [0, number].contains(&self.first_job.load(Ordering::Relaxed))
    }

    /// Records that the file has its metadata. Nothing is written to it afterwards.
    pub fn set_has_metadata(&self) {
        self.has_metadata.store(true, Ordering::Relaxed);
    }

    /// Whether the file has its metadata.
    pub fn has_metadata(&self) -> bool {
        self.has_metadata.load(Ordering::Relaxed)
    }

    /// Records that the file is not whole, and why.
    pub fn fail(&self, error: Error) {
        self.lost.lock().fail(error);
    }

    /// Records that `len` bytes from `offset` on are lost, and why.
    pub fn lose(&self, offset: u64, len: u64, error: Error) {
        self.lost.lock().add(offset, len, error);
    }

    /// Whether anything is lost.
    pub fn is_damaged(&self) -> bool {
        self.lost.lock().error().is_some()
    }

    /// Takes what is lost.
    pub fn take_lost(&self) -> LostRanges {
        std::mem::take(&mut self.lost.lock())
    }
}

/// Where a file is to be created. If it never is, the reference to the directory is given back.
#[derive(Debug, Default)]
struct PlannedPath(Mutex<Option<(TargetName, FileToken)>>);

impl PlannedPath {
    fn take(&self) -> Option<(TargetName, FileToken)> {
        self.0.lock().take()
    }
}

impl Drop for PlannedPath {
    fn drop(&mut self) {
        if let Some((at, _)) = self.take() {
            at.release(&mut Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::{Completeness, Descent, Target, TargetOptions};
    use crate::repo::tree::{NodeKind, Timestamp};
    use crate::restore::message::OpenFiles;

    fn node(name: &[u8], kind: NodeKind) -> Node {
        let mtime = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Node { name: name.to_vec(), kind, mode: 0o700, mtime, uid, gid, ..Node::default() }
    }

    /// A file planned in a new directory `d`, which the descent has left.
    fn planned(root: &tempfile::TempDir) -> RestoreFile {
        let target = Arc::new(Target::create(root.path(), TargetOptions::default()).unwrap());
        let (mut descent, directory) = (Descent::new(target), node(b"d", NodeKind::Directory));
        descent.enter(&directory, None).unwrap();
        let file = node(b"f", NodeKind::File);
        let at = descent.link_name(&file, None).unwrap();
        descent.leave(Some(&directory), &mut Vec::new()).unwrap();
        RestoreFile::planned(at, [7; 12], "d/f".into(), file, Arc::<OpenFiles>::default().take())
    }

    fn has_metadata(root: &tempfile::TempDir) -> bool {
        let modified = std::fs::metadata(root.path().join("d")).unwrap().modified().unwrap();
        modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() == 1_000_000_000
    }

    #[test]
    fn a_directory_gets_its_metadata_after_its_planned_files() {
        let root = tempfile::tempdir().unwrap();
        let file = planned(&root);
        assert!(!file.exists() && file.new_file().is_err() && !has_metadata(&root));
        file.create(&mut Vec::new()).unwrap();
        assert!(file.exists() && file.create(&mut Vec::new()).is_err() && !has_metadata(&root));
        file.new_file().unwrap().publish(Completeness::Complete, &mut Vec::new()).unwrap();
        assert!(has_metadata(&root) && root.path().join("d/f").exists());
    }

    #[test]
    fn a_file_that_is_never_created_gives_back_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let file = planned(&root);
        assert!(!has_metadata(&root));
        drop(file);
        assert!(has_metadata(&root));
    }

    #[test]
    fn a_file_that_cannot_be_created_does_not_exist_and_gives_back_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let file = planned(&root);
        let open = std::fs::File::open(root.path().join("d")).unwrap();
        std::fs::remove_dir(root.path().join("d")).unwrap();
        assert!(file.create(&mut Vec::new()).is_err() && !file.exists());
        let modified = open.metadata().unwrap().modified().unwrap();
        assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_000_000_000);
    }

    #[test]
    fn a_file_is_within_a_job_if_no_earlier_one_has_a_chunk() {
        let root = tempfile::tempdir().unwrap();
        let file = planned(&root);
        assert!(file.is_within_job(4), "it has no chunk");
        file.enter_job(3);
        file.enter_job(4);
        assert!(file.is_within_job(3) && !file.is_within_job(4));
    }
}
