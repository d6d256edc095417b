//! Changes: which entries a backup finds new, changed and gone since its parents. `-v` names them.
//!
//! 1. The metadata decide, as for the question whether a file is read. So the content of a changed file may be the
//!    same.
//! 2. What a parent has in a directory that is stored whole, and what the walk does not store there, is gone. Nothing
//!    counts as gone in a directory of which something could not be read, or of which only parts were asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytesize::ByteSize;

use crate::repo::read::ChunkReader;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// Entries below removed directories that are counted, at most.
const REMOVED_MAX: u64 = 1 << 22;
/// Log lines with this target name a change. They are printed as they are.
pub const CHANGES_TARGET: &str = "fhrd::changes";

/// What became of an entry since the parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryChange {
    /// No parent has it, or only as another kind of entry.
    #[default]
    New,
    /// Its size, times or inode differ, or it changed while it was read.
    Changed,
    /// It looks as in a parent.
    Unchanged,
    /// It looks as in a parent, but the parent was made too soon after its last change to be sure, or its times say
    /// nothing.
    Recent,
    /// It looks as in a parent, but the repository lacks some of its content.
    Lost,
}

/// Counts of regular files.
#[derive(Debug, Default)]
pub struct FileChangeCounts {
    /// Files that are new.
    pub new: AtomicU64,
    /// Files that changed.
    pub changed: AtomicU64,
    /// Files that are gone.
    pub removed: AtomicU64,
    /// Files that are read again because they changed shortly before the parent, or because their times say nothing.
    pub recent: AtomicU64,
    /// Files that are read again because the repository lacks some of their content.
    pub lost: AtomicU64,
    /// Entries that are gone, of any kind.
    removed_entries: AtomicU64,
}

impl FileChangeCounts {
    /// Counts and names an entry of the source that is no directory.
    pub fn entry(&self, change: EntryChange, path: &Path, node: &Node) {
        let (counter, letter) = match change {
            EntryChange::New => (&self.new, Some("+")),
            EntryChange::Changed => (&self.changed, Some("M")),
            EntryChange::Recent => (&self.recent, None),
            EntryChange::Lost => (&self.lost, None),
            EntryChange::Unchanged => return,
        };
        if node.kind == NodeKind::File {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(letter) = letter {
            name(letter, path, node);
        }
    }

    /// Takes back what was counted of a regular file that could not be read, and is not stored.
    pub fn take_back(&self, change: EntryChange) {
        let counter = match change {
            EntryChange::New => &self.new,
            EntryChange::Changed => &self.changed,
            EntryChange::Recent => &self.recent,
            EntryChange::Lost => &self.lost,
            EntryChange::Unchanged => return,
        };
        counter.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts and names an entry that is gone, and what was below it.
    pub fn removed(&self, directory: &Path, node: &Node, reader: &mut ChunkReader) {
        let mut path = directory.join(OsStr::from_bytes(&node.name));
        self.count_removed(&path, node);
        let mut open: Vec<TreeCursor> = Vec::new();
        if node.kind == NodeKind::Directory {
            open.push(TreeCursor::open(node.content));
        }
        while let Some(cursor) = open.last_mut() {
            match cursor.next(reader) {
                Ok(Some(node)) if self.removed_entries.load(Ordering::Relaxed) < REMOVED_MAX => {
                    path.push(OsStr::from_bytes(&node.name));
                    self.count_removed(&path, &node);
                    match node.kind {
                        NodeKind::Directory => open.push(TreeCursor::open(node.content)),
                        _ => _ = path.pop(),
                    }
                }
                // What cannot be read of a parent matters to nobody but `check`.
                _ => {
                    open.pop();
                    path.pop();
                }
            }
        }
    }

    fn count_removed(&self, path: &Path, node: &Node) {
        self.removed_entries.fetch_add(1, Ordering::Relaxed);
        if node.kind == NodeKind::File {
            self.removed.fetch_add(1, Ordering::Relaxed);
        }
        name("-", path, node);
    }
}

/// Names a change in the log.
pub fn name(letter: &str, path: &Path, node: &Node) {
    let path = path.display();
    match node.kind {
        NodeKind::File => {
            tracing::info!(target: CHANGES_TARGET, "{letter}  {path}  {}", ByteSize(node.size).display().iec());
        }
        NodeKind::Directory => tracing::info!(target: CHANGES_TARGET, "{letter}  {path}/"),
        _ => tracing::info!(target: CHANGES_TARGET, "{letter}  {path}"),
    }
}

/// The directory of a parent that the walk is in, as far as it is to be compared.
#[derive(Debug, Default)]
pub struct WatchedDirectory {
    /// Its path; `None` if nothing in it counts as gone.
    pub path: Option<PathBuf>,
    /// Whether the walk has asked for the next entry of the parent.
    pub is_next_found: bool,
}
