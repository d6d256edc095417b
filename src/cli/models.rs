//! `fhrd models`: the models of a snapshot, or of all snapshots.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::{ModelOrder, ModelsArguments, SnapshotChoice};
use super::choice::{self, reported};
use super::exit::Exit;
use super::location;
use super::output::{Align, count, failed, hex_unless_utf8, note_empty, print, print_json, ratio, size, write_fitting};
use crate::error::Result;
use crate::inspect::models::{FoundModels, ModelReport, bits, kind, models};
use crate::model::BaseModel;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::naming::{LATEST, SnapshotFilter};
use crate::repo::read::ChunkReader;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::find_entry;

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
            "bit_distance": base.relation().has_distance().then_some(base.bit_distance),
            "kind": kind(base),
            "bytes": base.bytes,
        })
    })
}

/// Snapshots, and the part of them whose models are shown.
pub struct ChosenModels {
    /// The snapshots.
    pub snapshots: Vec<NamedSnapshot>,
    /// Only what is at this path, and below it.
    pub path: Option<PathBuf>,
    /// The exit code that damaged snapshots cause.
    pub exit: Exit,
}

/// The chosen snapshots.
///
/// # Errors
/// Errors of the repository and the snapshots. [`Error::NoSuchPath`](crate::error::Error::NoSuchPath).
pub fn chosen(repository: &Repository, choice: &SnapshotChoice) -> Result<ChosenModels> {
    if !choice.all {
        let name = choice.id.as_deref().unwrap_or(OsStr::new(LATEST));
        let (named, path) = choice::find_entry(repository, name, &SnapshotFilter::default())?;
        let path = path.map(|path| existing(repository, &named, &path)).transpose()?;
        return Ok(ChosenModels { snapshots: vec![named], path, exit: Exit::Fine });
    }
    let (mut snapshots, exit) = reported(repository)?;
    // The latest snapshot first.
    snapshots.reverse();
    Ok(ChosenModels { snapshots, path: None, exit })
}

/// The path as the snapshot has it.
fn existing(repository: &Repository, named: &NamedSnapshot, path: &Path) -> Result<PathBuf> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing);
    find_entry(&mut reader, named, path).map(|(path, _)| path)
}

/// Lists the models.
///
/// # Errors
/// Errors of the repository, the snapshots and [`models`].
pub fn run(session: &Session, arguments: &ModelsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let ChosenModels { snapshots, path, exit } = chosen(&repository, &arguments.snapshots)?;
    let FoundModels { models: mut found, summaries, .. } = models(&repository, &snapshots, &session.stop)?;
    let exit = exit.and(Exit::of_unreadable(summaries.skipped.unreadable, summaries.skipped.newer));
    found.retain(|model| {
        path.as_ref().is_none_or(|path| model.path.starts_with(path))
            && arguments.family.as_ref().is_none_or(|family| model.family == *family)
    });
    let (count, total) = (found.len(), ModelsTotal::of(&found));
    if arguments.families {
        let families = families(&found, arguments);
        match session.options.json {
            true => print_json(&families)?,
            false => print(|out| write_families(out, &families, (count, total)))?,
        }
        return Ok(exit);
    }
    sort(&mut found, arguments.sort, measures);
    found.truncate(arguments.top.unwrap_or(usize::MAX));
    if session.options.json {
        print_json(&found.iter().map(ModelDocument::new).collect::<Vec<_>>())?;
    } else if found.is_empty() {
        note_empty(&session.options, "there are no models");
    } else {
        print(|out| write_models(out, &found, (count, total)))?;
    }
    Ok(exit)
}

fn measures(model: &ModelReport) -> Measures {
    let bits = model.base.as_ref().map(|base| base.bit_distance);
    let stored = model.stored_bytes.unwrap_or(0);
    Measures { size: model.size, stored, parameters: model.parameters, bits }
}

/// Sizes of several models. Chunks that they share count for each.
#[derive(Debug, Clone, Copy, Default)]
struct ModelsTotal {
    size: u64,
    stored: u64,
}

impl ModelsTotal {
    fn of<'a>(models: impl IntoIterator<Item = &'a ModelReport>) -> Self {
        models.into_iter().fold(ModelsTotal::default(), |total, model| ModelsTotal {
            size: total.size.saturating_add(model.size),
            stored: total.stored.saturating_add(model.stored_bytes.unwrap_or(0)),
        })
    }

    fn line(self, count: usize) -> String {
        let ModelsTotal { size: bytes, stored } = self;
        format!("{count} models, {}, stored {} (ratio {})", size(bytes), size(stored), ratio(bytes, stored))
    }
}

