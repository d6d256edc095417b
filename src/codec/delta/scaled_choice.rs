//! Scaled choice: by which codes, tiles and roundings a chunk follows from its base, found on samples.
//!
//! 1. In short windows of values, which have one scale in any grid, each kind of codes is fitted. The one with fewest
//!    misses is taken.
//! 2. Short windows also tell a likely rounding.
//! 3. Grids are those that tools use: groups, rows, tiles, and the whole tensor. A small sample of each tells how many
//!    codes follow by scales that fit, and what these take. The grid that takes least is tried first.
//! 4. A few tiles of a grid tell how codes are rounded, and what a scale is if it follows from the values. Ways that
//!    take more than the best one so far are soon given up. One without misses and scales to store ends the search.
//!
//! The choice depends on the chunk, its base and their place in the tensor alone.

use super::float_source::FloatSource;
use super::scaled::{ScaleFormat, Scaled, ScaledWay};
use super::scaled_fit::{CodePacking, following};
use super::scaled_sample::{CodedChunk, MISS_BITS};
use super::tile_grid::TileGrid;
use crate::kernel::scaled::{QuotientRounding, ScaledCode};

/// Windows in which kinds of codes are tried, and values of a window.
const WINDOWS: usize = 32;
const WINDOW_VALUES: usize = 16;
/// Tiles of a sample, its values, about, and values of a tile in it, at most.
const TILES_MIN: usize = 4;
const TILES_MAX: usize = 64;
const SAMPLE_VALUES: usize = 1 << 14;
const TILE_VALUES: usize = 1 << 12;
/// Values of a tile in the first sample. Of all its codes fewer than one in `MISSES_MAX` must be another one.
const FIRST_VALUES: usize = 512;
const MISSES_MAX: f64 = 3.0;
/// Bits by which a code may take more in the first sample than in the best way so far, beside four times those.
const SLACK_BITS: f64 = 0.5;
/// Values of groups in a row.
const GROUPS: [u64; 4] = [32, 64, 128, 256];
/// Rows and columns of square tiles.
const SQUARE: u64 = 128;

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

/// The way in which codes follow best, by a sample, and whether any grid fits it. `base` has an element for each of
/// `codes`. Not one scale for all values unless `whole`.
pub(super) fn way(scaled: Scaled, packing: CodePacking, codes: &[u8], base: &[u8], whole: bool) -> (ScaledWay, bool) {
    let values = codes.len();
    let chunk = CodedChunk { packing, codes, base, from: scaled.from };
    let one = TileGrid::new(scaled.values.max(1), [1, scaled.values.max(1)], scaled.position).filter(|_| whole);
    let grids = one.into_iter().chain(grids(scaled)).filter(|grid| grid.scales(values).is_some());
    let is_wanted = |grid: &TileGrid| whole || !grid.is_one_tile(values);
    let likely = likely_way(scaled, chunk);
    let first = |grid| Some((first_bits(chunk, ScaledWay { grid, ..likely })?, grid));
    let mut promising: Vec<_> = grids.filter(is_wanted).filter_map(first).collect();
    promising.sort_by(|one, other| one.0.iter().sum::<f64>().total_cmp(&other.0.iter().sum()));
    let mut best: Option<(f64, ScaledWay)> = None;
    for ([missed, _], grid) in promising {
        match best {
            Some((0.0, _)) => break,
            Some((cost, _)) if missed > 4.0 * cost + SLACK_BITS => {}
            _ => try_grid(chunk, grid, &mut best),
        }
    }
    best.map_or((ScaledWay { grid: TileGrid::SINGLE, ..likely }, false), |best| (best.1, true))
}

/// The source and the rounding by which most codes follow in short windows, in a way with the smallest tiles.
fn likely_way(scaled: Scaled, chunk: CodedChunk<'_>) -> ScaledWay {
    let mut best = ScaledWay {
        packing: chunk.packing,
        values: FloatSource::of(chunk.from),
        rounding: QuotientRounding::Fp32,
        scale: ScaleFormat::Fp32,
        divisor: divisors(chunk.packing.code).first().copied().unwrap_or(1.0),
        grid: TileGrid::new(GROUPS[0], [1, GROUPS[0]], scaled.position).unwrap_or(TileGrid::SINGLE),
    };
    let sample = chunk.sample(best.grid, TILES_MAX, GROUPS[0] as usize);
    let mut least = f64::INFINITY;
    for source in FloatSource::all(chunk.from) {
        let mut values = sample.values_of(source);
        for rounding in QuotientRounding::ALL {
            let way = ScaledWay { values: source, rounding, ..best };
            let [missed, _] = if least > 0.0 { values.fitted_bits(way) } else { return best };
            if missed < least {
                (best, least) = (way, missed);
            }
        }
    }
    best
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

/// Bits per value of codes that do not follow by scales of a grid that fit, and bits of these, in a small sample.
/// `None` if too few codes follow.
fn first_bits(chunk: CodedChunk<'_>, way: ScaledWay) -> Option<[f64; 2]> {
    let sample = chunk.sample(way.grid, TILES_MIN, FIRST_VALUES);
    let bits = sample.values_of(way.values).fitted_bits(way).map(|bits| bits / sample.values.max(1) as f64);
    (sample.values > 0 && bits[0] * MISSES_MAX <= MISS_BITS).then_some(bits)
}

/// Tries all ways with this grid, and replaces the best one, with its bits per value, by a better one.
fn try_grid(chunk: CodedChunk<'_>, grid: TileGrid, best: &mut Option<(f64, ScaledWay)>) {
    let scales = grid.scales(chunk.codes.len()).unwrap_or(0);
    let tiles = (SAMPLE_VALUES * scales / chunk.codes.len().max(1)).clamp(TILES_MIN, TILES_MAX);
    let sample = chunk.sample(grid, tiles, TILE_VALUES);
    for source in FloatSource::all(chunk.from) {
        let mut values = sample.values_of(source);
        for rounding in QuotientRounding::ALL {
            for scale in ScaleFormat::ALL {
                for divisor in divisors(chunk.packing.code) {
                    let way =
                        ScaledWay { packing: chunk.packing, values: source, rounding, scale, divisor: *divisor, grid };
                    let least = best.map_or(f64::INFINITY, |best| best.0);
                    let cost = values.bits(way, least * sample.values as f64) / sample.values as f64;
                    if cost < least {
                        *best = Some((cost, way));
                    }
                    if cost == 0.0 {
                        return;
                    }
                }
            }
        }
    }
}
