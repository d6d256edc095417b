//! `fhrd check`.

use super::Session;
use super::args::CheckArguments;
use super::exit::Exit;
use super::location;
use super::output::{note, print, print_json, size, write_pairs};
use super::progress::shown;
use crate::error::Result;
use crate::inspect::check::check;
use crate::metrics::Progress;

/// Verifies the repository.
///
/// # Errors
/// Those of the repository, the configuration and [`check`].
pub fn run(session: &Session, arguments: &CheckArguments) -> Result<Exit> {
    let options = &session.options;
    let config = location::config(options)?;
    let repository = location::open(session)?;
    let progress = Progress::default();
    let read_data = arguments.read_data_subset.unwrap_or_else(|| arguments.read_data.into());
    let report = shown(options, &progress, None, || check(&repository, &config, read_data, &progress, &session.stop))?;
    if options.json {
        print_json(&report)?;
    } else {
        report.defects.iter().for_each(|defect| note(&format!("error: {defect}")));
        let more = report.defect_count.saturating_sub(report.defects.len() as u64);
        if more > 0 {
            note(&format!("error: {more} more defects"));
        }
        let pairs = [
            ("snapshots", report.snapshots.to_string()),
            ("index segments", report.segments.to_string()),
            ("containers", format!("{} ({} unreferenced)", report.containers, report.unreferenced_containers)),
            ("frames", report.frames.to_string()),
            ("chunks", report.chunks.to_string()),
            ("stored", size(report.bytes_stored)),
            ("content", size(report.bytes_raw)),
            ("read", format!("{} in {} containers", size(report.bytes_read), report.containers_read)),
            ("defects", report.defect_count.to_string()),
        ];
        if !options.quiet {
            print(|out| write_pairs(out, &pairs))?;
        }
    }
    Ok(if report.defect_count > 0 { Exit::Damaged } else { Exit::Fine })
}
