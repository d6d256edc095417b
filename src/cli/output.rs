//! Standard output: JSON, aligned tables, and the texts of [`crate::text`] in them.
//!
//! A reader that closes the pipe early (`| head`) ends the output without an error, see [`is_closed`]. Names from data
//! cannot control the terminal, because tables, pairs and notes pass through [`printable`].

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use console::Term;
use serde::Serialize;
use serde_json::json;

use super::args::Options;
use super::exit::Exit;
use super::process::is_output_closed;
use crate::error::{Error, Result};
use crate::types::hex;

pub use crate::text::{count, printable, rate, ratio, shortened, size, split_ns, time_local, time_utc};

/// Name of standard output in errors.
const NAME: &str = "to the standard output";

/// Characters that a shortened word keeps.
const TEXT_CHARS_MIN: usize = 9;

/// An error of writing to standard output.
pub fn failed(error: io::Error) -> Error {
    Error::io("write", NAME, error)
}

/// Fails if the standard output was closed, for a verb that gives data there.
///
/// # Errors
/// [`Error::Io`].
pub fn check_open() -> Result<()> {
    if is_output_closed() { Err(failed(io::Error::other("it is closed"))) } else { Ok(()) }
}

/// Whether an error only means that the reader of standard output has closed the pipe.
pub fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Io { action: "write", source, .. } if source.kind() == ErrorKind::BrokenPipe)
}

/// Calls `write` with standard output. A closed pipe is not an error.
///
/// # Errors
/// Errors of `write` and of writing.
pub fn print(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let written = write(&mut out);
    // Results from before an error are still useful.
    let flushed = out.flush().map_err(failed);
    match written.and(flushed) {
        Err(error) if is_closed(&error) => Ok(()),
        result => result,
    }
}

/// Prints one JSON document.
///
/// # Errors
/// Errors of writing.
pub fn print_json(document: &impl Serialize) -> Result<()> {
    print(|out| {
        serde_json::to_writer(&mut *out, document).map_err(|error| failed(error.into()))?;
        writeln!(out).map_err(failed)
    })
}

/// Prints one line on standard error. Failures are ignored.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

/// Says that there is nothing to list, where a list of nothing would leave the user in doubt.
pub fn note_empty(options: &Options, line: &str) {
    if !options.json && !options.quiet {
        note(line);
    }
}

/// Reports an error on standard error, as JSON on request.
pub fn report(options: &Options, error: &Error, hint: Option<&str>) {
    if options.json {
        note_json(&error.to_string(), Exit::from(error).code());
    } else if let Error::Config { .. } = error {
        // The TOML parser shows the faulty line and the position in it, on several lines.
        format!("error: {error}").lines().for_each(note);
    } else {
        note(&format!("error: {error}"));
        if let Some(hint) = hint {
            note(&format!("hint: {hint}"));
        }
    }
}

/// Says with `--json` how a command has ended that printed its document, unless all is well. Returns the outcome.
pub fn ended(options: &Options, exit: Exit) -> Exit {
    if options.json && exit != Exit::Fine {
        note_json(exit.summary(), exit.code());
    }
    exit
}

/// Says on standard error why a command ends with this exit code, as JSON.
pub fn note_json(error: &str, exit_code: u8) {
    note(&json!({"error": error, "exit_code": exit_code}).to_string());
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Writes rows in columns two spaces apart, below their titles.
///
/// # Errors
/// Errors of writing.
pub fn write_table(out: &mut dyn Write, columns: &[(&str, Align)], rows: &[Vec<String>]) -> Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(title, _)| *title));
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| printable(cell))));
    for (column, (_, align)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2)).set_cell_alignment(match align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        });
    }
    writeln!(out, "{}", table.trim_fmt()).map_err(failed)
}

/// Writes a table like [`write_table`] that is no wider than the terminal: long words are shortened in their middle.
///
/// # Errors
/// Errors of writing.
pub fn write_fitting(out: &mut dyn Write, columns: &[(&str, Align)], mut rows: Vec<Vec<String>>) -> Result<()> {
    if let Some(width) = width() {
        fit(columns, &mut rows, width);
    }
    write_table(out, columns, &rows)
}

/// Characters of a line: as COLUMNS says, or those of the terminal. `None` if there is no limit.
fn width() -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    given.or_else(|| is_terminal().then(|| usize::from(Term::stdout().size().1))).filter(|width| *width > 0)
}

/// Shortens the widest columns of words until a row fits, but none below [`TEXT_CHARS_MIN`].
fn fit(columns: &[(&str, Align)], rows: &mut [Vec<String>], width: usize) {
    let of = |at: usize| rows.iter().filter_map(|row| Some(row.get(at)?.chars().count())).max().unwrap_or(0);
    let mut widths: Vec<usize> =
        columns.iter().enumerate().map(|(at, (title, _))| title.chars().count().max(of(at))).collect();
    let space = width.saturating_sub(2 * columns.len().saturating_sub(1));
    let is_text = |at: usize| columns.get(at).is_some_and(|(_, align)| *align == Align::Left);
    while widths.iter().sum::<usize>() > space {
        let widest = widths.iter_mut().enumerate().filter(|(at, width)| is_text(*at) && **width > TEXT_CHARS_MIN);
        match widest.max_by_key(|(_, width)| **width) {
            Some((_, width)) => *width -= 1,
            None => break,
        }
    }
    for row in rows {
        row.iter_mut().zip(&widths).for_each(|(cell, width)| *cell = shortened(cell, *width));
    }
}

