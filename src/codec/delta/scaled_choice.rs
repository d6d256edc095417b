//! Scaled choice: by which codes, tiles and roundings a chunk follows from its base, found on samples.
//!
//! 1. In short windows of values, which have one scale in any grid, each kind of codes is fitted. The one with fewest
//!    misses is taken.
//! 2. Grids are tried from the finest that tools use: groups, rows, tiles, and the whole tensor. A few tiles of each
//!    tell how codes are rounded, and what a scale is if it follows from the values. Grids that do not fit are soon
//!    given up, and a way without misses and scales to store ends the search.
//!
//! The choice depends on the chunk, its base and their place in the tensor alone.

use super::float_source::FloatSource;
use super::scaled::{ScaleFormat, Scaled, ScaledWay};
use super::scaled_fit::{CodePacking, fitted_scale, following};
use super::tile_grid::TileGrid;
use crate::kernel::scaled::{QuotientRounding, ScaledCode, greatest_value, scaled_codes};

/// Windows in which kinds of codes are tried, and values of a window.
const WINDOWS: usize = 32;
const WINDOW_VALUES: usize = 16;
/// Tiles of a sample, its values, about, and values of a tile in it, at most.
const TILES_MIN: usize = 4;
const TILES_MAX: usize = 64;
const SAMPLE_VALUES: usize = 1 << 14;
const TILE_VALUES: usize = 1 << 12;
/// Values of the first tile that must have fewer misses than one in `MISSES_MAX`.
const FIRST_VALUES: usize = 512;
const MISSES_MAX: usize = 3;
/// Bits of a code that does not follow.
const MISS_BITS: usize = 16;
/// Values of groups in a row.
const GROUPS: [u64; 4] = [32, 64, 128, 256];
/// Rows and columns of square tiles.
const SQUARE: u64 = 128;

/// The number of codes that differ.
pub(super) fn misses(codes: &[u8], made: &[u8]) -> usize {
    codes.iter().zip(made).filter(|(code, made)| code != made).count()
}

/// What tools divide the greatest magnitude of a tile by.
const fn divisors(code: ScaledCode) -> &'static [f32] {
    match code {
        ScaledCode::E4m3 => &[448.0],
        ScaledCode::E5m2 => &[57344.0],
        ScaledCode::Int8 => &[127.0, 127.5, 128.0],
        ScaledCode::Int4 => &[7.0, 7.5, 8.0],
        ScaledCode::NormalFloat => &[1.0],
    }
}

/// The way in which codes follow best, by a sample. `base` has an element for each of `codes`.
pub(super) fn way(scaled: Scaled, packing: CodePacking, codes: &[u8], base: &[u8]) -> ScaledWay {
    let values = codes.len();
    let sample = Sample { packing, codes, base, from: scaled.from };
    let whole = TileGrid::new(scaled.values.max(1), [1, scaled.values.max(1)], scaled.position);
    let mut best = None;
    for grid in grids(scaled).into_iter().chain(whole).filter(|grid| grid.scales(values).is_some()) {
        if best.is_some_and(|(cost, _): (f64, ScaledWay)| cost == 0.0) {
            break;
        }
        sample.try_grid(grid, &mut best);
    }
    best.map(|best| best.1).unwrap_or_else(|| ScaledWay {
        packing,
        values: FloatSource::of(scaled.from),
        rounding: QuotientRounding::Fp32,
        scale: ScaleFormat::Fp32,
        divisor: divisors(packing.code).first().copied().unwrap_or(1.0),
        grid: TileGrid::SINGLE,
    })
}

/// Grids with several tiles that the chunk may have.
fn grids(scaled: Scaled) -> Vec<TileGrid> {
    let columns = if scaled.columns > 1 { scaled.columns } else { scaled.values.max(1) };
    let mut grids = Vec::new();
    let rows = (columns < scaled.values).then(|| TileGrid::new(columns, [1, columns], scaled.position));
    grids.extend(rows.flatten());
    for group in GROUPS {
        // Where a row has no whole number of groups, they end with it, or they go on in the next one.
        if !columns.is_multiple_of(group) && columns > group {
            grids.extend(TileGrid::new(columns, [1, group], scaled.position));
        }
        grids.extend(TileGrid::new(group, [1, group], scaled.position));
    }
    grids.extend(TileGrid::new(columns, [SQUARE, SQUARE], scaled.position));
    grids
}

/// The kind and arrangement of codes that fit most windows.
pub(super) fn packing(scaled: Scaled, raw: &[u8], base: &[u8]) -> CodePacking {
    let (width, per_byte) = (scaled.from.width(), usize::from(scaled.per_byte.max(1)));
    let windows = base.len() / width / WINDOW_VALUES;
    let taken = windows.min(WINDOWS);
    let mut best: Option<(u64, CodePacking)> = None;
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    for packing in CodePacking::all(8 / per_byte) {
        let mut same = 0;
        for number in 0..taken {
            let at = windows * number / taken * WINDOW_VALUES;
            let floats = base.get(at * width..(at + WINDOW_VALUES) * width).unwrap_or_default();
            let bytes = raw.get(at / per_byte..(at + WINDOW_VALUES) / per_byte).unwrap_or_default();
            let values = FloatSource::of(scaled.from).widened(floats, &mut wide, &mut narrow);
            same += following(packing, values, bytes)[1];
        }
        if best.is_none_or(|best| same > best.0) {
            best = Some((same, packing));
        }
    }
    let any = CodePacking { code: ScaledCode::E4m3, high_first: false, flipped: false };
    best.map_or(any, |best| best.1)
}

