//! Scaled sample: some values of some tiles of a grid, and what a way costs for them.
//!
//! The cost of a way stops being counted where it exceeds that of the best one so far.

use super::float_source::FloatSource;
use super::scaled::ScaledWay;
use super::scaled_fit::{CodePacking, fitted_scale};
use super::tile_grid::TileGrid;
use crate::codec::ElementType;
use crate::kernel::elements::fp16;
use crate::kernel::scaled::{QuotientRounding, greatest_value, scaled_codes};

/// Values of a window. Of a tile with many values, such windows are taken from all over it.
const WINDOW_VALUES: usize = 64;
/// Values that are compared at a time.
const BLOCK_VALUES: usize = 512;
/// Values of a tile in which the greatest one is sought, at most. A tile with more hardly begins and ends in a chunk.
const PEAK_VALUES: usize = 1 << 16;
/// Bits of a code that does not follow.
pub(super) const MISS_BITS: f64 = 16.0;

/// The number of codes that differ.
pub(super) fn misses(codes: &[u8], made: &[u8]) -> usize {
    if codes == made {
        return 0;
    }
    let count =
        |codes: &[u8], made: &[u8]| codes.iter().zip(made).map(|(one, other)| u8::from(one != other)).sum::<u8>();
    codes.chunks(128).zip(made.chunks(128)).map(|(codes, made)| usize::from(count(codes, made))).sum()
}

/// The codes of a chunk and what they may follow from: an element for each code.
#[derive(Clone, Copy)]
pub(super) struct CodedChunk<'a> {
    pub(super) packing: CodePacking,
    pub(super) codes: &'a [u8],
    pub(super) base: &'a [u8],
    pub(super) from: ElementType,
}

/// Values with one scale.
struct SampleTile {
    codes: Vec<u8>,
    /// The elements, as the base has them.
    elements: Vec<u8>,
    /// Which part of the tile's values these are.
    share: f64,
    /// The greatest magnitude of the tile.
    greatest: f32,
}

/// Some tiles of a grid.
pub(super) struct Sample {
    packing: CodePacking,
    from: ElementType,
    tiles: Vec<SampleTile>,
    /// Values of all tiles.
    pub(super) values: usize,
}

/// The values of a sample from one source, widened as they are needed.
pub(super) struct SampleValues<'a> {
    sample: &'a Sample,
    source: FloatSource,
    /// FP32 values and greatest magnitude of the first tiles.
    tiles: Vec<(Vec<u8>, f32)>,
    /// The scales that fit the first tiles, with this rounding.
    fitted: Vec<f32>,
    rounding: QuotientRounding,
    made: [u8; BLOCK_VALUES],
}

impl CodedChunk<'_> {
    /// About `wanted` tiles of a grid, with at most `most` values of each.
    pub(super) fn sample(self, grid: TileGrid, wanted: usize, most: usize) -> Sample {
        let scales = grid.scales(self.codes.len()).unwrap_or(0);
        let wanted = wanted.min(scales);
        // The first and the last tiles of a chunk are often not whole.
        let numbers = (0..wanted).map(|at| scales * (2 * at + 1) / (2 * wanted));
        let tiles: Vec<SampleTile> = numbers.filter_map(|tile| self.tile(grid, tile, most)).collect();
        let values = tiles.iter().map(|tile| tile.codes.len()).sum();
        Sample { packing: self.packing, from: self.from, tiles, values }
    }

    /// At most `most` values of a tile; `None` if it has none.
    fn tile(self, grid: TileGrid, tile: usize, most: usize) -> Option<SampleTile> {
        let width = self.from.width();
        let runs: Vec<_> = grid.runs_of(tile, self.codes.len()).collect();
        let total: usize = runs.iter().map(|run| run.len()).sum();
        let (mut codes, mut elements) = (Vec::new(), Vec::new());
        let mut take = |run: std::ops::Range<usize>| {
            codes.extend_from_slice(self.codes.get(run.clone()).unwrap_or_default());
            elements.extend_from_slice(self.base.get(run.start * width..run.end * width).unwrap_or_default());
        };
        if total <= most {
            runs.iter().for_each(|run| take(run.clone()));
        } else {
            let windows = (most / WINDOW_VALUES).max(2);
            for number in 0..windows {
                let mut at = total.saturating_sub(WINDOW_VALUES) * number / (windows - 1);
                let found = runs.iter().find(|run| {
                    let is_here = at < run.len();
                    at -= if is_here { 0 } else { run.len() };
                    is_here
                });
                found.into_iter().for_each(|run| take(run.start + at..run.end.min(run.start + at + WINDOW_VALUES)));
            }
        }
        let mut greatest = 0.0;
        if total > most && total <= PEAK_VALUES {
            runs.iter().for_each(|run| greatest = self.greatest(run.clone(), greatest));
        } else {
            let source = FloatSource::of(self.from);
            greatest = greatest_value(source.widened(&elements, &mut Vec::new(), &mut Vec::new()), greatest);
        }
        let share = codes.len() as f64 / total as f64;
        (!codes.is_empty()).then_some(SampleTile { codes, elements, share, greatest })
    }

    fn greatest(self, run: std::ops::Range<usize>, least: f32) -> f32 {
        let width = self.from.width();
        let elements = self.base.get(run.start * width..run.end * width).unwrap_or_default();
        greatest_value(FloatSource::of(self.from).widened(elements, &mut Vec::new(), &mut Vec::new()), least)
    }
}

