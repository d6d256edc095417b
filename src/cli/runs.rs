//! `fhrd runs`, `fhrd steps` and `fhrd best`: checkpoints of training runs.

use std::collections::BTreeMap;

use clap::Parser;
use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::{Arguments, BestArguments, StepsArguments};
use super::choice::reported;
use super::exit::Exit;
use super::location;
use super::output::{
    Align, hex_unless_utf8, note_empty, print, print_json, size, split_ns, time_local, time_utc, write_pairs,
    write_table,
};
use super::snapshots::short_id;
use crate::error::{Error, Result};
use crate::inspect::noop::{NoopCount, NoopSteps};
use crate::repo::Repository;
use crate::repo::checkpoint::{RunStep, best as best_step, metric_names, runs as runs_of, statistic};

/// A step as JSON.
#[derive(Serialize)]
pub(super) struct StepDocument<'a> {
    run: &'a str,
    step: u64,
    snapshot: String,
    time: String,
    metrics: BTreeMap<&'a str, Value>,
    bytes: u64,
    bytes_stored: u64,
    /// Tensors that are identical to those of the step before.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_op: Option<NoopDocument>,
}

/// Comparison with the step before as JSON.
#[derive(Serialize)]
struct NoopDocument {
    #[serde(flatten)]
    count: NoopCount,
    /// Identical tensors per compared one; null without any.
    rate: Option<f64>,
}

impl<'a> StepDocument<'a> {
    /// Describes a step.
    pub(super) fn new(step: &'a RunStep, no_op: Option<NoopCount>) -> Self {
        let (seconds, nanoseconds) = split_ns(step.named.snapshot.time_ns);
        // JSON has no infinity and no NaN.
        let metrics = step.checkpoint.metrics.iter();
        let metrics = metrics.map(|(name, value)| (name.as_str(), metric_number(*value))).collect();
        StepDocument {
            run: &step.checkpoint.run,
            step: step.checkpoint.step,
            snapshot: step.named.id.to_string(),
            time: time_utc(seconds, nanoseconds),
            metrics,
            bytes: statistic(step, "bytes"),
            bytes_stored: statistic(step, "bytes_stored"),
            no_op: no_op.map(|count| NoopDocument { count, rate: count.rate() }),
        }
    }
}

/// A metric as JSON. What is no finite number is a string.
pub fn metric_number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!(value.to_string()) }
}

/// The steps of all runs, and the exit code that damaged snapshots cause.
fn all_runs(repository: &Repository) -> Result<(BTreeMap<String, Vec<RunStep>>, Exit)> {
    let (snapshots, exit) = reported(repository)?;
    Ok((runs_of(snapshots, repository.clock.now_ns()), exit))
}

/// The steps of one run.
fn run_of(repository: &Repository, name: &str) -> Result<(Vec<RunStep>, Exit)> {
    let (mut runs, exit) = all_runs(repository)?;
    let steps = runs.remove(name);
    let steps = steps.ok_or_else(|| Error::Usage(format!("there is no run `{name}`: `fhrd runs` lists all")))?;
    Ok((steps, exit))
}

