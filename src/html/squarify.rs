//! Squarified treemaps: areas in proportion to values, as near to squares as rows of them allow
//! (Bruls, Huizing and van Wijk, 2000).

/// A rectangle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TileBox {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl TileBox {
    fn area(&self) -> f64 {
        self.width * self.height
    }

    /// The same without a margin, and without `head` at its upper edge.
    pub fn inside(&self, margin: f64, head: f64) -> TileBox {
        TileBox {
            x: self.x + margin,
            y: self.y + margin + head,
            width: (self.width - 2.0 * margin).max(0.0),
            height: (self.height - 2.0 * margin - head).max(0.0),
        }
    }
}

/// A box for each value, in their order, which fill `area` and do not overlap. Descending values give the best boxes.
/// What is no positive number has a box without an area.
pub fn squarified(values: &[f64], area: TileBox) -> Vec<TileBox> {
    let values: Vec<f64> = values.iter().map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 }).collect();
    let (mut rest, mut open) = (area, values.as_slice());
    let mut tiles = Vec::with_capacity(values.len());
    while !open.is_empty() {
        let left: f64 = open.iter().sum();
        let scale = if left > 0.0 { rest.area() / left } else { 0.0 };
        let (row, others) = open.split_at(row_len(open, scale, rest.width.min(rest.height)));
        rest = lay(row, row.iter().sum::<f64>() / left.max(f64::MIN_POSITIVE), rest, &mut tiles);
        open = others;
    }
    tiles
}

/// How many of the first values make the best row along a side.
fn row_len(values: &[f64], scale: f64, side: f64) -> usize {
    let (mut sum, mut best, mut len) = (0.0, f64::INFINITY, 0);
    let (mut smallest, mut largest) = (f64::INFINITY, 0.0f64);
    for value in values {
        let area = value * scale;
        sum += area;
        (smallest, largest) = (smallest.min(area), largest.max(area));
        // The worst ratio of two sides in the row.
        let worst = (side * side * largest / (sum * sum)).max(sum * sum / (side * side * smallest));
        if len > 0 && (worst.is_nan() || worst > best) {
            break;
        }
        (best, len) = (worst, len + 1);
    }
    len.max(1)
}

/// Lays a row of values along the shorter side. It takes this fraction of `rest`. Returns what remains.
fn lay(row: &[f64], fraction: f64, rest: TileBox, tiles: &mut Vec<TileBox>) -> TileBox {
    let sum: f64 = row.iter().sum();
    let fraction = fraction.clamp(0.0, 1.0);
    let is_upright = rest.width >= rest.height;
    let (length, thickness) = match is_upright {
        true => (rest.height, rest.width * fraction),
        false => (rest.width, rest.height * fraction),
    };
    let mut at = 0.0;
    for value in row {
        let part = if sum > 0.0 { length * (value / sum) } else { 0.0 };
        tiles.push(match is_upright {
            true => TileBox { x: rest.x, y: rest.y + at, width: thickness, height: part },
            false => TileBox { x: rest.x + at, y: rest.y, width: part, height: thickness },
        });
        at += part;
    }
    match is_upright {
        true => TileBox { x: rest.x + thickness, width: rest.width - thickness, ..rest },
        false => TileBox { y: rest.y + thickness, height: rest.height - thickness, ..rest },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AREA: TileBox = TileBox { x: 10.0, y: 20.0, width: 600.0, height: 400.0 };

    fn overlap(one: &TileBox, other: &TileBox) -> f64 {
        let of = |a: f64, b: f64, c: f64, d: f64| ((a + b).min(c + d) - a.max(c)).max(0.0);
        of(one.x, one.width, other.x, other.width) * of(one.y, one.height, other.y, other.height)
    }

    fn check(values: &[f64], area: TileBox) {
        let tiles = squarified(values, area);
        assert_eq!(tiles.len(), values.len());
        let total: f64 = values.iter().sum();
        let tolerance = 1e-6 * area.area();
        for (at, (tile, value)) in tiles.iter().zip(values).enumerate() {
            let expected = if total > 0.0 { area.area() * value / total } else { 0.0 };
            assert!((tile.area() - expected).abs() <= tolerance, "{tile:?} of {value}: {expected}");
            assert!(tile.x >= area.x - 1e-6 && tile.x + tile.width <= area.x + area.width + 1e-6, "{tile:?}");
            assert!(tile.y >= area.y - 1e-6 && tile.y + tile.height <= area.y + area.height + 1e-6, "{tile:?}");
            assert!(tiles[..at].iter().all(|other| overlap(tile, other) <= tolerance), "{tiles:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn areas_are_in_proportion_inside_and_apart(
            values in prop::collection::vec(prop_oneof![1.0..1e12f64, Just(0.0)], 0..60),
            width in 1.0..2000.0f64,
            height in 1.0..2000.0f64,
            is_sorted: bool,
        ) {
            let mut values = values;
            if is_sorted {
                values.sort_by(|one, other| other.total_cmp(one));
            }
            check(&values, TileBox { x: 3.0, y: -7.0, width, height });
        }
    }

    #[test]
    fn the_boxes_of_the_paper_and_of_nothing() {
        check(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], AREA);
        let tiles = squarified(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], AREA);
        let worst = tiles.iter().map(|tile| (tile.width / tile.height).max(tile.height / tile.width));
        assert!(worst.fold(0.0, f64::max) < 3.0, "{tiles:?}");
        check(&[0.0, 0.0], AREA);
        check(&[u64::MAX as f64, 1.0], AREA);
        assert!(squarified(&[], AREA).is_empty());
        let odd = squarified(&[f64::NAN, 1.0, -5.0, f64::INFINITY], AREA);
        assert_eq!(odd.iter().map(TileBox::area).sum::<f64>().round(), AREA.area());
        assert!(squarified(&[1.0, 2.0], TileBox::default()).iter().all(|tile| tile.area() == 0.0));
        assert_eq!(AREA.inside(2.0, 10.0), TileBox { x: 12.0, y: 32.0, width: 596.0, height: 386.0 });
        assert_eq!(TileBox::default().inside(2.0, 10.0).area(), 0.0);
    }
}
