//! `fhrd models`: the models of a snapshot, or of all snapshots.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::{ModelsArguments, SnapshotChoice};
use super::choice::{self, reported};
use super::exit::Exit;
use super::location;
use super::output::{Align, count, hex_unless_utf8, note_empty, print, print_json, size, write_table};
use crate::error::Result;
use crate::inspect::models::{ModelReport, models};
use crate::model::BaseModel;
use crate::repo::Repository;
use crate::repo::naming::{LATEST, SnapshotFilter};
use crate::repo::snapshot::NamedSnapshot;

/// A model as JSON. Path bytes that are not UTF-8 are replaced, and the original bytes follow in hex.
#[derive(Debug, Serialize)]
pub struct ModelDocument<'a> {
    snapshot: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    name: &'a str,
    ids: Vec<String>,
    shards: usize,
    format: &'a str,
    dtype: &'a str,
    parameters: u64,
    size: u64,
    /// Bytes of its chunks in containers; null if an index is unreadable.
    stored: Option<u64>,
    family: &'a str,
    /// Path of a model with the same content that is listed above this one.
    same_as: Option<String>,
    base: Value,
}

impl<'a> ModelDocument<'a> {
    /// Describes a model.
    pub fn new(model: &'a ModelReport) -> Self {
        ModelDocument {
            snapshot: model.snapshot.to_string(),
            path: model.path.to_string_lossy().into_owned(),
            path_hex: hex_unless_utf8(model.path.as_os_str().as_bytes()),
            name: &model.name,
            ids: model.ids.iter().map(ToString::to_string).collect(),
            shards: model.shards,
            format: &model.format,
            dtype: &model.dtype,
            parameters: model.parameters,
            size: model.size,
            stored: model.stored_bytes,
            family: &model.family,
            same_as: model.same_as.as_ref().map(|path| path.to_string_lossy().into_owned()),
            base: base(model.base.as_ref(), model.base_name.as_deref()),
        }
    }
}

/// A base as JSON; `name` is null if its record is lost.
pub fn base(base: Option<&BaseModel>, name: Option<&str>) -> Value {
    base.map_or(Value::Null, |base| {
        json!({
            "id": base.id.to_string(),
            "name": name,
            "bit_distance": base.bit_distance,
            "kind": kind(base),
            "bytes": base.bytes,
        })
    })
}

/// How a model is stored against its base.
pub fn kind(base: &BaseModel) -> &'static str {
    if base.is_cast { "cast" } else { "delta" }
}

/// The chosen snapshots, and the exit code that damaged snapshots cause.
///
/// # Errors
/// Those of the repository and the snapshots.
pub fn snapshots(repository: &Repository, choice: &SnapshotChoice) -> Result<(Vec<NamedSnapshot>, Exit)> {
    if !choice.all {
        let name = choice.id.as_deref().unwrap_or(LATEST);
        return Ok((vec![choice::find_snapshot(repository, name, &SnapshotFilter::default())?], Exit::Fine));
    }
    let (mut snapshots, exit) = reported(repository)?;
    // The latest snapshot first.
    snapshots.reverse();
    Ok((snapshots, exit))
}

/// Lists the models.
///
/// # Errors
/// Those of the repository, the snapshots and [`models`].
pub fn run(session: &Session, arguments: &ModelsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (snapshots, exit) = snapshots(&repository, &arguments.snapshots)?;
    let found = models(&repository, &snapshots, &session.stop)?;
    if session.options.json {
        print_json(&found.models.iter().map(ModelDocument::new).collect::<Vec<_>>())?;
    } else if found.models.is_empty() {
        note_empty(&session.options, "there are no models");
    } else {
        use Align::{Left, Right};
        let columns = [
            ("path", Left),
            ("format", Left),
            ("type", Left),
            ("params", Right),
            ("family", Left),
            ("base", Left),
            ("bits", Right),
            ("kind", Left),
            ("size", Right),
            ("stored", Right),
        ];
        let rows: Vec<Vec<String>> = found.models.iter().map(row).collect();
        print(|out| write_table(out, &columns, &rows))?;
    }
    Ok(exit)
}

fn row(model: &ModelReport) -> Vec<String> {
    // Relation to another model: its name, the bit distance, and the kind.
    let relation = match (&model.same_as, &model.base) {
        (Some(path), _) => [path.to_string_lossy().into_owned(), "0.00".into(), "same".into()],
        (None, Some(base)) => {
            let name = model.base_name.clone().unwrap_or_else(|| "(lost)".into());
            [name, format!("{:.2}", base.bit_distance), kind(base).into()]
        }
        (None, None) => ["-"; 3].map(String::from),
    };
    let [base, bits, kind] = relation;
    vec![
        model.path.to_string_lossy().into_owned(),
        model.format.clone(),
        model.dtype.to_string(),
        count(model.parameters),
        model.family.clone(),
        base,
        bits,
        kind,
        size(model.size),
        model.stored_bytes.map_or_else(|| "-".into(), size),
    ]
}
