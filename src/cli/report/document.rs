//! The report as JSON: the documents of `status`, `stats`, `lineage` and `runs`, directories and growth.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use serde_json::Value;

use crate::cli::lineage;
use crate::cli::models::FamilyDocument;
use crate::cli::output::{hex_unless_utf8, split_ns, time_utc};
use crate::cli::runs::StepDocument;
use crate::cli::snapshots::SnapshotDocument;
use crate::cli::stats::WholeDocument;
use crate::cli::status::{StatusDocument, document as status_document};
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::families::{FamilyTree, families};
use crate::inspect::report::growth::{GrowthBytes, GrowthPoint, growth};
use crate::inspect::usage_directories::DirectoryUsage;

/// A report as JSON.
#[derive(Serialize)]
pub struct PageDocument<'a> {
    repository: &'a str,
    time: String,
    status: StatusDocument<'a>,
    stats: WholeDocument<'a>,
    directories: Vec<DirectoryDocument<'a>>,
    growth: Vec<GrowthDocument<'a>>,
    families: Vec<FamilyDocument>,
    lineage: Vec<Value>,
    runs: Vec<RunCurves<'a>>,
    unreadable: Vec<UnreadableDocument<'a>>,
}

/// What a directory holds, as JSON.
#[derive(Serialize)]
struct DirectoryDocument<'a> {
    host: &'a str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    is_stem: bool,
    files: u64,
    bytes: u64,
    distinct_bytes: u64,
    stored_bytes: u64,
}

/// What a snapshot added, as JSON.
#[derive(Serialize)]
struct GrowthDocument<'a> {
    snapshot: SnapshotDocument<'a>,
    added: GrowthBytes,
    total: GrowthBytes,
}

/// The steps of a training run as JSON.
#[derive(Serialize)]
struct RunCurves<'a> {
    run: &'a str,
    steps: Vec<StepDocument<'a>>,
}

/// A snapshot that cannot be read, or the models, as JSON.
#[derive(Serialize)]
struct UnreadableDocument<'a> {
    name: &'a str,
    error: String,
}

impl<'a> PageDocument<'a> {
    /// Describes the report of the repository at `location`.
    pub fn new(report: &'a RepositoryReport, location: &'a str) -> Self {
        let RepositoryReport { status, stats, usage, snapshots, members, models_unread, runs } = report;
        let (seconds, nanoseconds) = split_ns(status.now_ns);
        let unreadable = status.unreadable_snapshots.iter().map(|(name, error)| (name.as_str(), error));
        let unreadable = unreadable.chain(models_unread.iter().map(|error| ("models", error)));
        let steps = |(run, steps): (&'a String, &'a Vec<_>)| RunCurves {
            run,
            steps: steps.iter().map(|step| StepDocument::new(step, None)).collect(),
        };
        PageDocument {
            repository: location,
            time: time_utc(seconds, nanoseconds),
            status: status_document(status, 0, None),
            stats: WholeDocument { stats, usage },
            directories: usage.directories.iter().map(directory).collect(),
            growth: growth(snapshots).into_iter().map(growth_document).collect(),
            families: families(members).iter().map(family).collect(),
            lineage: members.iter().map(|member| lineage::document(member, members)).collect(),
            runs: runs.iter().map(steps).collect(),
            unreadable: unreadable.map(|(name, error)| UnreadableDocument { name, error: error.to_string() }).collect(),
        }
    }
}

fn directory(usage: &DirectoryUsage) -> DirectoryDocument<'_> {
    DirectoryDocument {
        host: &usage.host,
        path: usage.path.to_string_lossy().into_owned(),
        path_hex: hex_unless_utf8(usage.path.as_os_str().as_bytes()),
        is_stem: usage.is_stem,
        files: usage.files,
        bytes: usage.bytes,
        distinct_bytes: usage.distinct_bytes,
        stored_bytes: usage.stored_bytes,
    }
}

fn growth_document(point: GrowthPoint<'_>) -> GrowthDocument<'_> {
    GrowthDocument { snapshot: SnapshotDocument::new(point.named), added: point.added, total: point.total }
}

fn family(tree: &FamilyTree<'_>) -> FamilyDocument {
    let FamilyTree { models, parameters, size, stored, .. } = *tree;
    FamilyDocument { family: tree.label().into(), models, parameters, size, stored }
}
