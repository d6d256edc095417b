//! A file of a commit: its text, or the tensors of a model file.

use std::path::Path;

use http::StatusCode;
use maud::{Markup, html};

use super::files::{download_path, title_of, trail_above};
use super::layout::page;
use super::list::{ChosenRows, ListColumn, ListQuery};
use crate::error::Result as EngineResult;
use crate::format::{ArrayListing, ListedArray, has_model_extension, list_arrays};
use crate::html::picture::name;
use crate::read_at::unwrapped;
use crate::repo::published::{PublishedFile, PublishedItem, PublishedTree};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::parts::{blocking, read_part};
use crate::serve::question::Question;
use crate::serve::route::NamedPath;
use crate::text::{count, printable, size};

/// Bytes of a text that is shown.
const TEXT_BYTES_MAX: u64 = 256 << 10;
/// Tensors of a file that are looked at.
const TENSORS_MAX: usize = 100_000;
/// Characters of the name, the type and the shape of a tensor that are looked at.
const TEXT_CHARS_MAX: usize = 300;

/// A tensor in the list.
struct TensorRow {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    bytes: Option<u64>,
    /// Its position in the file.
    offset: u64,
}

const COLUMNS: [ListColumn<TensorRow>; 5] = [
    ListColumn::text("name", "tensor", |a, b| a.name.cmp(&b.name)),
    ListColumn::text("type", "type", |a, b| a.dtype.cmp(&b.dtype)),
    ListColumn::text("shape", "shape", |a, b| a.shape.cmp(&b.shape)),
    ListColumn::number("bytes", "bytes", |a, b| a.bytes.cmp(&b.bytes)),
    ListColumn::number("offset", "offset", |a, b| a.offset.cmp(&b.offset)),
];

impl TensorRow {
    fn of(listed: ListedArray) -> Self {
        let short = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
        match listed {
            ListedArray::Array(array) => TensorRow {
                name: short(&array.name),
                dtype: short(&array.value_type.name),
                shape: array.shape,
                bytes: Some(array.len),
                offset: array.offset,
            },
            ListedArray::Unreadable { name, reason } => {
                TensorRow { name: short(&name), dtype: short(&reason), shape: Vec::new(), bytes: None, offset: 0 }
            }
        }
    }

    fn shape_text(&self) -> String {
        self.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
    }

    fn values(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size))
    }
}

/// What a model file has.
struct TensorList {
    chosen: ChosenRows<TensorRow>,
    format: &'static str,
    tensors: usize,
    values: u64,
}

/// What is shown of a file.
enum EntryContent {
    Text(String),
    Tensors(TensorList),
    /// A model file that contradicts itself, and how.
    Defective(String),
    Nothing,
}

/// The text of a file, without what steers. `None` if it is too long, or no text.
///
/// # Errors
/// Errors of reading.
pub fn stored_text(tree: &PublishedTree, file: &PublishedFile) -> EngineResult<Option<String>> {
    if file.len > TEXT_BYTES_MAX {
        return Ok(None);
    }
    let bytes = read_part(&tree.open(file)?, 0, file.len)?;
    let Ok(text) = std::str::from_utf8(&bytes) else { return Ok(None) };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.contains('\0') {
        return Ok(None);
    }
    let lines: Vec<String> = text.lines().map(|line| printable(&line.replace('\t', "    "))).collect();
    Ok(Some(lines.join("\n")))
}

fn is_model_name(at: &NamedPath) -> bool {
    let own = at.path.last().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    let extension = Path::new(&own).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(has_model_extension)
}

/// The tensors of a file.
fn tensors(tree: &PublishedTree, file: &PublishedFile, query: &ListQuery) -> EngineResult<EntryContent> {
    let (mut rows, mut tensors, mut values) = (Vec::new(), 0, 0u64);
    let source = tree.open(file)?;
    let listing = list_arrays(&source, file.len, &mut |listed| {
        let row = TensorRow::of(listed);
        tensors += 1;
        values = values.saturating_add(if row.bytes.is_some() { row.values() } else { 0 });
        if rows.len() < TENSORS_MAX {
            rows.push(row);
        }
    });
    Ok(match listing.map_err(|error| unwrapped(error, Path::new("a model file")))? {
        ArrayListing::Opaque => EntryContent::Nothing,
        ArrayListing::Defective { format, reason } => EntryContent::Defective(format!("{format}: {reason}")),
        ArrayListing::Arrays { format } => {
            let text = |row: &TensorRow| format!("{} {} {}", row.name, row.dtype, row.shape_text());
            EntryContent::Tensors(TensorList { chosen: query.choose(rows, &COLUMNS, text), format, tensors, values })
        }
    })
}

/// The page of a file.
///
/// # Errors
/// [`Fault::NoEntry`], and those of finding the commit and of reading.
pub async fn entry(question: &Question<'_>, at: &NamedPath) -> Result<HttpAnswer, Fault> {
    let found = question.find(at).await?;
    let (commit, tree, path) = (found.published.commit, found.tree.clone(), at.path.clone());
    let Some(PublishedItem::File(file)) = blocking(move || tree.find(&path)).await? else {
        return Err(Fault::NoEntry(commit));
    };
    let query = ListQuery::of(question.target, "offset");
    let (tree, wanted) = (found.tree, query.clone());
    let shown = if is_model_name(at) {
        // To list them can take a while, and memory.
        let turn = question.state.tensors.take(&question.client).await?;
        blocking(move || {
            let shown = tensors(&tree, &file, &wanted);
            drop(turn);
            shown
        })
        .await?
    } else {
        blocking(move || Ok(stored_text(&tree, &file)?.map_or(EntryContent::Nothing, EntryContent::Text))).await?
    };
    let hash = question.state.hashes.known(&file).await?;
    let content = html! {
        dl.facts {
            dt { "Size" } dd { (size(file.len)) " (" (file.len) " bytes)" }
            @if let Some(hash) = hash { dt { (hash.kind()) } dd { code { (hash.digits()) } } }
            dt { "Commit" } dd { code { (commit) } }
        }
        p.actions { a href=(download_path(at)) { "Download" } }
        (drawn(&shown, &query))
    };
    let mut answer = page(question.frame(), StatusCode::OK, &title_of(at), &trail_above(at), &content);
    answer::set(&mut answer, answer::COMMIT, &commit);
    Ok(answer)
}

fn drawn(shown: &EntryContent, query: &ListQuery) -> Markup {
    let cells = |row: &TensorRow| {
        vec![
            name(&row.name),
            html! { (printable(&row.dtype)) },
            html! { span.t { (row.shape_text()) } },
            html! { (row.bytes.map_or_else(|| "-".into(), |bytes| bytes.to_string())) },
            html! { (row.offset) },
        ]
    };
    match shown {
        EntryContent::Text(text) => html! { pre.text dir="auto" tabindex="0" { (text) } },
        EntryContent::Nothing => html! { p.note { "Of such a file, nothing is shown." } },
        EntryContent::Defective(reason) => {
            html! { p { span.bad { "This is no sound model file." } } p.note { (printable(reason)) } }
        }
        EntryContent::Tensors(list) => html! {
            h2 { "Tensors" }
            p { (list.format) ", " (list.tensors) " tensors, " (count(list.values)) " values" }
            @if list.tensors > TENSORS_MAX { p.note { "The first " (TENSORS_MAX) " of them are looked at." } }
            (query.drawn(&list.chosen, &COLUMNS, ("tensor", "tensors"), cells))
        },
    }
}
