//! `fhrd bench`.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::BenchArguments;
use super::exit::Exit;
use super::output::{note, print, print_json};
use crate::bench::comparison::{Comparison, Kind};
use crate::bench::identify::{self, IdentifyBench};
use crate::bench::score::Score;
use crate::bench::table::Line;
use crate::bench::{schemes, versions};
use crate::error::{Error, Result};

/// Runs the measurement that the file's `kind` names; a comparison with lines that failed ends with
/// [`Exit::Failed`].
///
/// # Errors
/// [`Error::Config`] for an unknown kind; those of the measurement.
pub fn run(session: &Session, arguments: &BenchArguments) -> Result<Exit> {
    let path = &arguments.file;
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    match kind(&text, path)?.as_str() {
        "identify" => {
            run_identify(session, &IdentifyBench::parse(&text, &path.display().to_string())?)?;
            Ok(Exit::Fine)
        }
        "schemes" | "versions" => run_comparison(session, &Comparison::parse(&text, &path.display().to_string())?),
        other => Err(wrong(path, format!("`kind` must be `identify`, `schemes` or `versions`, found `{other}`"))),
    }
}

fn wrong(path: &Path, message: String) -> Error {
    Error::Config { origin: path.display().to_string(), message }
}

fn kind(text: &str, path: &Path) -> Result<String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| wrong(path, error.to_string()))?;
    let kind = table.get("kind").and_then(toml::Value::as_str);
    kind.map(str::to_string).ok_or_else(|| wrong(path, "the key `kind` says what to measure; it is missing".into()))
}

fn run_identify(session: &Session, config: &IdentifyBench) -> Result<()> {
    if !session.options.json {
        return print(|out| identify::run(config, out).map(|_| ()));
    }
    let report = identify::run(config, &mut io::sink())?;
    let scores = |scores: &[Score]| scores.iter().map(score).collect::<Vec<_>>();
    print_json(&json!({"kind": "identify", "classes": scores(&report.classes), "sets": scores(&report.sets)}))
}

fn run_comparison(session: &Session, comparison: &Comparison) -> Result<Exit> {
    let failures = match comparison.kind {
        Kind::Schemes => report(session, |out| schemes::run(comparison, &session.stop, out))?,
        Kind::Versions => report(session, |out| versions::run(comparison, &session.stop, out))?,
    };
    if failures == 0 {
        return Ok(Exit::Fine);
    }
    note(&format!("error: {failures} of the comparison's lines failed"));
    Ok(Exit::Failed)
}

/// Prints the table as it comes, or its lines as one document; gives the number of lines that failed.
fn report<F: Serialize>(
    session: &Session,
    measure: impl FnOnce(&mut dyn io::Write) -> Result<Vec<Line<F>>>,
) -> Result<usize> {
    let mut lines = Vec::new();
    if session.options.json {
        lines = measure(&mut io::sink())?;
        print_json(&lines)?;
    } else {
        print(|out| measure(out).map(|measured| lines = measured))?;
    }
    Ok(lines.iter().filter(|line| line.failure.is_some()).count())
}

fn score(score: &Score) -> Value {
    json!({
        "name": score.name,
        "confusion": score.confusion,
        "weights": score.weights,
        "weights_found": score.weights_found,
        "recall": score.recall(),
        "accuracy": score.accuracy(),
        "bytes": score.bytes,
        "bytes_best": score.bytes_best,
        "excess": score.excess(),
        "seconds": score.time.as_secs_f64(),
    })
}
