//! Containers, in parallel: each worker takes a whole container and returns its counts and defects.
//!
//! 1. Header, footer and directory parse; every entry resolves, and its runs lie within their frames.
//! 2. With `read_data`: the bytes have the container's name, frames are decoded in order, and each entry is put
//!    together as soon as its own frame is there, so that the frame cache serves.
//! 3. A base that no segment knows may be in a container that no segment names yet: before it counts as missing, the
//!    directories of those are searched.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::log::{DefectLog, damage};
use super::segments::name_defect;
use super::{CheckReport, DEFECTS_MAX, go_on};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::pipeline::{Emit, Map, Pipeline, Sink, Source, Weigh};
use crate::repo::Repository;
use crate::repo::container::{
    ContainerEntry, ContainerIndex, EntryNumber, FrameNumber, HEADER_BYTES, PREFIX, blob_name, parse_header, parse_name,
};
use crate::repo::index::{ContainerListing, read_container_index};
use crate::repo::reader::ChunkReader;
use crate::types::{ContainerId, Fingerprint};

/// Frame cache of a worker, at least, bytes.
const CACHE_BYTES_MIN: usize = 4 << 20;

/// Checks every container of the listing.
#[expect(clippy::too_many_arguments, reason = "what the engine was given, its listing and the two things it fills")]
pub(super) fn check(
    repository: &Repository,
    config: &Config,
    listing: &Arc<ContainerListing>,
    read_data: bool,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
    report: &mut CheckReport,
    log: &mut DefectLog,
) -> Result<()> {
    let orphans: Arc<HashSet<ContainerId>> = Arc::new(listing.orphans().into_iter().collect());
    report.unreferenced_containers = orphans.len() as u64;
    let listed = repository.store.list(PREFIX)?;
    let jobs = listed.iter().filter_map(|blob| Some(ContainerJob { id: parse_name(&blob.name)?, len: blob.len }));
    let jobs: Vec<ContainerJob> = jobs.filter(|job| listing.containers.contains(&job.id)).collect();
    progress.files_total.add(jobs.len() as u64);
    if read_data {
        progress.bytes_total.add(jobs.iter().map(|job| job.len).sum());
    }
    let workers = config.pipeline.workers_of(0);
    let cache_bytes = (config.restore.cache_bytes.0 as usize / workers).max(CACHE_BYTES_MIN);
    let mut line = Pipeline::new(config.pipeline.queue_depth, stop.clone());
    let link = line.source(ListStage(jobs));
    let link = line.parallel(link, workers, || CheckWorker {
        repository,
        reader: ChunkReader::new(repository, listing.clone(), cache_bytes),
        orphans: orphans.clone(),
        read_data,
        progress,
        stop: stop.clone(),
    });
    let sink = CollectSink { report, log: DefectLog::default(), candidates: Vec::new(), progress };
    let ((mut found, candidates), _) = line.run(link, sink)?;
    confirm(repository, listing, candidates, &mut found, stop)?;
    log.merge(found);
    Ok(())
}

/// A container to check.
struct ContainerJob {
    id: ContainerId,
    len: u64,
}

impl Weigh for ContainerJob {
    fn bytes(&self) -> u64 {
        self.len
    }
}

/// Something that needs a base which no segment knows: the base, and the defect it is if it is nowhere.
type MissingBase = (String, String);

/// A container checked.
#[derive(Default)]
struct CheckedContainer {
    bytes_stored: u64,
    chunks: u64,
    frames: u64,
    bytes_raw: u64,
    log: DefectLog,
    candidates: Vec<MissingBase>,
}

impl Weigh for CheckedContainer {
    fn bytes(&self) -> u64 {
        self.bytes_raw
    }
}

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

struct CheckWorker<'a> {
    repository: &'a Repository,
    reader: ChunkReader,
    orphans: Arc<HashSet<ContainerId>>,
    read_data: bool,
    progress: &'a Progress,
    stop: Arc<AtomicBool>,
}

impl Map for CheckWorker<'_> {
    type In = ContainerJob;
    type Out = CheckedContainer;

    fn name(&self) -> &'static str {
        "check"
    }

    fn map(&mut self, job: ContainerJob) -> Result<CheckedContainer> {
        let name = blob_name(&job.id);
        let mut checked = CheckedContainer { bytes_stored: job.len, ..CheckedContainer::default() };
        match self.structure(&name, &job) {
            Ok(container_index) => self.entries(&name, &job, &container_index, &mut checked)?,
            Err(error) => checked.log.damaged(&name, &damage(error)?),
        }
        if self.read_data {
            if let Some(error) = name_defect(self.repository.store.as_ref(), &name, &self.stop)? {
                checked.log.damaged(&name, &error);
            }
            self.progress.bytes_read.add(job.len);
        }
        Ok(checked)
    }
}

