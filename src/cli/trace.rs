//! `fhrd trace`: writes the chunks of paths as a trace for simulations.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;

use super::Session;
use super::args::TraceArguments;
use super::exit::Exit;
use super::location;
use super::output::{is_closed, is_terminal, print, print_json, printable, size, write_pairs};
use super::progress::shown;
use super::scan::Scan;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::EntryChoice;
use crate::inspect::trace::{TraceOutput, TraceReport, trace};
use crate::metrics::Progress;
use crate::repo::tree::FileIdentity;

/// Bytes buffered before each write.
const BUFFER_BYTES: usize = 256 << 10;

/// The JSON document: the report and the written file.
#[derive(Serialize)]
struct TraceDocument<'a> {
    #[serde(flatten)]
    report: &'a TraceReport,
    output: String,
}

/// Writes the trace to a new file, or to standard output.
///
/// # Errors
/// Errors of the configuration and of [`trace`]; [`Error::Usage`] for `--json` without `--output`;
/// [`Error::AlreadyExists`] if the file exists.
pub fn run(session: &Session, arguments: &TraceArguments) -> Result<Exit> {
    let options = &session.options;
    let config = location::config(options)?;
    let report = match &arguments.output {
        None if options.json => {
            return Err(Error::Usage(
                "--json needs --output, because the trace is written to standard output without it".into(),
            ));
        }
        None => to_standard_output(session, &config, arguments)?,
        Some(output) => {
            let report = to_file(session, &config, arguments, output)?;
            if options.json {
                print_json(&TraceDocument { report: &report, output: location::shown(output) })?;
            } else if !options.quiet {
                write_summary(&report, output)?;
            }
            report
        }
    };
    Ok(if report.problems > 0 { Exit::Incomplete } else { Exit::Fine })
}

fn to_standard_output(session: &Session, config: &Config, arguments: &TraceArguments) -> Result<TraceReport> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
    let output = TraceOutput { out: &mut out, name: Path::new("to the standard output"), identity: None };
    let traced = write(session, config, arguments, output, !is_terminal());
    match traced {
        Err(error) if is_closed(&error) => Ok(TraceReport::default()),
        traced => traced,
    }
}

/// Writes a new file. Removes it after a failure.
fn to_file(session: &Session, config: &Config, arguments: &TraceArguments, path: &Path) -> Result<TraceReport> {
    let file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::AlreadyExists { path: path.into(), what: "something" },
            _ => Error::io("create", path, error),
        })?;
    let failed = |error| Error::io("write", path, error);
    let written = (|| {
        let metadata = file.metadata().map_err(failed)?;
        let identity = Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() });
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &file);
        let report = write(session, config, arguments, TraceOutput { out: &mut out, name: path, identity }, true)?;
        out.flush().and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(report)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

fn write(
    session: &Session,
    config: &Config,
    arguments: &TraceArguments,
    output: TraceOutput<'_>,
    with_progress: bool,
) -> Result<TraceReport> {
    let progress = Progress::default();
    let work = || trace(&arguments.paths, &config.repository, output, &progress, &session.stop);
    if !with_progress {
        return work();
    }
    let choice = EntryChoice::default();
    let scan = Scan { paths: &arguments.paths, skip: Vec::new(), choice: &choice };
    shown(&session.options, &progress, Some(scan), work)
}

fn write_summary(report: &TraceReport, output: &Path) -> Result<()> {
    let pairs = [
        ("output", printable(&output.display().to_string())),
        ("files", report.files.to_string()),
        ("chunks", report.chunks.to_string()),
        ("content", size(report.bytes)),
        ("problems", report.problems.to_string()),
    ];
    print(|out| write_pairs(out, &pairs))
}
