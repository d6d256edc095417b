//! `fhrd restore --tensor`: one tensor of a snapshot's models.

use super::Session;
use super::args::RestoreArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{print, print_json, size, write_pairs};
use super::restore::filter;
use crate::error::{Error, Result};
use crate::inspect::tensor::{TensorReport, TensorRequest, default_output, tensor};

/// Writes the tensor `name` into a file.
///
/// # Errors
/// Errors of the repository, the snapshot and [`tensor`].
pub fn run(session: &Session, arguments: &RestoreArguments, name: &str) -> Result<Exit> {
    let repository = location::open(session)?;
    let (named, entry) = choice::find_entry(&repository, &arguments.entry, &filter(arguments))?;
    let output = arguments.output.clone().unwrap_or_else(|| default_output(name));
    let path = match (&entry, arguments.paths.as_slice()) {
        (entry, []) => entry.as_deref(),
        (None, [path]) => Some(path.as_path()),
        _ => return Err(Error::Usage("--tensor takes one path".into())),
    };
    let request = TensorRequest { tensor: name, path, output: &output };
    let report = tensor(&repository, &named, &request, &session.stop)?;
    if session.options.json {
        print_json(&report)?;
    } else if !session.options.quiet {
        print(|out| write_pairs(out, &summary(&report)))?;
    }
    Ok(Exit::Fine)
}

fn summary(report: &TensorReport) -> Vec<(&'static str, String)> {
    let shape: Vec<String> = report.shape.iter().map(u64::to_string).collect();
    let is_same = report.written_as == report.dtype || report.written_as.starts_with(['<', '>', '|']);
    let written_as = if is_same { String::new() } else { format!(", as {}", report.written_as) };
    let mut pairs = vec![
        ("tensor", report.tensor.clone()),
        ("model", format!("{} ({})", report.path, report.format)),
        ("values", format!("{} [{}], {}", report.dtype, shape.join(", "), size(report.bytes))),
        ("output", format!("{}{written_as}", report.output)),
        ("read", format!("{} of {} chunks", report.chunks_read, report.chunks)),
    ];
    pairs.extend(report.remark.map(|remark| ("note", remark.to_string())));
    pairs
}
