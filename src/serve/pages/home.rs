//! All names that a client may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use maud::{Markup, html};

use super::layout::page;
use super::list::{ListColumn, ListQuery};
use crate::html::picture::name;
use crate::html::table::counted;
use crate::repo::published::{DEFAULT_REVISION, PublishedKind, PublishedSnapshot};
use crate::serve::answer::HttpAnswer;
use crate::serve::catalogue::PublishedNames;
use crate::serve::fault::Fault;
use crate::serve::models::{CommitModels, KnownModels};
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::state::Client;
use crate::text::{size, split_ns, time_local};

/// A name in the list.
pub struct NameRow<'a> {
    /// The snapshot that describes it: of the revision that clients get by default, if there is one.
    pub shown: &'a PublishedSnapshot,
    /// Number of its revisions.
    pub revisions: usize,
    /// Its models, if they are known and the client may know of them.
    pub models: Option<Arc<CommitModels>>,
}

impl NameRow<'_> {
    fn stored(&self) -> Option<u64> {
        self.models.as_ref()?.stored
    }

    fn base(&self) -> Option<&str> {
        self.models.as_ref()?.base.as_deref()
    }
}

/// The columns. What a model is stored against tells of what is not published.
fn columns<'a>(sees_all: bool) -> Vec<ListColumn<NameRow<'a>>> {
    let all = [
        ListColumn::text("name", "name", |a, b| of(a).name.cmp(&of(b).name)),
        ListColumn::text("type", "type", |a, b| of(a).kind.cmp(&of(b).kind)),
        ListColumn::number("size", "size", |a, b| bytes(a.shown).cmp(&bytes(b.shown))),
        ListColumn::number("stored", "stored", |a, b| a.stored().cmp(&b.stored())),
        ListColumn::text("base", "base", |a, b| a.base().cmp(&b.base())),
        ListColumn::number("revisions", "revisions", |a, b| a.revisions.cmp(&b.revisions)),
        ListColumn::time("published", "published", |a, b| time(a).cmp(&time(b))),
    ];
    all.into_iter().filter(|column| sees_all || !matches!(column.key, "stored" | "base")).collect()
}

fn of<'a>(row: &NameRow<'a>) -> &'a crate::repo::published::Publication {
    &row.shown.publication
}

fn time(row: &NameRow<'_>) -> i64 {
    row.shown.named.snapshot.time_ns
}

/// A number that was counted when a snapshot was published.
fn counter(shown: &PublishedSnapshot, name: &str) -> Option<u64> {
    shown.named.snapshot.statistics.get(name).copied()
}

/// Files that a publication shows.
pub fn files(shown: &PublishedSnapshot) -> Option<u64> {
    counter(shown, "files")
}

/// Bytes of these.
pub fn bytes(shown: &PublishedSnapshot) -> Option<u64> {
    counter(shown, "bytes")
}

/// The time of a publication.
pub fn published_at(shown: &PublishedSnapshot) -> String {
    time_local(split_ns(shown.named.snapshot.time_ns).0)
}

/// Path of the page of a name.
pub fn path_of(kind: PublishedKind, name: &str) -> String {
    match kind {
        PublishedKind::Model => format!("/{name}"),
        PublishedKind::Dataset => format!("/datasets/{name}"),
    }
}

/// What a name is, as a label.
pub fn kind_label(kind: PublishedKind) -> Markup {
    let colour = match kind {
        PublishedKind::Model => "c1",
        PublishedKind::Dataset => "c3",
    };
    html! { span class={ "kind " (colour) } { (kind.name()) } }
}

/// A number of bytes that may not be known.
pub fn size_or_none(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), size)
}

/// The names that `may_read` admits, in the order of their kinds and names.
pub fn names(found: &PublishedNames, may_read: impl Fn(&str) -> bool) -> Vec<NameRow<'_>> {
    let mut all: BTreeMap<(PublishedKind, &str), BTreeMap<&str, &PublishedSnapshot>> = BTreeMap::new();
    for snapshot in &found.snapshots {
        let publication = &snapshot.publication;
        if may_read(&publication.name) {
            let revisions = all.entry((publication.kind, &publication.name)).or_default();
            // The last one of a revision counts.
            revisions.insert(&publication.revision, snapshot);
        }
    }
    all.into_values().filter_map(row_of).collect()
}

/// The row of a name with these revisions.
fn row_of<'a>(revisions: BTreeMap<&'a str, &'a PublishedSnapshot>) -> Option<NameRow<'a>> {
    let main = revisions.get(DEFAULT_REVISION).copied();
    let latest = || revisions.values().copied().max_by_key(|snapshot| snapshot.named.snapshot.time_ns);
    Some(NameRow { shown: main.or_else(latest)?, revisions: revisions.len(), models: None })
}

/// The page.
///
/// # Errors
/// Errors of listing the snapshots.
pub async fn home(question: &Question<'_>) -> Result<HttpAnswer, Fault> {
    let query = ListQuery::of(question.target, "name");
    let (state, client) = (question.state.clone(), question.client.clone());
    let content = blocking(move || {
        let found = state.catalogue.names()?;
        Ok(content(&found, &state.models, &client, &query))
    });
    let content = content.await?;
    Ok(page(question.frame(), StatusCode::OK, "Models and datasets", &[], &content))
}

fn content(found: &PublishedNames, models: &KnownModels, client: &Client, query: &ListQuery) -> Markup {
    let sees_all = client.may_read_all();
    let mut rows = names(found, |name| client.may_read(name));
    for row in rows.iter_mut().filter(|_| sees_all) {
        row.models = models.get(&row.shown.commit);
    }
    let (is_empty, columns) = (rows.is_empty(), columns(sees_all));
    let chosen = query.choose(rows, &columns, |row| format!("{} {}", of(row).name, row.base().unwrap_or_default()));
    let cells = |row: &NameRow<'_>| {
        let publication = of(row);
        let target = path_of(publication.kind, &publication.name);
        let mut cells = vec![
            html! { a href=(target) { strong { (name(&publication.name)) } } },
            kind_label(publication.kind),
            html! { (size_or_none(bytes(row.shown))) },
        ];
        if sees_all {
            cells.extend([html! { (size_or_none(row.stored())) }, name(row.base().unwrap_or("-"))]);
        }
        cells.extend([html! { (row.revisions) }, html! { span.t { (published_at(row.shown)) } }]);
        cells
    };
    html! {
        @if found.unreadable > 0 {
            p.bad {
                @if sees_all { (counted(found.unreadable as u64, "snapshot", "snapshots")) } @else { "Something" }
                " cannot be read, so names may be missing."
            }
        }
        @if is_empty {
            p { "Nothing is published that you may read." }
            p.note { "On the machine of the repository, " code { "fhrd publish latest:PATH ORG/NAME" } " gives a directory a name." }
        } @else {
            (query.drawn(&chosen, &columns, ("name", "names"), cells))
        }
    }
}
