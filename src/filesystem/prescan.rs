//! Pre-scan: finds files whose names suggest models, before the walk. Reads nothing but directories.
//!
//! The result affects only the order in which files are stored, because the walk visits every file again.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::choice::{EntryChoice, EntryFacts, Scope};
use crate::format::has_model_extension;
use crate::repo::tree::FileIdentity;

/// Directory of a model hub's cache, in which files are named by their hashes.
const BLOBS: &str = "blobs";

/// Returns the paths of likely model files below `paths`: at most `files_max`, in order of their names.
///
/// Does not follow links, and skips the directories in `skip` and what `choice` leaves out. Ignores unreadable entries:
/// the walk reports them.
/// Ends early once `stop` is set.
pub fn prescan(
    paths: &[PathBuf],
    skip: &BTreeSet<FileIdentity>,
    choice: &EntryChoice,
    files_max: usize,
    stop: &AtomicBool,
) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<(PathBuf, Scope)> = paths.iter().rev().map(|path| (path.clone(), Scope::default())).collect();
    while let Some((path, scope)) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if choice.exclusion(&scope, &path, facts(&metadata)).is_some() {
            continue;
        }
        if metadata.is_file() && suggests_model(&path) {
            found.insert(path);
            continue;
        }
        let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
        if !metadata.is_dir() || skip.contains(&identity) {
            continue;
        }
        let Some(scope) = choice.enter_path(&scope, &path, metadata.dev()) else { continue };
        let Ok(entries) = fs::read_dir(&path) else { continue };
        let mut directories = Vec::new();
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() && suggests_model(&entry.path()) => {
                    let is_chosen =
                        |metadata: Metadata| choice.exclusion(&scope, &entry.path(), facts(&metadata)).is_none();
                    if entry.metadata().is_ok_and(is_chosen) {
                        found.insert(entry.path());
                    }
                }
                _ => {}
            }
        }
        directories.sort_unstable();
        waiting.extend(directories.into_iter().rev().map(|directory| (directory, scope.clone())));
        if found.len() >= files_max || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    found.into_iter().take(files_max).collect()
}

fn facts(metadata: &Metadata) -> EntryFacts {
    EntryFacts { is_directory: metadata.is_dir(), size: if metadata.is_file() { metadata.len() } else { 0 } }
}

/// Whether the name of a file suggests a model.
pub fn suggests_model(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    is_hub_blob(path) || extension.is_some_and(has_model_extension)
}

/// Whether a file lies where a hub's cache has the files of all models, by their hashes and without cards.
pub fn is_hub_blob(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|directory| directory == BLOBS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::{PatternsBuilder, TagFile};

    #[test]
    fn models_are_found_by_name_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for inner in ["b/blobs", "a", "skipped"] {
            fs::create_dir_all(path(inner)).unwrap();
        }
        for file in ["b/blobs/0a", "b/model.SafeTensors", "a/x.gguf", "a/x.txt", "skipped/y.gguf"] {
            fs::write(path(file), b"x").unwrap();
        }
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let skip = fs::metadata(path("skipped")).unwrap();
        let skip = BTreeSet::from([FileIdentity { device: skip.dev(), inode: skip.ino() }]);
        let choice = EntryChoice::default();
        let found = prescan(&[directory.path().to_path_buf()], &skip, &choice, 10, &AtomicBool::new(false));
        assert_eq!(found, [path("a/x.gguf"), path("b/blobs/0a"), path("b/model.SafeTensors")]);
        assert_eq!(
            prescan(&[path("a/x.gguf"), path("nowhere")], &skip, &choice, 10, &AtomicBool::new(false)),
            [path("a/x.gguf")]
        );
        let of = |choice: &EntryChoice, max| {
            prescan(&[directory.path().to_path_buf()], &BTreeSet::new(), choice, max, &AtomicBool::new(false))
        };
        assert_eq!(of(&choice, 1).len(), 1);
        fs::write(path("a/.skip"), "*.gguf\n").unwrap();
        fs::write(path("skipped/KEEP"), "").unwrap();
        let mut patterns = PatternsBuilder::default();
        patterns.add("0*", false, "test").unwrap();
        let chosen = EntryChoice {
            patterns: patterns.build().unwrap(),
            ignore_files: vec![".skip".into()],
            tags: vec![TagFile::parse("KEEP".as_ref()).unwrap()],
            ..EntryChoice::everything().unwrap()
        };
        assert_eq!(of(&chosen, 10), [path("b/model.SafeTensors")]);
        assert_eq!(of(&EntryChoice { file_bytes_max: Some(0), ..choice }, 10), Vec::<PathBuf>::new());
    }
}
