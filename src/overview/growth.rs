//! Growth: what the snapshots added over time, and which added most.

use jiff::tz::TimeZone;
use maud::{Markup, html};

use crate::html::chart::{Chart, ChartPoint, ChartSeries};
use crate::html::picture::{PictureSize, colour, for_both, legend, name};
use crate::html::table::table;
use crate::html::ticks::{byte_ticks, time_ticks};
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::growth::{GrowthBytes, GrowthPoint, largest};
use crate::repo::snapshot::short_id;
use crate::text::{ratio, size, split_ns, time_local};

const HEIGHTS: [f64; 2] = [300.0, 240.0];
/// Width of a label of the time axis with its space.
const LABEL_WIDTH: f64 = 84.0;
/// Snapshots that are listed as the largest changes.
const LARGEST_SHOWN: usize = 12;
/// What an axis of one moment shows around it, seconds.
const MOMENT: f64 = 43_200.0;

/// The section.
pub fn growth(report: &RepositoryReport, points: &[GrowthPoint<'_>]) -> Markup {
    let now_ns = report.status.now_ns;
    let shown: Vec<&GrowthPoint<'_>> = points.iter().filter(|point| !point.named.snapshot.is_future(now_ns)).collect();
    let future = points.len() - shown.len();
    let total = shown.last().map_or_else(GrowthBytes::default, |point| point.total);
    let names = [
        ("c1", format!("stored, {}", size(total.stored))),
        ("c2", format!("saved by deltas, copies and compression, {}", size(total.reduced))),
        ("c3", format!("saved as duplicates, {}", size(total.duplicates))),
    ];
    html! {
        @if shown.is_empty() {
            p { "There are no snapshots yet." }
        } @else {
            p.note {
                "Sums over the snapshots that are there, by what each backup recorded. What a prune has freed is not taken off."
                @if future > 0 { " " (future) " snapshots from the future are not drawn." }
            }
            h3 { "Content that was backed up, and what became of it" }
            (legend(&names))
            figure { (for_both(HEIGHTS, |size| content_chart(&shown, size))) }
            h3 { "Stored bytes" }
            figure { (for_both(HEIGHTS, |size| stored_chart(&shown, size))) }
        }
    }
}

fn seconds(point: &GrowthPoint<'_>) -> f64 {
    split_ns(point.named.snapshot.time_ns).0 as f64
}

fn content_chart(points: &[&GrowthPoint<'_>], size: PictureSize) -> Markup {
    let edges = |point: &GrowthPoint<'_>| {
        let GrowthBytes { duplicates, reduced, stored, .. } = point.total;
        let (stored, reduced, duplicates) = (stored as f64, reduced as f64, duplicates as f64);
        [0.0, stored, stored + reduced, stored + reduced + duplicates]
    };
    let names = ["stored", "saved by deltas, copies and compression", "saved as duplicates"];
    let area = |(rank, name): (usize, &str)| {
        let between = |point: &&GrowthPoint<'_>| -> ChartPoint {
            let edges = edges(point);
            let at = |rank: usize| edges.get(rank).copied().unwrap_or(0.0);
            (seconds(point), at(rank), at(rank + 1))
        };
        let points = points.iter().map(between).collect();
        ChartSeries { name: name.into(), colour: colour(rank), points, is_area: true }
    };
    let series = names.into_iter().enumerate().map(area).collect();
    chart(("growth", "Content that was backed up, and what became of it, summed over time"), points, series, size)
}

fn stored_chart(points: &[&GrowthPoint<'_>], size: PictureSize) -> Markup {
    let points_of = points.iter().map(|point| (seconds(point), 0.0, point.total.stored as f64)).collect();
    let series = vec![ChartSeries { name: "stored".into(), colour: "c1", points: points_of, is_area: true }];
    chart(("stored", "Stored bytes, summed over time"), points, series, size)
}

/// A chart of bytes over the time of these snapshots.
fn chart(
    (id, title): (&str, &str),
    points: &[&GrowthPoint<'_>],
    series: Vec<ChartSeries>,
    picture_size: PictureSize,
) -> Markup {
    let times = points.iter().map(|point| seconds(point));
    let (mut low, mut high) = (times.clone().fold(f64::MAX, f64::min), times.fold(f64::MIN, f64::max));
    if high - low < 2.0 * MOMENT / 24.0 {
        (low, high) = (low - MOMENT, high + MOMENT);
    }
    // What the last snapshot added is visible, too.
    high += (high - low) * 0.015;
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.2);
    let top = values.fold(1.0f64, f64::max) * 1.05;
    let across = ((picture_size.width - 80.0) / LABEL_WIDTH).floor().max(2.0) as usize;
    let last = |series: &ChartSeries| series.points.last().map_or(0.0, |point| point.2 - point.1);
    let parts: Vec<String> =
        series.iter().map(|series| format!("{} {}", series.name, size(last(series) as u64))).collect();
    let description = format!(
        "{} snapshots from {} to {}. At the end: {}.",
        points.len(),
        points.first().map_or_else(String::new, |point| local(point)),
        points.last().map_or_else(String::new, |point| local(point)),
        parts.join(", ")
    );
    let chart = Chart {
        id: id.into(),
        title: title.into(),
        description,
        ranges: [(low, high), (0.0, top)],
        ticks: [time_ticks(low, high, across, &TimeZone::system()), byte_ticks(top, 6)],
        is_stepped: true,
        series,
    };
    chart.draw(picture_size)
}

fn local(point: &GrowthPoint<'_>) -> String {
    time_local(split_ns(point.named.snapshot.time_ns).0)
}

/// The snapshots that stored most.
pub fn largest_changes(points: &[GrowthPoint<'_>]) -> Markup {
    let largest = largest(points, LARGEST_SHOWN);
    let columns = [
        ("snapshot", false),
        ("time", false),
        ("host", false),
        ("paths", false),
        ("content", true),
        ("duplicates", true),
        ("reduced", true),
        ("stored", true),
        ("ratio", true),
    ];
    let cells = |point: &GrowthPoint<'_>| {
        let GrowthBytes { bytes, duplicates, reduced, stored } = point.added;
        let snapshot = &point.named.snapshot;
        let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        vec![
            html! { (short_id(point.named)) },
            html! { span.t { (local(point)) } },
            name(&snapshot.host),
            name(&paths.join(" ")),
            html! { (size(bytes)) },
            html! { (size(duplicates)) },
            html! { (size(reduced)) },
            html! { strong { (size(stored)) } },
            html! { (ratio(bytes, stored)) },
        ]
    };
    let rows: Vec<Vec<Markup>> = largest.iter().map(cells).collect();
    html! {
        @if rows.is_empty() {
            p { "There are no snapshots yet." }
        } @else {
            p.note {
                "The " (rows.len()) " of " (points.len()) " snapshots that stored the most bytes. \
                Reduced is what deltas, copies and compression have saved of what was new."
            }
            (table("", &columns, &rows))
        }
    }
}
