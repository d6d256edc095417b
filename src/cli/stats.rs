//! `fhrd stats`: statistics of the repository or of one snapshot.

use serde::Serialize;
use serde_json::Value;

use super::Session;
use super::args::StatsArguments;
use super::exit::Exit;
use super::location;
use super::output::{print, print_json, printable, size, write_pairs};
use crate::error::{Error, Result};
use crate::inspect::stats::{repository_stats, snapshot_stats};
use crate::repo::snapshot;

/// Prints the statistics.
///
/// # Errors
/// Those of the repository and the snapshot.
pub fn run(session: &Session, arguments: &StatsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    match &arguments.id {
        None => show(session, &repository_stats(&repository)?)?,
        Some(id) => {
            let named = snapshot::find(repository.store.as_ref(), id)?;
            show(session, &snapshot_stats(&repository, &named)?)?;
        }
    }
    Ok(Exit::Fine)
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
