//! Checks containers in parallel: each worker takes a container and returns its statistics and defects.
//!
//! 1. Header, footer and container index parse. Every entry resolves, and its extents are within their frames.
//! 2. A container that `read_data` chooses is read whole: its bytes must match its name. Frames are decoded in order,
//!    and each entry is assembled right after its own frame is decoded, so that frame is still in the cache.
//! 3. What is not found is looked for again, in a new listing, before it counts as missing ([`super::missing`]).

use std::collections::HashSet;
use std::sync::Arc;

use super::cold::{is_rebuilt, note_rebuilt};
use super::damaged_containers::DamagedContainers;
use super::defect_log::{AlikeDefects, DefectLog, damage, damage_or_cold};
use super::missing::MissingParts;
use super::run::{CheckReport, CheckRun};
use super::segments::name_defect;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::pipeline::{Emit, Map, Pipeline, Sink, Source, Weigh};
use crate::repo::claims::{ClaimKind, ContainerClaim};
use crate::repo::cold::is_cold;
use crate::repo::container::{
    ContainerEntry, ContainerIndex, ContainerNumber, EntryNumber, FrameNumber, blob_name, parse_name, read_kind,
};
use crate::repo::marks::{BadParts, PositionSet};
use crate::repo::read::ChunkReader;
use crate::store::{BlobKind, BlobName, ListedBlob, Reading, StoreExt};
use crate::types::ContainerId;

/// Whole containers that are fetched from a remote store at once, at most.
const DOWNLOADS_MAX: usize = 4;
/// The workers share one part in this many of the memory for decoded frames. Whole containers in hand need the rest.
const CACHE_SHARE: usize = 2;
/// Minimum frame cache of a worker, bytes.
const CACHE_BYTES_MIN: usize = 4 << 20;

/// Checks every container of the listing, or those of them that are `needed`.
pub(super) fn check(
    run: &CheckRun<'_>,
    needed: Option<&HashSet<ContainerId>>,
    report: &mut CheckReport,
    damaged: &mut DamagedContainers,
) -> Result<()> {
    let mut incomplete: HashSet<ContainerId> = run.listing.orphans().into_iter().collect();
    report.unreferenced_containers = incomplete.len() as u64;
    let pending = pending(run)?;
    incomplete.extend(pending.iter().copied());
    damaged.add_pending(pending);
    let incomplete = Arc::new(incomplete);
    let mut jobs = jobs(run)?;
    jobs.retain(|job| needed.is_none_or(|needed| needed.contains(&job.id)));
    let read = run.read_data.choose(&jobs)?;
    let len_read = jobs.iter().filter(|job| read.contains(&job.id)).map(|job| job.len).sum();
    run.progress.files_total.add(jobs.len() as u64);
    run.progress.bytes_total.add(len_read);
    report.containers_read += read.len() as u64;
    report.bytes_read += len_read;
    let requests_max = run.repository.store.requests_max().min(DOWNLOADS_MAX);
    let workers = run.config.pipeline.workers_of(0).max(requests_max);
    let cache_bytes = (run.config.restore.cache_bytes.0 as usize / CACHE_SHARE / workers).max(CACHE_BYTES_MIN);
    let mut line = Pipeline::new(run.config.pipeline.queue_depth, run.stop.clone());
    let link = line.source(ListStage(jobs));
    let link = line.parallel(link, workers, || CheckWorker {
        run,
        reader: ChunkReader::with_cache(run.repository, run.listing.clone(), cache_bytes),
        incomplete: incomplete.clone(),
        read: &read,
    });
    let (missing, is_cold) = (MissingParts::default(), is_cold(run.repository));
    let collect = CollectSink { report, damaged, missing, progress: run.progress, is_cold };
    let (missing, _) = line.run(link, collect)?;
    missing.look_again(run, &read, damaged)
}

/// The containers that prunes may be deleting.
pub(super) fn pending(run: &CheckRun<'_>) -> Result<HashSet<ContainerId>> {
    let (pending, _) = ContainerClaim::list_with_damaged(run.repository.store.as_ref(), ClaimKind::Pending)?;
    Ok(pending.into_iter().flat_map(|claim| claim.containers).collect())
}

