//! Distributions: histograms of many values, and violins of the values of groups.

use fhrd::error::Result;
use plotters::prelude::*;

use super::plot::{Area, colour, failed, legend, range, short};

/// Counts of values in bins of equal width.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bins {
    /// Start of the first bin.
    pub from: f64,
    /// End of the last bin.
    pub to: f64,
    /// Number of values in each bin. The outer bins also count all values beyond them.
    pub counts: Vec<u64>,
}

/// A histogram: for each series, the share of its values in each bin.
#[derive(Debug, Clone, Default)]
pub struct HistogramPlot {
    /// Title above the plot.
    pub title: String,
    /// Title of the horizontal axis.
    pub across: String,
    /// Name and counts of each series.
    pub series: Vec<(String, Bins)>,
}

/// Violins: the density of the values of each group, with a box from quartile to quartile and a line at the median.
#[derive(Debug, Clone, Default)]
pub struct Violins {
    /// Title above the plot.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Name and values of each group.
    pub groups: Vec<(String, Vec<f64>)>,
}

/// Points of a violin's outline.
const STEPS: usize = 80;
/// Half of a violin's greatest width, relative to the width of a group.
const HALF: f64 = 0.42;

impl Bins {
    /// `count` empty bins.
    pub fn new(from: f64, to: f64, count: usize) -> Self {
        Bins { from, to, counts: vec![0; count.max(1)] }
    }

    /// Counts a value. NaN is not counted.
    pub fn add(&mut self, value: f64) {
        let last = self.counts.len() - 1;
        let bin = (value - self.from) / (self.to - self.from) * self.counts.len() as f64;
        if let Some(count) = self.counts.get_mut((bin.max(0.0) as usize).min(last)).filter(|_| !bin.is_nan()) {
            *count += 1;
        }
    }

    /// Outline of the bins: the share of all values in each.
    fn outline(&self) -> Vec<(f64, f64)> {
        let width = (self.to - self.from) / self.counts.len() as f64;
        let total = self.counts.iter().sum::<u64>().max(1) as f64;
        let ends = |(bin, count): (usize, &u64)| {
            let (left, share) = (self.from + bin as f64 * width, *count as f64 / total);
            [(left, share), (left + width, share)]
        };
        self.counts.iter().enumerate().flat_map(ends).collect()
    }
}

impl HistogramPlot {
    pub(super) fn draw(&self, area: &Area<'_>, side: &Area<'_>) -> Result<()> {
        let outlines: Vec<Vec<(f64, f64)>> = self.series.iter().map(|(_, bins)| bins.outline()).collect();
        let points = || outlines.iter().flatten();
        let (wide, high) = (range(points().map(|(x, _)| *x), false), range(points().map(|(_, y)| *y), true));
        let mut builder = ChartBuilder::on(area);
        builder.margin(10).x_label_area_size(44).y_label_area_size(64);
        let mut chart = builder.build_cartesian_2d(wide, high).map_err(failed)?;
        let name = |value: &f64| short(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.across).y_desc("share of the values").light_line_style(TRANSPARENT);
        mesh.x_label_formatter(&name).y_label_formatter(&name).label_style(("sans-serif", 13));
        mesh.draw().map_err(failed)?;
        for (number, outline) in outlines.iter().enumerate() {
            let style = colour(number).stroke_width(2);
            chart.draw_series(LineSeries::new(outline.iter().copied(), style)).map_err(failed)?;
        }
        legend(side, self.series.iter().map(|(name, _)| name))
    }
}

/// The value below which this fraction of the sorted `values` lies, between two values in proportion.
/// `None` without values.
pub fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let at = fraction * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(low + (high - low) * at.fract())
}

/// Kernel density of the sorted values at `at`, with Gaussian kernels of deviation `width`.
fn density(sorted: &[f64], width: f64, at: f64) -> f64 {
    sorted.iter().map(|value| (-0.5 * ((value - at) / width).powi(2)).exp()).sum()
}

