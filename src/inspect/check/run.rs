//! Runs the steps of a check and collects their defects in a report.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::damaged_containers::{DamagedContainers, LostChunks, count_bad};
use super::defect_log::{DEFECTS_MAX, DefectLog, damage};
use super::read_data::ReadData;
use super::trees::{self, WalkDepth};
use super::{cold, containers, hints, marked, parity, segments};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::container::{self, blob_name};
use crate::repo::heal::Healable;
use crate::repo::index::{self, ContainerListing};
use crate::repo::keys;
use crate::repo::marks::{BadParts, Marks, Quarantine};
use crate::repo::pause::pause;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::store::{BlobKind, BlobName, ListedBlob, Store};
use crate::types::{ContainerId, SnapshotId};

/// Times that the repository is checked because containers vanish meanwhile, or more within the time that follows.
const ATTEMPTS_MAX: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before the first time, which grows with each.
const PAUSE: Duration = Duration::from_millis(100);

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Snapshots that load.
    pub snapshots: u64,
    /// Index segments that open.
    pub segments: u64,
    /// All containers, sound or damaged.
    pub containers: u64,
    /// Chunk entries of containers with a readable index.
    pub chunks: u64,
    /// Frames of those containers.
    pub frames: u64,
    /// Bytes of all containers.
    pub bytes_stored: u64,
    /// Decoded bytes of the chunk entries.
    pub bytes_raw: u64,
    /// Containers that were read whole.
    pub containers_read: u64,
    /// Bytes of these containers.
    pub bytes_read: u64,
    /// Containers that are damaged, and that parity or their hot indexes give back. They are no defect.
    pub containers_healed: u64,
    /// Containers that are damaged in their padding only, which is no defect.
    pub padding_damaged: u64,
    /// Snapshots, segments and marks that are damaged, and that parity has given back.
    pub short_blobs_healed: u64,
    /// Blobs whose parity was read and is sound.
    pub parity_read: u64,
    /// Blobs whose parity is damaged. They are no defect.
    pub parity_damaged: u64,
    /// Blobs whose parity was to be read and is in cold storage.
    pub parity_cold: u64,
    /// Blobs whose parity was to be read or used, and takes more memory than there is for it.
    pub parity_too_large: u64,
    /// What the hot indexes of a cold repository are like.
    pub hot_indexes: cold::HotIndexCounts,
    /// Containers that no segment lists. They are no defect: the next backup adds them to the index.
    pub unreferenced_containers: u64,
    /// Number of defects; 0 for a sound repository.
    pub defect_count: u64,
    /// The first 1000 texts of defects: damaged blobs come before defects that they cause. One text tells of all
    /// damaged frames of a container, and one of all its chunks that cannot be read.
    pub defects: Vec<String>,
    /// Number of defects of which no text tells.
    #[serde(skip)]
    pub defects_more: u64,
    /// Number of parts that only a newer version can read. They are no defects.
    pub newer_count: u64,
    /// The first 1000 of them.
    pub newer: Vec<String>,
    /// Damage that costs nothing: of what marks list and no snapshot needs, of what is gone and no snapshot needs, and
    /// of bundles. At most 1000 lines, and hints about key slots.
    pub notes: Vec<String>,
    /// Damaged frames of containers with a readable index, as far as the data was read.
    pub bad_frames: u64,
    /// Chunk entries that cannot be read, of containers with a readable index.
    pub bad_chunks: u64,
    /// Containers that are missing or have no readable index.
    pub bad_containers: u64,
    /// Containers that are missing, or cannot be looked at, although segments or marks refer to them and a snapshot
    /// may need them.
    #[serde(skip)]
    pub missing_containers: u64,
    /// What is bad, and what marks list of containers that were not read. Without those that are gone and that no
    /// snapshot needs.
    #[serde(skip)]
    pub bad: Quarantine,
    /// Whether the data of all containers was read.
    #[serde(skip)]
    pub is_everything_read: bool,
    /// The containers that were read whole, and whether each is sound. Without those that only a newer version can
    /// read.
    #[serde(skip)]
    pub read: Vec<(ContainerId, bool)>,
    /// What can be written back, besides what parity has rebuilt.
    #[serde(skip)]
    pub healable: Healable,
    /// All containers. None if a directory of them could not be listed: then nobody knows which are gone.
    #[serde(skip)]
    pub listed: HashSet<ContainerId>,
}

