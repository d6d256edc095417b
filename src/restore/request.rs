//! What a restore is asked to do.

use std::path::{Path, PathBuf};

use super::chosen_tree::Selection;
use super::existing::Overwrite;

/// A restore of a snapshot, or of a part of it.
#[derive(Debug, Clone, Default)]
pub struct RestoreRequest {
    /// Directory that receives the entries. It is created if it is absent.
    pub target: PathBuf,
    /// The entry of the snapshot whose content the target receives. `None`: the root.
    pub base: Option<PathBuf>,
    /// The entries to restore, below the base.
    pub selection: Selection,
    /// Which existing entries are replaced.
    pub overwrite: Overwrite,
    /// Delete what the snapshot does not have: only in directories that were read and stored whole.
    pub delete: bool,
    /// Count what would be done, and change nothing.
    pub dry_run: bool,
    /// Compare the target with the snapshot afterwards.
    pub verify: bool,
    /// Wait until everything is on disk. A file is there before it gets its name.
    pub sync: bool,
}

impl From<&Path> for RestoreRequest {
    /// The whole snapshot into `target`, where nothing is replaced.
    fn from(target: &Path) -> Self {
        RestoreRequest { target: target.into(), ..RestoreRequest::default() }
    }
}

impl From<&PathBuf> for RestoreRequest {
    fn from(target: &PathBuf) -> Self {
        target.as_path().into()
    }
}
