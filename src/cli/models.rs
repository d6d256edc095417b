//! `fhrd models`: the models of a snapshot, or of all snapshots.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::ModelsArguments;
use super::exit::Exit;
use super::location;
use super::output::{Align, count, hex_unless_utf8, print, print_json, printable, size, write_table};
use crate::engine::models::{Model, models};
use crate::error::Result;
use crate::lineage::BaseModel;
use crate::snapshot;

/// A model as JSON. Bytes of a path that are no UTF-8 are replaced, and given in hex besides.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    snapshot: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    name: &'a str,
    ids: Vec<String>,
    shards: usize,
    format: &'a str,
    dtype: &'static str,
    parameters: u64,
    size: u64,
    /// Bytes that its chunks take in containers; null where that cannot be told.
    stored: Option<u64>,
    family: &'a str,
    base: Value,
}

impl<'a> Document<'a> {
    /// Describes a model.
    pub fn new(model: &'a Model) -> Self {
        Document {
            snapshot: model.snapshot.to_string(),
            path: model.path.to_string_lossy().into_owned(),
            path_hex: hex_unless_utf8(model.path.as_os_str().as_bytes()),
            name: &model.name,
            ids: model.ids.iter().map(ToString::to_string).collect(),
            shards: model.shards,
            format: &model.format,
            dtype: model.dtype.name(),
            parameters: model.parameters,
            size: model.size,
            stored: model.stored_bytes,
            family: &model.family,
            base: base(model.base.as_ref(), model.base_name.as_deref()),
        }
    }
}

/// A base as JSON; `name` is null where its record is lost.
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

/// Lists the models.
///
/// # Errors
/// Those of the repository, the snapshots and [`models`].
pub fn run(session: &Session, arguments: &ModelsArguments) -> Result<Exit> {
    let repository = location::open(&session.options)?;
    let store = repository.store.as_ref();
    let mut exit = Exit::Fine;
    let snapshots = if arguments.all {
        let (mut snapshots, damaged) = snapshot::list(store)?;
        for (name, error) in &damaged {
            tracing::error!("cannot read {name}: {error}");
            exit = Exit::Damaged;
        }
        // The last one is looked at first.
        snapshots.reverse();
        snapshots
    } else {
        vec![snapshot::find(store, arguments.id.as_deref().unwrap_or("latest"))?]
    };
    let found = models(&repository, &snapshots, &session.stop)?;
    if session.options.json {
        print_json(&found.models.iter().map(Document::new).collect::<Vec<_>>())?;
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

fn row(model: &Model) -> Vec<String> {
    let base = model.base.as_ref();
    let of_base = |text: &dyn Fn(&BaseModel) -> String| base.map_or_else(|| "-".into(), text);
    vec![
        printable(&model.path.to_string_lossy()),
        printable(&model.format),
        model.dtype.name().into(),
        count(model.parameters),
        printable(&model.family),
        of_base(&|_| printable(model.base_name.as_deref().unwrap_or("(lost)"))),
        of_base(&|base| format!("{:.2}", base.bit_distance)),
        of_base(&|base| kind(base).into()),
        size(model.size),
        model.stored_bytes.map_or_else(|| "-".into(), size),
    ]
}
