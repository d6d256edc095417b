//! `fhrd stats`: statistics of the repository or of one snapshot.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::{FilterArguments, StatsArguments};
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{Align, failed, note_empty, print, print_json, printable, ratio, size, write_pairs, write_table};
use super::snapshots::{SnapshotDocument, short_id, statistic, wide_row};
use crate::error::{Error, Result};
use crate::inspect::exclusive::{ExclusiveBytes, exclusive};
use crate::inspect::stats::{RepositoryStats, repository_stats};
use crate::inspect::usage::{HostUsage, KindUsage, RepositoryUsage, TreeUsage, usage, usage_of_all};
use crate::repo::Repository;
use crate::repo::snapshot::NamedSnapshot;

/// Kinds of files that the table has.
const KINDS_SHOWN: usize = 20;

/// Statistics of a snapshot, or of an entry of one, as JSON.
#[derive(Serialize)]
struct UsageDocument<'a> {
    snapshot: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(flatten)]
    usage: &'a TreeUsage,
    /// Counters of the backup.
    recorded: &'a BTreeMap<String, u64>,
}

/// Statistics of the repository and of what its snapshots hold, as JSON.
#[derive(Serialize)]
pub(super) struct WholeDocument<'a> {
    #[serde(flatten)]
    pub(super) stats: &'a RepositoryStats,
    pub(super) usage: &'a RepositoryUsage,
}

/// What a snapshot alone keeps, as JSON.
#[derive(Serialize)]
struct ExclusiveDocument<'a> {
    #[serde(flatten)]
    snapshot: SnapshotDocument<'a>,
    alone: ExclusiveBytes,
}

/// Prints the statistics.
///
/// # Errors
/// Errors of the repository and the snapshot.
pub fn run(session: &Session, arguments: &StatsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    if arguments.by_snapshot {
        return by_snapshot(session, &repository, arguments);
    }
    let Some(id) = &arguments.id else { return whole(session, &repository, arguments) };
    let (named, path) = choice::entry(&repository, id, &arguments.filter)?;
    let usage = usage(&repository, &named, path.as_deref(), &session.stop)?;
    if session.options.json {
        let path = path.map(|path| path.to_string_lossy().into_owned());
        let recorded = &named.snapshot.statistics;
        print_json(&UsageDocument { snapshot: named.id.to_string(), path, usage: &usage, recorded })?;
    } else {
        print(|out| write_usage(out, &named, &usage))?;
    }
    Ok(Exit::of_unreadable(usage.unreadable, usage.newer))
}

/// What all snapshots that pass the filter hold, and what the repository stores.
fn whole(session: &Session, repository: &Repository, arguments: &StatsArguments) -> Result<Exit> {
    if arguments.debug {
        show(session, &repository_stats(repository)?)?;
        return Ok(Exit::Fine);
    }
    let (snapshots, exit) = choice::snapshots(repository, &arguments.filter)?;
    let usage = usage_of_all(repository, &snapshots, &session.stop)?;
    let stats = repository_stats(repository)?;
    if session.options.json {
        print_json(&WholeDocument { stats: &stats, usage: &usage })?;
    } else if snapshots.is_empty() && !arguments.filter.is_empty() {
        note_empty(&session.options, "there are no such snapshots");
    } else {
        print(|out| write_whole(out, snapshots.len(), &usage, &stats))?;
    }
    let RepositoryUsage { tree: TreeUsage { unreadable, newer, .. }, .. } = usage;
    Ok(if unreadable > 0 { Exit::of_unreadable(unreadable, newer) } else { exit })
}

fn write_whole(
    out: &mut dyn Write,
    snapshots: usize,
    RepositoryUsage { tree, hosts, .. }: &RepositoryUsage,
    stats: &RepositoryStats,
) -> Result<()> {
    let estimate = if tree.sampled_one_in > 1 { " (estimate)" } else { "" };
    let (stored, saved) = (stats.stored_bytes.total, tree.bytes.saturating_sub(stats.stored_bytes.total));
    let saved = if tree.bytes > 0 { saved as f64 * 100.0 / tree.bytes as f64 } else { 0.0 };
    let pairs = [
        ("snapshots", format!("{snapshots} of {} hosts", hosts.len())),
        ("content", format!("{} in {} files of all snapshots", size(tree.bytes), tree.files)),
        ("unique", format!("{}{estimate} without what comes again", size(tree.distinct_bytes))),
        ("compressed", format!("{}{estimate} after deltas and compression", size(tree.stored_bytes))),
        ("stored", format!("{} in all, in {} containers", size(stored), stats.containers)),
        ("ratio", format!("{} ({saved:.1} % saved)", ratio(tree.bytes, stored))),
    ];
    write_pairs(out, &pairs)?;
    if snapshots == 0 {
        return Ok(());
    }
    writeln!(out).map_err(failed)?;
    write_kinds(out, &tree.kinds)?;
    writeln!(out).map_err(failed)?;
    use Align::{Left, Right};
    let columns = [("host", Left), ("snapshots", Right), ("content", Right), ("unique", Right), ("compressed", Right)];
    let row = |(name, host): (&String, &HostUsage)| {
        let sizes = [host.bytes, host.distinct_bytes, host.stored_bytes].map(size);
        [vec![name.clone(), host.snapshots.to_string()], sizes.to_vec()].concat()
    };
    write_table(out, &columns, &hosts.iter().map(row).collect::<Vec<_>>())
}

