//! What keeps a repository in order: tags, copies, repairs, statistics, families of models, published names.

use std::path::PathBuf;

use fhrd::error::{Error, ErrorKind};
use fhrd::inspect::lineage::{FamilyMember, FoundFamilies, lineage};
use fhrd::inspect::stats::repository_stats;
use fhrd::keep::{self, Copier, CopyOutcome, PublishRequest, TagChange, tag};
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::published::{self, PublishedKind, PublishedSnapshot};
use fhrd::repo::snapshot::NamedSnapshot;
use fhrd::repo::snapshot_listing;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::repository::{Engine, json as to_json};

/// Snapshots, and a line for each that cannot be read.
struct Chosen {
    snapshots: Vec<NamedSnapshot>,
    damaged: Vec<String>,
}

/// The snapshots with these names, or all.
fn chosen(engine: &Engine, names: &[String]) -> fhrd::Result<Chosen> {
    if names.is_empty() {
        let listing = snapshot_listing::list(&engine.repository)?;
        let damaged = listing.damaged.iter().map(|(name, error)| format!("{name}: {error}")).collect();
        return Ok(Chosen { snapshots: listing.snapshots, damaged });
    }
    let snapshots = names.iter().map(|name| engine.find(name)).collect::<fhrd::Result<_>>()?;
    Ok(Chosen { snapshots, damaged: Vec::new() })
}

/// Changes the tags of a snapshot. Returns its new id, or the old one if the tags stay the same.
#[pyfunction]
#[pyo3(signature = (engine, snapshot, *, set, add, remove))]
pub fn tag_snapshot(
    engine: &Bound<'_, Engine>,
    snapshot: &str,
    set: Option<Vec<String>>,
    add: Vec<String>,
    remove: Vec<String>,
) -> PyResult<String> {
    let (py, engine, change) = (engine.py(), engine.get(), TagChange { set, add, remove });
    engine.run(py, None, |_, _| {
        let named = engine.find(snapshot)?;
        Ok(tag(&engine.repository, &named, &change)?.unwrap_or(named.id).to_string())
    })
}

/// Copies snapshots of another repository into this one, or all of them. Returns a list as JSON. One that is damaged
/// does not stop the others, and has an error there.
#[pyfunction]
#[pyo3(signature = (engine, source, snapshots, *, dry_run, report))]
pub fn copy_snapshots(
    engine: &Bound<'_, Engine>,
    source: &Bound<'_, Engine>,
    snapshots: Vec<String>,
    dry_run: bool,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (py, engine, source) = (engine.py(), engine.get(), source.get());
    source.check_process()?;
    let copied = engine.run(py, report, |call, progress| {
        let Chosen { snapshots: mut named, damaged } = chosen(source, &snapshots)?;
        // Each once, so that a copy finds the one before it.
        named.sort_by_key(|named| (named.snapshot.time_ns, named.id));
        named.dedup_by_key(|named| named.id);
        let mut copier = Copier::new(&source.repository, &engine.repository, engine.config())?;
        let mut copied = Vec::with_capacity(named.len());
        for original in &named {
            copied.push(match copier.copy(original, dry_run, progress, &call.stop) {
                Ok(outcome) => copied_document(&outcome),
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported) => {
                    json!({ "original": original.id.to_string(), "error": error.to_string() })
                }
                Err(error) => return Err(error),
            });
        }
        copied.extend(damaged.iter().map(|text| json!({ "original": null, "error": text })));
        Ok(copied)
    })?;
    to_json(&copied)
}

fn copied_document(outcome: &CopyOutcome) -> Value {
    let report = outcome.report.as_ref();
    json!({
        "original": outcome.original.id.to_string(),
        "copy": outcome.copy.map(|id| id.to_string()),
        "existed": report.is_none(),
        "problems": outcome.problems,
        "bytes": report.map_or(0, |report| report.bytes),
        "bytes_new": report.map_or(0, |report| report.bytes_new),
        "bytes_stored": report.map_or(0, |report| report.bytes_stored),
        "error": null,
    })
}

/// Repairs the `index`, the `containers` or the `snapshots`. Returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (engine, part, *, dry_run, forget))]
pub fn repair(engine: &Bound<'_, Engine>, part: &str, dry_run: bool, forget: bool) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    let request = SnapshotRepair { dry_run, forget, ..SnapshotRepair::default() };
    let report = engine.run(py, None, |call, _| {
        let (repository, config) = (engine.fresh()?, engine.config());
        let report = match part {
            "index" => serde_json::to_value(repair_index(&repository, &call.stop)?),
            "containers" => serde_json::to_value(repair_containers(&repository, config, &call.stop)?),
            "snapshots" => serde_json::to_value(repair_snapshots(&repository, config, request, &call.stop)?),
            _ => return Err(Error::Usage(format!("`{part}`: expected index, containers or snapshots"))),
        };
        report.map_err(|error| Error::internal(error.to_string()))
    })?;
    to_json(&report)
}

