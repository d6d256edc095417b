//! The page of a name: its revisions, how to get it, and its README.

use std::collections::BTreeMap;

use http::StatusCode;
use maud::{Markup, html};

use super::entry::stored_text;
use super::files::files_path;
use super::home::{bytes, files, kind_label, names, path_of, published_at, size_or_none};
use super::layout::page;
use super::list::{ListColumn, ListQuery};
use crate::html::picture::name;
use crate::repo::published::{DEFAULT_REVISION, PublishedItem, PublishedKind, PublishedSnapshot};
use crate::serve::answer::HttpAnswer;
use crate::serve::fault::Fault;
use crate::serve::models::CommitModels;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::NamedPath;
use crate::text::{count, printable};

/// Name of the file that describes a model or a dataset.
const README: &[u8] = b"README.md";

/// A commit of a name, in the list of them.
struct CommitRow<'a> {
    snapshot: &'a PublishedSnapshot,
    /// Whether its revision shows it now.
    is_last: bool,
}

fn columns<'a>() -> [ListColumn<CommitRow<'a>>; 5] {
    [
        ListColumn::time("published", "published", |a, b| time(a).cmp(&time(b))),
        ListColumn::text("revision", "revision", |a, b| revision(a).cmp(revision(b))),
        ListColumn::text("commit", "commit", |a, b| commit(a).cmp(commit(b))),
        ListColumn::number("files", "files", |a, b| files(a.snapshot).cmp(&files(b.snapshot))),
        ListColumn::number("size", "size", |a, b| bytes(a.snapshot).cmp(&bytes(b.snapshot))),
    ]
}

fn time(row: &CommitRow<'_>) -> i64 {
    row.snapshot.named.snapshot.time_ns
}

fn revision<'a>(row: &CommitRow<'a>) -> &'a str {
    &row.snapshot.publication.revision
}

fn commit<'a>(row: &CommitRow<'a>) -> &'a str {
    &row.snapshot.commit
}

/// The page of a name.
///
/// # Errors
/// [`Fault::NoName`]; errors of reading.
pub async fn card(question: &Question<'_>, kind: PublishedKind, own: &str) -> Result<HttpAnswer, Fault> {
    let catalogue = question.state.catalogue.clone();
    let found = blocking(move || catalogue.names()).await?;
    let is_own = |name: &str| name == own && question.client.may_read(name);
    let row = names(&found, is_own).into_iter().find(|row| row.shown.publication.kind == kind);
    let revision = row.as_ref().map_or(DEFAULT_REVISION, |row| &row.shown.publication.revision);
    let at = NamedPath { kind, name: own.into(), revision: revision.into(), path: Vec::new() };
    // It says whether the name is absent, or cannot be known.
    let commit = question.find(&at).await?;
    let Some(row) = row else { return Err(Fault::NoName) };
    let tree = commit.tree.clone();
    let readme = blocking(move || match tree.find(&[README.to_vec()])? {
        Some(PublishedItem::File(file)) => Ok(Some(stored_text(&tree, &file)?)),
        _ => Ok(None),
    });
    let readme = readme.await.inspect_err(|error| tracing::error!("the README of {own} cannot be read: {error}"));
    let commits: Vec<&PublishedSnapshot> =
        found.snapshots.iter().filter(|found| found.publication.is_same_name(&row.shown.publication)).collect();
    let models = question.state.models.get(&row.shown.commit).filter(|_| question.client.may_read_all());
    let content = html! {
        (facts(row.shown, models.as_deref()))
        p.actions { a href=(files_path(&at)) { "Files" } }
        h2 { "Download" }
        (how_to_get(question, &at))
        h2 { "Revisions" }
        (revisions(question, &commits))
        @match &readme {
            Ok(Some(Some(text))) => { h2 { "README.md" } pre.text dir="auto" { (text) } },
            Ok(Some(None)) => { h2 { "README.md" } p.note { "It is too long to be shown, or no text." } },
            Ok(None) => {},
            Err(_) => { h2 { "README.md" } p.bad { "It cannot be read." } },
        }
    };
    Ok(page(question.frame(), StatusCode::OK, own, &[("Names".into(), "/".into())], &content))
}

fn facts(shown: &PublishedSnapshot, models: Option<&CommitModels>) -> Markup {
    let publication = &shown.publication;
    html! {
        dl.facts {
            dt { "Type" } dd { (kind_label(publication.kind)) }
            dt { "Revision" } dd { code { (publication.revision) } }
            dt { "Commit" } dd { code { (shown.commit) } }
            dt { "Published" } dd { (published_at(shown)) }
            dt { "Size" } dd {
                (size_or_none(bytes(shown)))
                @if let Some(files) = files(shown) { " in " (files) " files" }
            }
            @if let Some(models) = models {
                dt { "Models" } dd { (models.models) ", " (count(models.parameters)) " values, mostly " (printable(&models.dtype)) }
                dt { "Stored" } dd { (size_or_none(models.stored)) }
                dt { "Base" } dd { (name(models.base.as_deref().unwrap_or("-"))) }
            }
        }
    }
}

/// Commands that download a name.
fn how_to_get(question: &Question<'_>, at: &NamedPath) -> Markup {
    let (name, origin) = (&at.name, &question.origin);
    let token = if question.state.tokens.is_some() { " HF_TOKEN=hf_..." } else { "" };
    let kind = if at.kind == PublishedKind::Dataset { " --repo-type dataset" } else { "" };
    let revision = if at.revision == DEFAULT_REVISION { String::new() } else { format!(" --revision {}", at.revision) };
    html! {
        pre tabindex="0" { "HF_ENDPOINT=" (origin) (token) " hf download " (name) (kind) (revision) }
    }
}

/// The commits of a name, the last one first.
fn revisions(question: &Question<'_>, commits: &[&PublishedSnapshot]) -> Markup {
    let last: BTreeMap<&str, &str> =
        commits.iter().map(|snapshot| (snapshot.publication.revision.as_str(), snapshot.commit.as_str())).collect();
    let rows = commits.iter().copied().map(|snapshot| CommitRow {
        snapshot,
        is_last: last.get(snapshot.publication.revision.as_str()) == Some(&snapshot.commit.as_str()),
    });
    let query = ListQuery::of(question.target, "-published");
    let chosen = query.choose(rows.collect(), &columns(), |row| format!("{} {}", revision(row), commit(row)));
    let cells = |row: &CommitRow<'_>| {
        let publication = &row.snapshot.publication;
        let at = |revision: &str| {
            let (name, revision) = (publication.name.clone(), revision.to_string());
            files_path(&NamedPath { kind: publication.kind, name, revision, path: Vec::new() })
        };
        vec![
            html! { span.t { (published_at(row.snapshot)) } },
            html! {
                @if row.is_last { a href=(at(revision(row))) { (name(revision(row))) } } @else { (name(revision(row))) " (before)" }
            },
            html! { a href=(at(commit(row))) { code { (commit(row).get(..12).unwrap_or_default()) } } },
            html! { (files(row.snapshot).map_or_else(|| "-".into(), |files| files.to_string())) },
            html! { (size_or_none(bytes(row.snapshot))) },
        ]
    };
    query.drawn(&chosen, &columns(), ("commit", "commits"), cells)
}

/// The way to a page of a name.
pub fn trail_to(at: &NamedPath) -> Vec<(String, String)> {
    vec![("Names".into(), "/".into()), (at.name.clone(), path_of(at.kind, &at.name))]
}
