//! Report of a backup.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counts::ReadCounts;
use super::saved::Saved;
use crate::metrics::{Distribution, StageMetrics, StageSummary};
use crate::repo::index::{Hits, SimilarHits};
use crate::repo::snapshot::PROBLEMS;

/// Regular files by what became of them since the parent snapshots, as their metadata say.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct FileChanges {
    /// Files that no parent has. If the source is no tree, all files that are not unchanged.
    pub files_new: u64,
    /// Files whose size, times or inode differ.
    pub files_changed: u64,
    /// Files of the parents that are not in the new snapshot, below the paths of the backup.
    pub files_removed: u64,
    /// Files that look unchanged and were read again: they changed shortly before the parent snapshot.
    pub files_rechecked: u64,
    /// Files that look unchanged and were read again: the repository lacked some of their content.
    pub files_healed: u64,
}

impl FileChanges {
    /// What a run has counted, which stored so many `files`. If its first stages count no changes, each file that is
    /// not unchanged is new.
    pub fn new(counts: &ReadCounts, files: u64, counts_changes: bool) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let changes = &counts.changes;
        FileChanges {
            files_new: if counts_changes {
                of(&changes.new)
            } else {
                files.saturating_sub(of(&counts.files_unchanged))
            },
            files_changed: of(&changes.changed),
            files_removed: of(&changes.removed),
            files_rechecked: of(&changes.recent),
            files_healed: of(&changes.lost),
        }
    }
}

/// Result of a backup.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct BackupReport {
    /// Id of the new snapshot, 64 hex digits. Empty after a dry run, and then `null` in JSON.
    #[serde(serialize_with = "null_if_empty")]
    pub snapshot: String,
    /// Whether nothing was stored, as requested.
    pub dry_run: bool,
    /// Id of the parent snapshot, if there was one.
    pub parent: Option<String>,
    /// Entries that the user's choice left out. What is below an excluded directory is not counted.
    pub excluded: u64,
    /// Regular files in the snapshot.
    pub files: u64,
    /// Regular files that were not read because they are unchanged since the parent snapshot.
    pub files_unchanged: u64,
    /// What became of the files since the parent snapshots.
    #[serde(flatten)]
    pub changes: FileChanges,
    /// Directories in the snapshot.
    pub directories: u64,
    /// Other entries in the snapshot.
    pub others: u64,
    /// Bytes of file content in the snapshot.
    pub bytes: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Chunks in the stream.
    pub chunks: u64,
    /// Chunks that the repository did not have.
    pub chunks_new: u64,
    /// Tensors of models, without those below 64 KiB.
    pub tensors: u64,
    /// Tensors with a block that the repository did not have.
    pub tensors_new: u64,
    /// Bytes of new chunks.
    pub bytes_new: u64,
    /// Bytes added to the repository (containers).
    pub bytes_stored: u64,
    /// Containers written.
    pub containers: u64,
    /// Containers adopted from interrupted runs.
    pub containers_adopted: u64,
    /// Containers of the repository that could not be read, or are missing, without a mark that says so, and
    /// directories of containers that could not be listed. What this backup has of them is stored again; other
    /// snapshots may need them.
    pub containers_unread: u64,
    /// Marks of bad bytes that could not be read or were not known at first. The snapshot may rely on what they list.
    pub marks_unread: u64,
    /// Entries that could not be read, or changed while they were read. Each one was logged.
    pub problems: u64,
    /// Seconds from start to commit.
    pub seconds: f64,
    /// Look-ups answered by each level of the chunk index.
    pub index_hits: Hits,
    /// Look-ups of sub-blocks by what answered, if `index.similar_lru_entries` is above 0.
    pub similar_hits: SimilarHits,
    /// Summary of each stage that ran, in order.
    pub stages: Vec<StageSummary>,
    /// Metrics of each stage with whole distributions.
    #[serde(skip)]
    pub metrics: Vec<StageMetrics>,
    /// Microseconds from when a new chunk came from Read until its container was durable.
    #[serde(skip)]
    pub durable_us: Distribution,
}

impl BackupReport {
    /// What the stages of a run have counted. `counts_changes` says whether the first ones count changes.
    pub(super) fn of_counts(saved: &Saved, counts: &ReadCounts, counts_changes: bool) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BackupReport {
            excluded: of(&counts.excluded),
            files: saved.tally.files,
            files_unchanged: of(&counts.files_unchanged),
            changes: FileChanges::new(counts, saved.tally.files, counts_changes),
            directories: saved.tally.directories,
            others: saved.tally.others,
            bytes: saved.tally.bytes,
            bytes_read: of(&counts.bytes_read),
            chunks: saved.chunks,
            chunks_new: saved.chunks_new,
            tensors: of(&counts.tensors),
            tensors_new: of(&counts.tensors_new),
            bytes_new: saved.bytes_new,
            bytes_stored: saved.bytes_stored,
            containers: saved.containers,
            problems: of(&counts.problems),
            ..BackupReport::default()
        }
    }

    /// Whether all entries that were asked for could be read, and all containers and marks of the repository.
    pub fn is_complete(&self) -> bool {
        self.problems == 0 && !self.is_repository_unread()
    }

    /// Whether containers or marks of the repository could not be read.
    pub fn is_repository_unread(&self) -> bool {
        self.containers_unread > 0 || self.marks_unread > 0
    }
}

fn null_if_empty<S: serde::Serializer>(text: &str, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    if text.is_empty() { serializer.serialize_none() } else { serializer.serialize_str(text) }
}

/// Counters that the snapshot records.
pub fn statistics(saved: &Saved, counts: &ReadCounts, problems: u64) -> BTreeMap<String, u64> {
    let counters = [
        ("files", saved.tally.files),
        ("excluded", counts.excluded.load(Ordering::Relaxed)),
        ("files_unchanged", counts.files_unchanged.load(Ordering::Relaxed)),
        ("directories", saved.tally.directories),
        ("others", saved.tally.others),
        ("bytes", saved.tally.bytes),
        ("chunks", saved.chunks),
        ("chunks_new", saved.chunks_new),
        ("bytes_new", saved.bytes_new),
        ("bytes_stored", saved.bytes_stored),
        ("containers", saved.containers),
        (PROBLEMS, problems),
    ];
    counters.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}