impl CheckReport {
    pub(super) fn set_listed(&mut self, listing: &ContainerListing) {
        if listing.unlistable().is_empty() {
            self.listed.clone_from(&listing.containers);
        }
    }
}

/// The inputs that all steps of a check share.
pub(super) struct CheckRun<'a> {
    pub repository: &'a Repository,
    pub config: &'a Config,
    pub listing: Arc<ContainerListing>,
    pub read_data: ReadData,
    /// Whether all containers are checked, not only those that some snapshots need.
    pub is_whole: bool,
    /// Containers that seem to be of a newer version, and whose bytes are not what their names say.
    pub disproved: Mutex<HashSet<ContainerId>>,
    /// Whether there are segments that only a newer version can read.
    pub has_newer_segments: bool,
    pub progress: &'a Progress,
    pub stop: &'a Arc<AtomicBool>,
}

impl CheckRun<'_> {
    /// Fails with [`Error::Interrupted`] once the user has asked to stop.
    pub(super) fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn disproved(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.disproved.lock()
    }

    /// Notes that a container is of no newer version.
    pub(super) fn disprove(&self, id: ContainerId) {
        self.disproved().insert(id);
    }

    /// What a reader has met: what seems to be of a newer version may have proved wrong.
    pub(super) fn judged<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|error| match error {
            Error::Unsupported { what, .. } if self.is_disproved(&what) => {
                Error::corrupt(what, 0, "the bytes that its name says", "others")
            }
            error => error,
        })
    }

    /// Whether `what`, as errors name things, is such a container or in one.
    fn is_disproved(&self, what: &str) -> bool {
        let id = what.split(',').next().and_then(container::parse_name);
        id.is_some_and(|id| self.disproved().contains(&id))
    }
}

/// Checks the structure of a repository, and every byte of the containers that `read_data` chooses.
///
/// `progress` counts containers as files, and the bytes of those that are read.
///
/// # Errors
/// Fails if the store cannot be read for a reason other than damage, and with [`Error::Interrupted`] once `stop` is
/// set. Damage is reported, not returned.
pub fn check(
    repository: &Repository,
    config: &Config,
    read_data: impl Into<ReadData>,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    run_check(repository, config, None, read_data.into(), progress, stop)
}

/// Like [`check`], for what a restore of `snapshots` needs: their trees, and the containers that have their chunks,
/// with the bases of these. The rest of the repository costs nothing.
///
/// # Errors
/// Errors of [`check`].
pub fn check_snapshots(
    repository: &Repository,
    config: &Config,
    snapshots: &[NamedSnapshot],
    read_data: impl Into<ReadData>,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    run_check(repository, config, Some(snapshots), read_data.into(), progress, stop)
}

fn run_check(
    repository: &Repository,
    config: &Config,
    chosen: Option<&[NamedSnapshot]>,
    read_data: ReadData,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    let repository = &repository.stopped_by(stop);
    let (started, mut attempt) = (Instant::now(), 1);
    loop {
        let (report, checked) = check_once(repository, config, chosen, read_data, progress, stop)?;
        let is_last = attempt >= ATTEMPTS_MAX && started.elapsed() >= PATIENCE;
        if report.defect_count == 0 || is_last || !has_lost_any(repository, &checked)? {
            return Ok(report);
        }
        tracing::info!("another process has deleted something meanwhile; checking again");
        pause(PAUSE * attempt.min(ATTEMPTS_MAX), stop)?;
        attempt += 1;
    }
}

/// Whether any of these containers and segments was deleted since.
fn has_lost_any(repository: &Repository, checked: &HashSet<BlobName>) -> Result<bool> {
    let mut left: HashSet<&BlobName> = checked.iter().collect();
    for kind in [BlobKind::Container, BlobKind::Segment] {
        match repository.store.list(kind.into()) {
            Err(Error::Unreadable { .. }) => return Ok(false),
            listed => listed?.iter().for_each(|blob| _ = left.remove(&blob.name)),
        }
    }
    // What a listing lacks may be there.
    Ok(left.into_iter().any(|name| matches!(repository.store.head(name), Ok(None))))
}

