//! `fhrd publish`, `unpublish` and `published`.

#[cfg(feature = "serve")]
pub mod serve;

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
use crate::repo::published::{self, PublishedSnapshot};

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
    let found = unpublish_name(&repository, &arguments.name, arguments.kind.into(), arguments.revision.as_deref())?;
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
    Ok(Exit::Fine)
}

/// Lists the published snapshots.
///
/// # Errors
/// Errors of the repository.
pub fn list(session: &Session) -> Result<Exit> {
    let repository = location::open(session)?;
    let (snapshots, exit) = choice::reported(&repository)?;
    let found = published::published(snapshots, repository.clock.now_ns())?;
    let is_current = |at: usize| {
        let after = found.iter().skip(at + 1).map(|after| &after.publication);
        let own = found.get(at).map(|own| &own.publication);
        !after.into_iter().any(|after| own.is_some_and(|own| own.is_same_name(after) && own.revision == after.revision))
    };
    let mut documents: Vec<PublishedDocument<'_>> =
        found.iter().enumerate().map(|(at, found)| PublishedDocument::new(found, is_current(at))).collect();
    documents.sort_by(|one, other| (one.kind, one.name, one.revision).cmp(&(other.kind, other.name, other.revision)));
    if session.options.json {
        print_json(&documents)?;
    } else if documents.is_empty() {
        note_empty(&session.options, "nothing is published: see `fhrd publish --help`");
    } else {
        print(|out| write_documents(out, &found, &documents))?;
    }
    Ok(exit)
}

fn write_documents(
    out: &mut dyn Write,
    found: &[PublishedSnapshot],
    documents: &[PublishedDocument<'_>],
) -> Result<()> {
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
    let row = |document: &PublishedDocument<'_>| {
        let named = found.iter().map(|found| &found.named).find(|named| named.id.to_string() == document.snapshot);
        vec![
            document.kind.to_string(),
            printable(document.name),
            printable(document.revision),
            document.commit.get(..COMMIT_DIGITS_SHOWN).unwrap_or_default().to_string(),
            named.map(|named| time_local(split_ns(named.snapshot.time_ns).0)).unwrap_or_default(),
            document.files.to_string(),
            size(document.bytes),
            if document.is_current { "" } else { "older" }.to_string(),
        ]
    };
    write_table(out, &columns, &documents.iter().map(row).collect::<Vec<_>>())
}
