//! Plots as SVG text. Text uses the fonts of the browser, so no font is read here.
//!
//! Bars and curves are drawn here, the other kinds in the files `plot_*.rs`.

use fhrd::error::{Error, Result};
use plotters::prelude::*;

use super::plot_density::{HistogramPlot, Violins};
use super::plot_graph::GraphPlot;
use super::plot_heat::HeatMap;
use super::plot_strips::Strips;

/// A plot.
#[derive(Debug, Clone)]
pub enum Plot {
    /// A bar of each series for each group.
    Bars {
        /// Title above the plot.
        title: String,
        /// Unit of the values.
        unit: String,
        /// Names along the axis.
        groups: Vec<String>,
        /// Name of each series, and its value in each group if there is one.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
    /// A point for each pair of values of each series.
    Scatter {
        /// Title above the plot.
        title: String,
        /// Title of the horizontal axis.
        across: String,
        /// Title of the vertical axis.
        unit: String,
        /// Scales of the axes.
        scales: Scales,
        /// Name of each series and its points.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// A curve for each series.
    Lines {
        /// Title above the plot.
        title: String,
        /// Title of the horizontal axis.
        across: String,
        /// Unit of the vertical axis.
        unit: String,
        /// Scales of the axes.
        scales: Scales,
        /// Name of each curve and its points, from left to right.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// A coloured cell for each row and column.
    HeatMap(HeatMap),
    /// The distribution of each series over bins.
    Histogram(HistogramPlot),
    /// The density of the values of each group, with median and quartiles.
    Violins(Violins),
    /// Nodes in groups, and edges between them.
    Graph(GraphPlot),
    /// Marked ranges of a file, one strip for each row.
    Strips(Strips),
}

/// Scales of the axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scales {
    /// Scale of the horizontal axis.
    pub across: Scale,
    /// Whether the vertical axis is logarithmic.
    pub logarithmic: bool,
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Linear.
    #[default]
    Plain,
    /// Logarithmic.
    Logarithmic,
    /// Fractions by their number of nines: 0, 90 %, 99 %, 99.9 %.
    Nines,
}

const SIZE: (u32, u32) = (1060, 380);
/// Width of the legend beside the chart.
const SIDE: u32 = 240;
const COLOURS: [RGBColor; 12] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(90, 90, 90),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
    RGBColor(0, 60, 120),
    RGBColor(120, 60, 0),
];
/// Fraction of a group's width that its bars occupy.
const BARS: f64 = 0.84;
/// Number of nines at which values are cut off.
const NINES_MAX: f64 = 5.0;

pub(super) fn colour(number: usize) -> RGBColor {
    COLOURS.get(number % COLOURS.len()).copied().unwrap_or(BLACK)
}

pub(super) fn failed(error: impl std::fmt::Display) -> Error {
    Error::internal(format!("cannot draw a plot: {error}"))
}

/// A number with few digits.
pub fn short(value: f64) -> String {
    let size = value.abs();
    match () {
        () if size >= 1e9 => format!("{:.1}G", value / 1e9),
        () if size >= 1e6 => format!("{:.1}M", value / 1e6),
        () if size >= 1e4 => format!("{:.0}k", value / 1e3),
        () if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        () if size >= 1.0 => format!("{value:.2}"),
        () => format!("{value:.3}"),
    }
}

impl Plot {
    /// The title.
    pub fn title(&self) -> &str {
        match self {
            Plot::Bars { title, .. } | Plot::Lines { title, .. } | Plot::Scatter { title, .. } => title,
            Plot::HeatMap(plot) => &plot.title,
            Plot::Histogram(plot) => &plot.title,
            Plot::Violins(plot) => &plot.title,
            Plot::Graph(plot) => &plot.title,
            Plot::Strips(plot) => &plot.title,
        }
    }

