//! The snapshots and entries that arguments name. The grammar is that of [`naming`].

use std::ffi::OsStr;
use std::path::PathBuf;

use super::args::FilterArguments;
use super::exit::Exit;
use super::snapshots::short_id;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::naming::{self, SnapshotFilter};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_cache::{self, SnapshotListing};

/// Unreported snapshots that are named, at most.
const UNREPORTED_SHOWN: usize = 4;

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
    naming::find_entry(repository, text, &filter(arguments)?)
}

/// The snapshots that `names` name. The filter narrows `latest` and steps of runs.
///
/// # Errors
/// As of [`naming::find_snapshot`].
pub fn named(repository: &Repository, names: &[String], arguments: &FilterArguments) -> Result<Vec<NamedSnapshot>> {
    let filter = filter(arguments)?;
    names.iter().map(|name| naming::find_snapshot(repository, name, &filter)).collect()
}

/// The snapshots that pass a filter, oldest first, and the exit code that damaged snapshots cause. Each of those is
/// logged.
///
/// # Errors
/// Those of listing the snapshots.
pub fn snapshots(repository: &Repository, arguments: &FilterArguments) -> Result<(Vec<NamedSnapshot>, Exit)> {
    let filter = filter(arguments)?;
    let (mut snapshots, exit) = reported(repository)?;
    snapshots.retain(|named| filter.passes(&named.snapshot));
    Ok((snapshots, exit))
}

/// The snapshots that their backups have reported, oldest first, and the exit code that damaged ones cause. Both those
/// and the unreported ones are logged.
///
/// # Errors
/// Those of listing the snapshots.
pub fn reported(repository: &Repository) -> Result<(Vec<NamedSnapshot>, Exit)> {
    let SnapshotListing { snapshots, unreported, damaged } = snapshot_cache::list(repository)?;
    for (name, error) in &damaged {
        tracing::error!("cannot read {name}: {error}");
    }
    for named in unreported.iter().take(UNREPORTED_SHOWN) {
        let id = short_id(named);
        tracing::warn!("snapshot {id} is left out: its backup still runs, or was killed just before it was complete");
    }
    let newer = damaged.iter().filter(|(_, error)| error.is_newer()).count();
    Ok((snapshots, Exit::of_unreadable(damaged.len() as u64, newer as u64)))
}
