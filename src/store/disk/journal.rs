//! The journal of what local stores do to the file system, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// A change that is being made.
pub enum FileChange<'a> {
    /// The content of a file is made durable.
    Content(&'a Path),
    /// A file gets another name.
    Name(&'a Path, &'a Path),
    /// A file loses its name.
    Removal(&'a Path),
    /// A directory is created.
    Directory(&'a Path),
    /// The names in a directory are made durable.
    Names(&'a Path),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file got a name. With its content, and whether that is durable.
    Named(PathBuf, Arc<Vec<u8>>, bool),
    /// A file lost its name.
    Removed(PathBuf),
    /// A directory was created.
    Created(PathBuf),
    /// The names in a directory were made durable.
    Synced(PathBuf),
}

/// The changes below a directory.
pub struct Journal {
    root: PathBuf,
    entries: Mutex<Vec<Entry>>,
    durable: Mutex<Vec<PathBuf>>,
}

static JOURNALS: Mutex<Vec<Arc<Journal>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Journal {
    /// Records what happens below `root` from now on.
    pub fn of(root: &Path) -> Arc<Journal> {
        let journal = Journal { root: root.into(), entries: Mutex::default(), durable: Mutex::default() };
        let journal = Arc::new(journal);
        locked(&JOURNALS).push(journal.clone());
        journal
    }

    /// The changes so far.
    pub fn entries(&self) -> Vec<Entry> {
        locked(&self.entries).clone()
    }

    /// Adds a change that happened otherwise.
    pub fn note(&self, entry: Entry) {
        locked(&self.entries).push(entry);
    }

    /// The number of changes so far.
    pub fn count(&self) -> usize {
        locked(&self.entries).len()
    }

    /// Ends the recording.
    pub fn end(&self) {
        locked(&JOURNALS).retain(|journal| journal.root != self.root);
    }
}

/// Runs an operation, and notes the change if it succeeds. No other change of the same journal happens meanwhile.
pub fn recorded<T, E>(change: FileChange<'_>, operation: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let path = match change {
        FileChange::Content(path) | FileChange::Name(path, _) | FileChange::Removal(path) => path,
        FileChange::Directory(path) | FileChange::Names(path) => path,
    };
    let Some(journal) = locked(&JOURNALS).iter().find(|journal| path.starts_with(&journal.root)).cloned() else {
        return operation();
    };
    let mut entries = locked(&journal.entries);
    let content = match change {
        FileChange::Name(from, _) => std::fs::read(from).unwrap_or_default(),
        _ => Vec::new(),
    };
    let done = operation()?;
    let mut durable = locked(&journal.durable);
    match change {
        FileChange::Content(path) => durable.push(path.into()),
        FileChange::Name(from, to) => {
            entries.push(Entry::Named(to.into(), Arc::new(content), durable.iter().any(|path| path == from)));
        }
        FileChange::Removal(path) => entries.push(Entry::Removed(path.into())),
        FileChange::Directory(path) => entries.push(Entry::Created(path.into())),
        FileChange::Names(path) => entries.push(Entry::Synced(path.into())),
    }
    Ok(done)
}
