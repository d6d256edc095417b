//! Plans a walk: maps the paths of a backup to their paths in the snapshot.
//!
//! 1. A relative path is stored as given, without `.` components. Absolute paths and paths with `..` are stored as full
//!    paths, without the leading slash.
//! 2. A path that does not exist is recorded as missing and omitted.
//! 3. The parents of a path become directories of the plan. A path below another path is part of that path.
//! 4. A bare plan stores each path under its last name, without its parents.
//! 5. One path may be stored as if it were another one: a snapshot of a file system as the live one.
//! 6. Two different paths on disk must not have the same path in the snapshot.

use crate::error::{Error, Result};
use rustix::fs::{FileType, lstat};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The paths of a walk.
#[derive(Debug, Default)]
pub struct WalkPlan {
    pub(super) root: PlannedEntry,
    pub(super) missing: Vec<(PathBuf, Error)>,
    found: usize,
}

/// One name of the plan: a path to store whole, or a parent of such paths.
#[derive(Debug, Default)]
pub(super) struct PlannedEntry {
    /// Path on disk: absolute, or relative to the current directory. Empty for the current directory itself.
    pub(super) source: PathBuf,
    /// Whether everything below is stored. There are no `children` then.
    pub(super) is_whole: bool,
    /// Planned entries below this one, by name.
    pub(super) children: BTreeMap<Vec<u8>, PlannedEntry>,
    /// The directory whose metadata this parent has if there is none at `source`.
    pub(super) stand_in: Option<PathBuf>,
}

impl WalkPlan {
    /// Plans paths as given on a command line, relative to the current directory of the process.
    ///
    /// # Errors
    /// [`Error::Usage`] if a path is empty, or if two paths on disk have the same path in the snapshot.
    /// [`Error::Io`] if there is no current directory.
    pub fn new<P: AsRef<Path>>(paths: &[P]) -> Result<WalkPlan> {
        let current = std::env::current_dir().map_err(|error| Error::io("find", "the current directory", error))?;
        Self::relative_to(&current, paths)
    }

    /// Plans existing paths to be stored under their last names, without their parents. If two have the same last name,
    /// all are stored as by [`WalkPlan::new`].
    ///
    /// # Errors
    /// Like [`WalkPlan::new`].
    pub fn bare(paths: &[PathBuf]) -> Result<WalkPlan> {
        let Some(names) = last_names(paths) else { return Self::new(paths) };
        let mut plan = WalkPlan::default();
        for (path, name) in paths.iter().zip(names) {
            lstat(path).map_err(|error| Error::io("read", path, std::io::Error::from(error)))?;
            let entry = PlannedEntry { source: path.clone(), is_whole: true, ..PlannedEntry::default() };
            plan.root.children.insert(name.as_bytes().to_vec(), entry);
            plan.found += 1;
        }
        Ok(plan)
    }

    /// Plans `source` to be stored as if its path were `stored`. Parents that do not exist there have the metadata of
    /// the directory of `source`.
    ///
    /// # Errors
    /// [`Error::Usage`] if a path is empty, or `stored` has `..`. [`Error::Io`] if there is no current directory.
    pub fn stored_as(source: &Path, stored: &Path) -> Result<WalkPlan> {
        let mut plan = WalkPlan::default();
        if source.as_os_str().is_empty() || stored.as_os_str().is_empty() {
            return Err(Error::Usage("cannot store an empty path".into()));
        }
        if stored.components().any(|component| component == Component::ParentDir) {
            return Err(Error::Usage(format!("a path to store something as has no `..`: {}", stored.display())));
        }
        let current = std::env::current_dir().map_err(|error| Error::io("find", "the current directory", error))?;
        let source = clean(&current, source);
        let found = match lstat(current.join(&source)) {
            Ok(found) => found,
            Err(error) => {
                plan.missing.push((stored_path(stored), Error::io("read", source, std::io::Error::from(error))));
                return Ok(plan);
            }
        };
        plan.found = 1;
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if !is_directory && names(stored).next().is_none() {
            let (source, stored) = (source.display(), stored.display());
            return Err(Error::Usage(format!("only a directory can be stored as {stored}, and {source} is none")));
        }
        let directory = if is_directory { Some(source.as_path()) } else { source.parent() };
        let mut path = if stored.is_absolute() { PathBuf::from("/") } else { PathBuf::new() };
        let mut entry = &mut plan.root;
        for name in names(stored) {
            path.push(name);
            let stand_in = directory.map(Path::to_path_buf);
            let parent = PlannedEntry { source: path.clone(), stand_in, ..PlannedEntry::default() };
            entry = entry.children.entry(name.as_bytes().to_vec()).or_insert(parent);
        }
        *entry = PlannedEntry { source, is_whole: true, ..PlannedEntry::default() };
        Ok(plan)
    }

