//! `fhrd import`.

use std::io::Write;

use serde::Serialize;

use super::Session;
use super::args::ImportArguments;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, printable, size};
use super::progress::shown;
use crate::backup::BackupReport;
use crate::error::{Error, Result};
use crate::import::{ForeignSnapshot, Importer, Restic, default_directory};
use crate::metrics::Progress;
use crate::repo::paths::create_private;
use crate::types::SnapshotId;

/// A snapshot as JSON.
#[derive(Debug, Serialize)]
struct ImportedDocument {
    /// Id that the other program gave it.
    original: String,
    /// The snapshot of this repository; null if there is none.
    snapshot: Option<String>,
    /// Whether it was there before. Then nothing of it is counted below.
    existed: bool,
    time: String,
    host: String,
    files: u64,
    bytes: u64,
    bytes_new: u64,
    bytes_stored: u64,
    /// Why it was not imported.
    error: Option<String>,
}

/// The result as JSON.
#[derive(Serialize)]
struct ImportDocument {
    dry_run: bool,
    snapshots: Vec<ImportedDocument>,
}

/// Imports the snapshots of another program.
///
/// # Errors
/// Errors of the repository and of the other program. What concerns one snapshot is logged, and the others follow.
pub fn run(session: &Session, arguments: &ImportArguments) -> Result<Exit> {
    let (options, stop) = (&session.options, &session.stop);
    let config = location::config(options)?;
    let repository = location::open(session)?;
    let restic = Restic { program: arguments.program.clone(), repository: arguments.repository.clone() };
    let (all, complaints) = restic.snapshots(stop)?;
    let directory = arguments.directory.clone().map_or_else(default_directory, Ok)?;
    create_private(&directory)?;
    let mut importer = Importer::new(&restic, &repository, &config, &directory)?;
    if !rustix::process::geteuid().is_root() {
        tracing::warn!("only root can restore owners and devices: they will be those of this user");
    }
    importer.look_for_damage(&all, stop)?;
    if !arguments.dry_run {
        importer.compare_last(&all, stop)?;
    }
    complaints.lines().for_each(|line| tracing::warn!("restic, which lists its snapshots, says: {}", printable(line)));
    // It leaves out what it cannot load, and ends with success.
    let mut exit = if complaints.is_empty() { Exit::Fine } else { Exit::Incomplete };
    let mut document = Vec::new();
    for foreign in all {
        let mut imported = ImportedDocument::new(&foreign, importer.existing(&foreign));
        if !imported.existed && !arguments.dry_run {
            let progress = Progress::default();
            match shown(options, &progress, None, || importer.import(&foreign, &progress, stop)) {
                Ok(report) => imported.add(&report),
                Err(error) if is_of_one(&error) => {
                    tracing::error!("snapshot {} is not imported: {error}", foreign.short_id());
                    (imported.error, exit) = (Some(error.to_string()), Exit::Incomplete);
                }
                Err(error) => return Err(error),
            }
        }
        if !options.json && !options.quiet {
            print(|out| write_line(out, &imported))?;
        }
        document.push(imported);
    }
    if options.json {
        print_json(&ImportDocument { dry_run: arguments.dry_run, snapshots: document })?;
    }
    Ok(exit)
}

/// Whether an error concerns one snapshot only.
fn is_of_one(error: &Error) -> bool {
    matches!(error, Error::Incomplete { .. } | Error::Usage(_) | Error::Malformed { .. })
        || matches!(error, Error::Io { path, .. } if path.to_string_lossy().starts_with("restic "))
}

impl ImportedDocument {
    fn new(foreign: &ForeignSnapshot, existing: Option<SnapshotId>) -> Self {
        ImportedDocument {
            original: foreign.id.clone(),
            snapshot: existing.map(|id| id.to_string()),
            existed: existing.is_some(),
            time: format!("{:.9}", foreign.time),
            host: foreign.hostname.clone(),
            files: 0,
            bytes: 0,
            bytes_new: 0,
            bytes_stored: 0,
            error: None,
        }
    }

    fn add(&mut self, report: &BackupReport) {
        self.snapshot = Some(report.snapshot.clone());
        (self.files, self.bytes) = (report.files, report.bytes);
        (self.bytes_new, self.bytes_stored) = (report.bytes_new, report.bytes_stored);
    }
}

fn write_line(out: &mut dyn Write, imported: &ImportedDocument) -> Result<()> {
    let original = printable(imported.original.get(..8).unwrap_or_default());
    let (time, host) = (&imported.time, printable(&imported.host));
    let outcome = match (&imported.snapshot, imported.existed) {
        (Some(id), true) => format!("is there as {}", id.get(..8).unwrap_or_default()),
        (Some(id), false) => {
            let (id, stored) = (id.get(..8).unwrap_or_default(), size(imported.bytes_stored));
            format!("imported as {id}: {} files, {}, stored {stored}", imported.files, size(imported.bytes))
        }
        (None, _) if imported.error.is_some() => "not imported".into(),
        (None, _) => "to import".into(),
    };
    writeln!(out, "{original} of {time}, {host}: {outcome}").map_err(failed)
}
