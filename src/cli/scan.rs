//! Scan: walks the paths of a backup, metadata only, and counts files and bytes for the progress bar.
//!
//! The totals are an estimate: they have no unreadable entries and no directories below the depth limit. As the backup
//! does, the scan counts every entry that is no directory, and of a file the bytes that are not in holes.

use std::fs::{Metadata, ReadDir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::filesystem::{EntryChoice, EntryFacts, Scope};
use crate::metrics::Progress;

/// Unit of the allocated space that the system reports.
const BLOCK_BYTES: u64 = 512;
/// Directories open at a time. Deeper directories are not counted.
const DEPTH_MAX: usize = 256;

/// The paths to walk.
#[derive(Debug, Clone)]
pub struct Scan<'a> {
    /// The paths of the backup.
    pub paths: &'a [PathBuf],
    /// Directories that the backup skips.
    pub skip: Vec<PathBuf>,
    /// What the backup stores.
    pub choice: &'a EntryChoice,
}

/// An open directory.
struct ScannedDirectory {
    path: PathBuf,
    entries: ReadDir,
    /// The choice as it holds in it.
    scope: Scope,
    identity: (u64, u64),
}

/// Metadata of what is no directory, or why something cannot be looked at.
pub type Scanned<'a> = io::Result<&'a Metadata>;

impl Scan<'_> {
    /// Adds files and bytes to the totals of `progress`, until all paths are walked or `ended` is set.
    pub fn run(&self, progress: &Progress, ended: &AtomicBool) {
        self.visit(ended, &mut |_, scanned| {
            if let Ok(metadata) = scanned {
                progress.files_total.add(1);
                progress.bytes_total.add(bytes_of(metadata));
            }
        });
    }

    /// Calls `each` with what is no directory or cannot be looked at, until all paths are walked or `ended` is set.
    pub fn visit(&self, ended: &AtomicBool, each: &mut dyn FnMut(&Path, Scanned<'_>)) {
        let skip: Vec<(u64, u64)> = self.skip.iter().filter_map(|path| identity(path)).collect();
        let mut open: Vec<ScannedDirectory> = Vec::new();
        for path in self.paths {
            self.enter(path, Scope::default(), &skip, &mut open, each);
            while let Some(ScannedDirectory { path, entries, scope, .. }) = open.last_mut() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                match entries.next() {
                    Some(Ok(entry)) => {
                        let scope = scope.clone();
                        self.enter(&entry.path(), scope, &skip, &mut open, each);
                    }
                    Some(Err(error)) => each(path, Err(error)),
                    None => drop(open.pop()),
                }
            }
        }
    }

    /// Metadata of what is stored at `path`. A link to a directory that is open is stored as a link.
    fn metadata(&self, path: &Path, open: &[ScannedDirectory]) -> io::Result<Metadata> {
        let is_open = |found: &Metadata| open.iter().any(|above| above.identity == (found.dev(), found.ino()));
        let followed = self.choice.dereference.then(|| std::fs::metadata(path).ok()).flatten();
        followed.filter(|found| !is_open(found)).map_or_else(|| std::fs::symlink_metadata(path), Ok)
    }

    /// Visits a file, opens a directory.
    fn enter(
        &self,
        path: &Path,
        scope: Scope,
        skip: &[(u64, u64)],
        open: &mut Vec<ScannedDirectory>,
        each: &mut dyn FnMut(&Path, Scanned<'_>),
    ) {
        let metadata = match self.metadata(path, open) {
            Ok(metadata) => metadata,
            Err(error) => return each(path, Err(error)),
        };
        let size = if metadata.is_file() { metadata.len() } else { 0 };
        let facts = EntryFacts { is_directory: metadata.is_dir(), size };
        if self.choice.exclusion(&scope, path, facts).is_some() {
            return;
        }
        let identity = (metadata.dev(), metadata.ino());
        if !metadata.is_dir() {
            return each(path, Ok(&metadata));
        }
        let entered = if skip.contains(&identity) { None } else { self.choice.enter_path(&scope, path, identity.0) };
        let Some(scope) = entered else { return };
        if open.len() >= DEPTH_MAX {
            return each(path, Err(io::Error::other("it is in too many directories")));
        }
        match std::fs::read_dir(path) {
            Ok(entries) => open.push(ScannedDirectory { path: path.to_path_buf(), entries, scope, identity }),
            Err(error) => each(path, Err(error)),
        }
    }
}

/// Bytes of a file that are not in holes.
pub fn bytes_of(metadata: &Metadata) -> u64 {
    let size = if metadata.is_file() { metadata.len() } else { 0 };
    size.min(metadata.blocks().saturating_mul(BLOCK_BYTES))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_except_in_skipped_directories_and_those_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for (name, len) in [("a", 10), ("in/b", 20), ("in/deeper/c", 30), ("in/large", 101), ("skipped/d", 1000)] {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; len]).unwrap();
        }
        let (paths, progress) =
            ([directory.path().to_path_buf(), directory.path().join("absent")], Progress::default());
        let choice = EntryChoice { file_bytes_max: Some(100), ..EntryChoice::default() };
        let scan = Scan { paths: &paths, skip: vec![directory.path().join("skipped")], choice: &choice };
        scan.run(&progress, &AtomicBool::new(false));
        assert_eq!((progress.files_total.get(), progress.bytes_total.get()), (3, 60));
        scan.run(&progress, &AtomicBool::new(true));
        assert_eq!(progress.files_total.get(), 3);
        let mut unread = Vec::new();
        scan.visit(&AtomicBool::new(false), &mut |path, scanned| {
            unread.extend(scanned.is_err().then(|| path.to_path_buf()));
        });
        assert_eq!(unread, [directory.path().join("absent")]);
    }
}
