//! Scan: walks the paths of a backup, metadata only, and counts files and bytes for the progress bar.
//!
//! The totals are an estimate: the scan skips unreadable entries and directories below its depth limit. As the backup
//! does, it counts every entry that is no directory, and of a file the bytes that are not in holes.

use std::fs::{Metadata, ReadDir};
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

/// An open directory, the choice as it holds in it, and its identity.
type ScannedDirectory = (ReadDir, Scope, (u64, u64));

impl Scan<'_> {
    /// Adds files and bytes to the totals of `progress`, until all paths are walked or `ended` is set.
    pub fn run(&self, progress: &Progress, ended: &AtomicBool) {
        self.visit(ended, &mut |_, metadata| {
            progress.files_total.add(1);
            progress.bytes_total.add(bytes_of(metadata));
        });
    }

    /// Calls `each` with what is no directory, until all paths are walked or `ended` is set.
    pub fn visit(&self, ended: &AtomicBool, each: &mut dyn FnMut(&Path, &Metadata)) {
        let skip: Vec<(u64, u64)> = self.skip.iter().filter_map(|path| identity(path)).collect();
        let mut open: Vec<ScannedDirectory> = Vec::new();
        for path in self.paths {
            self.enter(path, Scope::default(), &skip, &mut open, each);
            while let Some((directory, scope, _)) = open.last_mut() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                match directory.next() {
                    Some(Ok(entry)) => {
                        let scope = scope.clone();
                        self.enter(&entry.path(), scope, &skip, &mut open, each);
                    }
                    Some(Err(_)) => {}
                    None => drop(open.pop()),
                }
            }
        }
    }

    /// Metadata of what is stored at `path`. A link to a directory that is open is stored as a link.
    fn metadata(&self, path: &Path, open: &[ScannedDirectory]) -> Option<Metadata> {
        let is_open = |found: &Metadata| open.iter().any(|(.., above)| *above == (found.dev(), found.ino()));
        let followed = self.choice.dereference.then(|| std::fs::metadata(path).ok()).flatten();
        followed.filter(|found| !is_open(found)).or_else(|| std::fs::symlink_metadata(path).ok())
    }

    /// Visits a file, opens a directory.
    fn enter(
        &self,
        path: &Path,
        scope: Scope,
        skip: &[(u64, u64)],
        open: &mut Vec<ScannedDirectory>,
        each: &mut dyn FnMut(&Path, &Metadata),
    ) {
        let Some(metadata) = self.metadata(path, open) else { return };
        let size = if metadata.is_file() { metadata.len() } else { 0 };
        let facts = EntryFacts { is_directory: metadata.is_dir(), size };
        if self.choice.exclusion(&scope, path, facts).is_some() {
            return;
        }
        if !metadata.is_dir() {
            each(path, &metadata);
        } else if open.len() < DEPTH_MAX
            && !skip.contains(&(metadata.dev(), metadata.ino()))
            && let Some(scope) = self.choice.enter_path(&scope, path, metadata.dev())
            && let Ok(directory) = std::fs::read_dir(path)
        {
            open.push((directory, scope, (metadata.dev(), metadata.ino())));
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
    }
}
