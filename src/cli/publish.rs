//! `fhrd publish`, `unpublish` and `published`.

#[cfg(feature = "serve")]
pub mod serve;

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;

use super::Session;
use super::args::{PublishArguments, UnpublishArguments};
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{
    Align, failed, note_empty, print, print_json, printable, size, split_ns, time_local, time_utc, write_table,
};
use super::snapshots::{short_id, statistic};
use crate::error::Result;
use crate::keep::{PublishOutcome, PublishRequest, publish as publish_directory, unpublish as unpublish_name};
use crate::repo::published::{self, Publication, PublishedSnapshot};

/// Digits of a commit in a table.
const COMMIT_DIGITS_SHOWN: usize = 12;

/// A published snapshot as JSON.
#[derive(Serialize)]
struct PublishedDocument<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    revision: &'a str,
    commit: &'a str,
    snapshot: String,
    time: String,
    files: u64,
    bytes: u64,
    /// Whether the revision names it. Others are found by their commits.
    is_current: bool,
}

impl<'a> PublishedDocument<'a> {
    fn new(found: &'a PublishedSnapshot, is_current: bool) -> Self {
        let (seconds, nanoseconds) = split_ns(found.named.snapshot.time_ns);
        PublishedDocument {
            name: &found.publication.name,
            kind: found.publication.kind.name(),
            revision: &found.publication.revision,
            commit: &found.commit,
            snapshot: found.named.id.to_string(),
            time: time_utc(seconds, nanoseconds),
            files: statistic(&found.named, "files"),
            bytes: statistic(&found.named, "bytes"),
            is_current,
        }
    }
}

/// What `publish` did, as JSON.
#[derive(Serialize)]
struct PublishDocument<'a> {
    published: PublishedDocument<'a>,
    /// Whether the revision showed the same before.
    unchanged: bool,
    /// Entries that clients do not see.
    hidden: u64,
    /// Ids of older snapshots of the name and revision that were deleted.
    replaced: Vec<String>,
}

/// Publishes a directory.
///
/// # Errors
/// Errors of the repository, and of [`publish_directory`].
pub fn publish(session: &Session, arguments: &PublishArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (original, path) = choice::entry(&repository, &arguments.entry, &arguments.filter)?;
    let request = PublishRequest {
        original,
        path,
        name: arguments.name.clone(),
        revision: arguments.revision.clone(),
        kind: arguments.kind.into(),
        replace: arguments.replace,
    };
    let outcome = publish_directory(&repository, &request)?;
    if session.options.json {
        print_json(&PublishDocument {
            published: PublishedDocument::new(&outcome.published, true),
            unchanged: outcome.is_unchanged,
            hidden: outcome.tally.hidden,
            replaced: outcome.replaced.iter().map(ToString::to_string).collect(),
        })?;
    } else if !session.options.quiet {
        print(|out| write_outcome(out, &outcome))?;
    }
    Ok(Exit::Fine)
}

fn write_outcome(out: &mut dyn Write, outcome: &PublishOutcome) -> Result<()> {
    let PublishedSnapshot { named, publication, commit } = &outcome.published;
    let (kind, name, revision) = (publication.kind.name(), &publication.name, &publication.revision);
    let verb = if outcome.is_unchanged { "already shows" } else { "shows" };
    let (files, bytes) = (outcome.tally.files, size(outcome.tally.bytes));
    let noun = if files == 1 { "file" } else { "files" };
    writeln!(out, "{kind} {name}@{revision} {verb} {files} {noun}, {bytes}").map_err(failed)?;
    writeln!(out, "commit {commit}, snapshot {}", short_id(named)).map_err(failed)?;
    if outcome.tally.hidden > 0 {
        let text = "not shown: links that lead to no file in it, devices, or names that are no UTF-8";
        writeln!(out, "{} {text}", outcome.tally.hidden).map_err(failed)?;
    }
    match outcome.replaced.len() {
        0 => Ok(()),
        count => writeln!(out, "{count} older snapshots of it are deleted").map_err(failed),
    }
}

/// Takes a name away.
///
/// # Errors
/// Errors of the repository, and of [`unpublish_name`].
pub fn unpublish(session: &Session, arguments: &UnpublishArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    // One that cannot be read may be of this name, and shows it again once it can.
    let (snapshots, exit) = choice::reported(&repository)?;
    let (kind, revision) = (arguments.kind.into(), arguments.revision.as_deref());
    let found = unpublish_name(&repository, snapshots, &arguments.name, kind, revision)?;
    if session.options.json {
        print_json(&found.iter().map(|found| PublishedDocument::new(found, false)).collect::<Vec<_>>())?;
    } else if !session.options.quiet {
        print(|out| {
            found.iter().try_for_each(|found| {
                let (name, revision) = (&found.publication.name, &found.publication.revision);
                writeln!(out, "{name}@{revision} {} is deleted", found.commit).map_err(failed)
            })
        })?;
    }
    Ok(exit)
}

/// Lists the published snapshots.
///
/// # Errors
/// Errors of the repository.
pub fn list(session: &Session) -> Result<Exit> {
    let repository = location::open(session)?;
    let (snapshots, exit) = choice::reported(&repository)?;
    let found = published::published(snapshots, repository.clock.now_ns())?;
    let mut named = BTreeSet::new();
    let rows = found.iter().rev().map(|found| {
        let Publication { name, revision, kind, .. } = &found.publication;
        (found, named.insert((kind.name(), name, revision)))
    });
    let mut rows: Vec<(&PublishedSnapshot, bool)> = rows.collect();
    // The last one of a revision is its current one, and comes last.
    rows.reverse();
    rows.sort_by_key(|(found, _)| {
        let Publication { name, revision, kind, .. } = &found.publication;
        (kind.name(), name, revision)
    });
    if session.options.json {
        let documents = rows.iter().map(|(found, is_current)| PublishedDocument::new(found, *is_current));
        print_json(&documents.collect::<Vec<_>>())?;
    } else if rows.is_empty() {
        note_empty(&session.options, "nothing is published: see `fhrd publish --help`");
    } else {
        print(|out| write_rows(out, &rows))?;
    }
    Ok(exit)
}

/// Writes a table of published snapshots, and of whether their revisions name them.
fn write_rows(out: &mut dyn Write, rows: &[(&PublishedSnapshot, bool)]) -> Result<()> {
    use Align::{Left, Right};
    let columns = [
        ("type", Left),
        ("name", Left),
        ("revision", Left),
        ("commit", Left),
        ("published", Left),
        ("files", Right),
        ("size", Right),
        ("", Left),
    ];
    let row = |(found, is_current): &(&PublishedSnapshot, bool)| {
        let PublishedSnapshot { named, publication, commit } = found;
        vec![
            publication.kind.name().to_string(),
            printable(&publication.name),
            printable(&publication.revision),
            commit.get(..COMMIT_DIGITS_SHOWN).unwrap_or_default().to_string(),
            time_local(split_ns(named.snapshot.time_ns).0),
            statistic(named, "files").to_string(),
            size(statistic(named, "bytes")),
            if *is_current { "" } else { "older" }.to_string(),
        ]
    };
    write_table(out, &columns, &rows.iter().map(row).collect::<Vec<_>>())
}