    fn relative_to<P: AsRef<Path>>(current: &Path, paths: &[P]) -> Result<WalkPlan> {
        let mut plan = WalkPlan::default();
        for path in paths {
            let path = path.as_ref();
            if path.as_os_str().is_empty() {
                return Err(Error::Usage("cannot store an empty path".into()));
            }
            let source = clean(current, path);
            match lstat(current.join(&source)) {
                Ok(_) => {
                    plan.found += 1;
                    plan.root.insert(current, &source)?;
                }
                Err(error) => plan.missing.push((stored_path(&source), Error::io("read", path, error))),
            }
        }
        Ok(plan)
    }

    /// Number of paths that exist. If it is 0, there is nothing to back up.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Why a path cannot be looked at, although it may exist. `None` if all others do not exist.
    pub fn failure(&self) -> Option<&Error> {
        let is_absent =
            |source: &std::io::Error| matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        let failed = |error: &&Error| !matches!(error, Error::Io { source, .. } if is_absent(source));
        self.missing.iter().map(|(_, error)| error).find(failed)
    }

    /// Number of paths that do not exist or cannot be reached. The walk reports each of them.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }
}

impl PlannedEntry {
    /// Adds a path to store whole. `self` is the root.
    fn insert(&mut self, current: &Path, source: &Path) -> Result<()> {
        let mut path = if source.is_absolute() { PathBuf::from("/") } else { PathBuf::new() };
        let mut entry = self;
        for name in names(source) {
            if entry.is_whole {
                let reached = current.join(&entry.source).join(name);
                path.push(name);
                if reached != current.join(&path) {
                    return Err(conflict(&reached, &current.join(&path)));
                }
                // The first name decides the source, so all deeper paths agree too.
                return Ok(());
            }
            path.push(name);
            entry = entry
                .children
                .entry(name.as_bytes().to_vec())
                .or_insert_with(|| PlannedEntry { source: path.clone(), ..PlannedEntry::default() });
            if current.join(&entry.source) != current.join(&path) {
                return Err(conflict(&current.join(&entry.source), &current.join(&path)));
            }
        }
        if entry.is_whole && current.join(&entry.source) != current.join(&path) {
            return Err(conflict(&current.join(&entry.source), &current.join(&path)));
        }
        for (name, child) in &entry.children {
            let below = current.join(&path).join(OsStr::from_bytes(name));
            if current.join(&child.source) != below {
                return Err(conflict(&current.join(&child.source), &below));
            }
        }
        *entry = PlannedEntry { source: path, is_whole: true, ..PlannedEntry::default() };
        Ok(())
    }
}

/// Returns the last names of `paths` if each path has one and all differ.
pub fn last_names(paths: &[PathBuf]) -> Option<Vec<&OsStr>> {
    let names: Vec<&OsStr> = paths.iter().map(|path| path.file_name()).collect::<Option<_>>()?;
    let distinct: BTreeSet<&OsStr> = names.iter().copied().collect();
    (distinct.len() == names.len()).then_some(names)
}

