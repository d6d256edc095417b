//! `fhrd snapshots`.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::json;

use super::Session;
use super::args::SnapshotsArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::no_snapshots;
use super::output::{
    Align, failed, hex_unless_utf8, note, note_empty, print, print_json, printable, shortened, size, split_ns,
    time_local, time_utc, write_table,
};
use crate::config::WorkShare;
use crate::error::Result;
use crate::repo::clock::{describe_future, future_first};
use crate::repo::share_record::{ShareGroup, ShareRecord, groups_called};
use crate::repo::snapshot::NamedSnapshot;
pub use crate::repo::snapshot::short_id;
use crate::repo::snapshot_groups::{GroupBy, GroupField, GroupValues, grouped};
use crate::types::hex;

/// Characters of a host that a table has, at most.
const HOST_CHARS_MAX: usize = 40;
/// Characters of all tags of a snapshot that a table has, at most.
const TAGS_CHARS_MAX: usize = 60;

/// Missing shares of a group that are named, at most.
const MISSING_SHOWN: usize = 8;

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
    /// The job and the share of it that the snapshot is.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<String>,
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
        let record = ShareRecord::of(snapshot);
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
            share: record.as_ref().and_then(ShareRecord::share).map(|share| share.to_string()),
            group: record.map(|record| record.group),
            statistics: &snapshot.statistics,
            files: statistic(named, "files"),
            bytes: statistic(named, "bytes"),
        }
    }
}

/// A counter of the backup; 0 if it recorded none.
pub fn statistic(named: &NamedSnapshot, name: &str) -> u64 {
    named.snapshot.statistics.get(name).copied().unwrap_or(0)
}

/// A group of snapshots as JSON.
#[derive(Serialize)]
struct SnapshotGroupDocument<'a> {
    /// What the snapshots have in common; null where they may differ.
    group: GroupValuesDocument<'a>,
    snapshots: Vec<SnapshotDocument<'a>>,
}

/// The common values of a group as JSON.
#[derive(Serialize)]
struct GroupValuesDocument<'a> {
    host: Option<&'a str>,
    paths: Option<Vec<String>>,
    tags: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<String>,
}

impl<'a> GroupValuesDocument<'a> {
    fn new(values: &'a GroupValues) -> Self {
        GroupValuesDocument {
            host: values.host.as_deref(),
            paths: values.shown_paths(),
            tags: values.tags.as_deref(),
            share: values.share.map(|share| share.to_string()),
        }
    }
}

/// Lists the snapshots; damaged ones are reported and the others listed.
///
/// # Errors
/// Errors of the repository.
pub fn run(session: &Session, arguments: &SnapshotsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (mut snapshots, found) = choice::snapshots(&repository, &arguments.filter)?;
    let now_ns = repository.clock.now_ns();
    if let Some(text) = describe_future(&snapshots, now_ns) {
        tracing::warn!("{text}");
    }
    let mut exit = found;
    if let Some(name) = &arguments.group {
        let is_whole;
        (snapshots, is_whole) = of_group(name, &snapshots);
        exit = if is_whole || exit != Exit::Fine { exit } else { Exit::Incomplete };
    }
    if let Some(count) = arguments.latest {
        let by_default = GroupBy(vec![GroupField::Host, GroupField::Paths]);
        snapshots = last_of_each(snapshots, arguments.group_by.as_ref().unwrap_or(&by_default), count, now_ns);
    }
    if snapshots.is_empty() && no_snapshots::warn(session, repository.store.as_ref())? == 0 {
        note_empty(&session.options, "there are no such snapshots");
    }
    let Some(by) = arguments.group_by.as_ref().filter(|by| !by.0.is_empty()) else {
        if session.options.json {
            print_json(&snapshots.iter().map(SnapshotDocument::new).collect::<Vec<_>>())?;
        } else if !snapshots.is_empty() {
            print(|out| write_snapshots(out, &snapshots))?;
        }
        return Ok(exit);
    };
    let groups = grouped(snapshots, by);
    if session.options.json {
        let document = |(values, snapshots): &'_ (GroupValues, Vec<NamedSnapshot>)| -> serde_json::Value {
            let snapshots = snapshots.iter().map(SnapshotDocument::new).collect();
            json!(SnapshotGroupDocument { group: GroupValuesDocument::new(values), snapshots })
        };
        print_json(&groups.iter().map(document).collect::<Vec<_>>())?;
    } else {
        print(|out| {
            for (at, (values, snapshots)) in groups.iter().enumerate() {
                if at > 0 {
                    writeln!(out).map_err(failed)?;
                }
                writeln!(out, "{}", printable(&values.title())).map_err(failed)?;
                write_snapshots(out, snapshots)?;
            }
            Ok(())
        })?;
    }
    Ok(exit)
}

/// The snapshots of the group called `name`, and whether they are whole.
fn of_group(name: &str, snapshots: &[NamedSnapshot]) -> (Vec<NamedSnapshot>, bool) {
    let groups = groups_called(name, snapshots);
    let shown = |shares: &[WorkShare]| {
        let some: Vec<String> = shares.iter().take(MISSING_SHOWN).map(ToString::to_string).collect();
        let more = shares.len().saturating_sub(some.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", some.join(", "))
    };
    for group in &groups {
        if !group.missing.is_empty() {
            note(&format!("warning: the group is not whole: it has no share {}", shown(&group.missing)));
        }
        if !group.lacking.is_empty() {
            let lacking = shown(&group.lacking);
            note(&format!("warning: the group is not whole: some files could not be read by share {lacking}"));
        }
        if group.is_uneven {
            note("warning: the group may not be whole: its shares had other cards or sizes; run the job again");
        } else if group.has_changed {
            note("note: files changed between the listings of the shares");
        }
    }
    let is_whole = !groups.is_empty() && groups.iter().all(ShareGroup::is_whole);
    (groups.into_iter().flat_map(|group| group.snapshots).collect(), is_whole)
}

/// The last `count` snapshots of each group, in the order of `snapshots`, which is by time. Those from the future are
/// the last ones only if there are no others.
fn last_of_each(snapshots: Vec<NamedSnapshot>, by: &GroupBy, count: usize, now_ns: i64) -> Vec<NamedSnapshot> {
    let mut last: Vec<NamedSnapshot> = Vec::new();
    for (_, members) in grouped(snapshots, by) {
        let mut members = future_first(members, |named| named.snapshot.is_future(now_ns));
        last.extend(members.drain(members.len().saturating_sub(count)..));
    }
    last.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    last
}

fn write_snapshots(out: &mut dyn Write, snapshots: &[NamedSnapshot]) -> Result<()> {
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
    write_table(out, &columns, &snapshots.iter().map(row).collect::<Vec<_>>())
}

fn row(named: &NamedSnapshot) -> Vec<String> {
    let tags = shortened(&printable(&named.snapshot.tags.join(",")), TAGS_CHARS_MAX);
    wide_row(named, [tags, statistic(named, "files").to_string(), size(statistic(named, "bytes"))])
}

/// Cells of a table of snapshots: id, time and host, then `cells`, then the paths.
pub fn wide_row<const N: usize>(named: &NamedSnapshot, cells: [String; N]) -> Vec<String> {
    let snapshot = &named.snapshot;
    let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    let mut row = vec![short_id(named), time_local(split_ns(snapshot.time_ns).0)];
    row.push(shortened(&printable(&snapshot.host), HOST_CHARS_MAX));
    row.extend(cells);
    row.push(printable(&paths.join(" ")));
    row
}
