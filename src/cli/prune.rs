//! `fhrd prune`.

use std::io::Write;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use super::Session;
use super::args::PruneArguments;
use super::exit::Exit;
use super::forget::{locks_of_profile, min_age_of_profile};
use super::location;
use super::no_snapshots;
use super::notice::RunFact;
use super::output::{print, print_json, size, warn_if_quiet, write_pairs};
use super::requests::{self, WithRequests};
use crate::error::{Error, Result};
use crate::keep::{PruneOptions, PruneReport, SkippedRule, estimate_prune, prune};
use crate::repo::Repository;
use crate::repo::snapshot::bytes_without_snapshots;
use crate::repo::vanished;
use crate::types::SnapshotId;

/// The grace period unless another one is given.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_hours(24);

/// The shortest time for which locks are extended, days. S3 counts default locks in days.
const LOCK_DAYS_MIN: u64 = 1;
/// The longest one.
const LOCK_DAYS_MAX: u64 = 3660;

/// How long a prune waits for another one, or for a backup, that is in the way.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a prune has done nothing.
const WITHDRAWN: &str = "another prune or a backup was in the way; run it again";

/// Gives back the space of what no snapshot needs.
///
/// # Errors
/// Errors of [`prune`].
pub fn run(session: &Session, arguments: &PruneArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let extend_locks = arguments.extend_locks.map_or_else(|| locks_of_profile(session), |period| Ok(Some(period)))?;
    let min_age = arguments.min_age.map_or_else(|| min_age_of_profile(session), |age| Ok(Some(age)))?;
    let arguments = &PruneArguments { extend_locks, min_age, ..arguments.clone() };
    let report = prune_now(session, &repository, arguments, &[])?;
    session.facts.add(RunFact::Snapshots, report.snapshots);
    session.facts.add(RunFact::RepositoryBytes, report.bytes);
    print_report(session, &repository, &report)
}

/// Prints what a prune has done, and says how it ended.
///
/// # Errors
/// Errors of writing.
pub fn print_report(session: &Session, repository: &Repository, report: &PruneReport) -> Result<Exit> {
    if session.options.json {
        print_json(&WithRequests::new(report, repository))?;
    } else if !session.options.quiet {
        print(|out| {
            write_report(out, report)?;
            requests::summary(repository).map_or(Ok(()), |pair| write_pairs(out, &[pair]))
        })?;
    }
    if report.withdrawn {
        warn_if_quiet(&session.options, WITHDRAWN);
    }
    Ok(if report.withdrawn { Exit::Failed } else { Exit::Fine })
}

/// Prunes an open repository. A dry run does so as if the snapshots `forgotten` did not exist.
///
/// # Errors
/// [`Error::Usage`] for a negative grace period, for locks that are not for a time of days, and if there is data and no
/// snapshot, unless that is allowed or this run has `forgotten` the last ones; errors of [`prune`].
pub fn prune_now(
    session: &Session,
    repository: &Repository,
    arguments: &PruneArguments,
    forgotten: &[SnapshotId],
) -> Result<PruneReport> {
    let options = options(session, arguments)?;
    if !arguments.allow_no_snapshots {
        check_snapshots(repository, forgotten)?;
    }
    if options.dry_run {
        return estimate_prune(repository, &options, forgotten, &session.stop);
    }
    let report = prune(repository, &options, &session.stop)?;
    if arguments.allow_no_snapshots {
        vanished::accept(repository);
    }
    session.facts.add(RunFact::FreedBytes, report.bytes_deleted.saturating_sub(report.bytes_written));
    Ok(report)
}

/// What these arguments ask for.
///
/// # Errors
/// [`Error::Usage`] for a negative grace period, and for locks that are not for a time of days.
pub fn options(session: &Session, arguments: &PruneArguments) -> Result<PruneOptions> {
    let grace = Duration::try_from(arguments.grace)
        .map_err(|_| Error::Usage(format!("a grace period of {} is negative", arguments.grace)))?;
    Ok(PruneOptions {
        grace,
        extend_locks: arguments.extend_locks.as_ref().map(lock_period).transpose()?,
        dry_run: arguments.dry_run,
        allow_no_containers: arguments.allow_no_containers,
        repack_bytes_max: arguments.repack.map_or(u64::MAX, |size| size.0),
        container_bytes: location::config(&session.options)?.container.bytes_target.0,
        patience: PATIENCE,
        recompress_threads: 0,
        min_age: arguments.min_age.map(|age| age.unsigned_abs()),
        skipped_rule: SkippedRule::Nothing,
    })
}