fn write_usage(out: &mut dyn Write, named: &NamedSnapshot, usage: &TreeUsage) -> Result<()> {
    let estimate = if usage.sampled_one_in > 1 { " (estimate)" } else { "" };
    let pairs = [
        ("snapshot", short_id(named)),
        ("files", usage.files.to_string()),
        ("directories", format!("{} and {} other entries", usage.directories, usage.others)),
        ("content", size(usage.bytes)),
        ("unique", format!("{}{estimate}", size(usage.distinct_bytes))),
        (
            "compressed",
            format!("{}{estimate} (ratio {})", size(usage.stored_bytes), ratio(usage.bytes, usage.stored_bytes)),
        ),
    ];
    write_pairs(out, &pairs)?;
    writeln!(out).map_err(failed)?;
    write_kinds(out, &usage.kinds)
}

/// A table of the kinds of files, those with the most content first.
fn write_kinds(out: &mut dyn Write, kinds: &BTreeMap<String, KindUsage>) -> Result<()> {
    use Align::{Left, Right};
    let columns = [("kind", Left), ("files", Right), ("content", Right), ("unique", Right), ("compressed", Right)];
    let mut kinds: Vec<_> = kinds.iter().collect();
    kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.bytes));
    let row = |(name, kind): &(&String, &KindUsage)| {
        let sizes = [kind.bytes, kind.distinct_bytes, kind.stored_bytes].map(size);
        [vec![(*name).clone(), kind.files.to_string()], sizes.to_vec()].concat()
    };
    write_table(out, &columns, &kinds.iter().take(KINDS_SHOWN).map(row).collect::<Vec<_>>())
}

/// What each snapshot alone keeps. The owners of chunks are those among all snapshots, whatever the filter says.
fn by_snapshot(session: &Session, repository: &Repository, arguments: &StatsArguments) -> Result<Exit> {
    let (snapshots, exit) = choice::snapshots(repository, &FilterArguments::default())?;
    let report = exclusive(repository, &snapshots, &session.stop)?;
    let filter = choice::filter(&arguments.filter)?;
    let shown = snapshots.iter().zip(&report.snapshots).filter(|(named, _)| filter.passes(&named.snapshot));
    if session.options.json {
        let document = |(named, alone): (_, &ExclusiveBytes)| ExclusiveDocument {
            snapshot: SnapshotDocument::new(named),
            alone: *alone,
        };
        print_json(&json!({
            "snapshots": shown.map(document).collect::<Vec<_>>(),
            "shared": report.shared,
            "unreferenced": report.unreferenced,
            "sampled_one_in": report.sampled_one_in,
            "unreadable": report.unreadable,
        }))?;
    } else {
        use Align::{Left, Right};
        let columns =
            [("id", Left), ("time", Left), ("host", Left), ("content", Right), ("frees", Right), ("paths", Left)];
        let row = |(named, alone): (&NamedSnapshot, &ExclusiveBytes)| {
            wide_row(named, [size(statistic(named, "bytes")), size(alone.stored_bytes)])
        };
        let rows: Vec<_> = shown.map(row).collect();
        print(|out| {
            write_table(out, &columns, &rows)?;
            writeln!(out).map_err(failed)?;
            let estimate = if report.sampled_one_in > 1 { " (estimates)" } else { "" };
            let pairs = [
                ("several snapshots need", format!("{}{estimate}", size(report.shared.stored_bytes))),
                ("no snapshot needs", size(report.unreferenced.stored_bytes)),
            ];
            write_pairs(out, &pairs)
        })?;
    }
    Ok(if report.unreadable > 0 { Exit::of_unreadable(report.unreadable, report.newer) } else { exit })
}

fn show(session: &Session, stats: &impl Serialize) -> Result<()> {
    if session.options.json {
        return print_json(stats);
    }
    let stats = serde_json::to_value(stats).map_err(|error| Error::internal(format!("cannot print: {error}")))?;
    let mut pairs = Vec::new();
    flatten("", &stats, &mut pairs);
    let pairs: Vec<(&str, String)> = pairs.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    print(|out| write_pairs(out, &pairs))
}

/// One line per value, named by its JSON keys. Values with `bytes` in their name get a unit.
fn flatten(name: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('_', " ");
                flatten(&if name.is_empty() { key } else { format!("{name}: {key}") }, value, pairs);
            }
            return;
        }
        Value::Array(items) => {
            for (number, item) in (1..).zip(items) {
                flatten(&format!("{name} {number}"), item, pairs);
            }
            return;
        }
        Value::Null => "-".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if name.split([' ', ':']).any(|part| part == "bytes") => size(bytes),
            Some(count) => count.to_string(),
            None => number.as_f64().map_or_else(|| number.to_string(), |number| format!("{number:.2}")),
        },
        Value::String(text) => printable(text),
    };
    pairs.push((name.to_string(), text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_line() {
        let value = serde_json::json!({"files": 3, "bytes_raw": 2048, "ratio": 1.5, "depth": {"max": null}, "of": [7]});
        let mut pairs = Vec::new();
        flatten("", &value, &mut pairs);
        let mut lines: Vec<String> = pairs.into_iter().map(|(name, text)| format!("{name}={text}")).collect();
        lines.sort();
        assert_eq!(lines, ["bytes raw=2.0 KiB", "depth: max=-", "files=3", "of 1=7", "ratio=1.50"]);
    }
}