/// What models are sorted by.
#[derive(Debug, Clone, Copy)]
struct Measures {
    size: u64,
    stored: u64,
    parameters: u64,
    /// Distance from the base, if there is one.
    bits: Option<f64>,
}

impl Measures {
    fn of(self, order: ModelOrder) -> f64 {
        match order {
            ModelOrder::Path => 0.0,
            ModelOrder::Size => self.size as f64,
            ModelOrder::Stored => self.stored as f64,
            ModelOrder::Params => self.parameters as f64,
            ModelOrder::Bits => self.bits.unwrap_or(-1.0),
        }
    }
}

/// Sorts by what `of` gives, the largest first. Equal ones stay in the order of their paths.
fn sort<T>(models: &mut [T], order: Option<ModelOrder>, of: impl Fn(&T) -> Measures) {
    let order = order.unwrap_or(ModelOrder::Path);
    models.sort_by(|one, other| of(other).of(order).total_cmp(&of(one).of(order)));
}

/// The models of a family together, as JSON.
#[derive(Debug, Serialize)]
pub struct FamilyDocument {
    /// Name of the family.
    pub family: String,
    /// Its models.
    pub models: usize,
    /// Values in all their tensors.
    pub parameters: u64,
    /// Bytes of their files.
    pub size: u64,
    /// Stored bytes of their chunks.
    pub stored: u64,
}

/// The families in the order of the arguments, and no more than these say.
fn families(models: &[ModelReport], arguments: &ModelsArguments) -> Vec<FamilyDocument> {
    let mut members: BTreeMap<&str, Vec<&ModelReport>> = BTreeMap::new();
    models.iter().for_each(|model| members.entry(&model.family).or_default().push(model));
    let document = |(family, models): (&str, Vec<&ModelReport>)| {
        let ModelsTotal { size, stored } = ModelsTotal::of(models.iter().copied());
        let parameters = models.iter().fold(0, |sum: u64, model| sum.saturating_add(model.parameters));
        FamilyDocument { family: family.into(), models: models.len(), parameters, size, stored }
    };
    let mut families: Vec<FamilyDocument> = members.into_iter().map(document).collect();
    sort(&mut families, arguments.sort, |family| {
        let FamilyDocument { size, stored, parameters, .. } = *family;
        Measures { size, stored, parameters, bits: None }
    });
    families.truncate(arguments.top.unwrap_or(usize::MAX));
    families
}

fn write_families(out: &mut dyn Write, families: &[FamilyDocument], all: (usize, ModelsTotal)) -> Result<()> {
    use Align::{Left, Right};
    let columns =
        [("family", Left), ("models", Right), ("params", Right), ("size", Right), ("stored", Right), ("ratio", Right)];
    let row = |one: &FamilyDocument| {
        let FamilyDocument { family, models, parameters, size: bytes, stored } = one;
        let cells = [models.to_string(), count(*parameters), size(*bytes), size(*stored), ratio(*bytes, *stored)];
        [vec![family.clone()], cells.to_vec()].concat()
    };
    write_fitting(out, &columns, families.iter().map(row).collect())?;
    writeln!(out, "\n{}", all.1.line(all.0)).map_err(failed)
}

/// A table of the models, and below it the sum of all that were found.
fn write_models(out: &mut dyn Write, models: &[ModelReport], all: (usize, ModelsTotal)) -> Result<()> {
    use Align::{Left, Right};
    let columns = [
        ("path", Left),
        ("type", Left),
        ("params", Right),
        ("family", Left),
        ("base", Left),
        ("bits", Right),
        ("kind", Left),
        ("size", Right),
        ("stored", Right),
    ];
    write_fitting(out, &columns, models.iter().map(row).collect())?;
    writeln!(out, "\n{}", all.1.line(all.0)).map_err(failed)
}

fn row(model: &ModelReport) -> Vec<String> {
    // Relation to another model: its name, the bit distance, and the kind.
    let relation = match (&model.same_as, &model.base) {
        (Some(path), _) => [path.to_string_lossy().into_owned(), "0.00".into(), "same".into()],
        (None, Some(base)) => {
            let name = model.base_name.clone().unwrap_or_else(|| "(lost)".into());
            [name, bits(base), kind(base).into()]
        }
        (None, None) => ["-"; 3].map(String::from),
    };
    let [base, bits, kind] = relation;
    vec![
        model.path.to_string_lossy().into_owned(),
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