impl CheckWorker<'_> {
    /// Header, footer and directory.
    fn structure(&mut self, name: &str, job: &ContainerJob) -> Result<Arc<ContainerIndex>> {
        let header = self.repository.store.get_range(name, 0, HEADER_BYTES)?;
        parse_header(name, &header)?;
        self.reader.resolver.locator.container_indexes().load(&job.id)
    }

    /// Every entry and, with `read_data`, every frame.
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
        let mut frames = 0..container_index.frames.len() as u32;
        for (position, entry) in (0u32..).zip(&container_index.entries) {
            go_on(&self.stop)?;
            checked.bytes_raw += u64::from(entry.raw_len);
            while self.read_data && frames.start <= entry.frame && !frames.is_empty() {
                frames
                    .next()
                    .map_or(Ok(()), |frame| self.frame(name, FrameNumber::stored(container, frame), checked))?;
            }
            if let Err(error) = self.entry(EntryNumber::stored(container, position), entry) {
                let text = format!("{name}: entry {position}, chunk {}", entry.fingerprint);
                self.entry_defect(job, text, damage(error)?, checked);
            }
        }
        let rest = if self.read_data { frames } else { 0..0 };
        for frame in rest {
            go_on(&self.stop)?;
            self.frame(name, FrameNumber::stored(container, frame), checked)?;
        }
        Ok(())
    }

    fn frame(&mut self, name: &str, number: FrameNumber, checked: &mut CheckedContainer) -> Result<()> {
        match self.reader.frame(number) {
            Ok(_) => Ok(()),
            Err(error) => {
                checked.log.damaged(name, &damage(error)?);
                Ok(())
            }
        }
    }

    fn entry(&mut self, number: EntryNumber, entry: &ContainerEntry) -> Result<()> {
        if self.read_data {
            return self.reader.read_entry(number, &entry.fingerprint).map(drop);
        }
        let extent_map = self.reader.extent_map(number)?;
        for frame in extent_map.frames() {
            self.reader.resolver.frame_info(*frame)?;
        }
        for extent in extent_map.extents() {
            let (container, frame) = self.reader.resolver.frame_info(extent.frame)?;
            let end = u64::from(extent.offset) + u64::from(extent.len);
            if end > u64::from(frame.raw_len) {
                let (expected, got) = (format!("{end} bytes in the frame"), frame.raw_len.to_string());
                return Err(Error::corrupt(blob_name(&container), frame.offset, expected, got));
            }
        }
        Ok(())
    }

    fn entry_defect(&self, job: &ContainerJob, text: String, error: Error, checked: &mut CheckedContainer) {
        let text = format!("{text}: {error}");
        match error {
            // The base is in a container that was not listed: its backup is running.
            Error::ChunkMissing { .. } if self.orphans.contains(&job.id) => {}
            Error::ChunkMissing { fingerprint } if checked.candidates.len() < DEFECTS_MAX => {
                checked.candidates.push((fingerprint, text));
            }
            _ => checked.log.consequence(text),
        }
    }
}

struct CollectSink<'a> {
    report: &'a mut CheckReport,
    log: DefectLog,
    candidates: Vec<MissingBase>,
    progress: &'a Progress,
}

impl Sink for CollectSink<'_> {
    type In = CheckedContainer;
    type Output = (DefectLog, Vec<MissingBase>);

    fn name(&self) -> &'static str {
        "collect"
    }

    fn process(&mut self, checked: CheckedContainer) -> Result<()> {
        self.report.containers += 1;
        self.report.chunks += checked.chunks;
        self.report.frames += checked.frames;
        self.report.bytes_stored += checked.bytes_stored;
        self.report.bytes_raw += checked.bytes_raw;
        self.progress.files_done.add(1);
        self.progress.errors.add(checked.log.count());
        self.log.merge(checked.log);
        for suspect in checked.candidates {
            if self.candidates.len() < DEFECTS_MAX {
                self.candidates.push(suspect);
            } else {
                self.log.consequence(suspect.1);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(DefectLog, Vec<MissingBase>)> {
        Ok((self.log, self.candidates))
    }
}

/// Logs the suspects whose base is not in a container that the segments do not name, as of now.
fn confirm(
    repository: &Repository,
    listing: &ContainerListing,
    candidates: Vec<MissingBase>,
    log: &mut DefectLog,
    stop: &AtomicBool,
) -> Result<()> {
    let mut wanted: HashMap<Fingerprint, Vec<String>> = HashMap::new();
    for (base, text) in candidates {
        match Fingerprint::parse(&base) {
            Some(base) => wanted.entry(base).or_default().push(text),
            None => log.consequence(text),
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let named: HashSet<&ContainerId> = listing.segments.iter().flat_map(|segment| segment.containers()).collect();
    for blob in repository.store.list(PREFIX)? {
        go_on(stop)?;
        let Some(id) = parse_name(&blob.name).filter(|id| !named.contains(id)) else { continue };
        match read_container_index(repository.store.as_ref(), &id) {
            Ok(container_index) => {
                container_index.entries.iter().for_each(|entry| drop(wanted.remove(&entry.fingerprint)))
            }
            Err(error) => drop(damage(error)?),
        }
    }
    let mut texts: Vec<String> = wanted.into_values().flatten().collect();
    texts.sort();
    texts.into_iter().for_each(|text| log.consequence(text));
    Ok(())
}
