//! What listings return.

use std::collections::BTreeMap;

use fhrd::repo::checkpoint::Checkpoint;
use fhrd::repo::snapshot::NamedSnapshot;
use fhrd::repo::tree::{Node, NodeKind};
use pyo3::prelude::*;

/// A snapshot.
#[pyclass(frozen, get_all, module = "fhrd._engine")]
#[derive(Clone)]
pub struct SnapshotRow {
    /// Id, 64 hex digits.
    pub id: String,
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Whether its time is from the future.
    pub is_future: bool,
    /// Name of the machine.
    pub host: String,
    /// Name of the user.
    pub user: String,
    /// Absolute paths.
    pub paths: Vec<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// Run, if it is a checkpoint.
    pub run: Option<String>,
    /// Step, if it is a checkpoint.
    pub step: Option<u64>,
    /// Metrics of the checkpoint.
    pub metrics: BTreeMap<String, f64>,
    /// Counters of the backup.
    pub statistics: BTreeMap<String, u64>,
}

impl SnapshotRow {
    /// The row of a snapshot. It is `now_ns`.
    pub fn new(named: &NamedSnapshot, now_ns: i64) -> Self {
        let snapshot = &named.snapshot;
        let (run, step, metrics) = match Checkpoint::of(snapshot) {
            Some(found) => (Some(found.run), Some(found.step), found.metrics),
            None => (None, None, BTreeMap::new()),
        };
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        SnapshotRow {
            id: named.id.to_string(),
            time_ns: snapshot.time_ns,
            is_future: snapshot.is_future(now_ns),
            host: snapshot.host.clone(),
            user: snapshot.user.clone(),
            paths: snapshot.paths.iter().map(|path| shown(path.as_slice())).collect(),
            tags: snapshot.tags.clone(),
            run,
            step,
            metrics,
            statistics: snapshot.statistics.clone(),
        }
    }
}

/// An entry of a snapshot.
#[pyclass(frozen, get_all, module = "fhrd._engine")]
#[derive(Clone)]
pub struct EntryRow {
    /// Path from the root of the snapshot.
    pub path: String,
    /// `file`, `directory`, `symlink` or `other`.
    pub kind: &'static str,
    /// Bytes of a file.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i128,
}

impl EntryRow {
    /// The row of `node`, which is at `path`.
    pub fn new(path: &std::path::Path, node: &Node) -> Self {
        let kind = match node.kind {
            NodeKind::File => "file",
            NodeKind::Directory => "directory",
            NodeKind::Symlink => "symlink",
            _ => "other",
        };
        let mtime_ns = i128::from(node.mtime.seconds) * 1_000_000_000 + i128::from(node.mtime.nanoseconds);
        EntryRow { path: path.to_string_lossy().into_owned(), kind, size: node.size, mtime_ns }
    }
}