/// The containers of the listing in name order, with their lengths.
fn jobs(run: &CheckRun<'_>) -> Result<Vec<ContainerJob>> {
    let store = run.repository.store.as_ref();
    let listed = match store.list(BlobKind::Container.into()) {
        Err(Error::Unreadable { .. }) => Vec::new(),
        listed => listed?,
    };
    let job = |blob: ListedBlob| Some(ContainerJob { id: parse_name(&blob.name)?, len: blob.len });
    let mut jobs: Vec<ContainerJob> =
        listed.into_iter().filter_map(job).filter(|job| run.listing.has(&job.id)).collect();
    // The listing of the run has what can be found without a directory that is lost or not listed whole.
    let listed: HashSet<ContainerId> = jobs.iter().map(|job| job.id).collect();
    for id in run.listing.containers.difference(&listed).filter(|id| run.listing.has(id)) {
        match store.head(&blob_name(id)) {
            // It was deleted meanwhile.
            Ok(None) => {}
            head => jobs.push(ContainerJob { id: *id, len: head.ok().flatten().map_or(0, |head| head.len) }),
        }
    }
    jobs.sort_by_key(|job| job.id);
    Ok(jobs)
}

/// A container to check.
pub(super) struct ContainerJob {
    pub id: ContainerId,
    /// Bytes of the blob.
    pub len: u64,
}

impl Weigh for ContainerJob {
    fn bytes(&self) -> u64 {
        self.len
    }
}

/// Defects of a container, and possible defects.
#[derive(Default)]
struct Defects {
    log: DefectLog,
    /// Damaged frames, and chunks that cannot be read, which come into the log at the end.
    bad_frames: AlikeDefects,
    bad_chunks: AlikeDefects,
    is_whole_bad: bool,
    frames: PositionSet,
    entries: PositionSet,
    /// Entries with a base that is not found. They are looked at again.
    suspected: PositionSet,
    /// Suspected entries in a container that a backup writes or a prune deletes.
    doubtful: PositionSet,
    /// The container was deleted meanwhile.
    is_gone: bool,
}

impl Defects {
    fn parts(&self) -> BadParts {
        if self.is_whole_bad {
            return BadParts::Whole;
        }
        BadParts::Parts { frames: self.frames.clone(), entries: self.entries.clone() }
    }
}

/// The result for a container.
struct CheckedContainer {
    id: ContainerId,
    bytes_stored: u64,
    chunks: u64,
    frames: u64,
    bytes_raw: u64,
    is_read: bool,
    /// Whether what is damaged is outside its frames, and known: [`is_rebuilt`].
    is_rebuilt: bool,
    defects: Defects,
}

impl Weigh for CheckedContainer {
    fn bytes(&self) -> u64 {
        self.bytes_raw
    }
}

/// The first stage: emits the containers.
struct ListStage(Vec<ContainerJob>);

impl Source for ListStage {
    type Out = ContainerJob;

    fn name(&self) -> &'static str {
        "list"
    }

    fn run(&mut self, emit: &mut Emit<ContainerJob>) -> Result<()> {
        self.0.drain(..).try_for_each(|job| emit.emit(job))
    }
}

/// A worker of the second stage.
struct CheckWorker<'a> {
    run: &'a CheckRun<'a>,
    reader: ChunkReader,
    /// Containers that no segment lists, or that a prune deletes.
    incomplete: Arc<HashSet<ContainerId>>,
    /// Containers to read whole.
    read: &'a HashSet<ContainerId>,
}