    /// The plot as an `<svg>` element.
    ///
    /// # Errors
    /// [`Error::Internal`] if the plotter refuses the values.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            area.fill(&WHITE).map_err(failed)?;
            let (chart, side) = area.split_horizontally(SIZE.0 - SIDE);
            match self {
                Plot::Bars { unit, groups, series, .. } => {
                    bars(&chart, unit, groups, series)?;
                    legend(&side, series.iter().map(|(name, _)| name))?;
                }
                Plot::Scatter { across, unit, scales, series, .. } => {
                    lines(&chart, (across, unit), *scales, series, PointStyle::Points)?;
                    legend(&side, series.iter().map(|(name, _)| name))?;
                }
                Plot::Lines { across, unit, scales, series, .. } => {
                    lines(&chart, (across, unit), *scales, series, PointStyle::Curves)?;
                    legend(&side, series.iter().map(|(name, _)| name))?;
                }
                Plot::HeatMap(plot) => plot.draw(&chart, &side)?,
                Plot::Histogram(plot) => plot.draw(&chart, &side)?,
                Plot::Violins(plot) => plot.draw(&chart)?,
                Plot::Graph(plot) => plot.draw(&chart, &side)?,
                Plot::Strips(plot) => plot.draw(&chart, &side)?,
            }
            area.present().map_err(failed)?;
        }
        Ok(text)
    }
}

