//! `fhrd estimate`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::Session;
use super::args::EstimateArguments;
use super::exit::Exit;
use super::location;
use super::output::{print, print_json, ratio, size, write_pairs};
use super::progress::shown;
use super::request::choice;
use super::scan::{Scan, bytes_of};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::{EntryChoice, absolute_path};
use crate::inspect::estimate::{BackupEstimate, EstimateLimits, EstimateSource, EstimatedBytes, FileSample, estimate};
use crate::metrics::Progress;
use crate::repo::paths::{cache_directory, create_private, estimate_directory, own_directories};
use crate::repo::tree::FileIdentity;
use crate::repo::{Repository, snapshot_listing};

/// Snapshots whose sizes tell what a further backup adds: the last ones.
const HISTORY: usize = 30;

/// The estimate as JSON.
#[derive(Serialize)]
struct EstimateDocument {
    #[serde(flatten)]
    estimate: BackupEstimate,
    /// Median of what the last backups of a path have added; null without snapshots that have a parent.
    next_backup_bytes: Option<u64>,
    /// Those backups.
    next_backup_snapshots: usize,
}

/// Prints the estimate.
///
/// # Errors
/// Errors of the repository, if there is one, and of [`estimate`].
pub fn run(session: &Session, arguments: &EstimateArguments) -> Result<Exit> {
    let config = location::config(&session.options)?;
    // A device may have no end, and a pipe would be empty for the backup.
    let choice = EntryChoice { read_special: false, ..choice(&arguments.choice)? };
    let repository = match location::open(session) {
        Err(error) if error.kind() == ErrorKind::NoRepository => None,
        opened => Some(opened?),
    };
    let directory = estimate_directory()?;
    let own = |repository: &Repository| Ok::<_, Error>(own_directories(repository, &cache_directory(repository)?));
    let mut skip = repository.as_ref().map(own).transpose()?.unwrap_or_default();
    skip.push(directory.clone());
    let sample = scanned(session, &Scan { paths: &arguments.paths, skip: skip.clone(), choice: &choice })?;
    create_private(&directory)?;
    let limits = EstimateLimits { time: Duration::try_from(arguments.time).unwrap_or_default(), directory };
    let progress = Progress::default();
    let source = EstimateSource { paths: &arguments.paths, choice: &choice, skip: &skip, sample };
    let estimate =
        shown(&session.options, &progress, None, || estimate(source, &config, &limits, &progress, &session.stop))?;
    let is_complete = estimate.problems == 0;
    let history = repository.map_or(Ok(Vec::new()), |repository| history(&repository, &arguments.paths))?;
    if session.options.json {
        let next_backup_bytes = history.get(history.len() / 2).copied();
        print_json(&EstimateDocument { estimate, next_backup_bytes, next_backup_snapshots: history.len() })?;
    } else {
        print(|out| write_pairs(out, &pairs(&estimate, &history)))?;
    }
    Ok(if is_complete { Exit::Fine } else { Exit::Incomplete })
}

/// The files that a backup would read.
fn scanned(session: &Session, scan: &Scan<'_>) -> Result<FileSample> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| Error::Usage(format!("no random numbers: {error}")))?;
    let mut sample = FileSample::new(u64::from_le_bytes(seed));
    scan.visit(&session.stop, &mut |path, scanned| match scanned {
        Ok(metadata) if metadata.is_file() => {
            let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
            sample.add(path, bytes_of(metadata), metadata.len(), (metadata.nlink() > 1).then_some(identity));
        }
        Ok(_) => {}
        Err(error) => sample.add_unread(Error::io("read", path, error)),
    });
    if session.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(sample) }
}

/// What the last backups that include one of the paths have added, ascending.
fn history(repository: &Repository, paths: &[PathBuf]) -> Result<Vec<u64>> {
    use std::os::unix::ffi::OsStrExt;
    let paths: Vec<PathBuf> = paths.iter().map(|path| absolute_path(path)).collect::<Result<_>>()?;
    let stored = |path: &[u8]| paths.iter().any(|given| given == Path::new(std::ffi::OsStr::from_bytes(path)));
    let snapshots = snapshot_listing::list(repository)?.snapshots;
    let with_parent = snapshots
        .iter()
        .rev()
        .filter(|named| named.snapshot.parent.is_some() && named.snapshot.paths.iter().any(|path| stored(path)));
    let added = with_parent.take(HISTORY).map(|named| super::snapshots::statistic(named, "bytes_stored"));
    let mut added: Vec<u64> = added.collect();
    added.sort_unstable();
    Ok(added)
}

fn pairs(estimate: &BackupEstimate, history: &[u64]) -> Vec<(&'static str, String)> {
    let BackupEstimate { files, bytes, files_read, bytes_read, .. } = *estimate;
    let estimated = |part: EstimatedBytes| {
        let error = if estimate.whole { String::new() } else { format!(" ± {}", size(part.error)) };
        format!("{}{error} (ratio {})", size(part.bytes), ratio(bytes, part.bytes))
    };
    let share = |share: f64| format!("{:.1} %", 100.0 * share);
    let read = match estimate.whole {
        true => "all of it, so nothing is guessed".into(),
        false => format!("{} in {files_read} files; the errors hold for 95 of 100 samples", size(bytes_read)),
    };
    let mut pairs = vec![
        ("source", format!("{} in {files} files", size(bytes))),
        ("read", read),
        ("first backup", estimated(estimate.stored)),
        ("exact chunks", format!("{}: what restic's way would take", estimated(estimate.exact_chunks))),
        ("duplicate", share(estimate.duplicate)),
        ("near-duplicate", share(estimate.near_duplicate)),
        ("models", share(estimate.models)),
        ("incompressible", share(estimate.incompressible)),
        ("problems", estimate.problems.to_string()),
    ];
    if let Some(median) = history.get(history.len() / 2) {
        let count = history.len();
        pairs.push(("next backup", format!("{}, the median of the last {count} of these paths", size(*median))));
    }
    pairs
}