impl Violins {
    pub(super) fn draw(&self, area: &Area<'_>) -> Result<()> {
        let all = self.groups.iter().flat_map(|(_, values)| values).copied();
        let high = range(all, false);
        let span = high.end - high.start;
        let mut builder = ChartBuilder::on(area);
        builder.margin(10).x_label_area_size(44).y_label_area_size(64);
        let wide = 0.0..self.groups.len().max(1) as f64;
        let mut chart = builder.build_cartesian_2d(wide, high).map_err(failed)?;
        let name = |at: &f64| {
            let is_middle = (at.fract() - 0.5).abs() < 1e-6;
            let group = self.groups.get(at.floor() as usize).filter(|_| is_middle);
            group.map_or_else(String::new, |(name, _)| name.clone())
        };
        let value = |value: &f64| short(*value);
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().light_line_style(TRANSPARENT).x_labels(2 * self.groups.len() + 1);
        mesh.x_label_formatter(&name).y_label_formatter(&value).y_desc(&self.unit).label_style(("sans-serif", 12));
        mesh.draw().map_err(failed)?;
        for (number, (_, values)) in self.groups.iter().enumerate() {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let quantiles = [0.25, 0.5, 0.75, 0.0, 1.0].map(|fraction| quantile(&sorted, fraction));
            let [Some(lower), Some(middle), Some(upper), Some(least), Some(most)] = quantiles else { continue };
            // Silverman's rule, and at least a hundredth of the axis for groups of equal values.
            let width = (1.06 * (upper - lower) / 1.34 * (sorted.len() as f64).powf(-0.2)).max(span / 100.0);
            let (least, most) = (least - 2.0 * width, most + 2.0 * width);
            let at = |step: usize| least + (most - least) * step as f64 / STEPS as f64;
            let densities: Vec<f64> = (0..=STEPS).map(|step| density(&sorted, width, at(step))).collect();
            let peak = densities.iter().fold(1e-12f64, |peak, density| peak.max(*density));
            let centre = number as f64 + 0.5;
            let edge = |side: f64| {
                densities
                    .iter()
                    .enumerate()
                    .map(move |(step, density)| (centre + side * HALF * density / peak, at(step)))
            };
            let outline: Vec<(f64, f64)> = edge(1.0).chain(edge(-1.0).collect::<Vec<_>>().into_iter().rev()).collect();
            let ink = colour(number);
            chart.draw_series(std::iter::once(Polygon::new(outline, ink.mix(0.45)))).map_err(failed)?;
            let quartiles = Rectangle::new([(centre - 0.05, lower), (centre + 0.05, upper)], BLACK.stroke_width(1));
            chart.draw_series(std::iter::once(quartiles)).map_err(failed)?;
            let line = PathElement::new(vec![(centre - 0.09, middle), (centre + 0.09, middle)], BLACK.stroke_width(3));
            chart.draw_series(std::iter::once(line)).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plot;
    use super::*;

    #[test]
    fn bins_count_every_value_once_and_the_ends_take_the_rest() {
        let mut bins = Bins::new(-1.0, 1.0, 4);
        [-9.0, -1.0, -0.6, 0.0, 0.49, 0.5, 1.0, 7.0, f64::NAN].iter().for_each(|value| bins.add(*value));
        assert_eq!(bins.counts, [3, 0, 2, 3]);
        assert_eq!(bins.outline()[..3], [(-1.0, 0.375), (-0.5, 0.375), (-0.5, 0.0)]);
    }

    #[test]
    fn quantiles_lie_between_values() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|at| quantile(&values, at)), [Some(1.0), Some(3.0), Some(5.0), Some(8.0)]);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn every_series_and_group_is_drawn_also_without_values() {
        let series = vec![("one".to_string(), Bins::new(0.0, 1.0, 3)), ("two".into(), Bins::new(0.0, 1.0, 3))];
        let svg = Plot::Histogram(HistogramPlot { series, ..HistogramPlot::default() }).svg().unwrap();
        assert!(svg.contains("one") && svg.contains("two") && !svg.contains("NaN"), "{svg}");
        let groups =
            vec![("many".to_string(), vec![1.0, 2.0, 3.0]), ("same".into(), vec![2.0; 5]), ("none".into(), vec![])];
        let svg = Plot::Violins(Violins { groups, ..Violins::default() }).svg().unwrap();
        assert_eq!((svg.matches("<polygon").count(), svg.contains("NaN")), (2, false), "{svg}");
        for plot in [Plot::Violins(Violins::default()), Plot::Histogram(HistogramPlot::default())] {
            assert!(plot.svg().unwrap().contains("</svg>"));
        }
    }
}