/// Fails if there is data and no snapshot, or if all were gone at once. An empty directory may be a mount point whose
/// share is away. Those that this command has `forgotten` were there.
///
/// # Errors
/// [`Error::Usage`], and errors of the store.
pub fn check_snapshots(repository: &Repository, forgotten: &[SnapshotId]) -> Result<()> {
    if forgotten.is_empty() && bytes_without_snapshots(repository.store.as_ref())? > 0 {
        return Err(Error::Usage(
            "there is no snapshot, so all data would be deleted; if no share is away, say --allow-no-snapshots".into(),
        ));
    }
    match vanished::count(repository)? {
        0 => Ok(()),
        gone => Err(Error::Usage(no_snapshots::describe_gone(gone))),
    }
}

/// The time for which a prune locks what stays. Longer than ten years is a slip: nobody can take such a lock back.
fn lock_period(period: &Span) -> Result<Duration> {
    let days = period.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    let bounds = Duration::from_secs(LOCK_DAYS_MIN * 86_400)..=Duration::from_secs(LOCK_DAYS_MAX * 86_400);
    days.and_then(|days| Duration::try_from(days).ok()).filter(|days| bounds.contains(days)).ok_or_else(|| {
        Error::Usage(format!("cannot lock for {period:#}: expected between {LOCK_DAYS_MIN}d and {LOCK_DAYS_MAX}d"))
    })
}

/// Prints what a prune has done.
///
/// # Errors
/// Errors of writing.
pub fn write_report(out: &mut dyn Write, report: &PruneReport) -> Result<()> {
    let would = if report.dry_run { " (not done)" } else { "" };
    let freed = report.bytes_deleted.saturating_sub(report.bytes_written);
    let mut pairs = vec![
        ("snapshots", report.snapshots.to_string()),
        ("containers", format!("{}, {}", report.containers, size(report.bytes))),
        ("needed", size(report.bytes_needed)),
        ("deleted", format!("{} containers, {}{would}", report.containers_deleted, size(report.bytes_deleted))),
        ("written", format!("{} containers, {}{would}", report.containers_written, size(report.bytes_written))),
        ("freed", format!("{}{would}", size(freed))),
    ];
    if report.bytes_loose > 0 {
        pairs.push(("short frames", format!("{} in containers that can be compressed more", size(report.bytes_loose))));
    }
    if report.containers_young > 0 {
        let (count, bytes) = (report.containers_young, size(report.bytes_young));
        pairs.push(("waiting", format!("{count} unneeded containers, {bytes}, younger than the grace period")));
    }
    if report.containers_min_age > 0 {
        let (count, bytes) = (report.containers_min_age, size(report.bytes_min_age));
        let gib_months = report.byte_days_min_age as f64 / f64::from(1 << 30) / 30.0;
        let billed = format!("deleted now, they would be billed for {gib_months:.3} GiB-months more");
        pairs.push(("put off", format!("{count} unneeded containers, {bytes}, younger than --min-age: {billed}")));
    }
    let others = [
        ("held", report.containers_held, "containers that a backup relies on"),
        ("refused", report.containers_refused, "containers that the store does not let go, to be tried again"),
        ("dead writers", report.intents_broken, "intents broken"),
        ("dead prunes", report.prunes_finished, "finished"),
    ];
    pairs.extend(
        others.iter().filter(|other| other.1 > 0).map(|(name, count, what)| (*name, format!("{count} {what}"))),
    );
    if let Some(until) = report.locked_until {
        let (count, bytes) = (report.containers_locked, size(report.bytes_locked));
        pairs.push(("locked", format!("{count} containers that nobody needs, {bytes}; the last lock ends {until:.0}")));
    }
    if report.locks_extended > 0 {
        pairs.push(("locks", format!("{} extended{would}", report.locks_extended)));
    }
    if report.withdrawn {
        pairs.push(("withdrawn", WITHDRAWN.into()));
    }
    write_pairs(out, &pairs)
}
