//! `fhrd verify`.

use serde::Serialize;

use super::Session;
use super::args::VerifyArguments;
use super::check::{note_defects, record_reads};
use super::choice;
use super::exit::Exit;
use super::location;
use super::no_snapshots;
use super::notice::RunFact;
use super::output::{note, print, print_json, size, write_pairs};
use super::progress::shown;
use super::requests::{self, WithRequests};
use super::shares;
use crate::error::{Error, Result};
use crate::inspect::verify::{SampleShare, VERB, VerifyReport, verify_sample, verify_turn};
use crate::metrics::Progress;
use crate::overview::texts::HEALING;
use crate::repair::quarantine::{self, QuarantineReport};
use crate::repo::Repository;
use crate::repo::marks::Marks;
use crate::repo::reads::ReadRun;

/// The share of the files that is read if nothing is said, percent.
const DEFAULT_SAMPLE: &str = "2%";

/// The report as JSON.
#[derive(Serialize)]
struct VerifyDocument<'a> {
    #[serde(flatten)]
    report: WithRequests<'a, VerifyReport>,
    containers_read: u64,
    bytes_read: u64,
    containers_damaged: u64,
    defect_count: u64,
    defects: &'a [String],
    /// What was quarantined. Absent if nothing may be written.
    quarantine: Option<&'a QuarantineReport>,
    /// Whether the repository has a record of what was read.
    recorded: bool,
    /// Bytes of containers, if there is no snapshot.
    bytes_without_snapshots: u64,
}

/// A report, and what followed from it.
struct HandledReport {
    report: VerifyReport,
    quarantine: Option<QuarantineReport>,
    recorded: bool,
}

/// Verifies a part of the repository.
///
/// # Errors
/// Errors of the repository and of reading it.
pub fn run(session: &Session, arguments: &VerifyArguments) -> Result<Exit> {
    let repository = location::open_fresh(session)?;
    if let Some(share) = arguments.shard.filter(|_| arguments.dry_run) {
        return shares::show_containers(session, share, &repository);
    }
    let before = if arguments.report_only { None } else { Some(Marks::read(repository.store.as_ref())?) };
    let mut handled = Vec::new();
    // What one step has found is recorded and shown, even if the next one fails.
    let verified = verify(session, &repository, arguments, &mut |report| {
        handled.push(handle(session, &repository, before.as_ref(), report)?);
        Ok(())
    });
    let without_snapshots = no_snapshots::warn(session, repository.store.as_ref());
    let are_gone = no_snapshots::are_gone(&repository);
    if session.options.json && !(verified.is_err() && handled.is_empty()) {
        let bytes = *without_snapshots.as_ref().unwrap_or(&0);
        print_json(&handled.iter().map(|handled| document(&repository, handled, bytes)).collect::<Vec<_>>())?;
    }
    let (mut exit, without_snapshots) = (verified?, without_snapshots?);
    for HandledReport { report, .. } in &handled {
        let is_damaged = report.files.damaged + report.check.defect_count > 0;
        exit = match exit {
            Exit::Damaged => exit,
            _ if is_damaged => Exit::Damaged,
            _ if report.files.newer + report.check.newer_count > 0 => Exit::Failed,
            _ => exit,
        };
    }
    Ok(no_snapshots::outcome(without_snapshots > 0 || are_gone, exit))
}

/// Verifies the sample, then the containers whose turn it is, as far as they are asked for, and calls `each` with each
/// report at once. Returns the exit code that snapshots which cannot be read cause. The others are verified.
fn verify(
    session: &Session,
    repository: &Repository,
    arguments: &VerifyArguments,
    each: &mut dyn FnMut(VerifyReport) -> Result<()>,
) -> Result<Exit> {
    let (options, stop) = (&session.options, &session.stop);
    let config = location::config(options)?;
    let by_default = || DEFAULT_SAMPLE.parse::<SampleShare>().map_err(Error::Usage);
    let sample = match (arguments.sample, arguments.within) {
        (None, None) => Some(by_default()?),
        (sample, _) => sample,
    };
    let within_ns = arguments.within.map(|within| i64::try_from(within.as_nanos()).unwrap_or(i64::MAX));
    if within_ns == Some(0) {
        return Err(Error::Usage("--within is no time at all".into()));
    }
    let mut found = Exit::Fine;
    if let Some(share) = sample {
        let (snapshots, exit) = choice::snapshots(repository, &arguments.filter)?;
        found = exit;
        let progress = Progress::default();
        each(shown(options, &progress, None, || {
            verify_sample(repository, &config, snapshots, (share, arguments.shard), &progress, stop)
        })?)?;
    }
    if let Some(within_ns) = within_ns {
        let progress = Progress::default();
        each(shown(options, &progress, None, || {
            verify_turn(repository, &config, (within_ns, arguments.shard), &progress, stop)
        })?)?;
    }
    Ok(found)
}

