//! Training runs: their steps, sizes, and a curve for each metric.

use maud::{Markup, html};

use crate::html::chart::{Chart, ChartPoint, ChartSeries};
use crate::html::picture::{PictureSize, name};
use crate::html::table::table;
use crate::html::ticks::{number_ticks, short};
use crate::inspect::report::RepositoryReport;
use crate::repo::checkpoint::{RunStep, metric_names, statistic};
use crate::text::{size, split_ns, time_local};

/// Runs whose metrics are drawn. All runs up to [`ROWS_SHOWN`] are in the table.
const RUNS_DRAWN: usize = 12;
/// Metrics of a run that are drawn.
const METRICS_DRAWN: usize = 6;
/// Rows of the table.
const ROWS_SHOWN: usize = 60;
const SIZE: PictureSize = PictureSize { width: 340.0, height: 170.0, class: "curve" };

/// The section.
pub fn runs(report: &RepositoryReport) -> Markup {
    let stored =
        |steps: &[RunStep]| steps.iter().map(|step| statistic(step, "bytes_stored")).fold(0, u64::saturating_add);
    let mut runs: Vec<(&String, &Vec<RunStep>)> = report.runs.iter().collect();
    runs.sort_by_key(|(_, steps)| std::cmp::Reverse(stored(steps)));
    let columns =
        [("run", false), ("steps", true), ("last step", true), ("time", false), ("content", true), ("stored", true)];
    let cells = |(run, steps): &(&String, &Vec<RunStep>)| {
        let last = steps.last();
        let content = steps.iter().map(|step| statistic(step, "bytes")).fold(0, u64::saturating_add);
        let time = last.map(|step| time_local(split_ns(step.named.snapshot.time_ns).0));
        vec![
            name(run),
            html! { (steps.len()) },
            html! { (last.map_or(0, |step| step.checkpoint.step)) },
            html! { span.t { (time.unwrap_or_default()) } },
            html! { (size(content)) },
            html! { (size(stored(steps))) },
        ]
    };
    let rows: Vec<Vec<Markup>> = runs.iter().take(ROWS_SHOWN).map(cells).collect();
    let (more, undrawn) = (runs.len().saturating_sub(ROWS_SHOWN), runs.len().saturating_sub(RUNS_DRAWN));
    html! {
        @if rows.is_empty() {
            p { "No snapshot belongs to a training run." }
        } @else {
            (table("", &columns, &rows))
            @if more > 0 { p.note { (more) " runs with less stored bytes are not listed." } }
            @for (number, (run, steps)) in runs.iter().take(RUNS_DRAWN).enumerate() { (drawn(number, run, steps)) }
            @if undrawn > 0 { p.note { "The metrics of " (undrawn) " runs with less stored bytes are not drawn." } }
        }
    }
}

/// The metrics of a run.
fn drawn(number: usize, run: &str, steps: &[RunStep]) -> Markup {
    let names = metric_names(steps);
    let more = names.len().saturating_sub(METRICS_DRAWN);
    let curves = names.iter().take(METRICS_DRAWN).enumerate();
    let curves = curves.filter_map(|(at, metric)| curve(format!("run-{number}-{at}"), (run, metric), steps));
    let curves: Vec<Markup> = curves.collect();
    html! {
        @if !curves.is_empty() {
            h3 { (name(run)) }
            div.curves { @for curve in &curves { (curve) } }
            @if more > 0 { p.note { (more) " more metrics are not drawn." } }
        }
    }
}

/// A metric over the steps. `None` if no step has a number for it.
fn curve(id: String, (run, metric): (&str, &str), steps: &[RunStep]) -> Option<Markup> {
    let value = |step: &RunStep| step.checkpoint.metrics.get(metric).copied().filter(|value| value.is_finite());
    let points: Vec<ChartPoint> =
        steps.iter().filter_map(|step| Some((step.checkpoint.step as f64, 0.0, value(step)?))).collect();
    let (first, last) = (points.first()?, points.last()?);
    let values = points.iter().map(|point| point.2);
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max));
    let margin = ((high - low) * 0.06).max(low.abs().max(high.abs()) * 1e-3).max(1e-9);
    let ranges = [widened(first.0, last.0), (low - margin, high + margin)];
    // Which of them is the best one depends on the metric.
    let step_of = |wanted: f64| points.iter().rfind(|point| point.2 == wanted).map_or(0.0, |point| point.0);
    let summary = format!(
        "last {}, lowest {} at step {}, highest {} at step {}",
        short(last.2),
        short(low),
        step_of(low),
        short(high),
        step_of(high)
    );
    let ticks = [number_ticks(ranges[0].0, ranges[0].1, 5), number_ticks(ranges[1].0, ranges[1].1, 5)];
    let description = format!("{} steps from {} to {}: {summary}.", points.len(), first.0, last.0);
    let title = format!("{metric} of the run {run} by step");
    let series = vec![ChartSeries { name: metric.into(), colour: "c1", points, is_area: false }];
    let chart = Chart { id, title, description, ranges, ticks, is_stepped: false, series };
    Some(html! {
        figure {
            figcaption { (name(metric)) " " small { (summary) } }
            (chart.draw(SIZE))
        }
    })
}

/// A range of steps that is not empty.
fn widened(low: f64, high: f64) -> (f64, f64) {
    if high > low { (low, high) } else { (low - 1.0, high + 1.0) }
}