/// Lists the runs.
///
/// # Errors
/// Errors of the repository.
pub fn runs(session: &Session) -> Result<Exit> {
    let repository = location::open(session)?;
    let (runs, exit) = all_runs(&repository)?;
    let last_metrics = |steps: &[RunStep]| {
        let metrics = steps.last().map(|step| step.checkpoint.metrics.clone()).unwrap_or_default();
        metrics.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let stored =
        |steps: &[RunStep]| steps.iter().map(|step| statistic(step, "bytes_stored")).fold(0, u64::saturating_add);
    if session.options.json {
        let document = |(name, steps): (&String, &Vec<RunStep>)| {
            json!({
                "run": name,
                "steps": steps.len(),
                "bytes_stored": stored(steps),
                "first": steps.first().map(|step| StepDocument::new(step, None)),
                "last": steps.last().map(|step| StepDocument::new(step, None)),
            })
        };
        print_json(&runs.iter().map(document).collect::<Vec<_>>())?;
    } else if runs.is_empty() {
        note_empty(&session.options, "no snapshot belongs to a training run: `backup --run NAME --step N` stores one");
    } else {
        use Align::{Left, Right};
        let columns =
            [("run", Left), ("steps", Right), ("last", Right), ("time", Left), ("stored", Right), ("metrics", Left)];
        let row = |(name, steps): (&String, &Vec<RunStep>)| {
            let last = steps.last();
            vec![
                name.clone(),
                steps.len().to_string(),
                last.map_or_else(|| "-".into(), |step| step.checkpoint.step.to_string()),
                last.map_or_else(|| "-".into(), |step| time_local(split_ns(step.named.snapshot.time_ns).0)),
                size(stored(steps)),
                last_metrics(steps),
            ]
        };
        print(|out| write_table(out, &columns, &runs.iter().map(row).collect::<Vec<_>>()))?;
    }
    Ok(exit)
}

/// Lists the steps of a run with their no-op rates.
///
/// # Errors
/// Errors of the repository. A step that cannot be read has no rate, and the others are listed.
pub fn steps(session: &Session, arguments: &StepsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (steps, mut exit) = run_of(&repository, &arguments.run)?;
    let mut noops = NoopSteps::new(&repository, &session.stop)?;
    let mut counts = Vec::with_capacity(steps.len());
    for step in &steps {
        counts.push(match noops.next(&step.named) {
            Ok(count) => Some(count),
            Err(error) if error.is_unreadable() => {
                tracing::error!("cannot compare step {}: {error}", step.checkpoint.step);
                exit = if error.is_newer() && exit == Exit::Fine { Exit::Failed } else { Exit::Damaged };
                None
            }
            Err(error) => return Err(error),
        });
    }
    if session.options.json {
        let documents: Vec<_> =
            steps.iter().zip(&counts).map(|(step, count)| StepDocument::new(step, *count)).collect();
        if !arguments.tensors {
            print_json(&documents)?;
            return Ok(exit);
        }
        let tensor = |((path, name), noops): (&(Vec<u8>, String), &_)| {
            let shown = String::from_utf8_lossy(path);
            json!({"path": shown, "path_hex": hex_unless_utf8(path), "tensor": name, "steps": noops})
        };
        let tensors: Vec<Value> = noops.tensors.iter().map(tensor).collect();
        print_json(&json!({"steps": documents, "tensors": tensors}))?;
    } else if arguments.tensors {
        use Align::{Left, Right};
        let columns = [("file", Left), ("tensor", Left), ("same", Right), ("changed", Right), ("no-op", Right)];
        let row = |((path, name), noops): (&(Vec<u8>, String), &crate::inspect::noop::TensorNoops)| {
            let (same, changed) = (noops.identical, noops.changed);
            let rate = percent(Some(same as f64 / (same + changed).max(1) as f64));
            vec![String::from_utf8_lossy(path).into_owned(), name.clone(), same.to_string(), changed.to_string(), rate]
        };
        print(|out| write_table(out, &columns, &noops.tensors.iter().map(row).collect::<Vec<_>>()))?;
    } else {
        print(|out| write_table(out, &step_columns(&steps), &step_rows(&steps, &counts)))?;
    }
    Ok(exit)
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.1} %", rate * 100.0))
}

fn step_columns(steps: &[RunStep]) -> Vec<(&str, Align)> {
    use Align::{Left, Right};
    let mut columns =
        vec![("step", Right), ("snapshot", Left), ("time", Left), ("size", Right), ("stored", Right), ("no-op", Right)];
    columns.extend(metric_names(steps).into_iter().map(|name| (name, Right)));
    columns
}

fn step_rows(steps: &[RunStep], counts: &[Option<NoopCount>]) -> Vec<Vec<String>> {
    let names = metric_names(steps);
    let row = |(step, count): (&RunStep, &Option<NoopCount>)| {
        let mut row = vec![
            step.checkpoint.step.to_string(),
            short_id(&step.named),
            time_local(split_ns(step.named.snapshot.time_ns).0),
            size(statistic(step, "bytes")),
            size(statistic(step, "bytes_stored")),
            percent(count.and_then(|count| count.rate())),
        ];
        let metric = |name: &&str| step.checkpoint.metrics.get(*name).map_or_else(|| "-".into(), f64::to_string);
        row.extend(names.iter().map(metric));
        row
    };
    steps.iter().zip(counts).map(row).collect()
}

/// Prints the best step of a run, or restores it.
///
/// # Errors
/// Errors of the repository and of the restore. [`Error::Usage`] if no step has the metric.
pub fn best(session: &Session, arguments: &BestArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (steps, exit) = run_of(&repository, &arguments.run)?;
    let found = best_step(&steps, &arguments.metric, arguments.mode.into());
    let Some(step) = found else {
        let names = metric_names(&steps);
        let known = if names.is_empty() { "no metrics".into() } else { format!("only {}", names.join(", ")) };
        let BestArguments { run, metric, .. } = arguments;
        let message = format!("no step of the run `{run}` has a number for `{metric}`: it has {known}");
        return Err(Error::Usage(message));
    };
    if let Some(target) = &arguments.restore {
        // The same as on the command line, so that both restore alike.
        let id = step.named.id.to_string();
        let line = ["fhrd".into(), "restore".into(), id.into(), "--target".into(), target.clone().into_os_string()];
        let restore = Arguments::try_parse_from(line);
        let restore = restore.map_err(|error| Error::internal(format!("cannot restore the step: {error}")))?;
        return super::dispatch::run(session, &restore.verb);
    }
    if session.options.json {
        print_json(&StepDocument::new(step, None))?;
    } else {
        let metrics = step.checkpoint.metrics.iter().map(|(name, value)| format!("{name}={value}"));
        let pairs = [
            ("step", step.checkpoint.step.to_string()),
            ("snapshot", short_id(&step.named)),
            ("time", time_local(split_ns(step.named.snapshot.time_ns).0)),
            ("metrics", metrics.collect::<Vec<_>>().join(" ")),
        ];
        print(|out| write_pairs(out, &pairs))?;
    }
    Ok(exit)
}
