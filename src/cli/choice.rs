//! The snapshots and entries that arguments name. The grammar is that of [`naming`], and
//! `latest~N` is the N-th snapshot before the latest one.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::args::FilterArguments;
use super::exit::Exit;
use super::snapshots::short_id;
use crate::error::{Error, Result};
use crate::filesystem::absolute_path;
use crate::repo::Repository;
use crate::repo::naming::{self, SnapshotFilter};
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::store::BlobKind;

/// Start of the name of a snapshot before the latest one.
const BEFORE_LATEST: &str = "latest~";
/// What to do about a snapshot whose bytes are wrong.
const DAMAGED_HINT: &str = "`fhrd repair snapshots` writes the snapshot again if a copy of it is known, and with --forget \
                            it deletes what cannot be read";
/// What to do about one that could not be read. It may be sound.
const UNREAD_HINT: &str = "make sure that the disk, the share or the server can be read: the snapshot may be sound";
/// Unreported snapshots that are named, at most.
const UNREPORTED_SHOWN: usize = 4;

/// The filter of some arguments. Relative paths become absolute, as backups record them.
///
/// # Errors
/// [`Error::Io`] if there is no current directory.
pub fn filter(arguments: &FilterArguments) -> Result<SnapshotFilter> {
    let paths = arguments.paths.iter().map(|path| absolute_path(path)).collect::<Result<_>>()?;
    Ok(SnapshotFilter { hosts: arguments.hosts.clone(), paths, tags: arguments.tags.clone() })
}

/// The snapshot and the path that `text` names: `ID` or `ID:PATH`.
///
/// # Errors
/// Errors of [`naming::find_entry`].
pub fn entry(
    repository: &Repository,
    text: &OsStr,
    arguments: &FilterArguments,
) -> Result<(NamedSnapshot, Option<PathBuf>)> {
    find_entry(repository, text, &filter(arguments)?)
}

/// The snapshot and the path that `text` names, as [`naming::find_entry`] finds them, or `latest~N` and a path.
///
/// # Errors
/// Errors of [`naming::find_entry`].
pub fn find_entry(
    repository: &Repository,
    text: &OsStr,
    filter: &SnapshotFilter,
) -> Result<(NamedSnapshot, Option<PathBuf>)> {
    naming::find_entry(repository, &resolved(repository, text, filter)?, filter)
}

/// The snapshot that `name` names, as [`naming::find_snapshot`] finds it, or `latest~N`.
///
/// # Errors
/// Errors of [`naming::find_snapshot`].
pub fn find_snapshot(repository: &Repository, name: &str, filter: &SnapshotFilter) -> Result<NamedSnapshot> {
    let resolved = resolved(repository, OsStr::new(name), filter)?;
    naming::find_snapshot(repository, resolved.to_str().unwrap_or(name), filter)
}

/// Replaces `latest~N`, the N-th snapshot before the latest that passes `filter`, by its id.
fn resolved<'a>(repository: &Repository, text: &'a OsStr, filter: &SnapshotFilter) -> Result<Cow<'a, OsStr>> {
    let Some(rest) = text.as_bytes().strip_prefix(BEFORE_LATEST.as_bytes()) else { return Ok(text.into()) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, path) = rest.split_at(digits);
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<usize>().ok());
    let wrong = |hint: String| Error::NoSuchSnapshot { id: text.to_string_lossy().into_owned(), hint };
    let Some(number) = number.filter(|_| path.first().is_none_or(|byte| *byte == b':')) else {
        return Err(wrong(": expected a number such as latest~1".into()));
    };
    let now_ns = repository.clock.now_ns();
    let mut snapshots = snapshot_listing::list(repository)?.snapshots;
    let is_backup = |snapshot: &Snapshot| !snapshot.is_future(now_ns) && !snapshot.is_published();
    snapshots.retain(|named| filter.passes(&named.snapshot) && is_backup(&named.snapshot));
    let count = snapshots.len();
    let found = count.checked_sub(number + 1).and_then(|at| snapshots.get(at));
    let found = found.ok_or_else(|| wrong(format!(": there are {count} such snapshots")))?;
    Ok([OsStr::new(&found.id.to_string()), OsStr::from_bytes(path)].into_iter().collect::<OsString>().into())
}

/// The snapshots that `names` name, each once. The filter narrows `latest` and steps of runs.
///
/// # Errors
/// Errors of [`naming::find_snapshot`].
pub fn named(repository: &Repository, names: &[String], arguments: &FilterArguments) -> Result<Vec<NamedSnapshot>> {
    let filter = filter(arguments)?;
    let mut found: Vec<NamedSnapshot> = Vec::new();
    for name in names {
        let named = find_snapshot(repository, name, &filter)?;
        if !found.iter().any(|other| other.id == named.id) {
            found.push(named);
        }
    }
    Ok(found)
}

/// The snapshots that pass a filter, oldest first, and the exit code that damaged snapshots cause. Each of those is
/// logged.
///
/// # Errors
/// Errors of listing the snapshots.
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
/// Errors of listing the snapshots.
pub fn reported(repository: &Repository) -> Result<(Vec<NamedSnapshot>, Exit)> {
    let SnapshotListing { snapshots, unreported, mut damaged, resized } = snapshot_listing::list(repository)?;
    for (name, error) in &damaged {
        tracing::error!("cannot read {name}: {error}");
    }
    for (_, error) in &resized {
        tracing::error!("{error}; the copy is used, and `fhrd repair snapshots` writes the blob again");
    }
    damaged.extend(resized);
    for named in unreported.iter().take(UNREPORTED_SHOWN) {
        let id = short_id(named);
        tracing::warn!("snapshot {id} is left out: its backup still runs, or was killed just before it was complete");
    }
    let newer = damaged.iter().filter(|(_, error)| error.is_newer()).count();
    Ok((snapshots, Exit::of_unreadable(damaged.len() as u64, newer as u64)))
}

/// What to do about the blob of a snapshot that cannot be read, if the error is about one.
pub fn damage_hint(error: &Error) -> Option<&'static str> {
    let is_snapshot = match error {
        Error::Corrupt { what, .. } | Error::ChecksumMismatch { what, .. } | Error::Unreadable { what, .. } => {
            what.starts_with(BlobKind::Snapshot.directory())
        }
        Error::Untried(error, _) => return damage_hint(error).map(|_| UNREAD_HINT),
        Error::Mark { reason, .. } => return damage_hint(reason),
        _ => false,
    };
    is_snapshot.then_some(if error.is_proven_damage() { DAMAGED_HINT } else { UNREAD_HINT })
}
