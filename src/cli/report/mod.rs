//! `fhrd report`: one HTML page of the repository.
//!
//! | module | what is in it |
//! |---|---|
//! | `page` | the page, and its sections in order |
//! | `document` | the same as JSON |
//!
//! The sections are those of [`crate::overview`].

mod document;
mod page;

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Session;
use super::args::ReportArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::no_snapshots;
use super::output::{check_open, failed, print, print_json, replaceable};
use crate::error::{Error, Result};
use crate::inspect::report::{RepositoryReport, report};
use crate::inspect::status::RepositoryStatus;
use crate::store::LocalFile;
use document::PageDocument;

/// Name of standard output.
const STANDARD: &str = "-";

/// Writes the page, or prints it, or the same as JSON.
///
/// # Errors
/// Errors of the repository and of writing. Damage is in the page, and gives an exit code.
pub fn run(session: &Session, arguments: &ReportArguments) -> Result<Exit> {
    let is_standard = arguments.out.as_deref() == Some(Path::new(STANDARD));
    if is_standard && session.options.json {
        return Err(Error::Usage("--json prints on standard output, so the page needs a file: --out FILE".into()));
    }
    if is_standard {
        check_open()?;
    }
    // An output that cannot be written is an error before anything is read.
    let file = arguments.out.as_deref().filter(|_| !is_standard).map(new_file).transpose()?;
    let repository = location::open(session)?;
    let (snapshots, _) = choice::reported(&repository)?;
    let report = report(&repository, snapshots, &session.stop)?;
    let location = location::of_repository(&repository);
    if let Some((mut file, path)) = file {
        let write = || file.write_all(page::page(&report, &location).as_bytes()).and_then(|()| file.publish());
        write().map_err(|error| Error::io("write", path, error))?;
    } else if is_standard {
        print(|out| out.write_all(page::page(&report, &location).as_bytes()).map_err(failed))?;
    }
    if session.options.json {
        print_json(&PageDocument::new(&report, &location))?;
    }
    let RepositoryStatus { bytes_without_snapshots, snapshots_gone, .. } = report.status;
    no_snapshots::say(bytes_without_snapshots);
    no_snapshots::say_gone(snapshots_gone);
    Ok(no_snapshots::outcome(bytes_without_snapshots > 0 || snapshots_gone > 0, exit(&report)))
}

/// A file that replaces what is at `path`, and its path.
fn new_file(path: &Path) -> Result<(LocalFile, PathBuf)> {
    let create = || -> std::io::Result<(LocalFile, PathBuf)> {
        let path = replaceable(path)?;
        Ok((LocalFile::create(&path)?, path))
    };
    create().map_err(|error| Error::io("write", path, error))
}

/// The exit code that unreadable snapshots, directories and models cause.
fn exit(report: &RepositoryReport) -> Exit {
    let errors = report.status.unreadable_snapshots.iter().map(|(_, error)| error).chain(&report.models_unread);
    let newer = errors.clone().filter(|error| error.is_newer()).count() as u64;
    let tree = &report.usage.tree;
    Exit::of_unreadable(errors.count() as u64 + tree.unreadable, newer + tree.newer)
}
