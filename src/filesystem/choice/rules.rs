//! The choice itself, and the scope that a walk carries from a directory to its entries.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, OFlags};

use super::ignore_files::IgnoreRules;
use super::patterns::Patterns;
use super::share::ShareFilter;
use super::tags::TagFile;
use crate::error::{Error, Result};
use crate::filesystem::plan::clean;
use crate::filesystem::source::open_quietly;

/// What of a source is stored. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct EntryChoice {
    /// Entries to leave out, by pattern.
    pub patterns: Patterns,
    /// Names of files with patterns for their own directory.
    pub ignore_files: Vec<OsString>,
    /// Files that exclude the rest of their directory.
    pub tags: Vec<TagFile>,
    /// Files longer than this are left out, bytes.
    pub file_bytes_max: Option<u64>,
    /// Do not enter other file systems than that of each given path.
    pub one_file_system: bool,
    /// Store times of access.
    pub with_atime: bool,
    /// Store what links lead to, in place of links.
    pub dereference: bool,
    /// Store what can be read from devices and named pipes that the user gave.
    pub read_special: bool,
    /// Read holes, too: the file system may report some where data is.
    pub read_holes: bool,
    /// Only what is no directory and falls to this share of the work.
    pub share: Option<ShareFilter>,
    /// The current directory, to which relative paths belong.
    pub current: PathBuf,
    /// A path on disk, and the one that patterns see in its stead. Both are absolute.
    pub renamed: Option<(PathBuf, PathBuf)>,
}

/// Why an entry is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// A pattern names it.
    Pattern,
    /// A pattern in an ignore file names it.
    IgnoreFile,
    /// A tag file is in its directory.
    Tag,
    /// The file is too large.
    Size,
    /// It falls to another share of the work.
    Share,
    /// The directory is on another file system. It is stored without its entries.
    FileSystem,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Exclusion::Pattern => "a pattern excludes it",
            Exclusion::IgnoreFile => "an ignore file excludes it",
            Exclusion::Tag => "a tag file excludes what is in its directory",
            Exclusion::Size => "it is too large",
            Exclusion::Share => "it falls to another share",
            Exclusion::FileSystem => "it is on another file system",
        })
    }
}

/// What the choice knows of an entry.
#[derive(Debug, Clone, Copy)]
pub struct EntryFacts {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Length if it is a regular file, bytes; else 0.
    pub size: u64,
}

/// The choice as it holds in one directory.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    ignore: Option<Arc<IgnoreRules>>,
    /// File system of the given path.
    device: Option<u64>,
    /// The only entry to keep: a tag file.
    only: Option<OsString>,
}

impl EntryChoice {
    /// A choice of everything, in the current directory of the process.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no current directory.
    pub fn everything() -> Result<Self> {
        let current = std::env::current_dir().map_err(|error| Error::io("find", "the current directory", error))?;
        Ok(EntryChoice { current, ..EntryChoice::default() })
    }

    /// What is at `source` is stored as if it were at `stored`: patterns see that path.
    pub fn rename(&mut self, source: &Path, stored: &Path) {
        let stored = self.current.join(stored).components().collect();
        self.renamed = Some((self.current.join(clean(&self.current, source)), stored));
    }

    /// A path of the source as the walk spells it, absolute.
    pub fn spelled(&self, path: &Path) -> PathBuf {
        self.current.join(clean(&self.current, path)).components().collect()
    }

    /// The path on disk of an entry that patterns see at `path`.
    pub fn on_disk(&self, path: &Path) -> PathBuf {
        let below = self.renamed.as_ref().and_then(|(source, stored)| Some((source, path.strip_prefix(stored).ok()?)));
        below.map_or_else(|| path.to_path_buf(), |(source, below)| source.join(below))
    }

    /// The path that patterns see of an entry at `path` on disk.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let absolute = self.current.join(path);
        let Some((source, stored)) = &self.renamed else { return absolute };
        // A join of nothing adds a slash.
        match absolute.strip_prefix(source) {
            Ok(below) if below.as_os_str().is_empty() => stored.clone(),
            Ok(below) => stored.join(below),
            Err(_) => absolute,
        }
    }

    /// Why the entry at `path` on disk is left out of a directory with this scope; `None` if it is stored.
    pub fn exclusion(&self, scope: &Scope, path: &Path, facts: EntryFacts) -> Option<Exclusion> {
        if let Some(only) = &scope.only
            && path.file_name() != Some(only)
        {
            return Some(Exclusion::Tag);
        }
        let (has_patterns, ignore) = (!self.patterns.is_empty(), scope.ignore.as_deref());
        if has_patterns || ignore.is_some() {
            let absolute = self.seen(path);
            match self.patterns.names(&absolute, facts.is_directory) {
                Some(true) => return Some(Exclusion::Pattern),
                Some(false) => {}
                None if ignore.is_some_and(|rules| rules.excludes(&absolute, facts.is_directory)) => {
                    return Some(Exclusion::IgnoreFile);
                }
                None => {}
            }
        }
        if self.file_bytes_max.is_some_and(|max| facts.size > max) {
            return Some(Exclusion::Size);
        }
        let share = self.share.as_ref().filter(|_| !facts.is_directory);
        share.is_some_and(|share| !share.has(&self.seen(path))).then_some(Exclusion::Share)
    }

    /// The scope of the entries of the open `directory` at `path`, which lies on file system `device` and in `parent`.
    /// [`Exclusion::FileSystem`] if its entries are left out because of that. Appends the errors of ignore files.
    pub fn enter(
        &self,
        parent: &Scope,
        directory: BorrowedFd<'_>,
        path: &Path,
        device: u64,
        warnings: &mut Vec<Error>,
    ) -> Result<Scope, Exclusion> {
        if self.one_file_system && parent.device.is_some_and(|given| given != device) {
            return Err(Exclusion::FileSystem);
        }
        let mut ignore = parent.ignore.clone();
        for name in &self.ignore_files {
            if let Some(rules) = IgnoreRules::read(directory, name, &self.seen(path), &ignore, warnings) {
                ignore = Some(Arc::new(rules));
            }
        }
        let only = self.tags.iter().find(|tag| tag.is_in(directory)).map(|tag| tag.name.clone());
        Ok(Scope { ignore, device: Some(parent.device.unwrap_or(device)), only })
    }
    /// Like [`EntryChoice::enter`] for a directory that is not open; `None` also if it cannot be opened. Errors of
    /// ignore files are dropped: the walk reports them.
    pub fn enter_path(&self, parent: &Scope, path: &Path, device: u64) -> Option<Scope> {
        if self.ignore_files.is_empty() && self.tags.is_empty() && !self.one_file_system {
            return Some(parent.clone());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = open_quietly(CWD, path.as_os_str(), flags).ok()?;
        self.enter(parent, directory.as_fd(), path, device, &mut Vec::new()).ok()
    }
}
