//! A backup run: prepares the stages, runs them and commits the snapshot.
//!
//! 1. The source is looked at. Containers of interrupted runs are adopted, damaged index segments are replaced, and the
//!    parent snapshots are chosen.
//! 2. The source is opened and gives its first stages ([`super::source`]).
//! 3. The stages run ([`super::stages`]); afterwards everything that the snapshot refers to is durable.
//! 4. [`super::commit`] holds what the run relies on, completes the index and writes the snapshot. If a prune was
//!    faster, the run starts again. Afterwards small index segments are merged.
//!
//! A dry run adopts and replaces nothing, stops the stages after Dedup, and skips 4.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::commit::{Commit, SnapshotStart};
use super::counts::ReadCounts;
use super::indexes::Indexes;
use super::report::BackupReport;
use super::request::BackupRequest;
use super::segments::{care_after_commit, heal_segments};
use super::source::{FoundParents, OpenSource, SourceKind, SourceRun};
use super::stages::{run_dry_stages, run_stages};
use super::wiring::{RunParts, Wiring};
use crate::config::{Config, ModelDelta, StrategyKind};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::{Progress, StageMetrics};
use crate::repo::Repository;
use crate::repo::adopt::{adopt_orphans, count_lost};
use crate::repo::clock::{is_future, shown_time};
use crate::repo::cold;
use crate::repo::features;
use crate::repo::index::{ContainerListing, SharedContainerIndexes};
use crate::repo::marks::Marks;
use crate::repo::paths::{NO_CACHE, cache_directory, create_private};
use crate::repo::pause::{jittered, pause};
use crate::repo::reliance::LookPatience;

/// Runs over the source, at most: a prune beside a backup may delete what the backup relies on.
const RUNS_MAX: u32 = 10;
/// The pause before the second run. Each one after that is twice as long, up to the maximum.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What a run finds before its stages start.
struct Prepared {
    listing: Arc<ContainerListing>,
    containers_adopted: u64,
    parents: FoundParents,
    /// Directory of the caches.
    cache: PathBuf,
    /// What the run loads, it relies on.
    container_indexes: Arc<SharedContainerIndexes>,
}

