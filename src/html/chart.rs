//! Charts of lines and stacked areas as SVG, with axes, ticks and names.

use std::fmt::Write;

use maud::{Markup, html};

use super::picture::{PictureSize, picture, whole};
use super::ticks::Tick;
use super::treemap::at;

/// Points of a series that are drawn, at most.
const POINTS_MAX: usize = 300;
/// Points of a line that are drawn as dots, too.
const DOTS_MAX: usize = 40;
/// Size of the font.
const FONT: f64 = 12.0;
/// Space above, right of and below the plot.
const MARGINS: (f64, f64, f64) = (10.0, 16.0, 26.0);
/// An area of at least this height has its name in it.
const NAMED_HEIGHT_MIN: f64 = 22.0;

/// A point of a series: the value across, and the lower and upper value.
pub type ChartPoint = (f64, f64, f64);

/// A line, or an area between two.
#[derive(Debug, Clone)]
pub struct ChartSeries {
    /// Its name, which an area shows.
    pub name: String,
    /// Class of its colour.
    pub colour: &'static str,
    /// Its points, from left to right.
    pub points: Vec<ChartPoint>,
    /// Whether it is the area between its values. A line is that of the upper ones.
    pub is_area: bool,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Id in the page.
    pub id: String,
    /// Title, for screen readers.
    pub title: String,
    /// Description, for screen readers.
    pub description: String,
    /// Smallest and largest value across, and upwards.
    pub ranges: [(f64, f64); 2],
    /// Ticks across, and upwards.
    pub ticks: [Vec<Tick>; 2],
    /// Whether values hold until the next point.
    pub is_stepped: bool,
    /// What is drawn, the last above the others.
    pub series: Vec<ChartSeries>,
}

/// Where the values are in the picture.
struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    ranges: [(f64, f64); 2],
}

impl PlotArea {
    fn across(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * part(value, self.ranges[0])
    }

    fn up(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * part(value, self.ranges[1])
    }
}

/// Where a value is in a range, from 0 to 1.
fn part(value: f64, (low, high): (f64, f64)) -> f64 {
    let part = (value - low) / (high - low);
    if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.5 }
}

/// A few hundred of these points, with the first and the last.
pub fn thinned(points: &[ChartPoint]) -> Vec<ChartPoint> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points
        .iter()
        .enumerate()
        .filter(|(at, _)| *at == 0 || (last - at).is_multiple_of(step))
        .map(|(_, point)| *point)
        .collect()
}

impl Chart {
    /// The chart as an `<svg>` element.
    pub fn draw(&self, size: PictureSize) -> Markup {
        let longest = self.ticks[1].iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
        let left = 12.0 + longest as f64 * FONT * 0.6;
        let (top, right, bottom) = (MARGINS.0, size.width - MARGINS.1, size.height - MARGINS.2);
        let plot = PlotArea { left, right, top, bottom, ranges: self.ranges };
        let series = self.series.iter().map(|series| self.drawn(series, &plot));
        let content = html! {
            (grid(&plot, &self.ticks))
            @for series in series { (series) }
        };
        picture(&self.id, &self.title, &self.description, size, &content)
    }

    fn drawn(&self, series: &ChartSeries, plot: &PlotArea) -> Markup {
        let points = thinned(&series.points);
        let upper = self.path(points.iter().map(|(x, _, high)| (*x, *high)), plot);
        if !series.is_area {
            return html! {
                path class={ "curve " (series.colour) } d=(upper) {}
                @if points.len() <= DOTS_MAX {
                    @for (x, _, high) in &points {
                        circle class={ "dot " (series.colour) } cx=(at(plot.across(*x))) cy=(at(plot.up(*high))) r="3" {}
                    }
                }
            };
        }
        let lower = self.lower(&points, plot);
        let end = points.last().map(|(_, low, high)| (plot.up(*low), plot.up(*high)));
        let label = end.filter(|(low, high)| low - high >= NAMED_HEIGHT_MIN).and_then(|(low, high)| {
            let free = (plot.right - plot.left) / 2.0;
            Some(((low + high) / 2.0 + FONT / 3.0, whole(&series.name, free, FONT)?))
        });
        html! {
            path class={ "area " (series.colour) } d={ (upper) (lower) "Z" } {}
            @if let Some((y, name)) = label {
                text.label x=(at(plot.right - 6.0)) y=(at(y)) font-size=(FONT) text-anchor="end" { (name) }
            }
        }
    }

