//! Heat maps: a coloured cell for each row and column.

use fhrd::error::Result;
use plotters::prelude::*;

use super::plot::{Area, failed, short};

/// A heat map. Darker cells have larger values.
#[derive(Debug, Clone, Default)]
pub struct HeatMap {
    /// Title above the plot.
    pub title: String,
    /// Title of the horizontal axis.
    pub across: String,
    /// Title of the vertical axis.
    pub up: String,
    /// Unit of the values.
    pub unit: String,
    /// Names of the columns, from left to right.
    pub columns: Vec<String>,
    /// Names of the rows, from the bottom up.
    pub rows: Vec<String>,
    /// Values of each row. A missing one is a white cell.
    pub cells: Vec<Vec<Option<f64>>>,
}

/// Cells of a map with at most this many carry their values.
const LABELLED_CELLS_MAX: usize = 300;
/// Colours of the smallest and the largest value.
const ENDS: [(f64, f64, f64); 2] = [(239.0, 243.0, 255.0), (8.0, 48.0, 107.0)];
/// Steps of the legend.
const STEPS: i32 = 6;

/// The colour of a value that is this fraction of the way from the smallest to the largest.
fn shade(fraction: f64) -> RGBColor {
    let [low, high] = ENDS;
    let at = |low: f64, high: f64| (low + (high - low) * fraction.clamp(0.0, 1.0)).round() as u8;
    RGBColor(at(low.0, high.0), at(low.1, high.1), at(low.2, high.2))
}

impl HeatMap {
    /// Smallest and largest value; 0 and 1 without values.
    fn ends(&self) -> (f64, f64) {
        let values = self.cells.iter().flatten().flatten().filter(|value| value.is_finite());
        let ends = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
        if ends.0 > ends.1 { (0.0, 1.0) } else { ends }
    }

    pub(super) fn draw(&self, area: &Area<'_>, side: &Area<'_>) -> Result<()> {
        let (low, high) = self.ends();
        let fraction = |value: f64| if high > low { (value - low) / (high - low) } else { 0.5 };
        let size = (self.columns.len().max(1) as f64, self.rows.len().max(1) as f64);
        let mut builder = ChartBuilder::on(area);
        builder.margin(10).x_label_area_size(44).y_label_area_size(110);
        let mut chart = builder.build_cartesian_2d(0.0..size.0, 0.0..size.1).map_err(failed)?;
        let name = |names: &[String], at: &f64| {
            let is_middle = (at.fract() - 0.5).abs() < 1e-6;
            names.get(at.floor() as usize).filter(|_| is_middle).cloned().unwrap_or_default()
        };
        let (across, up) = (|at: &f64| name(&self.columns, at), |at: &f64| name(&self.rows, at));
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_desc(&self.across).y_desc(&self.up).label_style(("sans-serif", 11));
        mesh.x_labels(2 * self.columns.len() + 1).y_labels(2 * self.rows.len() + 1);
        mesh.x_label_formatter(&across).y_label_formatter(&up).draw().map_err(failed)?;
        let is_labelled = self.columns.len() * self.rows.len() <= LABELLED_CELLS_MAX;
        for (row, values) in self.cells.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let Some(value) = value.filter(|value| value.is_finite()) else { continue };
                let (left, bottom) = (column as f64, row as f64);
                let corners = [(left, bottom), (left + 1.0, bottom + 1.0)];
                let cell = Rectangle::new(corners, shade(fraction(value)).filled());
                chart.draw_series(std::iter::once(cell)).map_err(failed)?;
                if is_labelled {
                    let ink = if fraction(value) > 0.55 { WHITE } else { BLACK };
                    let text = ("sans-serif", 10).into_font().color(&ink);
                    let label = Text::new(short(value), (left + 0.12, bottom + 0.65), text);
                    chart.draw_series(std::iter::once(label)).map_err(failed)?;
                }
            }
        }
        let text = ("sans-serif", 12).into_font().color(&BLACK);
        side.draw(&Text::new(self.unit.clone(), (4, 14), text.clone())).map_err(failed)?;
        for step in 0..STEPS {
            let fraction = f64::from(step) / f64::from(STEPS - 1);
            let top = 34 + 17 * step;
            side.draw(&Rectangle::new([(4, top), (16, top + 15)], shade(fraction).filled())).map_err(failed)?;
            let value = short(low + (high - low) * fraction);
            side.draw(&Text::new(value, (21, top + 1), text.clone())).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plot;
    use super::*;

    #[test]
    fn every_value_is_a_cell_and_the_largest_is_darkest() {
        let names = |names: [&str; 2]| names.map(str::to_string).to_vec();
        let cells = vec![vec![Some(1.0), Some(2.0)], vec![None, Some(5.0)]];
        let (columns, rows) = (names(["a <1>", "b"]), names(["c", "d"]));
        let map = HeatMap { title: "t".into(), columns, rows, cells, unit: "bits".into(), ..HeatMap::default() };
        let svg = Plot::HeatMap(map.clone()).svg().unwrap();
        let empty = Plot::HeatMap(HeatMap { cells: Vec::new(), ..map.clone() }).svg().unwrap();
        assert_eq!(svg.matches("<rect").count(), empty.matches("<rect").count() + 3);
        assert!(svg.contains("a &lt;1&gt;") && svg.contains("bits"), "{svg}");
        assert_eq!(svg.matches("fill=\"#08306B\"").count(), 2, "the largest cell and the legend: {svg}");
        Plot::HeatMap(HeatMap::default()).svg().unwrap();
    }
}
