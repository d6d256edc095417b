//! Report: all that one page says of a repository.
//!
//! 1. Its state is that of [`super::status`], its space that of [`super::stats`] and [`super::usage`].
//! 2. Its growth comes from the counters that each backup recorded in its snapshot ([`growth`]).
//! 3. Its models are those of [`super::lineage`], summed by family ([`families`]), its runs those of the snapshots.
//!
//! No content is read. Memory is bounded as in these modules.

pub mod families;
pub mod growth;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use super::lineage::{FamilyMember, FoundFamilies, lineage};
use super::stats::{RepositoryStats, repository_stats};
use super::status::{RepositoryStatus, status};
use super::usage::{RepositoryUsage, usage_of_all};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::checkpoint::{RunStep, runs};
use crate::repo::naming::SnapshotFilter;
use crate::repo::snapshot::NamedSnapshot;

/// What a page says of a repository.
#[derive(Debug)]
pub struct RepositoryReport {
    /// Its state at a glance. It names the snapshots that cannot be read.
    pub status: RepositoryStatus,
    /// What is stored.
    pub stats: RepositoryStats,
    /// What the snapshots hold.
    pub usage: RepositoryUsage,
    /// The snapshots, oldest first.
    pub snapshots: Vec<NamedSnapshot>,
    /// Their models, each after the one that it is stored against.
    pub members: Vec<FamilyMember>,
    /// Why the models are not known, if they are not.
    pub models_unread: Option<Error>,
    /// The training runs with their steps.
    pub runs: BTreeMap<String, Vec<RunStep>>,
}

/// Reads the report. `snapshots` are all readable ones, oldest first.
///
/// # Errors
/// Errors of the store. Damage is in the report. [`Error::Interrupted`] once `stop` is set.
pub fn report(repository: &Repository, snapshots: Vec<NamedSnapshot>, stop: &AtomicBool) -> Result<RepositoryReport> {
    let status = status(repository, &SnapshotFilter::default())?;
    let usage = usage_of_all(repository, &snapshots, stop)?;
    let stats = repository_stats(repository)?;
    // As `models --all` does: of several snapshots with one content, the latest counts.
    let latest_first: Vec<NamedSnapshot> = snapshots.iter().rev().cloned().collect();
    let (members, models_unread) = match lineage(repository, &latest_first, stop) {
        Ok(FoundFamilies { members, skipped }) => (members, skipped.error()),
        Err(error) if error.is_unreadable() => (Vec::new(), Some(error)),
        Err(error) => return Err(error),
    };
    let runs = runs(latest_first.into_iter().rev().collect(), status.now_ns);
    Ok(RepositoryReport { status, stats, usage, snapshots, members, models_unread, runs })
}
