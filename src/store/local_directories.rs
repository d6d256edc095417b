//! The directories of a local store: what is in one that is away is unread, not absent (`directories`).

use std::fs;
use std::path::Path;

use super::directories::{NOTE, away, needed_for, no_directory, witnesses};
use super::disk::{create_directory, sync_directory};
use super::kind::{BlobKind, lasting_directories};
use super::local::LocalStore;
use super::local_listing::is_absent;
use crate::error::{Error, Result};

/// Whether nothing is at `path`, not even a link.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| is_absent(&error))
}

impl LocalStore {
    /// Notes the directories that are there: they must stay.
    pub(super) fn see_directories(&self) {
        lasting_directories(true)
            .filter(|directory| self.root().join(directory).is_dir())
            .for_each(|directory| self.see(directory));
    }

    fn see(&self, directory: &'static str) {
        self.seen_directories.lock().insert(directory);
    }

    fn has_seen(&self, directory: &str) -> bool {
        self.seen_directories.lock().contains(directory)
    }

    fn is_encrypted(&self) -> bool {
        let keys = BlobKind::Key.directory();
        self.has_seen(keys) || !is_missing(&self.root().join(keys))
    }

    /// Fails if a directory is away, or something else is there, without which nobody knows what is below `prefix`.
    pub(super) fn check_directories(&self, prefix: &str) -> Result<()> {
        needed_for(prefix, self.is_encrypted()).try_for_each(|directory| {
            let path = self.root().join(directory);
            if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
                return Err(no_directory(directory));
            }
            if !is_missing(&path) {
                self.see(directory);
                return Ok(());
            }
            if self.is_expected(directory) { Err(away(directory)) } else { Ok(()) }
        })
    }

    /// Whether a lasting directory that is missing was there.
    fn is_expected(&self, directory: &str) -> bool {
        // One that cannot be read may have some.
        let has_entries = |directory: &&str| {
            let path = self.root().join(directory);
            !is_missing(&path) && fs::read_dir(&path).map_or(true, |mut entries| entries.next().is_some())
        };
        self.has_seen(directory) || !is_missing(&self.root().join(NOTE)) || witnesses(directory).iter().any(has_entries)
    }

    /// Creates the directories from the root down to `directory` and syncs the parent of each, once per process.
    pub(super) fn make_durable(&self, directory: &Path) -> Result<()> {
        if directory == self.root() || self.durable_directories.lock().contains(directory) {
            return Ok(());
        }
        let parent = directory.parent().unwrap_or(self.root());
        self.make_durable(parent)?;
        let lasting = lasting_directories(self.is_encrypted()).find(|lasting| self.root().join(lasting) == directory);
        match lasting.filter(|lasting| self.is_expected(lasting)) {
            Some(lasting) if is_missing(directory) => return Err(away(lasting)),
            // It may go away at any moment, and is then not created again.
            Some(_) => {}
            None => create_directory(directory).map_err(|error| Error::unwritten("create", directory, error))?,
        }
        sync_directory(parent).map_err(|error| Error::io("sync", parent, error))?;
        self.durable_directories.lock().insert(directory.into());
        Ok(())
    }

    /// Makes the lasting directories and the note, unless this is a `dry_run`. Fails if one is away.
    pub(super) fn make_lasting_directories(&self, dry_run: bool) -> Result<()> {
        self.check_directories("")?;
        let note = self.root().join(NOTE);
        if dry_run || !is_missing(&note) {
            return Ok(());
        }
        let create = |directory: &Path| {
            create_directory(directory).map_err(|error| Error::unwritten("create", directory, error))
        };
        let sync = |directory: &Path| sync_directory(directory).map_err(|error| Error::io("sync", directory, error));
        for directory in lasting_directories(self.is_encrypted()) {
            create(&self.root().join(directory))?;
        }
        sync(&self.root().join(BlobKind::Mark.directory()))?;
        sync(self.root())?;
        create(&note)?;
        sync(self.root())?;
        self.see_directories();
        Ok(())
    }
}
