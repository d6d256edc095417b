//! `fhrd dump`: a directory as a tar archive, or a file as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;

use super::Session;
use super::args::DumpArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{check_open, failed, is_terminal, print, print_json};
use crate::error::{Error, Result};
use crate::inspect::dump::{ARCHIVE_MODE, Dump, DumpReport, dumped_mode};
use crate::repo::snapshot::{NamedSnapshot, explain_loss, forgotten, is_forgotten};
use crate::repo::tree::NodeKind;
use crate::store::sync_name;

/// Writes the entry to standard output or to a new file.
///
/// # Errors
/// Errors of the repository and the snapshot, and those of writing. An incomplete file is removed.
pub fn run(session: &Session, arguments: &DumpArguments) -> Result<Exit> {
    if arguments.output.is_none() {
        check_open()?;
    }
    let repository = location::open(session)?;
    let (named, path) = choice::entry(&repository, &arguments.entry, &arguments.filter)?;
    let dump = Dump::new(&repository, &session.stop)?;
    let dumped = match &arguments.output {
        Some(output) => to_file(&dump, &named, path.as_deref(), output),
        None => {
            let mut report = DumpReport::default();
            let printed = print(|out| {
                report = write(&dump, &named, path.as_deref(), out, failed, is_terminal())?;
                Ok(())
            });
            printed.map(|()| report)
        }
    };
    let report = dumped.map_err(|error| explain_loss(repository.store.as_ref(), [&named.id], error))?;
    if report.damaged > 0 && is_forgotten(repository.store.as_ref(), &named.id)? {
        return Err(forgotten(&named.id));
    }
    if session.options.json && arguments.output.is_some() {
        print_json(&json!({
            "snapshot": named.id.to_string(),
            "entries": report.entries,
            "skipped": report.skipped,
            "damaged": report.damaged,
        }))?;
    }
    Ok(Exit::of_unreadable(report.damaged + report.newer, report.newer))
}

fn to_file(dump: &Dump<'_>, named: &NamedSnapshot, path: Option<&Path>, output: &Path) -> Result<DumpReport> {
    // The system takes away what the user's umask says.
    let mode = dump.entry(named, path)?.map_or(ARCHIVE_MODE, |node| dumped_mode(&node));
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(output);
    let file = file.map_err(|error| Error::io("create", output, error))?;
    let mut out = BufWriter::with_capacity(256 << 10, &file);
    let failed = |error: io::Error| Error::io("write", "the output file", error);
    let written = write(dump, named, path, &mut out, failed, false);
    let synced =
        |out: &mut BufWriter<&File>| out.flush().and_then(|()| file.sync_all()).and_then(|()| sync_name(output));
    let written = written.and_then(|report| synced(&mut out).map_err(failed).map(|()| report));
    written.inspect_err(|_| {
        // What was written is no whole archive.
        let _ = std::fs::remove_file(output);
    })
}

fn write(
    dump: &Dump<'_>,
    named: &NamedSnapshot,
    path: Option<&Path>,
    out: &mut dyn Write,
    failed: fn(io::Error) -> Error,
    to_terminal: bool,
) -> Result<DumpReport> {
    let file = dump.entry(named, path)?.filter(|node| node.kind == NodeKind::File);
    if let Some(file) = file {
        dump.file(&file, (0, u64::MAX), &mut |bytes| out.write_all(bytes).map_err(failed))?;
        return Ok(DumpReport { entries: 1, ..DumpReport::default() });
    }
    if to_terminal {
        return Err(Error::Usage("an archive is no text for a terminal: redirect it, or give --output FILE".into()));
    }
    dump.archive(named, path, out, failed)
}