impl Map for CheckWorker<'_> {
    type In = ContainerJob;
    type Out = CheckedContainer;

    fn name(&self) -> &'static str {
        "check"
    }

    fn map(&mut self, job: ContainerJob) -> Result<CheckedContainer> {
        let name = blob_name(&job.id);
        let mut checked = CheckedContainer {
            id: job.id,
            bytes_stored: job.len,
            chunks: 0,
            frames: 0,
            bytes_raw: 0,
            is_read: self.read.contains(&job.id),
            is_rebuilt: false,
            defects: Defects::default(),
        };
        let mut wrong = if checked.is_read { name_defect(self.run, &name)? } else { None };
        if wrong.as_ref().is_some_and(|error| error.kind() == ErrorKind::Damaged) && is_rebuilt(self.run, &job.id)? {
            (wrong, checked.is_rebuilt) = (None, true);
        }
        match self.structure(&name, &job) {
            Ok(container_index) => self.entries(&name, &job, &container_index, &mut checked)?,
            Err(error) if is_gone(&job.id, &error) => checked.defects.is_gone = true,
            // It is not what a newer version wrote.
            Err(error) if error.is_newer() && wrong.as_ref().is_some_and(Error::is_bad_blob) => {
                self.run.disprove(job.id);
                checked.defects.is_whole_bad = true;
            }
            // Its hot index is missing or damaged. Nothing says that its bytes are bad.
            Err(error) if error.kind() == ErrorKind::Cold => checked.defects.log.damaged_blob(&name, &error),
            Err(error) => {
                // A mark that gives it up would say that nothing of it comes back.
                let may_come_back = matches!(error, Error::Unsupported { .. } | Error::Untried(..));
                checked.defects.is_whole_bad = !may_come_back;
                checked.defects.log.damaged_blob(&name, &damage(error)?);
            }
        }
        let Defects { log, bad_frames, bad_chunks, .. } = &mut checked.defects;
        log.add_alike(&name, std::mem::take(bad_frames), std::mem::take(bad_chunks));
        if checked.is_read && !checked.defects.is_gone {
            match wrong {
                Some(error) if is_gone(&job.id, &error) => checked.defects.is_gone = true,
                Some(error) => checked.defects.log.damaged_blob(&name, &error),
                None => {}
            }
            self.run.progress.bytes_read.add(job.len);
        }
        Ok(checked)
    }
}

impl CheckWorker<'_> {
    /// Reads header, footer and container index.
    fn structure(&mut self, name: &BlobName, job: &ContainerJob) -> Result<Arc<ContainerIndex>> {
        read_kind(self.run.repository.store.as_ref(), name, Reading::Again)?;
        self.reader.resolver.locator.container_indexes().load(&job.id)
    }

    /// Checks every entry and, if the container is to be read, every frame.
    fn entries(
        &mut self,
        name: &str,
        job: &ContainerJob,
        container_index: &ContainerIndex,
        checked: &mut CheckedContainer,
    ) -> Result<()> {
        checked.chunks = container_index.entries.len() as u64;
        checked.frames = container_index.frames.len() as u64;
        let container = self.reader.resolver.container_number(job.id);
        let is_read = self.read.contains(&job.id);
        let frame_count = if is_read { container_index.frames.len() as u32 } else { 0 };
        let mut next_frame = 0;
        for (position, entry) in (0u32..).zip(&container_index.entries) {
            self.run.check_stop()?;
            checked.bytes_raw += u64::from(entry.raw_len);
            let end = frame_count.min(entry.frame.saturating_add(1)).max(next_frame);
            self.frames(name, container, next_frame..end, &mut checked.defects)?;
            next_frame = end;
            match self.entry(EntryNumber::stored(container, position), entry, is_read) {
                Err(error) if is_gone(&job.id, &error) => checked.defects.is_gone = true,
                Err(error) => {
                    let text = format!("{name}: entry {position}, chunk {}", entry.fingerprint);
                    // Whoever reads data ends where it is cold.
                    let error = if is_read { damage(error) } else { damage_or_cold(error) }?;
                    self.entry_defect(job, position, text, error, &mut checked.defects);
                }
                Ok(()) => {}
            }
            if checked.defects.is_gone {
                return Ok(());
            }
        }
        self.frames(name, container, next_frame..frame_count, &mut checked.defects)
    }

    /// Decodes the frames at `positions`.
    fn frames(
        &mut self,
        name: &str,
        container: ContainerNumber,
        positions: std::ops::Range<u32>,
        defects: &mut Defects,
    ) -> Result<()> {
        for position in positions {
            self.run.check_stop()?;
            if let Err(error) = self.reader.frame(FrameNumber::stored(container, position)) {
                if error.kind() == ErrorKind::NotFound {
                    defects.is_gone = true;
                    return Ok(());
                }
                // A newer version can read a frame that this one does not support.
                if error.kind() == ErrorKind::Unsupported {
                    defects.log.damaged_blob(name, &error);
                    continue;
                }
                let error = damage(error)?;
                defects.frames.insert(position, position + 1);
                defects.bad_frames.add(|| error.to_string());
            }
        }
        Ok(())
    }

    fn entry(&mut self, number: EntryNumber, entry: &ContainerEntry, is_read: bool) -> Result<()> {
        if is_read {
            return self.reader.read_entry(number, &entry.fingerprint).map(drop);
        }
        trace_entry(&mut self.reader, number)
    }

    fn entry_defect(&self, job: &ContainerJob, entry: u32, text: String, error: Error, defects: &mut Defects) {
        let text = format!("{text}: {error}");
        match error {
            // A newer version can read it, or whoever waits for it.
            Error::Unsupported { .. } | Error::Cold { .. } => defects.log.consequence_of(&error, text),
            // A running backup writes this container, and the base is in one that was not listed. Or a prune deletes
            // it, as it did the base. If a snapshot needs the chunk, its tree shows that.
            Error::ChunkMissing { .. } | Error::BlobMissing { .. } => {
                let is_incomplete = self.incomplete.contains(&job.id);
                let positions = if is_incomplete { &mut defects.doubtful } else { &mut defects.suspected };
                positions.insert(entry, entry + 1);
            }
            _ => {
                defects.entries.insert(entry, entry + 1);
                // The frame that is damaged is of this container or of that of a base.
                defects.bad_chunks.add(|| text);
            }
        }
    }
}

