//! Walks the tree, and counts what becomes of its files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::key::{NearbyKeys, key_below, key_of};
use super::known::KnownObjects;
use super::parts::PartMemory;
use super::put::{BucketRestore, FileToPut, PutFailure, PutOutcome};
use super::report::BucketRestoreReport;
use crate::config::Config;
use crate::error::{Error, Result, quoted};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::in_bucket::RepositoryPrefix;
use crate::repo::index::ContainerListing;
use crate::repo::read::{ChunkReader, Reader};
use crate::repo::snapshot::{NamedSnapshot, SERVER_KEY, forgotten, is_forgotten};
use crate::repo::tree::{Node, NodeKind, ObjectFacts};
use crate::restore::chosen_tree::{ChosenTree, TreeStep};
use crate::restore::existing::Overwrite;
use crate::restore::message::log_left_alone;
use crate::restore::request::RestoreRequest;
use crate::restore::run::{METADATA_CACHE_BYTES, find_root};
use crate::store::{ObjectToPut, SourceBucket, try_map_parallel};

/// Objects that are written at once, at most. Each holds a part in memory.
const AT_ONCE: usize = 4;
/// Files that are taken from the tree before they are written.
const BATCH: usize = 64;

/// Writes what `request` chooses of a snapshot into the `bucket`. `progress` counts files and bytes.
///
/// # Errors
/// [`Error::Usage`] if the request is about more than objects, or if the target is in the repository; damage of the
/// tree above what is chosen; errors of listing the bucket. Whatever concerns more than a file, such as cold data,
/// credentials that have expired, or a snapshot that was forgotten meanwhile.
pub fn restore_into_bucket(
    repository: &Repository,
    config: &Config,
    snapshot: &NamedSnapshot,
    bucket: &SourceBucket,
    mut request: RestoreRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BucketRestoreReport> {
    if request.delete || request.verify || request.overwrite == Overwrite::IfNewer {
        let refused = "--delete, --verify and --overwrite if-newer are about files on a disk, not about objects";
        return Err(Error::Usage(refused.into()));
    }
    bucket.check_writable()?;
    let repository = &repository.stopped_by(stop);
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut chunks = ChunkReader::with_cache(repository, listing.clone(), METADATA_CACHE_BYTES);
    let base = find_root(repository, snapshot, &mut request, &mut chunks)?;
    let own_keys = match RepositoryPrefix::find(repository, bucket)? {
        RepositoryPrefix::Apart => None,
        RepositoryPrefix::Below(prefix) => Some(prefix),
        RepositoryPrefix::Around => {
            return Err(Error::Usage(format!("{} is in the repository, where nothing is restored", bucket.url())));
        }
    };
    let known = KnownObjects::take(bucket, config, stop)?;
    let (reader, memory) = (Reader::new(repository, listing), PartMemory::of(config));
    let report = BucketRestoreReport {
        snapshot: snapshot.id.to_string(),
        target: bucket.url().into(),
        dry_run: request.dry_run,
        ..BucketRestoreReport::default()
    };
    let mut tree = ChosenTree::new(&base, request.selection.clone());
    let restore = BucketRestore { bucket, own_keys, reader, known, memory, request: &request, progress, stop };
    let source = snapshot.snapshot.extra.get(SERVER_KEY);
    let is_from_here = request.base.is_none() && source.is_some_and(|source| source[..] == bucket.identity());
    let (path, keys, batch) = (PathBuf::new(), NearbyKeys::new(), Vec::new());
    let mut walk = BucketWalk { restore, path, keys, is_from_here, batch, report };
    while let Some(step) = tree.next(&mut chunks)? {
        walk.step(step);
        if walk.batch.len() >= BATCH {
            walk.write()?;
        }
    }
    walk.write()?;
    for missing in tree.missing() {
        tracing::error!("the snapshot has no entry {}", missing.display());
        walk.report.problems += 1;
    }
    if tree.includes_nothing() {
        tracing::error!("the snapshot has no entry that the patterns include");
        walk.report.problems += 1;
    }
    if walk.report.damaged > 0 && is_forgotten(repository.store.as_ref(), &snapshot.id)? {
        return Err(forgotten(&snapshot.id));
    }
    Ok(walk.report)
}

/// The walk through the tree.
struct BucketWalk<'a> {
    restore: BucketRestore<'a>,
    /// Of the directory that was entered last.
    path: PathBuf,
    keys: NearbyKeys,
    /// Whether the target is the source of the snapshot, and a key there is the same object.
    is_from_here: bool,
    /// The files that are written next.
    batch: Vec<FileToPut>,
    report: BucketRestoreReport,
}

