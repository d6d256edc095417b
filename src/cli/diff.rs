//! `fhrd diff`: what changed between two snapshots, printed as it is found.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::Session;
use super::args::DiffArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::ls::type_name;
use super::output::{failed, hex_unless_utf8, is_terminal, path_bytes, print, size};
use crate::error::Result;
use crate::inspect::diff::{Change, ChangeCounts, ChangedEntry, DiffSide, DiffSummary, diff};
use crate::repo::tree::Node;

/// A change as JSON.
#[derive(Serialize)]
struct ChangeDocument {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    change: Change,
    r#type: &'static str,
    /// Size before, bytes; null if the entry was not there.
    size_before: Option<u64>,
    /// Size after, bytes.
    size_after: Option<u64>,
}

impl ChangeDocument {
    fn new(entry: &ChangedEntry<'_>) -> Self {
        let bytes = entry.path.as_os_str().as_bytes();
        let size = |node: Option<&Node>| node.map(|node| node.size);
        ChangeDocument {
            path: String::from_utf8_lossy(bytes).into_owned(),
            path_hex: hex_unless_utf8(bytes),
            change: entry.change,
            r#type: entry.after.or(entry.before).map_or("file", |node| type_name(node.kind)),
            size_before: size(entry.before),
            size_after: size(entry.after),
        }
    }
}

/// Prints the changes and a summary.
///
/// # Errors
/// Errors of the repository, the snapshots and [`diff`].
pub fn run(session: &Session, arguments: &DiffArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let side = |text| -> Result<DiffSide> {
        let (snapshot, path) = choice::entry(&repository, text, &arguments.filter)?;
        Ok(DiffSide { snapshot, path })
    };
    let (first, second) = (side(&arguments.first)?, side(&arguments.second)?);
    let is_listed = |change| arguments.metadata || change != Change::Metadata;
    let mut summary = DiffSummary::default();
    let sides = [&first, &second];
    print(|out| {
        if session.options.json {
            let ids = sides.map(|side| side.snapshot.id.to_string());
            write!(out, "{{\"first\":\"{}\",\"second\":\"{}\",\"changes\":", ids[0], ids[1]).map_err(failed)?;
            let mut before = "[";
            summary = diff(&repository, sides, &session.stop, &mut |entry| {
                if !is_listed(entry.change) {
                    return Ok(());
                }
                out.write_all(std::mem::replace(&mut before, ",\n").as_bytes()).map_err(failed)?;
                serde_json::to_writer(&mut *out, &ChangeDocument::new(&entry)).map_err(|error| failed(error.into()))
            })?;
            let end = if before == "[" { "[]" } else { "]" };
            write!(out, "{end},\"summary\":").map_err(failed)?;
            serde_json::to_writer(&mut *out, &summary).map_err(|error| failed(error.into()))?;
            return writeln!(out, "}}").map_err(failed);
        }
        let (on_terminal, mut has_changes) = (is_terminal(), false);
        summary = diff(&repository, sides, &session.stop, &mut |entry| {
            if !is_listed(entry.change) {
                return Ok(());
            }
            has_changes = true;
            write!(out, "{}  ", letter(entry.change)).map_err(failed)?;
            out.write_all(&path_bytes(entry.path.as_os_str().as_bytes(), on_terminal)).map_err(failed)?;
            writeln!(out).map_err(failed)
        })?;
        if session.options.quiet { Ok(()) } else { write_summary(out, &summary, has_changes) }
    })?;
    Ok(Exit::of_unreadable(summary.unreadable, summary.newer))
}

fn letter(change: Change) -> char {
    match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Content => 'M',
        Change::Metadata => 'U',
        Change::Kind => 'T',
    }
}

/// Prints the counts, below an empty line if changes stand above.
fn write_summary(out: &mut dyn Write, summary: &DiffSummary, has_changes: bool) -> Result<()> {
    if has_changes {
        writeln!(out).map_err(failed)?;
    }
    let mut line = |name: &str, counts: ChangeCounts| {
        let ChangeCounts { added, removed, changed, metadata } = counts;
        writeln!(out, "{name:<12} {added} added, {removed} removed, {changed} changed, {metadata} other metadata only")
            .map_err(failed)
    };
    line("files", summary.files)?;
    line("directories", summary.directories)?;
    line("others", summary.others)?;
    writeln!(out, "{:<12} {} added, {} removed", "content", size(summary.bytes_added), size(summary.bytes_removed))
        .map_err(failed)
}
