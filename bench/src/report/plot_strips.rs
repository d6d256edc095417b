//! Strips: marked ranges of a file, one strip for each row.

use fhrd::error::Result;
use plotters::prelude::*;

use super::plot::{Area, failed};

/// Strips of a file. Marked ranges are blue, the others grey.
#[derive(Debug, Clone, Default)]
pub struct Strips {
    /// Title above the plot.
    pub title: String,
    /// Meaning of a marked range and of the others.
    pub meanings: [String; 2],
    /// Length of the file.
    pub len: u64,
    /// Name and marked ranges of each row: start and end.
    pub rows: Vec<(String, Vec<(u64, u64)>)>,
}

const MARKED: RGBColor = RGBColor(31, 119, 180);
const OTHER: RGBColor = RGBColor(214, 214, 214);
/// Left end and length of a strip, pixels.
const STRIP: (i32, f64) = (110, 690.0);

/// Ranges that touch become one, because thousands of chunks would make thousands of rectangles.
fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in sorted {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

impl Strips {
    pub(super) fn draw(&self, area: &Area<'_>, side: &Area<'_>) -> Result<()> {
        let text = ("sans-serif", 13).into_font().color(&BLACK);
        let height = (340 / self.rows.len().max(1) as i32).min(70);
        let x = |at: u64| STRIP.0 + (STRIP.1 * at as f64 / self.len.max(1) as f64).round() as i32;
        for (number, (name, ranges)) in self.rows.iter().enumerate() {
            let (top, bottom) = (16 + height * number as i32, 8 + height * (number as i32 + 1));
            area.draw(&Text::new(name.clone(), (8, (top + bottom) / 2 - 6), text.clone())).map_err(failed)?;
            area.draw(&Rectangle::new([(x(0), top), (x(self.len), bottom)], OTHER.filled())).map_err(failed)?;
            for (start, end) in merged(ranges) {
                area.draw(&Rectangle::new([(x(start), top), (x(end), bottom)], MARKED.filled())).map_err(failed)?;
            }
        }
        for (number, (meaning, ink)) in self.meanings.iter().zip([MARKED, OTHER]).enumerate() {
            let top = 14 + 17 * number as i32;
            side.draw(&Rectangle::new([(4, top), (16, top + 10)], ink.filled())).map_err(failed)?;
            side.draw(&Text::new(meaning.clone(), (21, top), text.clone())).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plot;
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_rectangle() {
        assert_eq!(merged(&[(5, 7), (0, 2), (2, 4), (6, 9)]), [(0, 4), (5, 9)]);
        let rows = vec![("chunk".to_string(), vec![(0, 2), (2, 4), (8, 10)]), ("file".into(), vec![])];
        let strips = Strips { len: 10, rows, ..Strips::default() };
        let svg = Plot::Strips(strips).svg().unwrap();
        let empty = Plot::Strips(Strips::default()).svg().unwrap();
        assert_eq!(svg.matches("<rect").count(), empty.matches("<rect").count() + 4, "{svg}");
    }
}