impl BucketWalk<'_> {
    fn step(&mut self, step: TreeStep) {
        match step {
            TreeStep::Enter(node) => {
                self.path.push(OsStr::from_bytes(&node.name));
                let marker = ObjectFacts::of(&node).and_then(|facts| self.entry(&self.path.clone(), node, facts));
                self.keys.enter(marker.as_ref().map(|(key, _)| key.as_str()));
                self.batch.extend(marker.map(|(_, file)| file));
            }
            TreeStep::Leave(_) => {
                self.path.pop();
                self.keys.leave();
            }
            TreeStep::Entry(node) if node.kind == NodeKind::File => {
                let path = self.path.join(OsStr::from_bytes(&node.name));
                let (name, facts) = (node.name.to_vec(), ObjectFacts::of(&node).unwrap_or_default());
                match self.entry(&path, node, facts) {
                    Some((key, _)) if self.keys.is_taken(&name, &key) => {
                        self.refuse(&path, &format!("another entry of the snapshot has its key `{key}`"));
                    }
                    file => self.batch.extend(file.map(|(_, file)| file)),
                }
            }
            TreeStep::Entry(_) => self.report.left_out += 1,
            TreeStep::Unreadable(error) => {
                tracing::error!("cannot read the rest of {}: {error}", self.path.display());
                self.report.count(&error);
            }
        }
    }

    /// The file at `path`, or the marker of the directory, and its key behind the prefix of the target.
    fn entry(&mut self, path: &Path, node: Node, mut facts: ObjectFacts) -> Option<(String, FileToPut)> {
        if self.restore.request.base.is_some() {
            facts.key = facts.key.and_then(|key| key_below(path, &node, &key));
        }
        let key = key_of(path, &node, &facts).map_err(|reason| self.refuse(path, &reason)).ok()?;
        let object = ObjectToPut {
            key: format!("{}{key}", self.restore.bucket.prefix()),
            content_type: facts.content_type,
            metadata: facts.metadata.into_iter().collect(),
            is_new: false,
        };
        let is_marker = node.kind == NodeKind::Directory;
        let node = if is_marker { Node { size: 0, content: None, ..node } } else { node };
        Some((key, FileToPut { object, node, etag: facts.etag, is_from_here: self.is_from_here }))
    }

    /// Counts an entry that has no key of its own.
    fn refuse(&mut self, path: &Path, reason: &str) {
        self.restore.progress.errors.add(1);
        tracing::error!("{} is not restored: {}", path.display(), quoted(reason));
        self.report.problems += 1;
    }

    /// Writes the files that were taken from the tree.
    fn write(&mut self) -> Result<()> {
        let outcomes = try_map_parallel(AT_ONCE, &self.batch, |file| match self.restore.put(file) {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(PutFailure::OfFile(error)) => Ok(Err(error)),
            Err(PutFailure::OfAll(error)) => Err(error),
        })?;
        for (file, outcome) in std::mem::take(&mut self.batch).into_iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => self.done(&file, outcome),
                Err(error) => {
                    self.restore.progress.errors.add(1);
                    tracing::error!("{} is not restored: {error}", self.restore.bucket.url_of(&file.object.key));
                    self.report.count(&error);
                }
            }
        }
        Ok(())
    }

    fn done(&mut self, file: &FileToPut, outcome: PutOutcome) {
        let (url, report) = (self.restore.bucket.url_of(&file.object.key), &mut self.report);
        if outcome == PutOutcome::LeftAlone {
            log_left_alone(report.left_alone, &url);
            report.left_alone += 1;
            return;
        }
        report.files += 1;
        report.bytes += file.node.size;
        let what = match outcome {
            PutOutcome::Same => {
                report.unchanged += 1;
                "the same is there"
            }
            _ => {
                report.bytes_written += file.node.size;
                if report.dry_run { "would be written" } else { "written" }
            }
        };
        tracing::info!("{url}: {what}");
    }
}