fn conflict(one: &Path, other: &Path) -> Error {
    Error::Usage(format!(
        "{} and {} have the same path in the snapshot; give both as absolute paths",
        one.display(),
        other.display()
    ))
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn stored_path(source: &Path) -> PathBuf {
    names(source).collect()
}

/// An absolute path without `.` and `..`, as snapshots record the paths that they were asked to store.
///
/// # Errors
/// [`Error::Io`] if there is no current directory.
pub fn absolute_path(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
    Ok(clean(Path::new("/"), &absolute))
}

/// Removes `.` and repeated slashes. Makes a path with `..` absolute, as the file system resolves it.
pub(super) fn clean(current: &Path, path: &Path) -> PathBuf {
    let components: Vec<Component<'_>> = path.components().filter(|part| *part != Component::CurDir).collect();
    let Some(last_up) = components.iter().rposition(|part| *part == Component::ParentDir) else {
        return components.iter().collect();
    };
    let (up, down) = components.split_at(last_up + 1);
    let up = current.join(up.iter().collect::<PathBuf>());
    let mut cleaned = std::fs::canonicalize(&up).unwrap_or_else(|_| lexically(&up));
    cleaned.extend(down);
    cleaned
}

/// Resolves `..` without the file system, for paths that do not exist.
fn lexically(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::CurDir => {}
            other => cleaned.push(other),
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn whole(plan: &WalkPlan) -> Vec<(String, PathBuf)> {
        fn visit(entry: &PlannedEntry, path: &str, found: &mut Vec<(String, PathBuf)>) {
            if entry.is_whole {
                found.push((path.to_owned(), entry.source.clone()));
            }
            for (name, child) in &entry.children {
                visit(child, &format!("{path}/{}", name.escape_ascii()), found);
            }
        }
        let mut found = Vec::new();
        visit(&plan.root, "", &mut found);
        found
    }

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        for path in ["a/b/c", "d"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
        (directory, root)
    }

    #[test]
    fn relative_paths_stay_relative_and_overlaps_merge() {
        let (_directory, root) = directory();
        let plan = |paths: &[&str]| whole(&WalkPlan::relative_to(&root, paths).unwrap());
        let entry = |path: &str| (format!("/{path}"), PathBuf::from(path));
        assert_eq!(plan(&["./a//b/.", "d/"]), [entry("a/b"), entry("d")]);
        assert_eq!(plan(&["a/b", "a", "a/b/c", "a"]), [entry("a")]);
        assert_eq!(plan(&["link"]), [entry("link")]);
        assert_eq!(plan(&["a", "."]), [(String::new(), PathBuf::new())]);
        assert_eq!(plan(&[".", "a"]), [(String::new(), PathBuf::new())]);
    }

    #[test]
    fn a_bare_plan_stores_last_names_if_they_differ() {
        let directory = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["a/x", "b/x", "b/y"].iter().map(|name| directory.path().join(name)).collect();
        for path in &paths {
            fs::create_dir_all(path).unwrap();
        }
        let bare = WalkPlan::bare(&paths[1..]).unwrap();
        assert_eq!(whole(&bare), [("/x".into(), paths[1].clone()), ("/y".into(), paths[2].clone())]);
        assert_eq!((bare.found(), last_names(&paths)), (2, None));
        let full = |path: &PathBuf| (path.display().to_string(), path.clone());
        assert_eq!(whole(&WalkPlan::bare(&paths).unwrap()), paths.iter().map(full).collect::<Vec<_>>());
        assert!(WalkPlan::bare(&[directory.path().join("none")]).is_err());
    }

    #[test]
    fn a_path_is_stored_as_another_one() {
        let (_directory, root) = directory();
        let plan = |source: &str, stored: &str| WalkPlan::stored_as(&root.join(source), Path::new(stored));
        let planned = plan("a/b", "/srv/data").unwrap();
        assert_eq!(whole(&planned), [("/srv/data".into(), root.join("a/b"))]);
        let parent = &planned.root.children[&b"srv"[..]];
        assert_eq!((&parent.source, parent.stand_in.as_ref()), (&"/srv".into(), Some(&root.join("a/b"))));
        assert_eq!(whole(&plan("a/../d", "/").unwrap()), [(String::new(), root.join("d"))]);
        assert_eq!(whole(&plan("d", "./x//y/").unwrap()), [("/x/y".into(), root.join("d"))]);
        assert_eq!((plan("none", "/x").unwrap().missing(), plan("none", "/x").unwrap().found()), (1, 0));
        assert!(plan("d", "/x/../y").is_err() && plan("d", "").is_err());
    }

    #[test]
    fn absolute_paths_and_those_with_parents_are_stored_as_full_paths() {
        let (_directory, root) = directory();
        let entry = |path: PathBuf| (path.to_str().unwrap().to_owned(), path);
        let plan = |current: &Path, path: &Path| whole(&WalkPlan::relative_to(current, &[path]).unwrap());
        assert_eq!(plan(&root, &root.join("a")), [entry(root.join("a"))]);
        assert_eq!(plan(&root.join("d"), Path::new("../a/b")), [entry(root.join("a/b"))]);
        assert_eq!(plan(&root.join("a"), Path::new("b/..")), [entry(root.join("a"))]);
        // `..` after a link is the parent of the link's target
        assert_eq!(plan(&root, Path::new("link/../b")), [entry(root.join("a/b"))]);
        assert_eq!(plan(&root, Path::new("/")), [(String::new(), PathBuf::from("/"))]);
    }

    #[test]
    fn missing_paths_are_counted_and_omitted() {
        let (_directory, root) = directory();
        let long = "x/".repeat(100_000);
        let plan = WalkPlan::relative_to(&root, &["none", "a", "d/../none", "a/none/x", &long]).unwrap();
        assert_eq!((plan.found(), plan.missing(), whole(&plan).len()), (1, 4, 1));
        assert_eq!(plan.missing[0].0, Path::new("none"));
        // The long one may exist.
        assert!(plan.failure().unwrap().to_string().contains("x/x/"));
        assert!(WalkPlan::relative_to(&root, &["none", "a/none/x"]).unwrap().failure().is_none());
        assert!(WalkPlan::relative_to(&root, &[""]).is_err());
        assert_eq!(WalkPlan::relative_to::<&str>(&root, &[]).unwrap().found(), 0);
    }

    #[test]
    fn two_paths_on_disk_with_one_path_in_the_snapshot_are_refused() {
        let (_directory, root) = directory();
        fs::create_dir_all(root.join("etc")).unwrap();
        for paths in [["etc", "/etc"], ["/etc", "etc"], [".", "/etc"], ["/etc", "."], [".", "/"], ["/", "."]] {
            assert!(matches!(WalkPlan::relative_to(&root, &paths), Err(Error::Usage(_))), "{paths:?}");
        }
        assert_eq!(whole(&WalkPlan::relative_to(Path::new("/"), &["etc", "/etc", "."]).unwrap()).len(), 1);
    }
}