    /// The upper edge, from left to right, up to the right side of the plot if values hold.
    fn path(&self, points: impl Iterator<Item = (f64, f64)>, plot: &PlotArea) -> String {
        let mut path = String::new();
        for (number, (x, y)) in points.enumerate() {
            let (x, y) = (plot.across(x), plot.up(y));
            // Writing to a string does not fail.
            let _ = match number {
                0 => write!(path, "M{x:.1} {y:.1}"),
                _ if self.is_stepped => write!(path, "H{x:.1}V{y:.1}"),
                _ => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        if self.is_stepped && !path.is_empty() {
            let _ = write!(path, "H{:.1}", plot.right);
        }
        path
    }

    /// The lower edge, from right to left.
    fn lower(&self, points: &[ChartPoint], plot: &PlotArea) -> String {
        let mut path = String::new();
        for (x, low, _) in points.iter().rev() {
            let (x, y) = (plot.across(*x), plot.up(*low));
            let _ = match self.is_stepped {
                true => write!(path, "V{y:.1}H{x:.1}"),
                false => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        path
    }
}

/// Lines and labels at the ticks.
fn grid(plot: &PlotArea, ticks: &[Vec<Tick>; 2]) -> Markup {
    let [across, up] = ticks;
    let anchor = |x: f64, label: &str| {
        let half = label.chars().count() as f64 * FONT * 0.3;
        if x + half > plot.right + MARGINS.1 { "end" } else { "middle" }
    };
    html! {
        @for tick in up {
            @let y = plot.up(tick.at);
            line.grid x1=(at(plot.left)) x2=(at(plot.right)) y1=(at(y)) y2=(at(y)) {}
            text.tick x=(at(plot.left - 6.0)) y=(at(y + 4.0)) font-size=(FONT) text-anchor="end" { (tick.label) }
        }
        @for tick in across {
            @let x = plot.across(tick.at);
            line.grid x1=(at(x)) x2=(at(x)) y1=(at(plot.bottom)) y2=(at(plot.bottom + 4.0)) {}
            text.tick x=(at(x)) y=(at(plot.bottom + 18.0)) font-size=(FONT) text-anchor=(anchor(x, &tick.label)) {
                (tick.label)
            }
        }
        line.axis x1=(at(plot.left)) x2=(at(plot.right)) y1=(at(plot.bottom)) y2=(at(plot.bottom)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_points_become_a_few_hundred_with_the_last() {
        let points: Vec<ChartPoint> = (0..100_000).map(|at| (f64::from(at), 0.0, 1.0)).collect();
        let few = thinned(&points);
        assert!(few.len() <= POINTS_MAX + 1 && few.len() > POINTS_MAX / 2, "{}", few.len());
        assert_eq!((few.last(), thinned(&points[..7]).len(), thinned(&[]).len()), (points.last(), 7, 0));
    }

    #[test]
    fn charts_of_nothing_and_of_one_value_are_drawn() {
        for points in [vec![], vec![(1.0, 0.0, f64::MAX)], vec![(1.0, 0.0, 2.0), (1.0, 0.0, 3.0)]] {
            for is_area in [true, false] {
                let points = points.clone();
                let series = vec![ChartSeries { name: "<b>".into(), colour: "c1", points, is_area }];
                let (ranges, ticks) = ([(1.0, 1.0), (0.0, 1.0)], [Vec::new(), Vec::new()]);
                let (id, title, description) = ("i".into(), "t".into(), "d".into());
                let chart = Chart { id, title, description, ranges, ticks, is_stepped: is_area, series };
                let text = chart.draw(PictureSize { width: 358.0, height: 200.0, class: "narrow" }).into_string();
                assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("<b>"), "{text}");
            }
        }
    }
}