/// Writes `name  value` lines with aligned values.
///
/// # Errors
/// Errors of writing.
pub fn write_pairs(out: &mut dyn Write, pairs: &[(&str, String)]) -> Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().try_for_each(|(name, value)| writeln!(out, "{name:<width$}  {}", printable(value)).map_err(failed))
}

/// Bytes of a path for standard output: unchanged, or made printable for a terminal.
pub fn path_bytes(path: &[u8], on_terminal: bool) -> Vec<u8> {
    if on_terminal { printable(&String::from_utf8_lossy(path)).into_bytes() } else { path.to_vec() }
}

/// Where a file is that is to be replaced, behind links.
///
/// # Errors
/// There is a device or a pipe, which a file would replace.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(found) if found.is_file() => Ok(found),
        Ok(_) => Err(io::Error::other("it is no regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => Ok(path.into()),
        Err(error) => Err(error),
    }
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Hex digits of bytes that are not UTF-8; `None` for UTF-8.
pub fn hex_unless_utf8(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex(bytes))
}

/// Says that so many containers, or directories of them, could not be read, and what to do.
pub fn unread(count: u64) -> String {
    let what = "containers of the repository, or directories of them, are missing or unreadable";
    format!("{count} {what}: run `fhrd repair index`")
}

/// With `--quiet`, a warning with what the summary would say of an outcome that is no success.
pub fn warn_if_quiet(options: &Options, text: &str) {
    if options.quiet && !options.json && !text.is_empty() {
        tracing::warn!("{}", text.trim_start_matches("; "));
    }
}

/// What to do about marks that could not be read.
pub fn unread_marks(marks: u64) -> String {
    format!("{marks} marks of damage were not read: run `fhrd check --read-data`, and store the same again")
}

/// The same behind a line about a snapshot; empty without such containers and marks.
pub fn unread_note(containers: u64, marks: u64) -> String {
    let texts = [(containers, unread as fn(u64) -> String), (marks, unread_marks)];
    texts.into_iter().filter(|(count, _)| *count > 0).map(|(count, text)| format!("; {}", text(count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_without_spaces_at_the_end() {
        let mut out = Vec::new();
        let rows = [vec!["ä".into(), "1".into(), "x".into()], vec!["bcd".into(), "100".into(), String::new()]];
        let columns = [("id", Align::Left), ("n", Align::Right), ("tag", Align::Left)];
        write_table(&mut out, &columns, &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "id     n  tag\nä      1  x\nbcd  100\n");
        // Such letters take two columns of a terminal.
        let mut out = Vec::new();
        let rows = [vec!["日本".into(), "1".into()], vec!["abc".into(), "2".into()]];
        write_table(&mut out, columns.get(..2).unwrap(), &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "id    n\n日本  1\nabc   2\n");
    }

    #[test]
    fn wide_tables_are_fitted_by_shortening_words() {
        let columns = [("path", Align::Left), ("n", Align::Right), ("base", Align::Left)];
        let mut rows = vec![vec!["m/a/very/long/path/model.safetensors".into(), "12345".into(), "short".into()]];
        fit(&columns, &mut rows, 30);
        assert_eq!(rows[0], ["m/a/v…afetensors", "12345", "short"]);
        fit(&columns, &mut rows, 1);
        assert_eq!(rows[0], ["m/…ensors", "12345", "short"]);
    }

    #[test]
    fn only_a_broken_pipe_counts_as_closed() {
        assert!(is_closed(&failed(ErrorKind::BrokenPipe.into())));
        assert!(!is_closed(&failed(ErrorKind::StorageFull.into())));
        assert!(!is_closed(&Error::Interrupted));
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let (mut table, mut pairs) = (Vec::new(), Vec::new());
        write_table(&mut table, &[("n", Align::Left)], &[vec!["a\x1b[31m\n\0".into()]]).unwrap();
        write_pairs(&mut pairs, &[("n", "a\x1b[31m\n\u{9b}\u{202e}".into())]).unwrap();
        assert_eq!((&*table, &*pairs), (&b"n\na?[31m??\n"[..], &b"n  a?[31m???\n"[..]));
        assert_eq!(path_bytes(b"a\x1b[2Jb\n", true), b"a?[2Jb?");
        assert_eq!(path_bytes(b"a\x1b\xff", false), b"a\x1b\xff");
        assert_eq!(hex_unless_utf8(b"\xff0"), Some("ff30".into()));
    }
}
