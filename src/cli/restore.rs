//! `fhrd restore` of a whole tree. [`tensor`] restores one tensor.

use std::path::{Path, PathBuf};

use super::Session;
use super::args::RestoreArguments;
use super::exit::Exit;
use super::location;
use super::output::{print, print_json, rate, size, write_pairs};
use super::progress::shown;
use super::tensor;
use crate::error::Result;
use crate::metrics::Progress;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::restore::{RestoreReport, restore};
use crate::types::hex;

/// Writes a snapshot's tree into a directory.
///
/// # Errors
/// Those of the repository, the configuration, the snapshot and [`restore`].
pub fn run(session: &Session, arguments: &RestoreArguments) -> Result<Exit> {
    if let Some(name) = &arguments.tensor {
        return tensor::run(session, arguments, name);
    }
    let options = &session.options;
    let mut config = location::config(options)?;
    config.restore.keep_damaged &= !arguments.no_damaged;
    let repository = location::open(session)?;
    let named = snapshot::find(repository.store.as_ref(), &arguments.id)?;
    let target = arguments.target.clone().unwrap_or_else(|| new_directory(&named));
    let progress = Progress::default();
    let expected = |name: &str| named.snapshot.statistics.get(name).copied().unwrap_or(0);
    progress.bytes_total.add(expected("bytes"));
    progress.files_total.add(expected("files"));
    let report =
        shown(options, &progress, None, || restore(&repository, &config, &named, &target, &progress, &session.stop))?;
    if options.json {
        print_json(&report)?;
    } else if !options.quiet {
        print(|out| write_pairs(out, &summary(&report)))?;
    }
    Ok(match &report {
        report if report.damaged > 0 => Exit::Damaged,
        report if report.problems > 0 => Exit::Failed,
        _ => Exit::Fine,
    })
}

/// An unused name in the current directory.
fn new_directory(named: &NamedSnapshot) -> PathBuf {
    let name = format!("fhrd-restore-{}", hex(&named.id.0[..4]));
    let numbered = (2u64..).map(|number| format!("{name}-{number}"));
    let is_free = |name: &String| Path::new(name).symlink_metadata().is_err();
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name).into()
}

fn summary(report: &RestoreReport) -> Vec<(&'static str, String)> {
    vec![
        ("snapshot", report.snapshot.get(..8).unwrap_or_default().to_string()),
        ("target", report.target.clone()),
        ("files", report.files.to_string()),
        ("directories", format!("{} and {} other entries", report.directories, report.others)),
        ("content", size(report.bytes)),
        ("time", format!("{:.1} s ({})", report.seconds, rate(report.bytes, report.seconds))),
        ("problems", report.problems.to_string()),
        ("damaged", report.damaged.to_string()),
    ]
}
