//! A directory of a commit.

use http::StatusCode;
use maud::{Markup, html};

use super::card::trail_to;
use super::home::path_of;
use super::layout::{TrailStep, page, url_part};
use super::list::{ListColumn, ListQuery};
use crate::html::picture::name;
use crate::repo::published::{FILES_MAX, PublishedItem, TreePath};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::NamedPath;
use crate::serve::target::encoded;
use crate::text::{printable, size};

/// An entry in the list.
struct EntryRow {
    name: Vec<u8>,
    item: PublishedItem,
}

impl EntryRow {
    fn is_file(&self) -> bool {
        matches!(self.item, PublishedItem::File(_))
    }

    fn len(&self) -> Option<u64> {
        match self.item {
            PublishedItem::File(file) => Some(file.len),
            PublishedItem::Directory(_) => None,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// Directories come before files.
const COLUMNS: [ListColumn<EntryRow>; 2] = [
    ListColumn::text("name", "name", |a, b| (a.is_file(), &a.name).cmp(&(b.is_file(), &b.name))),
    ListColumn::number("size", "size", |a, b| a.len().cmp(&b.len())),
];

/// Path of a page, or of a download, of what is at a path.
fn path_to(route: &str, at: &NamedPath) -> String {
    let path: String = at.path.iter().map(|name| format!("/{}", encoded(name))).collect();
    format!("{}/{route}/{}{path}", path_of(at.kind, &at.name), url_part(&at.revision))
}

/// Path of the page of a directory.
pub fn files_path(at: &NamedPath) -> String {
    path_to("tree", at)
}

/// Path of the page of a file.
pub fn entry_path(at: &NamedPath) -> String {
    path_to("blob", at)
}

/// Path of the bytes of a file, for browsers.
pub fn download_path(at: &NamedPath) -> String {
    path_to("download", at)
}

/// What is in the directory of a route.
fn below(at: &NamedPath, name: &[u8]) -> NamedPath {
    NamedPath { path: at.path.iter().cloned().chain([name.to_vec()]).collect(), ..at.clone() }
}

/// The way to a page of what is at a path.
pub fn trail_above(at: &NamedPath) -> Vec<TrailStep> {
    let mut trail = trail_to(at);
    for len in 0..at.path.len() {
        let path: TreePath = at.path.iter().take(len).cloned().collect();
        let text = path.last().map_or(at.revision.clone(), |name| String::from_utf8_lossy(name).into_owned());
        trail.push((text, files_path(&NamedPath { path, ..at.clone() })));
    }
    trail
}

/// What a page is of: the last name of its path, or the revision.
pub fn title_of(at: &NamedPath) -> String {
    at.path.last().map_or_else(|| at.revision.clone(), |name| String::from_utf8_lossy(name).into_owned())
}

/// The page of a directory.
///
/// # Errors
/// [`Fault::NoEntry`], and those of finding the commit and of reading.
pub async fn files(question: &Question<'_>, at: &NamedPath) -> Result<HttpAnswer, Fault> {
    let found = question.find(at).await?;
    let commit = found.published.commit;
    let (tree, path, query) = (found.tree, at.path.clone(), ListQuery::of(question.target, "name"));
    let wanted = query.clone();
    // All entries are in memory until those of the page are chosen.
    let turn = question.state.directories.take(&question.client).await?;
    let chosen = blocking(move || {
        let _turn = turn;
        let Some(entries) = tree.page(&path, None, false, FILES_MAX)? else { return Ok(None) };
        let row = |(mut path, item): (TreePath, PublishedItem)| Some(EntryRow { name: path.pop()?, item });
        let rows = entries.items.into_iter().filter_map(row).collect();
        Ok(Some((wanted.choose(rows, &COLUMNS, EntryRow::text), entries.hidden)))
    });
    let (chosen, hidden) = chosen.await?.ok_or_else(|| Fault::NoEntry(commit.clone()))?;
    let cells = |row: &EntryRow| {
        let own = below(at, &row.name);
        let text = row.text();
        let (target, text) =
            if row.is_file() { (entry_path(&own), text) } else { (files_path(&own), format!("{text}/")) };
        let cell = html! { a href=(target) { (name(&text)) } };
        let len: Markup = html! {
            @if let Some(len) = row.len() {
                (size(len)) " " a href=(download_path(&own)) aria-label={ "Download " (printable(&row.text())) } { "↓" }
            } @else { "-" }
        };
        vec![cell, len]
    };
    let content = html! {
        p.note { "Commit " code { (commit) } }
        (query.drawn(&chosen, &COLUMNS, ("entry", "entries"), cells))
        @if hidden > 0 {
            p.note { (hidden) " entries are not shown: links that lead out or to directories, devices, and names that are no text." }
        }
    };
    let mut answer = page(question.frame(), StatusCode::OK, &title_of(at), &trail_above(at), &content);
    answer::set(&mut answer, answer::COMMIT, &commit);
    Ok(answer)
}