/// A part of the plot.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn bars(area: &Area<'_>, unit: &str, groups: &[String], series: &[(String, Vec<Option<f64>>)]) -> Result<()> {
    let values = series.iter().flat_map(|(_, values)| values.iter().flatten());
    let top = values.fold(0.0f64, |top, value| top.max(*value)).max(1e-9) * 1.08;
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).x_label_area_size(34).y_label_area_size(64);
    let mut chart = builder.build_cartesian_2d(0.0..groups.len().max(1) as f64, 0.0..top).map_err(failed)?;
    let name = |at: &f64| {
        let middle = (at.fract() - 0.5).abs() < 1e-6;
        groups.get(at.floor() as usize).filter(|_| middle).cloned().unwrap_or_default()
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).x_labels(2 * groups.len() + 1).x_label_formatter(&name);
    mesh.y_desc(unit)
        .y_label_formatter(&|value| short(*value))
        .label_style(("sans-serif", 13))
        .draw()
        .map_err(failed)?;
    let width = BARS / series.len().max(1) as f64;
    for (number, (_, values)) in series.iter().enumerate() {
        let style = colour(number).filled();
        let bar = |(group, value): (usize, &Option<f64>)| {
            let left = group as f64 + (1.0 - BARS) / 2.0 + number as f64 * width;
            value.map(|value| Rectangle::new([(left, 0.0), (left + width * 0.94, value)], style))
        };
        chart.draw_series(values.iter().enumerate().filter_map(bar)).map_err(failed)?;
        let text = ("sans-serif", 11).into_font().color(&BLACK);
        let label = |(group, value): (usize, &Option<f64>)| {
            let left = group as f64 + (1.0 - BARS) / 2.0 + number as f64 * width;
            value.map(|value| Text::new(short(value), (left, value + top * 0.035), text.clone()))
        };
        if series.len() * groups.len() <= 24 {
            chart.draw_series(values.iter().enumerate().filter_map(label)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Names of the series beside the chart, each with a patch of its colour.
pub(super) fn legend<'a>(area: &Area<'_>, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let text = ("sans-serif", 12).into_font().color(&BLACK);
    for (number, name) in names.enumerate() {
        let top = 14 + 17 * number as i32;
        area.draw(&Rectangle::new([(4, top), (16, top + 10)], colour(number).filled())).map_err(failed)?;
        area.draw(&Text::new(name.clone(), (21, top), text.clone())).map_err(failed)?;
    }
    Ok(())
}

/// Position of a value along an axis.
fn position(value: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Plain => value,
        Scale::Logarithmic => value.max(1e-9).log10(),
        Scale::Nines => -(1.0 - value).max(10f64.powf(-NINES_MAX)).log10(),
    }
}

/// Label at a position of an axis.
fn label(position: f64, scale: Scale) -> String {
    match scale {
        Scale::Plain => short(position),
        Scale::Logarithmic => short(10f64.powf(position)),
        Scale::Nines => {
            let percent = format!("{:.3}", 100.0 * (1.0 - 10f64.powf(-position)));
            format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

pub(super) fn range(values: impl Iterator<Item = f64>, from_zero: bool) -> std::ops::Range<f64> {
    let (mut low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return 0.0..1.0;
    }
    if from_zero {
        low = low.min(0.0);
    }
    let margin = ((high - low) * 0.04).max(1e-9);
    low - if from_zero { 0.0 } else { margin }..high + margin.max(high.abs() * 1e-6)
}

/// How points are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PointStyle {
    /// A curve through them, with dots if they are few.
    Curves,
    /// A dot each.
    Points,
}

fn lines(
    area: &Area<'_>,
    (across, unit): (&str, &str),
    scales: Scales,
    series: &[(String, Vec<(f64, f64)>)],
    points_as: PointStyle,
) -> Result<()> {
    let up = if scales.logarithmic { Scale::Logarithmic } else { Scale::Plain };
    let placed = |(x, y): &(f64, f64)| (position(*x, scales.across), position(*y, up));
    let points = || series.iter().flat_map(|(_, points)| points).map(placed);
    let wide = range(points().map(|(x, _)| x), false);
    let high = range(points().map(|(_, y)| y), !scales.logarithmic);
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).x_label_area_size(44).y_label_area_size(64);
    let mut chart = builder.build_cartesian_2d(wide, high).map_err(failed)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(across).y_desc(unit).light_line_style(TRANSPARENT).label_style(("sans-serif", 13));
    let (name_across, name_up) = (|x: &f64| label(*x, scales.across), |y: &f64| label(*y, up));
    mesh.x_label_formatter(&name_across).y_label_formatter(&name_up);
    mesh.draw().map_err(failed)?;
    for (number, (_, points)) in series.iter().enumerate() {
        let style = colour(number).stroke_width(2);
        if points_as == PointStyle::Curves {
            chart.draw_series(LineSeries::new(points.iter().map(placed), style)).map_err(failed)?;
        }
        if points.len() <= 32 || points_as == PointStyle::Points {
            let dot = |point| Circle::new(placed(point), 3, colour(number).filled());
            chart.draw_series(points.iter().map(dot)).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars_of(values: Vec<Option<f64>>) -> Plot {
        let groups = (0..values.len()).map(|group| format!("set <{group}>")).collect();
        Plot::Bars { title: "ratio".into(), unit: "times".into(), groups, series: vec![("one & all".into(), values)] }
    }

    #[test]
    fn every_value_is_a_bar_and_names_are_escaped() {
        let rectangles = |values| bars_of(values).svg().unwrap().matches("<rect").count();
        let both = rectangles(vec![Some(1.0), Some(2.5)]);
        assert_eq!(both, rectangles(vec![Some(1.0), None]) + 1);
        let svg = bars_of(vec![Some(1.0), Some(2.5)]).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("set &lt;1&gt;") && svg.contains("one &amp; all"), "{svg}");
        assert!(svg.contains("2.50"), "{svg}");
    }

    #[test]
    fn plots_of_nothing_and_of_one_point_are_drawn() {
        bars_of(Vec::new()).svg().unwrap();
        for points in [vec![], vec![(3.0, 0.0)], vec![(0.5, 2.0), (0.99, 4.0), (1.0, 9.0)]] {
            for across in [Scale::Plain, Scale::Logarithmic, Scale::Nines] {
                let series = vec![("line".into(), points.clone())];
                let scales = Scales { across, logarithmic: across != Scale::Plain };
                let (title, across, unit) = ("t".into(), "x".into(), "ms".into());
                let svg = Plot::Lines { title, across, unit, scales, series }.svg().unwrap();
                assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{svg}");
                assert_eq!(svg.matches("<circle").count(), points.len());
            }
        }
    }

    #[test]
    fn a_scatter_plot_has_a_dot_for_each_point_and_no_curve() {
        let points: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), f64::from(at * at % 17))).collect();
        let series = vec![("a".to_string(), points.clone()), ("b".to_string(), points)];
        let (title, across, unit) = ("t".into(), "x".into(), "y".into());
        let svg = Plot::Scatter { title, across, unit, scales: Scales::default(), series }.svg().unwrap();
        assert_eq!((svg.matches("<circle").count(), svg.matches("stroke-width=\"2\"").count()), (200, 0));
    }

    #[test]
    fn axes_are_labelled_with_values_and_nines() {
        let nines = |fraction| label(position(fraction, Scale::Nines), Scale::Nines);
        assert_eq!([nines(0.0), nines(0.9), nines(0.999), nines(1.0)], ["0 %", "90 %", "99.9 %", "99.999 %"]);
        assert_eq!(label(position(65_536.0, Scale::Logarithmic), Scale::Logarithmic), "66k");
        assert_eq!([short(0.25), short(2.5), short(3.0), short(2.5e6)], ["0.250", "2.50", "3", "2.5M"]);
    }
}