/// Checks that the bytes of an entry are ranges of frames that the container indexes list. No frame is read.
pub(super) fn trace_entry(reader: &mut ChunkReader, number: EntryNumber) -> Result<()> {
    let extent_map = reader.extent_map(number)?;
    for frame in extent_map.frames() {
        reader.resolver.frame_info(*frame)?;
    }
    for extent in extent_map.extents() {
        let (container, frame) = reader.resolver.frame_info(extent.frame)?;
        let end = u64::from(extent.offset) + u64::from(extent.len);
        if end > u64::from(frame.raw_len) {
            let (expected, got) = (format!("{end} bytes in the frame"), frame.raw_len.to_string());
            return Err(Error::corrupt(blob_name(&container), frame.offset, expected, got));
        }
    }
    Ok(())
}

/// Whether the error says that container `id` is not in the store.
fn is_gone(id: &ContainerId, error: &Error) -> bool {
    matches!(error, Error::BlobMissing { what } if parse_name(what).as_ref() == Some(id))
}

/// The last stage: adds the results to the report.
struct CollectSink<'a> {
    report: &'a mut CheckReport,
    damaged: &'a mut DamagedContainers,
    missing: MissingParts,
    progress: &'a Progress,
    is_cold: bool,
}

impl Sink for CollectSink<'_> {
    type In = CheckedContainer;
    type Output = MissingParts;

    fn name(&self) -> &'static str {
        "collect"
    }

    fn process(&mut self, checked: CheckedContainer) -> Result<()> {
        self.progress.files_done.add(1);
        let Defects { suspected, doubtful, is_gone, .. } = &checked.defects;
        if *is_gone {
            self.missing.gone.push(checked.id);
            return Ok(());
        }
        if suspected.count() > 0 {
            self.missing.entries.push((checked.id, suspected.clone()));
        }
        if doubtful.count() > 0 {
            self.damaged.doubt(checked.id, doubtful.clone());
        }
        self.report.containers += 1;
        let log = &checked.defects.log;
        if checked.is_read && (log.count() > 0 || log.newer_count() == 0) {
            self.report.read.push((checked.id, log.is_empty() && suspected.count() == 0));
        }
        if checked.is_rebuilt {
            note_rebuilt(self.report, &checked.id, self.is_cold);
        }
        self.report.chunks += checked.chunks;
        self.report.frames += checked.frames;
        self.report.bytes_stored += checked.bytes_stored;
        self.report.bytes_raw += checked.bytes_raw;
        self.progress.errors.add(checked.defects.log.count());
        if !checked.defects.log.is_empty() {
            self.damaged.add(checked.id, &checked.defects.parts(), checked.defects.log);
        }
        Ok(())
    }

    fn finish(self) -> Result<MissingParts> {
        Ok(self.missing)
    }
}