fn check_once(
    repository: &Repository,
    config: &Config,
    chosen: Option<&[NamedSnapshot]>,
    read_data: ReadData,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<(CheckReport, HashSet<BlobName>)> {
    let (mut report, mut log) = (CheckReport::default(), DefectLog::default());
    // Before anything is read that parity may give back.
    let marks = Marks::read(repository.store.as_ref())?;
    marks.set_parity(repository);
    for (kind, error) in repository.config_defects() {
        log.damaged_blob(kind.directory(), &damage(error)?);
    }
    let all = match chosen {
        Some(_) => Vec::new(),
        None => {
            let slots = keys::inspect_slots(repository)?;
            slots.damaged.iter().for_each(|(name, error)| log.damaged_blob(name, error));
            report.notes.extend(slots.hints);
            hints::catalogues(repository, &mut log)?;
            hints::bundles(repository, &mut report, &mut log)?;
            hints::all_clues(repository, &mut report, &mut log)?;
            claims(repository, &mut log)?;
            hints::read_records(repository, &mut report)?;
            all_snapshots(repository, &mut log)?
        }
    };
    let snapshots = chosen.unwrap_or(&all);
    report.snapshots = snapshots.len() as u64;

    let mut listing = ContainerListing::take(&repository.store)?;
    for id in listing.add_unlisted()? {
        report.notes.push(format!("a listing lacked {}, which was asked for by its name", blob_name(&id)));
    }
    let has_newer_segments = segments::unopened(&mut listing, &mut log, stop)?;
    for (name, error) in marks.damaged {
        log.damaged_blob(&name, &damage(error)?);
    }
    report.segments = listing.segments().len() as u64;
    report.set_listed(&listing);
    let mut checked: HashSet<BlobName> = listing.containers.iter().map(blob_name).collect();
    checked.extend(listing.segments().iter().map(|segment| segment.name().clone()));
    let run = CheckRun {
        repository,
        config,
        listing: Arc::new(listing),
        read_data,
        is_whole: chosen.is_none(),
        disproved: Mutex::default(),
        has_newer_segments,
        progress,
        stop,
    };
    if run.is_whole {
        index::cache_container_indexes(repository.store.as_ref(), &run.listing.containers)?;
    }
    if chosen.is_some() {
        needed_data(&run, snapshots, &mut report, &mut log)?;
    } else {
        stored_data(&run, snapshots, &mut report, &mut log)?;
    }
    parity::check(&run, &mut report).and_then(|()| cold::check(&run, &mut report, &mut log))?;
    (report.newer_count, report.newer) = (log.newer_count(), log.take_newer());
    report.defect_count = log.count();
    (report.defects, report.defects_more) = log.into_texts();
    Ok((report, checked))
}

/// Loads all snapshots, and logs those that are damaged.
fn all_snapshots(repository: &Repository, log: &mut DefectLog) -> Result<Vec<NamedSnapshot>> {
    let (snapshots, damaged) = match snapshot::list(repository.store.as_ref()) {
        Err(error @ Error::Unreadable { .. }) => (Vec::new(), vec![(BlobKind::Snapshot.to_string(), error)]),
        listed => listed?,
    };
    // A missing snapshot was deleted on purpose after the listing.
    for (name, error) in damaged.into_iter().filter(|(_, error)| error.kind() != ErrorKind::NotFound) {
        log.damaged_blob(&name, &damage(error)?);
    }
    Ok(snapshots)
}

/// The blobs of a kind. Logs that their directory cannot be listed.
pub(super) fn listed_or_logged(store: &dyn Store, kind: BlobKind, log: &mut DefectLog) -> Result<Vec<ListedBlob>> {
    match store.list(kind.into()) {
        Err(error @ Error::Unreadable { .. }) => {
            log.damaged_blob(kind.directory(), &error);
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Logs a directory of claims that cannot be listed. Claims themselves come and go.
fn claims(repository: &Repository, log: &mut DefectLog) -> Result<()> {
    let kinds = [BlobKind::Intent, BlobKind::Pending];
    kinds.into_iter().try_for_each(|kind| listed_or_logged(repository.store.as_ref(), kind, log).map(drop))
}

/// Checks segments, containers and trees.
fn stored_data(
    run: &CheckRun<'_>,
    snapshots: &[NamedSnapshot],
    report: &mut CheckReport,
    log: &mut DefectLog,
) -> Result<()> {
    let known = run.listing.quarantine();
    let mut damaged = DamagedContainers::default();
    segments::check(run, &mut damaged, log)?;
    containers::check(run, None, report, &mut damaged)?;
    let gone = marked::gone(run, &known)?;
    let lost = gone.iter().filter(|id| known.of(id) == Some(&BadParts::Whole));
    lost.for_each(|id| damaged.miss(*id, "a mark"));
    report.is_everything_read = run.read_data == ReadData::Everything;
    let unread = marked::unread(&known, report, &gone);
    take_note(run, if report.is_everything_read { &unread } else { &known }, &damaged, report);
    run.listing.take_orphans_used();
    let mut trees_log = DefectLog::default();
    let walk = trees::check(run, snapshots, WalkDepth::Located, &mut trees_log)?;
    finish(run, &known, damaged, &walk.lost, report, log);
    log.merge(trees_log);
    note_left_out(&walk.left_out, report);
    orphans_used(run, log)?;
    // What is gone was lost, or a prune has deleted it: only if all snapshots are there and whole, nobody needs it.
    let is_any_known = !snapshots.is_empty() || run.listing.containers.is_empty() && run.listing.segments().is_empty();
    if !log.is_empty() || !is_any_known {
        marked::retain(&known, &gone, report);
        count_bad(report);
    }
    Ok(())
}

/// Walks the trees of `snapshots` and checks the containers that they need.
fn needed_data(
    run: &CheckRun<'_>,
    snapshots: &[NamedSnapshot],
    report: &mut CheckReport,
    log: &mut DefectLog,
) -> Result<()> {
    let known = run.listing.quarantine();
    let mut damaged = DamagedContainers::default();
    let mut checked: HashSet<ContainerId> = HashSet::new();
    loop {
        run.listing.take_orphans_used();
        let mut trees_log = DefectLog::default();
        let walk = trees::check(run, snapshots, WalkDepth::Traced, &mut trees_log)?;
        let new: HashSet<ContainerId> = walk.needed.iter().filter(|id| checked.insert(**id)).copied().collect();
        if !new.is_empty() {
            containers::check(run, Some(&new), report, &mut damaged)?;
        }
        // A chunk whose entry proved bad may be in a container that is not checked yet.
        if new.is_empty() || damaged.is_empty() {
            take_note(run, &known, &damaged, report);
            finish(run, &known, damaged, &walk.lost, report, log);
            log.merge(trees_log);
            note_left_out(&walk.left_out, report);
            break;
        }
        take_note(run, &known, &damaged, report);
    }
    for name in run.listing.damaged_segments() {
        log.add(format!("{name} is damaged; the next backup replaces it"));
    }
    orphans_used(run, log)
}

/// Notes the snapshots whose defects do not count.
fn note_left_out(left_out: &[(SnapshotId, &str)], report: &mut CheckReport) {
    let left = DEFECTS_MAX.saturating_sub(report.notes.len());
    let notes = left_out.iter().take(left);
    report.notes.extend(notes.map(|(id, reason)| format!("snapshot {id:.8} {reason}, so its defects do not count")));
}

/// Puts what is bad into the report, and what marks list of what was not read. From here on, readers know it.
pub(super) fn take_note(
    run: &CheckRun<'_>,
    unread: &Quarantine,
    damaged: &DamagedContainers,
    report: &mut CheckReport,
) {
    report.bad = damaged.quarantine();
    count_bad(report);
    report.bad.merge(unread);
    let mut unreliable = damaged.unreliable();
    unreliable.merge(&report.bad);
    run.listing.set_quarantine(Arc::new(unreliable));
}

/// Logs the damaged containers.
fn finish(
    run: &CheckRun<'_>,
    known: &Quarantine,
    damaged: DamagedContainers,
    lost: &LostChunks,
    report: &mut CheckReport,
    log: &mut DefectLog,
) {
    let named: HashSet<_> =
        run.listing.segments().iter().flat_map(|segment| segment.containers().iter().copied()).collect();
    log.merge(damaged.finish(known, lost, &named, report));
    count_bad(report);
}

/// Logs the containers that trees need and no segment lists. The segments are listed again: a prune may have put one.
fn orphans_used(run: &CheckRun<'_>, log: &mut DefectLog) -> Result<()> {
    let used = run.listing.take_orphans_used();
    // A segment of a newer version may list them.
    if used.is_empty() || run.has_newer_segments {
        return Ok(());
    }
    let segments = run.listing.refresh()?;
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    // One that a reader has found later than the first listing may be deleted since.
    let is_there = |id: &&ContainerId| !matches!(run.repository.store.head(&blob_name(id)), Ok(None));
    for id in used.iter().filter(|id| !named.contains(id)).filter(is_there) {
        log.consequence(format!("{} is in no index segment, but a snapshot needs it", blob_name(id)));
    }
    Ok(())
}
