//! The snapshots and entries that arguments name. The grammar is that of [`naming`].

use std::ffi::OsStr;
use std::path::PathBuf;

use super::args::FilterArguments;
use super::exit::Exit;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::naming::{self, SnapshotFilter};
use crate::repo::snapshot::{self, NamedSnapshot};

/// The filter of some arguments. Relative paths become absolute, as backups record them.
///
/// # Errors
/// [`Error::Io`] if there is no current directory.
pub fn filter(arguments: &FilterArguments) -> Result<SnapshotFilter> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| Error::io("find", path, error));
    let paths = arguments.paths.iter().map(absolute).collect::<Result<_>>()?;
    Ok(SnapshotFilter { hosts: arguments.hosts.clone(), paths, tags: arguments.tags.clone() })
}

/// The snapshot and the path that `text` names: `ID` or `ID:PATH`.
///
/// # Errors
/// As of [`naming::find_entry`].
pub fn entry(
    repository: &Repository,
    text: &OsStr,
    arguments: &FilterArguments,
) -> Result<(NamedSnapshot, Option<PathBuf>)> {
    naming::find_entry(repository.store.as_ref(), text, &filter(arguments)?)
}

/// The snapshots that pass a filter, oldest first, and the exit code that damaged snapshots cause. Each of those is
/// logged.
///
/// # Errors
/// Those of listing the snapshots.
pub fn snapshots(repository: &Repository, arguments: &FilterArguments) -> Result<(Vec<NamedSnapshot>, Exit)> {
    let filter = filter(arguments)?;
    let (mut snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    for (name, error) in &damaged {
        tracing::error!("cannot read {name}: {error}");
    }
    snapshots.retain(|named| filter.passes(&named.snapshot));
    Ok((snapshots, if damaged.is_empty() { Exit::Fine } else { Exit::Damaged }))
}
