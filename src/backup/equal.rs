//! Directories of a stored snapshot that are equal to one before: few listings can describe a tree of any size.
//!
//! 1. The stage that reads the snapshot sends such a directory as a node, with the [`SentDirectory`] of the first one.
//! 2. Save, or Estimate, says in that what it stored and counted. It arrives there before any directory that is equal.
//! 3. If a pattern asks for whole paths, equal directories may differ in what is left out, so each of them is read. A
//!    tree that consists of little else is refused.

use std::sync::{Arc, OnceLock};

use lru::LruCache;

use crate::error::{Error, Result};
use crate::repo::read::at_least_one;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::EntryTally;

/// Directories that are remembered.
const KNOWN_MAX: usize = 1 << 16;
/// Entries in equal directories that are read again, at most: so many, and for each other entry so many.
const REPEATED_MAX: u64 = 1 << 16;
const REPEATED_FACTOR: u64 = 1 << 12;

/// What is stored of a directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct SavedDirectory {
    /// Its listing; `None` if it is empty, and after a dry run.
    pub content: Option<ContentReference>,
    /// Whether an entry is left out.
    pub is_partial: bool,
    /// What is below it.
    pub tally: EntryTally,
}

/// A directory that is sent once.
#[derive(Debug, Clone, Default)]
pub struct SentDirectory(Arc<OnceLock<SavedDirectory>>);

impl SentDirectory {
    /// Says what is stored. Only the first call counts.
    pub fn save(&self, saved: SavedDirectory) {
        self.0.get_or_init(|| saved);
    }

    /// What is stored, once the last stage has it.
    ///
    /// # Errors
    /// [`Error::Internal`] before that.
    pub fn saved(&self) -> Result<SavedDirectory> {
        self.0.get().copied().ok_or_else(|| Error::internal("an equal directory came before the first one"))
    }
}

/// What the reading stage counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadTally {
    /// Entries that the user's choice left out.
    pub excluded: u64,
    /// Entries that could not be read.
    pub problems: u64,
    /// Files that the repository has.
    pub files_unchanged: u64,
    /// Bytes of files, read or not.
    pub bytes: u64,
}

impl ReadTally {
    fn since(self, before: ReadTally) -> ReadTally {
        ReadTally {
            excluded: self.excluded.saturating_sub(before.excluded),
            problems: self.problems.saturating_sub(before.problems),
            files_unchanged: self.files_unchanged.saturating_sub(before.files_unchanged),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// A directory that was sent.
#[derive(Debug, Clone)]
pub struct EqualDirectory {
    /// What becomes of it.
    pub sent: SentDirectory,
    /// What was counted below it.
    pub tally: ReadTally,
}

/// A directory that is being read.
struct OpenEqual {
    content: Option<ContentReference>,
    began: ReadTally,
    is_repeated: bool,
}

/// The directories of one walk.
pub struct EqualDirectories {
    /// Whether equal directories have equal entries left out.
    are_alike: bool,
    known: LruCache<ContentReference, EqualDirectory>,
    open: Vec<OpenEqual>,
    entries: u64,
    repeated: u64,
}

impl EqualDirectories {
    /// None so far.
    pub fn new(are_alike: bool) -> Self {
        let known = LruCache::new(at_least_one(KNOWN_MAX));
        EqualDirectories { are_alike, known, open: Vec::new(), entries: 0, repeated: 0 }
    }

    /// Counts an entry.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are too many of equal directories.
    pub fn entry(&mut self) -> Result<()> {
        if !self.open.last().is_some_and(|open| open.is_repeated) {
            self.entries += 1;
            return Ok(());
        }
        self.repeated += 1;
        let limit = REPEATED_MAX.saturating_add(self.entries.saturating_mul(REPEATED_FACTOR));
        if self.repeated <= limit {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "the snapshot consists of equal directories: expected at most {limit} entries in those that come again, \
             found more. Patterns without `/` and `[` need only one look at each"
        )))
    }

    /// Enters a directory, unless an equal one was sent.
    pub fn enter(&mut self, content: Option<ContentReference>, began: ReadTally) -> Option<EqualDirectory> {
        let known = content.and_then(|content| self.known.get(&content));
        if let Some(known) = known.filter(|_| self.are_alike) {
            return Some(known.clone());
        }
        let is_repeated = known.is_some() || self.open.last().is_some_and(|open| open.is_repeated);
        self.open.push(OpenEqual { content, began, is_repeated });
        None
    }

    /// Leaves the current directory.
    pub fn leave(&mut self, now: ReadTally) -> SentDirectory {
        let sent = SentDirectory::default();
        if let Some(OpenEqual { content: Some(content), began, .. }) = self.open.pop() {
            self.known.put(content, EqualDirectory { sent: sent.clone(), tally: now.since(began) });
        }
        sent
    }
}