/// Statistics of the repository as JSON.
#[pyfunction]
pub fn statistics(engine: &Bound<'_, Engine>) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    to_json(&engine.run(py, None, |_, _| repository_stats(&engine.repository))?)
}

/// The models of snapshots, or of all, each after the one that it was stored against. Returns them and what
/// cannot be read as JSON.
#[pyfunction]
pub fn families(engine: &Bound<'_, Engine>, snapshots: Vec<String>) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    let (members, damaged) = engine.run(py, None, |call, _| {
        let Chosen { snapshots, mut damaged } = chosen(engine, &snapshots)?;
        let FoundFamilies { members, skipped } = lineage(&engine.repository, &snapshots, &call.stop)?;
        damaged.extend(skipped.error().map(|error| error.to_string()));
        Ok((members, damaged))
    })?;
    to_json(&json!({ "rows": members.iter().map(member_document).collect::<Vec<_>>(), "damaged": damaged }))
}

fn member_document(member: &FamilyMember) -> Value {
    let model = member.model.as_ref();
    json!({
        "name": member.label,
        "path": String::from_utf8_lossy(&member.path),
        "snapshot": model.map(|model| model.snapshot.to_string()),
        "parent": member.parent,
        "depth": member.depth,
        "dtype": model.map(|model| &model.dtype),
        "parameters": model.map(|model| model.parameters),
        "bytes": model.map(|model| model.size),
        "stored_bytes": model.and_then(|model| model.stored_bytes),
    })
}

fn kind(is_dataset: bool) -> PublishedKind {
    if is_dataset { PublishedKind::Dataset } else { PublishedKind::Model }
}

/// Publishes a directory of a snapshot, or all of it. Returns what is published as JSON.
#[pyfunction]
#[pyo3(signature = (engine, snapshot, path, *, name, revision, is_dataset, replace))]
pub fn publish(
    engine: &Bound<'_, Engine>,
    snapshot: &str,
    path: Option<PathBuf>,
    name: String,
    revision: String,
    is_dataset: bool,
    replace: bool,
) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    let outcome = engine.run(py, None, |_, _| {
        let original = engine.find(snapshot)?;
        let request = PublishRequest { original, path, name, revision, kind: kind(is_dataset), replace };
        keep::publish(&engine.repository, &request)
    })?;
    to_json(&published_document(&outcome.published))
}

/// Takes a published name away, with one revision or all. Returns the ids of the snapshots that held it as JSON, and
/// what cannot be read.
#[pyfunction]
#[pyo3(signature = (engine, name, *, revision, is_dataset))]
pub fn unpublish(engine: &Bound<'_, Engine>, name: &str, revision: Option<&str>, is_dataset: bool) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    let (gone, damaged) = engine.run(py, None, |_, _| {
        let Chosen { snapshots, damaged } = chosen(engine, &[])?;
        Ok((keep::unpublish(&engine.repository, snapshots, name, kind(is_dataset), revision)?, damaged))
    })?;
    let gone: Vec<String> = gone.iter().map(|gone| gone.named.id.to_string()).collect();
    to_json(&json!({ "rows": gone, "damaged": damaged }))
}

/// What is published, the last of each name and revision behind the others. Returns it and what cannot be read as
/// JSON.
#[pyfunction]
pub fn published_names(engine: &Bound<'_, Engine>) -> PyResult<String> {
    let (py, engine) = (engine.py(), engine.get());
    let (found, damaged) = engine.run(py, None, |_, _| {
        let Chosen { snapshots, damaged } = chosen(engine, &[])?;
        Ok((published::published(snapshots, engine.repository.clock.now_ns())?, damaged))
    })?;
    to_json(&json!({ "rows": found.iter().map(published_document).collect::<Vec<_>>(), "damaged": damaged }))
}

fn published_document(found: &PublishedSnapshot) -> Value {
    let statistics = &found.named.snapshot.statistics;
    json!({
        "name": found.publication.name,
        "kind": found.publication.kind.name(),
        "revision": found.publication.revision,
        "commit": found.commit,
        "snapshot": found.named.id.to_string(),
        "time_ns": found.named.snapshot.time_ns,
        "files": statistics.get("files").copied().unwrap_or(0),
        "bytes": statistics.get("bytes").copied().unwrap_or(0),
    })
}
