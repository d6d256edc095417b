//! `fhrd snapshots`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Session;
use super::exit::Exit;
use super::location;
use super::output::{
    Align, hex_unless_utf8, print, print_json, printable, size, split_ns, time_local, time_utc, write_table,
};
use crate::error::Result;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::types::hex;

/// A snapshot as JSON.
#[derive(Debug, Serialize)]
pub struct SnapshotDocument<'a> {
    id: String,
    short_id: String,
    time: String,
    host: &'a str,
    user: &'a str,
    paths: Vec<String>,
    /// The same paths in hex, if one of them is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_hex: Option<Vec<String>>,
    tags: &'a [String],
    /// What the user left out, an option and its value each.
    excludes: Vec<String>,
    parent: Option<String>,
    program: &'a str,
    statistics: &'a BTreeMap<String, u64>,
    files: u64,
    bytes: u64,
}

impl<'a> SnapshotDocument<'a> {
    /// Describes a snapshot.
    pub fn new(named: &'a NamedSnapshot) -> Self {
        let snapshot = &named.snapshot;
        let (seconds, nanoseconds) = split_ns(snapshot.time_ns);
        let paths = snapshot.paths.iter();
        let is_text = paths.clone().all(|path| hex_unless_utf8(path).is_none());
        SnapshotDocument {
            id: named.id.to_string(),
            short_id: short_id(named),
            time: time_utc(seconds, nanoseconds),
            host: &snapshot.host,
            user: &snapshot.user,
            paths: paths.clone().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
            paths_hex: (!is_text).then(|| paths.map(|path| hex(path)).collect()),
            tags: &snapshot.tags,
            excludes: snapshot.excludes(),
            parent: snapshot.parent.map(|id| id.to_string()),
            program: &snapshot.program,
            statistics: &snapshot.statistics,
            files: statistic(named, "files"),
            bytes: statistic(named, "bytes"),
        }
    }
}

/// The first eight digits of a snapshot's id.
pub fn short_id(named: &NamedSnapshot) -> String {
    hex(&named.id.0[..4])
}

fn statistic(named: &NamedSnapshot, name: &str) -> u64 {
    named.snapshot.statistics.get(name).copied().unwrap_or(0)
}

/// Lists the snapshots; damaged ones are reported and the others listed.
///
/// # Errors
/// Those of the repository.
pub fn run(session: &Session) -> Result<Exit> {
    let repository = location::open(session)?;
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    for (name, error) in &damaged {
        tracing::error!("cannot read {name}: {error}");
    }
    if session.options.json {
        let documents: Vec<SnapshotDocument<'_>> = snapshots.iter().map(SnapshotDocument::new).collect();
        print_json(&documents)?;
    } else {
        use Align::{Left, Right};
        let columns = [
            ("id", Left),
            ("time", Left),
            ("host", Left),
            ("tags", Left),
            ("files", Right),
            ("size", Right),
            ("paths", Left),
        ];
        let rows: Vec<Vec<String>> = snapshots.iter().map(row).collect();
        print(|out| write_table(out, &columns, &rows))?;
    }
    Ok(if damaged.is_empty() { Exit::Fine } else { Exit::Damaged })
}

fn row(named: &NamedSnapshot) -> Vec<String> {
    let snapshot = &named.snapshot;
    let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    vec![
        short_id(named),
        time_local(split_ns(snapshot.time_ns).0),
        printable(&snapshot.host),
        printable(&snapshot.tags.join(",")),
        statistic(named, "files").to_string(),
        size(statistic(named, "bytes")),
        printable(&paths.join(" ")),
    ]
}
