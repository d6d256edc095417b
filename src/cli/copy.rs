//! `fhrd copy`.

use std::io::Write;

use serde::Serialize;

use super::Session;
use super::args::CopyArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::notice::RunFact;
use super::output::{failed, print, print_json, size, unread_note, warn_if_quiet};
use super::progress::shown;
use super::shares;
use super::snapshots::{short_id, statistic};
use crate::backup::BackupReport;
use crate::error::{Error, ErrorKind, Result};
use crate::keep::{Copier, CopyOutcome};
use crate::metrics::Progress;
use crate::repo::checkpoint::Checkpoint;
use crate::repo::snapshot::NamedSnapshot;

/// The result as JSON.
#[derive(Serialize)]
struct CopyDocument {
    dry_run: bool,
    snapshots: Vec<CopiedDocument>,
}

/// A snapshot as JSON.
#[derive(Serialize)]
struct CopiedDocument {
    original: String,
    /// None after a dry run.
    copy: Option<String>,
    /// Whether the target had it before, and nothing better could be stored. Then nothing of it is counted below.
    existed: bool,
    /// Copies that lacked entries, and that were deleted.
    replaced: Vec<String>,
    files: u64,
    bytes: u64,
    /// Bytes read from the other repository.
    bytes_read: u64,
    bytes_new: u64,
    bytes_stored: u64,
    /// Containers of the target, and directories of them, that could not be read, or are missing.
    containers_unread: u64,
    /// Marks of the target that could not be read.
    marks_unread: u64,
    problems: u64,
    /// Why it was not copied.
    error: Option<String>,
}

impl CopiedDocument {
    fn new(outcome: &CopyOutcome) -> Self {
        let report = outcome.report.as_ref();
        let count = |of: fn(&BackupReport) -> u64| report.map_or(0, of);
        CopiedDocument {
            original: outcome.original.id.to_string(),
            copy: outcome.copy.map(|id| id.to_string()),
            existed: report.is_none(),
            files: count(|report| report.files),
            bytes: count(|report| report.bytes),
            bytes_read: count(|report| report.bytes_read),
            bytes_new: count(|report| report.bytes_new),
            bytes_stored: count(|report| report.bytes_stored),
            containers_unread: count(|report| report.containers_unread),
            marks_unread: count(|report| report.marks_unread),
            problems: outcome.problems,
            replaced: outcome.replaced.iter().map(ToString::to_string).collect(),
            error: None,
        }
    }

    /// A snapshot that is not copied at all.
    fn failed(original: &NamedSnapshot, error: &Error) -> Self {
        let outcome = CopyOutcome {
            original: original.clone(),
            copy: None,
            report: None,
            problems: statistic(original, "files"),
            replaced: Vec::new(),
        };
        CopiedDocument { existed: false, error: Some(error.to_string()), ..Self::new(&outcome) }
    }
}

/// Copies snapshots of another repository.
///
/// # Errors
/// Errors of both repositories, and of [`Copier::copy`].
pub fn run(session: &Session, arguments: &CopyArguments) -> Result<Exit> {
    let config = location::config(&session.options)?;
    let target = location::open(session)?;
    let source = location::open_at(session, &arguments.from_repo)?;
    let (snapshots, mut exit) = match arguments.ids.is_empty() {
        true => choice::snapshots(&source, &arguments.filter)?,
        false => (choice::named(&source, &arguments.ids, &arguments.filter)?, Exit::Fine),
    };
    let snapshots = match arguments.shard {
        Some(share) if arguments.dry_run => {
            let things: Vec<_> = snapshots.iter().map(|named| (series_of(named), statistic(named, "bytes"))).collect();
            return shares::show_named(session, share, &things);
        }
        Some(share) => snapshots.into_iter().filter(|named| share.has(&series_of(named))).collect(),
        None => snapshots,
    };
    let mut copier = Copier::new(&source, &target, &config)?;
    let mut document = CopyDocument { dry_run: arguments.dry_run, snapshots: Vec::new() };
    for original in oldest_first(snapshots) {
        let progress = Progress::default();
        progress.bytes_total.add(statistic(&original, "bytes"));
        progress.files_total.add(statistic(&original, "files").saturating_add(statistic(&original, "others")));
        let copied = || copier.copy(&original, arguments.dry_run, &progress, &session.stop);
        let copied = match shown(&session.options, &progress, None, copied) {
            // Others may be copied.
            Err(error)
                if !copier.takes(&original) || matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported) =>
            {
                tracing::error!("snapshot {:.8} is not copied: {error}", original.id);
                exit = Exit::from(&error);
                CopiedDocument::failed(&original, &error)
            }
            outcome => CopiedDocument::new(&outcome?),
        };
        if (copied.problems > 0 || copied.containers_unread > 0 || copied.marks_unread > 0) && exit == Exit::Fine {
            exit = Exit::Incomplete;
        }
        warn_if_quiet(&session.options, &unread_note(copied.containers_unread, copied.marks_unread));
        if !session.options.json && !session.options.quiet {
            print(|out| write_line(out, &original, &copied))?;
        }
        let facts = [
            (RunFact::Snapshots, u64::from(copied.copy.is_some() && !copied.existed)),
            (RunFact::ReadBytes, copied.bytes_read),
            (RunFact::StoredBytes, copied.bytes_stored),
            (RunFact::Problems, copied.problems),
        ];
        facts.into_iter().for_each(|(fact, value)| session.facts.add(fact, value));
        document.snapshots.push(copied);
    }
    if session.options.json {
        print_json(&document)?;
    }
    Ok(exit)
}

/// The name of what a snapshot is a version of: versions of the same thing are copied by one process, in their order.
/// Shares of the work are parts of one thing: from job to job, a file moves from one to another.
fn series_of(named: &NamedSnapshot) -> Vec<u8> {
    let snapshot = &named.snapshot;
    let run = Checkpoint::of(snapshot).map(|checkpoint| checkpoint.run);
    let labels = [snapshot.host.clone(), run.unwrap_or_default()];
    let labels = labels.iter().map(String::as_bytes);
    let parts = labels.chain(snapshot.paths.iter().map(|path| path.as_slice()));
    parts.flat_map(|part| [part, &[0]].concat()).collect()
}

/// Each once, so that a copy finds the one before it.
fn oldest_first(mut snapshots: Vec<NamedSnapshot>) -> Vec<NamedSnapshot> {
    snapshots.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    snapshots.dedup_by_key(|named| named.id);
    snapshots
}

fn write_line(out: &mut dyn Write, original: &NamedSnapshot, copied: &CopiedDocument) -> Result<()> {
    let text = match (&copied.copy, copied.existed) {
        _ if copied.error.is_some() => "was not copied".into(),
        (Some(copy), true) => {
            let lacking = match copied.problems {
                0 => String::new(),
                problems => format!("; {problems} entries are still missing"),
            };
            format!("was copied before, to {}{lacking}", copy.get(..8).unwrap_or_default())
        }
        (Some(copy), false) => format!(
            "is now {}: {} files, {}, {} new, {} stored, {} problems{}",
            copy.get(..8).unwrap_or_default(),
            copied.files,
            size(copied.bytes),
            size(copied.bytes_new),
            size(copied.bytes_stored),
            copied.problems,
            if copied.replaced.is_empty() { "" } else { "; the incomplete copy is deleted" }
        ),
        (None, _) => format!("would be copied: {} new before compression", size(copied.bytes_new)),
    };
    writeln!(out, "{} {text}{}", short_id(original), unread_note(copied.containers_unread, copied.marks_unread))
        .map_err(failed)
}
