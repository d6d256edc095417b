//! `fhrd rewrite`.

use std::io::Write;

use serde::Serialize;

use super::Session;
use super::args::RewriteArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, size, unread_note, warn_if_quiet};
use super::request::PatternLists;
use super::snapshots::{short_id, statistic};
use crate::error::{Error, Result};
use crate::keep::{RewriteOutcome, RewriteRequest, rewrite};
use crate::metrics::Progress;
use crate::repo::snapshot::NamedSnapshot;

/// A snapshot as JSON.
#[derive(Serialize)]
struct RewrittenDocument {
    original: String,
    /// The new snapshot. None if nothing is left out, after problems, and after a dry run.
    rewritten: Option<String>,
    /// Entries left out, without those below them.
    excluded: u64,
    files: u64,
    bytes: u64,
    files_before: u64,
    bytes_before: u64,
    forgotten: bool,
    dry_run: bool,
    /// Containers of the repository, and directories of them, that could not be read, or are missing.
    containers_unread: u64,
    /// Marks of the repository that could not be read.
    marks_unread: u64,
    problems: u64,
}

impl RewrittenDocument {
    fn new(original: &NamedSnapshot, outcome: &RewriteOutcome, dry_run: bool) -> Self {
        RewrittenDocument {
            original: original.id.to_string(),
            rewritten: outcome.rewritten.map(|id| id.to_string()),
            excluded: outcome.report.excluded,
            files: outcome.report.files,
            bytes: outcome.report.bytes,
            files_before: statistic(original, "files"),
            bytes_before: statistic(original, "bytes"),
            forgotten: outcome.forgotten,
            dry_run,
            containers_unread: outcome.report.containers_unread,
            marks_unread: outcome.report.marks_unread,
            problems: outcome.report.problems,
        }
    }
}

/// Stores snapshots again without what patterns name.
///
/// # Errors
/// [`Error::Usage`] without a pattern. Errors of the repository, and of [`rewrite`].
pub fn run(session: &Session, arguments: &RewriteArguments) -> Result<Exit> {
    let request = request(arguments)?;
    let config = location::config(&session.options)?;
    let repository = location::open(session)?;
    let (snapshots, mut exit) = match arguments.ids.is_empty() {
        true => choice::snapshots(&repository, &arguments.filter)?,
        false => (choice::named(&repository, &arguments.ids, &arguments.filter)?, Exit::Fine),
    };
    let mut documents = Vec::with_capacity(snapshots.len());
    for original in &snapshots {
        let outcome = rewrite(&repository, &config, original, &request, &Progress::default(), &session.stop)?;
        let document = RewrittenDocument::new(original, &outcome, request.dry_run);
        if document.problems > 0 && exit != Exit::Damaged {
            let is_refused = document.rewritten.is_none() || exit == Exit::Failed;
            exit = if is_refused { Exit::Failed } else { Exit::Incomplete };
        }
        if outcome.report.is_repository_unread() && exit == Exit::Fine {
            exit = Exit::Incomplete;
        }
        warn_if_quiet(&session.options, &unread_note(document.containers_unread, document.marks_unread));
        if !session.options.json && !session.options.quiet {
            print(|out| write_line(out, original, &document))?;
        }
        documents.push(document);
    }
    if session.options.json {
        print_json(&documents)?;
    }
    Ok(exit)
}

fn request(arguments: &RewriteArguments) -> Result<RewriteRequest> {
    let lists = PatternLists::excluding(&arguments.exclude);
    let exclude = lists.build()?;
    if exclude.is_empty() {
        return Err(Error::Usage("nothing to leave out: the pattern files are empty".into()));
    }
    Ok(RewriteRequest {
        exclude,
        excludes: lists.recorded(),
        forget: arguments.forget,
        allow_problems: arguments.allow_problems,
        dry_run: arguments.dry_run,
    })
}

fn write_line(out: &mut dyn Write, original: &NamedSnapshot, document: &RewrittenDocument) -> Result<()> {
    let (id, note) = (short_id(original), unread_note(document.containers_unread, document.marks_unread));
    if document.problems > 0 && document.rewritten.is_none() {
        let problems = document.problems;
        let text = "entries cannot be read. --allow-problems leaves these out, too";
        return writeln!(out, "{id} is not written again: {problems} {text}{note}").map_err(failed);
    }
    if document.excluded == 0 {
        return writeln!(out, "{id} has nothing to leave out{note}").map_err(failed);
    }
    let left = format!(
        "{} of {} files and {} of {}",
        document.files,
        document.files_before,
        size(document.bytes),
        size(document.bytes_before)
    );
    let text = match &document.rewritten {
        None => format!("would have {left}"),
        Some(new) => {
            let new = new.get(..8).unwrap_or_default();
            let fate = if document.forgotten { "deleted" } else { "still there" };
            format!("is now {new} with {left}; the original is {fate}")
        }
    };
    writeln!(out, "{id} {text}{note}").map_err(failed)
}