/// The codes of a chunk and what they may follow from.
struct Sample<'a> {
    packing: CodePacking,
    codes: &'a [u8],
    base: &'a [u8],
    from: crate::codec::ElementType,
}

/// Codes with one scale.
#[derive(Default)]
struct SampleTile {
    codes: Vec<u8>,
    /// The elements, as the base has them.
    elements: Vec<u8>,
}

impl Sample<'_> {
    /// Some tiles of a grid, with their first values.
    fn tiles(&self, grid: TileGrid) -> Vec<SampleTile> {
        let scales = grid.scales(self.codes.len()).unwrap_or(0);
        let wanted = (SAMPLE_VALUES * scales / self.codes.len().max(1)).clamp(TILES_MIN, TILES_MAX).min(scales);
        // The first and the last tiles of a chunk are often not whole.
        let numbers: Vec<usize> = (0..wanted).map(|at| scales * (2 * at + 1) / (2 * wanted)).collect();
        let mut tiles: Vec<SampleTile> = numbers.iter().map(|_| SampleTile::default()).collect();
        let width = self.from.width();
        for (tile, run) in grid.runs(self.codes.len()) {
            let Some(found) = numbers.binary_search(&tile).ok().and_then(|at| tiles.get_mut(at)) else {
                continue;
            };
            let end = run.end.min(run.start + TILE_VALUES - found.codes.len().min(TILE_VALUES));
            found.codes.extend_from_slice(self.codes.get(run.start..end).unwrap_or_default());
            found.elements.extend_from_slice(self.base.get(run.start * width..end * width).unwrap_or_default());
        }
        tiles.retain(|tile| !tile.codes.is_empty());
        tiles
    }

    /// Tries all ways with this grid, and replaces the best one, with its bits per value, by a better one.
    fn try_grid(&self, grid: TileGrid, best: &mut Option<(f64, ScaledWay)>) {
        let tiles = self.tiles(grid);
        let Some(first) = tiles.first() else { return };
        let values: usize = tiles.iter().map(|tile| tile.codes.len()).sum();
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        let code = self.packing.code;
        if !self.fits(first) {
            return;
        }
        for source in FloatSource::all(self.from) {
            let widened: Vec<Vec<u8>> =
                tiles.iter().map(|tile| source.widened(&tile.elements, &mut wide, &mut narrow).to_vec()).collect();
            for rounding in QuotientRounding::ALL {
                let pairs = || tiles.iter().zip(&widened);
                let fitted: Vec<f32> =
                    pairs().map(|(tile, values)| fitted_scale(code, rounding, values, &tile.codes)).collect();
                for (scale, divisor) in ScaleFormat::ALL
                    .into_iter()
                    .flat_map(|scale| divisors(code).iter().map(move |divisor| (scale, *divisor)))
                {
                    let way = ScaledWay { packing: self.packing, values: source, rounding, scale, divisor, grid };
                    let bits: usize = pairs()
                        .zip(&fitted)
                        .map(|((tile, values), fitted)| {
                            let suggested = way.suggested(greatest_value(values, 0.0));
                            let fitted = self.misses(rounding, tile, values, scale.rounded(*fitted));
                            let given = fitted * MISS_BITS + 8 * scale.width();
                            (self.misses(rounding, tile, values, suggested) * MISS_BITS).min(given)
                        })
                        .sum();
                    let cost = bits as f64 / values as f64;
                    if best.is_none_or(|best| cost < best.0) {
                        *best = Some((cost, way));
                    }
                    if cost == 0.0 {
                        return;
                    }
                }
            }
        }
    }

    /// Whether most of a tile's first codes follow by one scale.
    fn fits(&self, tile: &SampleTile) -> bool {
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        let codes = tile.codes.get(..FIRST_VALUES).unwrap_or(&tile.codes);
        let elements = tile.elements.get(..codes.len() * self.from.width()).unwrap_or_default();
        let values = FloatSource::of(self.from).widened(elements, &mut wide, &mut narrow);
        let scale = fitted_scale(self.packing.code, QuotientRounding::Fp32, values, codes);
        let mut made = vec![0; codes.len()];
        scaled_codes(self.packing.code, QuotientRounding::Fp32, values, scale, &mut made);
        misses(codes, &made) * MISSES_MAX <= codes.len()
    }

    fn misses(&self, rounding: QuotientRounding, tile: &SampleTile, values: &[u8], scale: f32) -> usize {
        let mut made = vec![0; tile.codes.len()];
        scaled_codes(self.packing.code, rounding, values, scale, &mut made);
        misses(&tile.codes, &made)
    }
}
