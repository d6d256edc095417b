//! Rewrite: stores a snapshot again without what patterns name.
//!
//! A backup reads the snapshot in place of a source tree. It finds all contents stored, so only listings are written,
//! and the commit is that of a backup. The original is deleted afterwards, on request.
//!
//! The new snapshot has the host, paths and time of the original, so rules of `forget` may keep it in place of that.
//! So it is stored only if all of the original could be read, unless the user asks for the rest, and only while the
//! original is there.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backup::{BackupReport, BackupRequest, CopyPurpose, SnapshotSource, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::overwritten::check_deletable;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::types::SnapshotId;

/// What a rewrite leaves out, and what happens then.
#[derive(Debug, Clone)]
pub struct RewriteRequest {
    /// Entries to leave out, with all that is below them. The root of the snapshot is `/`.
    pub exclude: Patterns,
    /// The same as the new snapshot records it, an option and its value each.
    pub excludes: Vec<String>,
    /// Delete the original, unless something of it could not be read.
    pub forget: bool,
    /// Store a new snapshot although something of the original cannot be read.
    pub allow_problems: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What became of a snapshot.
#[derive(Debug)]
pub struct RewriteOutcome {
    /// Its counts without what is left out. Nothing is stored if it leaves out nothing.
    pub report: BackupReport,
    /// The new snapshot. None if nothing is left out, or something could not be read.
    pub rewritten: Option<SnapshotId>,
    /// Whether the original was deleted.
    pub forgotten: bool,
}

/// Rewrites a snapshot.
///
/// # Errors
/// Errors of [`backup`], and of the store. [`Error::NoSuchSnapshot`] if the original was deleted meanwhile.
pub fn rewrite(
    repository: &Repository,
    config: &Config,
    original: &NamedSnapshot,
    request: &RewriteRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<RewriteOutcome> {
    let source = SnapshotSource {
        repository: repository.clone(),
        original: original.clone(),
        purpose: CopyPurpose::Rewrite(request.excludes.clone()),
        exclude: request.exclude.clone(),
        previous: None,
        problems_limit: (!request.allow_problems).then_some(1),
    };
    let run = |dry_run, progress: &Progress| {
        let request = BackupRequest { dry_run, ..BackupRequest::new(source.clone()) };
        let report = backup(repository, config, &request, progress, stop);
        report.map_err(|error| snapshot::explain_loss(repository.store.as_ref(), [&original.id], error))
    };
    repository.check_writable()?;
    let expected = run(true, &Progress::default())?;
    let is_poor = expected.problems > 0 && !request.allow_problems;
    if expected.excluded == 0 || is_poor || request.dry_run {
        return Ok(RewriteOutcome { report: expected, rewritten: None, forgotten: false });
    }
    if request.forget {
        check_deletable(repository, &original.id)?;
    }
    let report = match run(false, progress) {
        Err(Error::Incomplete { problems, .. }) => {
            let report = BackupReport { problems, ..expected };
            return Ok(RewriteOutcome { report, rewritten: None, forgotten: false });
        }
        report => report?,
    };
    let rewritten = SnapshotId::parse(&report.snapshot);
    let forgotten = request.forget && report.problems == 0 && rewritten.is_some();
    if forgotten {
        snapshot::delete(repository.store.as_ref(), &original.id)?;
    }
    Ok(RewriteOutcome { report, rewritten, forgotten })
}
