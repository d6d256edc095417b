//! `fhrd find`: entries in many snapshots.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::Session;
use super::args::FindArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::ls::{mode_text, type_name};
use super::output::{
    failed, hex_unless_utf8, is_terminal, note_empty, path_bytes, print, size, split_ns, time_local, time_utc,
};
use super::snapshots::short_id;
use crate::error::Result;
use crate::inspect::find::{FindQuery, FoundEntry, find_entries};
use crate::repo::snapshot::NamedSnapshot;

/// A version of an entry as JSON.
#[derive(Serialize)]
struct FoundDocument<'a> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    r#type: &'static str,
    mode: u32,
    size: u64,
    mtime: String,
    host: &'a str,
    first_snapshot: String,
    first_time: String,
    last_snapshot: String,
    last_time: String,
}

impl<'a> FoundDocument<'a> {
    fn new(found: &FoundEntry, snapshots: &'a [NamedSnapshot]) -> Option<Self> {
        let (first, last) = (snapshots.get(found.first)?, snapshots.get(found.last)?);
        let bytes = found.path.as_os_str().as_bytes();
        let time = |named: &NamedSnapshot| {
            let (seconds, nanoseconds) = split_ns(named.snapshot.time_ns);
            time_utc(seconds, nanoseconds)
        };
        Some(FoundDocument {
            path: String::from_utf8_lossy(bytes).into_owned(),
            path_hex: hex_unless_utf8(bytes),
            r#type: type_name(found.node.kind),
            mode: found.node.mode,
            size: found.node.size,
            mtime: time_utc(found.node.mtime.seconds, found.node.mtime.nanoseconds),
            host: &last.snapshot.host,
            first_snapshot: first.id.to_string(),
            first_time: time(first),
            last_snapshot: last.id.to_string(),
            last_time: time(last),
        })
    }
}

/// Prints the entries that match, a line for each version.
///
/// # Errors
/// Errors of the repository, the snapshots and [`find_entries`].
pub fn run(session: &Session, arguments: &FindArguments) -> Result<Exit> {
    let mut query = FindQuery::new(&arguments.patterns, arguments.ignore_case)?;
    query.kinds = arguments.kinds.iter().flat_map(|kind| kind.kinds()).copied().collect();
    (query.size_min, query.size_max) = (arguments.size_min, arguments.size_max);
    (query.modified_from, query.modified_before) = (arguments.newer, arguments.older);
    let repository = location::open(session)?;
    let (snapshots, exit) = if arguments.snapshots.is_empty() {
        choice::snapshots(&repository, &arguments.filter)?
    } else {
        let filter = choice::filter(&arguments.filter)?;
        let find = |name: &String| choice::find_snapshot(&repository, name, &filter);
        let mut chosen = arguments.snapshots.iter().map(find).collect::<Result<Vec<_>>>()?;
        chosen.sort_by_key(|named| (named.snapshot.time_ns, named.id));
        chosen.dedup_by_key(|named| named.id);
        (chosen, Exit::Fine)
    };
    let on_terminal = is_terminal();
    let (mut unreadable, mut newer, mut is_empty) = (0, 0, true);
    print(|out| {
        let mut before = "[";
        (unreadable, newer) = find_entries(&repository, &snapshots, &query, &session.stop, &mut |found| {
            is_empty = false;
            if !session.options.json {
                return write_line(out, &found, &snapshots, on_terminal);
            }
            out.write_all(std::mem::replace(&mut before, ",\n").as_bytes()).map_err(failed)?;
            let document = FoundDocument::new(&found, &snapshots);
            serde_json::to_writer(&mut *out, &document).map_err(|error| failed(error.into()))
        })?;
        match (session.options.json, before) {
            (false, _) => Ok(()),
            (true, "[") => out.write_all(b"[]\n").map_err(failed),
            (true, _) => out.write_all(b"]\n").map_err(failed),
        }
    })?;
    if is_empty {
        note_empty(&session.options, &format!("nothing in {} snapshots matches", snapshots.len()));
    }
    Ok(if unreadable > 0 { Exit::of_unreadable(unreadable, newer) } else { exit })
}

/// One version: mode, size, time of modification, first and last snapshot, path.
fn write_line(out: &mut dyn Write, found: &FoundEntry, snapshots: &[NamedSnapshot], on_terminal: bool) -> Result<()> {
    let (Some(first), Some(last)) = (snapshots.get(found.first), snapshots.get(found.last)) else { return Ok(()) };
    let day = |named: &NamedSnapshot| {
        let time = time_local(split_ns(named.snapshot.time_ns).0);
        format!("{} {}", short_id(named), time.split(' ').next().unwrap_or_default())
    };
    let (node, changed) = (&found.node, time_local(found.node.mtime.seconds));
    let seen = format!("{} to {}", day(first), day(last));
    write!(out, "{} {:>10} {changed}  {seen}  ", mode_text(node), size(node.size)).map_err(failed)?;
    out.write_all(&path_bytes(found.path.as_os_str().as_bytes(), on_terminal)).map_err(failed)?;
    writeln!(out).map_err(failed)
}
