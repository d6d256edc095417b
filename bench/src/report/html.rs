//! The report as one HTML page without scripts, fonts or network access.

use fhrd::error::Result;
use fhrd::metrics::StageMetrics;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::percentiles::quantiles;
use super::plot::{Plot, Scale, Scales};
use super::write::ReportDocument;
use super::{Grid, Profile, Report};
use crate::claim::Verdict;

const STYLE: &str = "
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: #222; }
h1 { margin-bottom: 0.2em; } h2 { margin-top: 1.8em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: 0.8em 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { padding: 3px 9px; border-bottom: 1px solid #e4e4e4; text-align: right; white-space: nowrap; }
th { background: #f3f3f3; } td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
.claims td { text-align: left; white-space: normal; vertical-align: top; }
figure { margin: 1em 0; } figcaption { font-weight: bold; } svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; font-size: 12px; } .note { color: #666; font-size: 13px; }
details { margin: 0.6em 0; } summary { cursor: pointer; }
";

/// Explains the measurements.
const NOTE: &str = "\
Values are medians of the rounds. The speed of a machine varies, so a fixed task is timed before and after every
measurement. A normalised second is the time of 500 runs of that task. If the same file is measured again on the same
machine, sizes are equal, and speeds per normalised second differ by at most a factor of 1 + ±.";

/// The page.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn page(report: &Report, document: &ReportDocument) -> Result<String> {
    let plots = report.plots.iter().map(figure).collect::<Result<Vec<_>>>()?;
    let profiles = report.profiles.iter().map(profile).collect::<Result<Vec<_>>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (report.title) }
                (origin(document))
                @if !document.claims.is_empty() {
                    h2 { "Claims of papers" }
                    (claims(&document.claims))
                }
                @if !plots.is_empty() {
                    h2 { "Plots" }
                    @for plot in &plots { (plot) }
                }
                h2 { "Measurements" }
                p.note { (NOTE) }
                @for grid in &report.grids { (table(grid)) }
                @if !profiles.is_empty() {
                    h2 { "Stages" }
                    @for profile in &profiles { (profile) }
                }
                h2 { "Configuration" }
                pre { (document.config.text) }
            }
        }
    };
    Ok(page.into_string())
}

fn origin(document: &ReportDocument) -> Markup {
    let machine = &document.machine;
    html! {
        p.note {
            (document.program) ", " (document.started) ", " (format!("{:.1} s", document.seconds))
            @if let Some(commit) = &document.commit {
                ", commit " (commit) @if document.modified { " with changes" }
            }
            br;
            (machine.processor) ", " (machine.processors) " threads, " (machine.cpu_features.join(" ")) ", "
            (format!("{:.1} GiB", machine.memory_bytes as f64 / (1u64 << 30) as f64)) ", " (machine.system)
            br;
            (document.config.path)
        }
    }
}

fn claims(verdicts: &[Verdict]) -> Markup {
    html! {
        table.claims {
            tr {
                th { "source" } th { "claim" } th { "in the paper" } th { "here" } th { "confirmed if" } th { "verdict" }
                th { "measured on" } th { "what explains it" }
            }
            @for verdict in verdicts {
                tr {
                    td { (verdict.source) " " (verdict.section) } td { (verdict.text) } td { (verdict.expected) }
                    td { (verdict.measured_text()) } td { (verdict.rule) } td { (verdict.verdict.name()) }
                    td { (verdict.measured_on()) } td { (verdict.remark) }
                }
            }
        }
    }
}

fn table(grid: &Grid) -> Markup {
    html! {
        @if !grid.title.is_empty() { h3 { (grid.title) } }
        table {
            tr { @for column in &grid.columns { th { (column) } } }
            @for row in &grid.rows { tr { @for cell in row { td { (cell) } } } }
        }
    }
}

fn figure(plot: &Plot) -> Result<Markup> {
    let svg = plot.svg()?;
    Ok(html! { figure { figcaption { (plot.title()) } (PreEscaped(svg)) } })
}

/// The stages of a run: time per item, queue lengths and totals.
fn profile(profile: &Profile) -> Result<Markup> {
    let latencies = Plot::Lines {
        title: "Time per item, by percentile".into(),
        across: "fraction of the items".into(),
        unit: "ms".into(),
        scales: Scales { across: Scale::Nines, logarithmic: true },
        series: profile.stages.iter().map(|stage| (stage.name.to_string(), percentiles(stage))).collect(),
    };
    let queues = Plot::Lines {
        title: "Items in the input queue of a stage, over the run".into(),
        across: "seconds".into(),
        unit: "items".into(),
        scales: Scales::default(),
        series: profile
            .stages
            .iter()
            .skip(1)
            .map(|stage| (stage.name.to_string(), stage.occupancy.means().collect()))
            .collect(),
    };
    let columns = [
        "stage",
        "workers",
        "items",
        "MB in",
        "MB out",
        "work s",
        "input wait s",
        "output wait s",
        "p50 ms",
        "p99 ms",
        "max ms",
    ];
    let grid = Grid {
        title: String::new(),
        columns: columns.map(str::to_string).to_vec(),
        rows: profile.stages.iter().map(row).collect(),
    };
    let (latencies, queues) = (figure(&latencies)?, figure(&queues)?);
    Ok(html! {
        details {
            summary { (profile.name) }
            (table(&grid))
            (latencies)
            (queues)
        }
    })
}

fn percentiles(stage: &StageMetrics) -> Vec<(f64, f64)> {
    let steps = quantiles(&stage.service_us).into_iter().filter(|step| step.value > 0);
    steps.map(|step| (step.fraction, step.value as f64 / 1e3)).collect()
}

fn row(stage: &StageMetrics) -> Vec<String> {
    let summary = stage.summary();
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let (seconds, milliseconds) =
        (|us: u64| format!("{:.2}", us as f64 / 1e6), |us: u64| format!("{:.2}", us as f64 / 1e3));
    vec![
        summary.name.to_string(),
        summary.workers.to_string(),
        summary.items_in.max(summary.items_out).to_string(),
        mb(summary.bytes_in),
        mb(summary.bytes_out),
        seconds(summary.service_us.total),
        seconds(summary.receive_wait_us.total),
        seconds(summary.send_wait_us.total),
        milliseconds(summary.service_us.p50),
        milliseconds(summary.service_us.p99),
        milliseconds(summary.service_us.max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::write::tests::document;

    #[test]
    fn the_page_has_all_parts_escaped_and_loads_nothing() {
        let grid = Grid { title: "g".into(), columns: vec!["set".into()], rows: vec![vec!["<b>&\"".into()]] };
        let mut stage = StageMetrics::new("hash");
        (1..500).for_each(|value| stage.service_us.record(value));
        let series = vec![("one".to_string(), vec![Some(3.0)])];
        let plot = Plot::Bars { title: "ratio".into(), unit: "times".into(), groups: vec!["code".into()], series };
        let report = Report {
            title: "Schemes <1>".into(),
            grids: vec![grid],
            plots: vec![plot],
            profiles: vec![Profile { name: "code, backup".into(), stages: vec![StageMetrics::new("read"), stage] }],
            ..Report::default()
        };
        let page = page(&report, &document()).unwrap();
        for part in
            ["Schemes &lt;1&gt;", "&lt;b&gt;&amp;", "code, backup", "<figcaption>ratio", "[[scheme]]", "A paper"]
        {
            assert!(page.contains(part), "{part}");
        }
        for remote in ["src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(remote), "{remote}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
    }
}