/// Runs a backup. A problem with a single entry is logged (`tracing::warn!`) and counted, and the backup goes on.
///
/// # Errors
/// Any failure that would leave the snapshot incomplete: of the store, of the configuration, an interruption, or
/// [`Error::Usage`] if the source has nothing to store.
pub fn backup(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupReport> {
    let repository = &repository.stopped_by(stop);
    repository.check_run(&config.repository)?;
    let runs_max = if request.source.kind().is_repeatable() { RUNS_MAX } else { 1 };
    for run in 1..runs_max {
        match run_once(repository, config, request, progress, stop) {
            // A container that is read may also vanish before the look.
            Err(error) if matches!(error, Error::Pruned { .. }) || error.kind() == ErrorKind::NotFound => {
                let time = if request.without_pauses { Duration::ZERO } else { pause_after(run) };
                tracing::warn!("{error}; waiting {:.1} s, then starting again", time.as_secs_f64());
                pause(jittered(time), stop)?;
            }
            result => return result,
        }
    }
    run_once(repository, config, request, progress, stop)
}

/// The pause after run number `run`, counted from 1.
fn pause_after(run: u32) -> Duration {
    PAUSE.saturating_mul(1 << (run - 1).min(16)).min(PAUSE_MAX)
}

/// Warns if the time that the user gave is later than now.
fn warn_of_future(source: &dyn SourceKind, now_ns: i64) {
    let given = source.labels().and_then(|labels| labels.time_ns);
    if let Some(given) = given.filter(|given| is_future(*given, now_ns)) {
        tracing::warn!("the snapshot is from the future: its time is {}", shown_time(given));
    }
}

/// What cannot run again waits for a prune instead.
fn patience_of(request: &BackupRequest) -> LookPatience {
    match request.source.kind().is_repeatable() {
        true => LookPatience::Once,
        false => LookPatience::Stream { with_pauses: !request.without_pauses },
    }
}

/// The configuration of a run into a cold repository: what is stored there cannot be read, so nothing is copied from
/// it, and no model is compared with a stored one.
fn cold_config(config: &Config) -> Config {
    let mut config = config.clone();
    config.subdedup.strategy = StrategyKind::None;
    config.model.delta = ModelDelta::None;
    config
}

/// One run over the source. Fails with [`Error::Pruned`] if a prune has deleted, or may delete, what it relies on.
fn run_once(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupReport> {
    let (started, started_ns) = (Instant::now(), repository.clock.now_ns());
    let source = request.source.kind();
    let plan = source.plan()?;
    let paths = plan.paths.clone();
    let Prepared { listing, containers_adopted, parents, cache, container_indexes } =
        &prepare(repository, request, &paths)?;
    let cold = cold::is_cold(repository).then(|| cold_config(config));
    let config = cold.as_ref().unwrap_or(config);
    let counts = &Arc::new(ReadCounts { without_names: request.without_names, ..ReadCounts::default() });
    let indexes = Indexes::open(repository, &config.index, listing, container_indexes.clone(), cache.clone());
    let OpenSource { first, root_node, counts_changes } = plan.open(SourceRun {
        repository,
        config,
        listing,
        container_indexes,
        parents: &parents.snapshots,
        others: &parents.others,
        counts_gone: !parents.has_others,
        cache,
        started_ns,
        progress,
        counts,
        stop,
    })?;
    let parent = parents.snapshots.first().map(|parent| parent.id);
    let features = features::of(repository)?;
    let parts = RunParts { repository, config, indexes: &indexes, progress, counts, time_ns: started_ns, features };
    let wiring = Wiring::new(parts, stop);
    let (saved, metrics, snapshot, index_hits) = if request.dry_run {
        run_dry_stages(wiring, first).map(|(saved, metrics)| (saved, metrics, String::new(), indexes.hits()))?
    } else {
        let start = SnapshotStart { started_ns, paths, parent, root_node };
        let commit = Commit::new(repository, source, listing, &indexes, patience_of(request));
        let committed = run_stages(wiring, first).and_then(|(saved, metrics)| {
            let (id, index_hits) = commit.run(start, &saved, counts)?;
            Ok((saved, metrics, id, index_hits))
        });
        let committed = committed.inspect_err(|_| commit.take_back());
        let released = commit.release();
        let (saved, metrics, id, index_hits) = committed?;
        let may_delete = released.inspect_err(|_| {
            tracing::error!("snapshot {id:.8} is whole, but readers leave it out until a prune has looked at it");
        })?;
        indexes.after_commit(may_delete);
        may_delete.then(|| care_after_commit(repository, listing, cache, parents.listed, stop));
        (saved, metrics, id.to_string(), index_hits)
    };
    Ok(BackupReport {
        snapshot,
        dry_run: request.dry_run,
        parent: parent.map(|parent| parent.to_string()),
        containers_adopted: *containers_adopted,
        containers_unread: listing.unread_count(),
        marks_unread: listing.marks_unread(),
        seconds: started.elapsed().as_secs_f64(),
        index_hits,
        similar_hits: indexes.similar_hits(),
        stages: metrics.iter().map(StageMetrics::summary).collect(),
        durable_us: indexes.durable_us(),
        metrics,
        ..BackupReport::of_counts(&saved, counts, counts_changes)
    })
}

/// Readies the repository for the run, unless nothing may be written, and finds the parents.
fn prepare(repository: &Repository, request: &BackupRequest, paths: &[Vec<u8>]) -> Result<Prepared> {
    warn_of_future(request.source.kind(), repository.clock.now_ns());
    let mut cache = cache_directory(repository)?;
    if let Err(error) = create_private(&cache) {
        if cache != Path::new(NO_CACHE) {
            tracing::warn!("nothing is cached, so more is read and similar data may not be found: {error}");
        }
        // So no cache says it again.
        cache = NO_CACHE.into();
    }
    let (listing, containers_adopted) = if request.dry_run {
        repository.store.make_directories(true)?;
        let mut listing = ContainerListing::take(&repository.store)?;
        listing.forget_orphans();
        count_lost(&mut listing, &HashSet::new())?;
        (Arc::new(listing), 0)
    } else {
        repository.check_writable()?;
        let marks = Marks::read(repository.store.as_ref())?;
        marks.admit_writer(repository)?;
        repository.store.clean_temporaries()?;
        repository.ready_directories()?;
        if repository.config_is_doubtful
            && let Err(error) = repository.heal_config()
        {
            if error.kind() == ErrorKind::Interrupted {
                return Err(error);
            }
            tracing::warn!("a copy of the configuration is damaged and cannot be written again: {error}");
        }
        let (listing, containers_adopted) = adopt_orphans(repository, marks)?;
        heal_segments(repository, &listing)?;
        (listing, containers_adopted)
    };
    let parents = request.source.kind().parents(repository, paths)?;
    Ok(Prepared { listing, containers_adopted, parents, cache, container_indexes: Arc::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_all_of_them_take_less_than_two_minutes() {
        let pauses: Vec<Duration> = (1..RUNS_MAX).map(pause_after).collect();
        assert!(pauses.is_sorted() && pauses[0] < pauses[1] && pauses[0] >= Duration::from_millis(200), "{pauses:?}");
        let sum: Duration = pauses.iter().sum();
        assert!((Duration::from_secs(60)..Duration::from_secs(120)).contains(&sum), "{sum:?}");
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
    }
}