/// Quarantines what is bad, records what was read, and shows the report.
fn handle(
    session: &Session,
    repository: &Repository,
    before: Option<&Marks>,
    report: VerifyReport,
) -> Result<HandledReport> {
    let quarantine = before.filter(|_| !report.check.bad.is_empty()).and_then(|before| {
        let done = quarantine::record(repository, before, &report.check);
        done.map_err(|error| note(&format!("warning: nothing is quarantined: {error}"))).ok()
    });
    // Containers that no mark names although they are bad must not count as read.
    let is_marked = report.check.bad.is_empty() || quarantine.is_some();
    let recorded = before.is_some() && is_marked && record(repository, &report);
    let handled = HandledReport { report, quarantine, recorded };
    if !session.options.json {
        write(session, repository, &handled)?;
    }
    let report = &handled.report;
    let facts = [
        (RunFact::Files, report.files.files_read),
        (RunFact::ContentBytes, report.files.content_bytes),
        (RunFact::ReadBytes, report.check.bytes_read),
        (RunFact::Defects, report.files.damaged + report.check.defect_count),
    ];
    facts.into_iter().for_each(|(fact, value)| session.facts.add(fact, value));
    Ok(handled)
}

fn document<'a>(
    repository: &Repository,
    handled: &'a HandledReport,
    bytes_without_snapshots: u64,
) -> VerifyDocument<'a> {
    let HandledReport { report, quarantine, recorded } = handled;
    VerifyDocument {
        report: WithRequests::new(report, repository),
        containers_read: report.check.containers_read,
        bytes_read: report.check.bytes_read,
        containers_damaged: damaged(report),
        defect_count: report.check.defect_count,
        defects: &report.check.defects,
        quarantine: quarantine.as_ref(),
        recorded: *recorded,
        bytes_without_snapshots,
    }
}

fn record(repository: &Repository, report: &VerifyReport) -> bool {
    let run = ReadRun {
        files: report.files.files_read,
        content_bytes: report.files.content_bytes,
        damaged: report.files.damaged + report.check.missing_containers,
        bytes_of_all: report.bytes_of_all,
        ..ReadRun::default()
    };
    record_reads(repository, VERB, &report.check, run)
}

/// Containers that were read whole and are damaged.
fn damaged(report: &VerifyReport) -> u64 {
    report.check.read.iter().filter(|(_, is_sound)| !is_sound).count() as u64
}

fn write(session: &Session, repository: &Repository, handled: &HandledReport) -> Result<()> {
    let HandledReport { report, quarantine, recorded } = handled;
    let (files, check) = (&report.files, &report.check);
    files.damaged_files.iter().for_each(|text| note(&format!("error: {text}")));
    check.newer.iter().for_each(|text| note(&format!("newer: {text}")));
    note_defects(&check.defects, check.defects_more);
    let mut pairs = Vec::new();
    if files.snapshots > 0 {
        pairs.push(("snapshots", format!("{} of {} read from the store", files.snapshots_read, files.snapshots)));
    }
    if files.files > 0 {
        let (count, of, bytes) = (files.files_read, files.files, size(files.content_bytes));
        pairs
            .push(("restored", format!("{count} of {of} different files into nothing, {bytes}, every byte as stored")));
        pairs.push(("damaged", files.damaged.to_string()));
        pairs.push(("used", format!("{} of {} containers", files.containers_used, report.containers)));
    }
    if files.files == 0 || check.containers_read > 0 {
        let (bytes, all) = (size(check.bytes_read), size(report.bytes_of_all));
        pairs
            .push(("read", format!("{} of {} containers, {bytes} of {all}", check.containers_read, report.containers)));
        pairs.push(("damaged containers", damaged(report).to_string()));
    }
    if report.containers_marked > 0 {
        let marked = report.containers_marked;
        pairs.push(("not read", format!("{marked} containers that are known to be damaged: run `fhrd check`")));
    }
    if let Some(done) = quarantine.as_ref().filter(|done| done.marks_written > 0) {
        let text = format!("damage in {} containers; {HEALING}", done.containers);
        pairs.push(("quarantined", text));
    }
    if !*recorded {
        pairs.push(("recorded", "nothing: `status` and later runs do not know what was read".into()));
    }
    pairs.extend(requests::summary(repository));
    if session.options.quiet {
        return Ok(());
    }
    print(|out| write_pairs(out, &pairs))
}