impl Sample {
    /// The values from a source, with a rounding.
    pub(super) fn values_of(&self, source: FloatSource) -> SampleValues<'_> {
        SampleValues {
            sample: self,
            source,
            tiles: Vec::new(),
            fitted: Vec::new(),
            rounding: QuotientRounding::Fp32,
            made: [0; BLOCK_VALUES],
        }
    }
}

impl SampleValues<'_> {
    /// Bits of all values in this way, each tile with its suggested scale or with the one that fits. Not counted beyond
    /// `limit`.
    pub(super) fn bits(&mut self, way: ScaledWay, limit: f64) -> f64 {
        self.round(way.rounding);
        let mut bits = 0.0;
        for at in 0..self.sample.tiles.len() {
            bits += self.tile_bits(way, at, limit - bits);
            if bits >= limit {
                break;
            }
        }
        bits
    }

    /// Codes of the sample that do not follow by scales that fit, and bits of these scales.
    pub(super) fn fitted_bits(&mut self, way: ScaledWay) -> [f64; 2] {
        self.round(way.rounding);
        let mut bits = [0.0; 2];
        for (at, tile) in self.sample.tiles.iter().enumerate() {
            let fitted = way.scale.rounded(self.fitted(at));
            bits[0] += self.missed(way, at, fitted, f64::INFINITY);
            bits[1] += (8 * way.scale.width()) as f64 * tile.share;
        }
        bits
    }

    /// Forgets scales that fit with another rounding.
    fn round(&mut self, rounding: QuotientRounding) {
        if self.rounding != rounding {
            self.rounding = rounding;
            self.fitted.clear();
        }
    }

    fn tile_bits(&mut self, way: ScaledWay, at: usize, limit: f64) -> f64 {
        let Some(tile) = self.sample.tiles.get(at) else { return 0.0 };
        let suggested = way.suggested(self.widened(at).1);
        let bits = self.missed(way, at, suggested, limit);
        let given = (8 * way.scale.width()) as f64 * tile.share;
        if given >= bits.min(limit) {
            return bits;
        }
        let fitted = way.scale.rounded(self.fitted(at));
        bits.min(given + self.missed(way, at, fitted, bits.min(limit) - given))
    }

    /// Bits of the codes of a tile that do not follow by a scale. Not counted beyond `limit`.
    fn missed(&mut self, way: ScaledWay, at: usize, scale: f32, limit: f64) -> f64 {
        self.widened(at);
        let (Some(tile), Some((values, _))) = (self.sample.tiles.get(at), self.tiles.get(at)) else { return 0.0 };
        let mut bits = 0.0;
        for (codes, values) in tile.codes.chunks(BLOCK_VALUES).zip(values.chunks(4 * BLOCK_VALUES)) {
            let made = &mut self.made[..codes.len()];
            scaled_codes(way.packing.code, way.rounding, values, scale, made);
            bits += misses(codes, made) as f64 * MISS_BITS;
            if bits >= limit {
                break;
            }
        }
        bits
    }

    /// The values of a tile, and their greatest magnitude.
    fn widened(&mut self, at: usize) -> (&[u8], f32) {
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        for tile in self.sample.tiles.get(self.tiles.len()..=at).unwrap_or_default() {
            let values = self.source.widened(&tile.elements, &mut wide, &mut narrow).to_vec();
            let bits = tile.greatest.to_bits();
            let element = match self.sample.from {
                ElementType::Bf16 => (bits >> 16).to_le_bytes(),
                ElementType::Fp16 => u32::from(fp16(bits)).to_le_bytes(),
                _ => bits.to_le_bytes(),
            };
            // Roundings keep the order of magnitudes.
            let greatest = self.source.widened(&element[..self.source.width()], &mut wide, &mut narrow);
            self.tiles.push((values, greatest_value(greatest, 0.0)));
        }
        self.tiles.get(at).map_or((&[], 0.0), |tile| (tile.0.as_slice(), tile.1))
    }

    /// The scale that fits a tile.
    fn fitted(&mut self, at: usize) -> f32 {
        self.widened(at);
        let pairs = self.sample.tiles.iter().zip(&self.tiles).take(at + 1).skip(self.fitted.len());
        let code = self.sample.packing.code;
        self.fitted.extend(pairs.map(|(tile, values)| fitted_scale(code, self.rounding, &values.0, &tile.codes)));
        self.fitted.get(at).copied().unwrap_or(0.0)
    }
}
