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
use super::output::{Align, failed, print, print_json, printable, ratio, size, write_pairs, write_table};
use super::snapshots::{SnapshotDocument, short_id, statistic, wide_row};
use crate::error::{Error, Result};
use crate::inspect::exclusive::{ExclusiveBytes, exclusive};
use crate::inspect::stats::repository_stats;
use crate::inspect::usage::{KindUsage, TreeUsage, usage};
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
/// Those of the repository and the snapshot.
pub fn run(session: &Session, arguments: &StatsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    if arguments.by_snapshot {
        return by_snapshot(session, &repository, arguments);
    }
    let Some(id) = &arguments.id else {
        show(session, &repository_stats(&repository)?)?;
        return Ok(Exit::Fine);
    };
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

fn write_usage(out: &mut dyn Write, named: &NamedSnapshot, usage: &TreeUsage) -> Result<()> {
    let estimate = if usage.sampled_one_in > 1 { " (estimate)" } else { "" };
    let pairs = [
        ("snapshot", short_id(named)),
        ("files", usage.files.to_string()),
        ("directories", format!("{} and {} other entries", usage.directories, usage.others)),
        ("content", size(usage.bytes)),
        ("deduplicated", format!("{}{estimate}", size(usage.distinct_bytes))),
        (
            "stored",
            format!("{}{estimate} (ratio {})", size(usage.stored_bytes), ratio(usage.bytes, usage.stored_bytes)),
        ),
    ];
    write_pairs(out, &pairs)?;
    writeln!(out).map_err(failed)?;
    use Align::{Left, Right};
    let columns = [("kind", Left), ("files", Right), ("content", Right), ("deduplicated", Right), ("stored", Right)];
    let mut kinds: Vec<_> = usage.kinds.iter().collect();
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
