//! Scaled: a chunk of codes that follow from the base's elements by scales ([`crate::kernel::scaled`]), as FP8, INT8,
//! INT4 and NF4 weights do.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-3: what codes are; bit 4: the first of two is in the upper bits; bit 5: the sign bit is inverted |
//! | 1 | bits 0-3: elements of the base; bits 4-5: how a value is divided; bits 6-7: type of the scales |
//! | 4 | FP32: the greatest magnitude of a tile divided by this is the suggested scale |
//! | varints | the grid: columns, rows and columns of a tile, the first value |
//! | planes | the scales as differences of bits from the suggested ones, a plane for each byte |
//! | the rest | a payload of the bytes against those that follow from the base, as of bytes |
//!
//! 1. The way that is best on a sample is taken ([`super::scaled_choice`]).
//! 2. Where codes do not follow by the suggested scale, the codes tell another one.
//! 3. All codes are made, as a reader does, and compared. The differences are a payload as of any bytes.

use super::float_source::FloatSource;
use super::payload::decode_mode;
use super::scaled_choice::{packing, way};
use super::scaled_fit::{CodePacking, fitted_scale};
use super::scaled_sample::misses;
use super::tile_grid::TileGrid;
use super::{DeltaBuffers, bytes};
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements::{bf16, fp16, fp16_value};
use crate::kernel::scaled::{QuotientRounding, ScaledCode, greatest_value, scaled_codes};
use crate::wire::WireReader;

/// Values that are widened at a time.
const PART_VALUES: usize = 1 << 12;
/// A code that does not follow takes about so many bytes.
const MISS_BYTES: usize = 2;
/// One code in so many is few: that many do not follow by another rounding, but more by one scale for values with many.
const FEW_MISSES: usize = 1 << 12;

/// How codes follow from a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scaled {
    /// Type of the base's elements: BF16, FP16 or FP32.
    pub from: ElementType,
    /// Codes of a byte: 1 or 2.
    pub per_byte: u8,
    /// Values of a row of the tensor.
    pub columns: u64,
    /// Values of the tensor.
    pub values: u64,
    /// Number of the chunk's first value in the tensor.
    pub position: u64,
}

/// Type of scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleFormat {
    Fp32 = 0,
    Bf16 = 1,
    Fp16 = 2,
}

impl ScaleFormat {
    pub(super) const ALL: [ScaleFormat; 3] = [ScaleFormat::Fp32, ScaleFormat::Bf16, ScaleFormat::Fp16];

    /// Bytes of a scale.
    pub(super) const fn width(self) -> usize {
        if matches!(self, ScaleFormat::Fp32) { 4 } else { 2 }
    }

    /// The bits of a number in this type.
    fn bits(self, number: f32) -> u32 {
        match self {
            ScaleFormat::Fp32 => number.to_bits(),
            ScaleFormat::Bf16 => bf16(number.to_bits()).into(),
            ScaleFormat::Fp16 => fp16(number.to_bits()).into(),
        }
    }

    /// The number with these bits.
    fn number(self, bits: u32) -> f32 {
        match self {
            ScaleFormat::Fp32 => f32::from_bits(bits),
            ScaleFormat::Bf16 => f32::from_bits(bits << 16),
            ScaleFormat::Fp16 => fp16_value(bits as u16),
        }
    }

    /// The number in this type, as FP32.
    pub(super) fn rounded(self, number: f32) -> f32 {
        self.number(self.bits(number))
    }

    /// The difference of two scales' bits, zigzagged.
    fn difference(self, bits: u32, suggested: u32) -> u32 {
        let unused = 32 - 8 * self.width() as u32;
        let difference = (bits.wrapping_sub(suggested) << unused) as i32 >> unused;
        (difference << 1 ^ difference >> 31) as u32 & (u32::MAX >> unused)
    }

    /// Inverse of [`ScaleFormat::difference`].
    fn apply(self, difference: u32, suggested: u32) -> u32 {
        let unused = 32 - 8 * self.width() as u32;
        suggested.wrapping_add(difference >> 1 ^ 0u32.wrapping_sub(difference & 1)) & (u32::MAX >> unused)
    }
}

/// How codes are made from the base.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ScaledWay {
    pub(super) packing: CodePacking,
    pub(super) values: FloatSource,
    pub(super) rounding: QuotientRounding,
    pub(super) scale: ScaleFormat,
    /// The greatest magnitude of a tile divided by this is the suggested scale. Greater than 0, and finite.
    pub(super) divisor: f32,
    pub(super) grid: TileGrid,
}

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct ScaledBuffers {
    codes: Vec<u8>,
    made: Vec<u8>,
    wide: Vec<u8>,
    narrow: Vec<u8>,
    /// Scales, or their differences from suggested ones, as bits.
    scales: Vec<u32>,
    greatest: Vec<f32>,
    /// Codes of each tile that do not follow.
    missed: Vec<usize>,
    /// The values of a tile, its codes, and those that are made by another scale.
    tile_values: Vec<u8>,
    tile_codes: Vec<u8>,
    tile_made: Vec<u8>,
    plane: Vec<u8>,
    bytes: Vec<u8>,
}

impl ScaledWay {
    fn head(self) -> [u8; 2] {
        let CodePacking { code, high_first, flipped } = self.packing;
        let first = code.number() | u8::from(high_first) << 4 | u8::from(flipped) << 5;
        let rounding = QuotientRounding::ALL.iter().position(|one| *one == self.rounding).unwrap_or(0) as u8;
        [first, self.values.flags() | rounding << 4 | (self.scale as u8) << 6]
    }

    fn read(reader: &mut WireReader<'_>) -> Result<ScaledWay> {
        let [first, second] = reader.array::<2>()?;
        let code = ScaledCode::ALL.into_iter().find(|code| code.number() == first & 15);
        let packing = code.and_then(|code| {
            let packing = CodePacking { code, high_first: first & 16 != 0, flipped: first & 32 != 0 };
            CodePacking::all(code.bits()).find(|one| *one == packing)
        });
        let rounding = QuotientRounding::ALL.get(usize::from(second >> 4 & 3)).copied();
        let scale = ScaleFormat::ALL.get(usize::from(second >> 6)).copied();
        let known = (packing.filter(|_| first >> 6 == 0), FloatSource::of_flags(second), rounding, scale);
        let (Some(packing), Some(values), Some(rounding), Some(scale)) = known else {
            return Err(reader.unsupported(format!("codes {first:#04x} made in the way {second:#04x}")));
        };
        let divisor = f32::from_le_bytes(reader.array()?);
        if !(divisor > 0.0 && divisor.is_finite()) {
            return Err(reader.error("a divisor above 0", divisor.to_string()));
        }
        Ok(ScaledWay { packing, values, rounding, scale, divisor, grid: TileGrid::read(reader)? })
    }

    /// Bytes of the scales of so many values.
    fn scales_bytes(self, values: usize) -> usize {
        self.grid.scales(values).unwrap_or(0) * self.scale.width()
    }

    /// The scale that the greatest magnitude of a tile suggests.
    pub(super) fn suggested(self, greatest: f32) -> f32 {
        self.scale.rounded(greatest / self.divisor)
    }

    /// Calls `take` for each run with its tile and its values as FP32. A long run comes in parts.
    fn each_run(
        self,
        base: &[u8],
        [wide, narrow]: [&mut Vec<u8>; 2],
        mut take: impl FnMut(usize, std::ops::Range<usize>, &[u8]),
    ) {
        let width = self.values.width();
        let mut runs = self.grid.runs(base.len() / width);
        let mut run = runs.next();
        let mut first = 0;
        for part in base.chunks(PART_VALUES * width) {
            let values = self.values.widened(part, wide, narrow);
            let end = first + part.len() / width;
            while let Some((tile, range)) = run.take() {
                let stop = range.end.min(end);
                take(tile, range.start..stop, &values[(range.start - first) * 4..(stop - first) * 4]);
                run = if range.end > stop { Some((tile, stop..range.end)) } else { runs.next() };
                if stop == end {
                    break;
                }
            }
            first = end;
        }
    }

    /// Fills `greatest` with the greatest magnitude of each tile.
    fn measure(self, base: &[u8], greatest: &mut [f32], buffers: [&mut Vec<u8>; 2]) {
        self.each_run(base, buffers, |tile, _, values| {
            greatest.get_mut(tile).into_iter().for_each(|greatest| *greatest = greatest_value(values, *greatest));
        });
    }

    /// Fills `codes` with those of `base` by the scales, given as bits.
    fn make(self, base: &[u8], scales: &[u32], codes: &mut [u8], buffers: [&mut Vec<u8>; 2]) {
        self.each_run(base, buffers, |tile, run, values| {
            let scale = self.scale.number(scales.get(tile).copied().unwrap_or(0));
            let codes = codes.get_mut(run).unwrap_or_default();
            scaled_codes(self.packing.code, self.rounding, values, scale, codes);
        });
    }
}

/// Number of codes of a chunk that the base has a value for.
fn count(raw_len: usize, per_byte: usize, base_len: usize, width: usize) -> usize {
    raw_len.saturating_mul(per_byte).min(base_len / width)
}

/// Appends the payload of `raw` against `base`.
pub(super) fn encode(
    scaled: Scaled,
    [raw, base]: [&[u8]; 2],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let values = count(raw.len(), usize::from(scaled.per_byte.max(1)), base.len(), scaled.from.width());
    let mut own = std::mem::take(&mut buffers.scaled);
    let base = base.get(..values * scaled.from.width()).unwrap_or_default();
    let packing = packing(scaled, raw, base);
    own.codes.resize(values, 0);
    packing.unpack(raw, &mut own.codes);
    let way = own.choose(scaled, packing, base);
    out.extend_from_slice(&way.head());
    out.extend_from_slice(&way.divisor.to_le_bytes());
    way.grid.write(out);
    let ScaledBuffers { made, scales, greatest, plane, bytes: following, .. } = &mut own;
    for (scale, greatest) in scales.iter_mut().zip(greatest) {
        *scale = way.scale.difference(*scale, way.scale.bits(*greatest / way.divisor));
    }
    for at in 0..way.scale.width() {
        plane.clear();
        plane.extend(scales.iter().map(|difference| (difference >> (8 * at)) as u8));
        plane::encode(plane, scratch, out)?;
    }
    following.clear();
    way.packing.pack(made, following);
    bytes::encode(ElementType::Unknown, None, [raw, following], buffers, scratch, out)?;
    buffers.scaled = own;
    Ok(())
}

impl ScaledBuffers {
    /// The way in which `codes` follow best, which is followed.
    fn choose(&mut self, scaled: Scaled, packing: CodePacking, base: &[u8]) -> ScaledWay {
        let values = self.codes.len();
        let (mut best, fits) = way(scaled, packing, &self.codes, base, true);
        let mut missed = self.follow(best, base);
        let mut followed = best;
        if fits && best.grid.is_one_tile(values) && missed > values / FEW_MISSES {
            // The sample did not show that some values have another scale.
            followed = way(scaled, packing, &self.codes, base, false).0;
            let left = self.follow(followed, base);
            let bytes = |way: ScaledWay, missed| missed * MISS_BYTES + way.scales_bytes(values);
            if bytes(followed, left) < bytes(best, missed) {
                (best, missed) = (followed, left);
            }
        }
        // Two roundings differ in few codes.
        let other = match best.rounding {
            QuotientRounding::Fp32 => Some(QuotientRounding::Inverse),
            QuotientRounding::Inverse => Some(QuotientRounding::Fp32),
            _ => None,
        };
        if let Some(rounding) = other.filter(|_| missed > 0 && missed <= values / FEW_MISSES) {
            followed = ScaledWay { rounding, ..best };
            if self.follow(followed, base) < missed {
                best = followed;
            }
        }
        if followed != best {
            self.follow(best, base);
        }
        best
    }

    /// Fills `made` and `scales` with what follows from `base`, as far as `codes` do. Returns the number of misses.
    fn follow(&mut self, way: ScaledWay, base: &[u8]) -> usize {
        let values = self.codes.len();
        self.made.resize(values, 0);
        self.greatest.clear();
        self.greatest.resize(way.grid.scales(values).unwrap_or(0), 0.0);
        way.measure(base, &mut self.greatest, [&mut self.wide, &mut self.narrow]);
        self.scales.clear();
        self.scales.extend(self.greatest.iter().map(|greatest| way.scale.bits(greatest / way.divisor)));
        way.make(base, &self.scales, &mut self.made, [&mut self.wide, &mut self.narrow]);
        self.missed.clear();
        self.missed.resize(self.scales.len(), 0);
        for (tile, run) in way.grid.runs(values) {
            if let Some(missed) = self.missed.get_mut(tile) {
                *missed += misses(&self.codes[run.clone()], &self.made[run]);
            }
        }
        for tile in 0..self.missed.len() {
            self.refit(way, base, tile);
        }
        self.missed.iter().sum()
    }

    /// Replaces the scale of a tile by another one where more codes follow from this, and the codes made by it.
    fn refit(&mut self, way: ScaledWay, base: &[u8], tile: usize) {
        let missed = self.missed.get(tile).copied().unwrap_or(0);
        if missed * MISS_BYTES <= way.scale.width() {
            return;
        }
        let ScaledBuffers { codes, made, wide, narrow, tile_values, tile_codes, tile_made, .. } = self;
        let runs = || way.grid.runs_of(tile, codes.len());
        tile_values.clear();
        tile_codes.clear();
        let width = way.values.width();
        for run in runs() {
            let part = base.get(run.start * width..run.end * width).unwrap_or_default();
            tile_values.extend_from_slice(way.values.widened(part, wide, narrow));
            tile_codes.extend_from_slice(codes.get(run).unwrap_or_default());
        }
        let fitted = fitted_scale(way.packing.code, way.rounding, tile_values, tile_codes);
        let bits = way.scale.bits(fitted);
        tile_made.resize(tile_codes.len(), 0);
        scaled_codes(way.packing.code, way.rounding, tile_values, way.scale.number(bits), tile_made);
        let left = misses(tile_codes, tile_made);
        if left * MISS_BYTES + way.scale.width() >= missed * MISS_BYTES {
            return;
        }
        let mut rest = tile_made.as_slice();
        for run in runs() {
            let (part, after) = rest.split_at(run.len().min(rest.len()));
            made.get_mut(run).into_iter().for_each(|space| space.copy_from_slice(part));
            rest = after;
        }
        self.scales.get_mut(tile).into_iter().for_each(|scale| *scale = bits);
        self.missed.get_mut(tile).into_iter().for_each(|missed| *missed = left);
    }
}

/// Appends the `raw_len` bytes that `reader` and `base` decode to.
pub(super) fn decode(
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let way = ScaledWay::read(reader)?;
    let values = count(raw_len, way.packing.per_byte(), base.len(), way.values.width());
    let base = base.get(..values * way.values.width()).unwrap_or_default();
    let Some(tiles) = way.grid.scales(values) else {
        return Err(reader.error(format!("at most {values} scales, as many as values"), "more"));
    };
    let mut own = std::mem::take(&mut buffers.scaled);
    let ScaledBuffers { made, wide, narrow, scales, greatest, plane, bytes, .. } = &mut own;
    greatest.clear();
    greatest.resize(tiles, 0.0);
    way.measure(base, greatest, [&mut *wide, &mut *narrow]);
    scales.clear();
    scales.resize(tiles, 0);
    for at in 0..way.scale.width() {
        plane.resize(tiles, 0);
        let bytes = plane::decode(reader, scratch, plane)?.unwrap_or(plane.as_slice());
        scales.iter_mut().zip(bytes).for_each(|(scale, byte)| *scale |= u32::from(*byte) << (8 * at));
    }
    for (scale, greatest) in scales.iter_mut().zip(greatest) {
        *scale = way.scale.apply(*scale, way.scale.bits(*greatest / way.divisor));
    }
    made.resize(values, 0);
    way.make(base, scales, made, [wide, narrow]);
    bytes.clear();
    way.packing.pack(made, bytes);
    decode_mode(ElementType::Byte, reader, bytes, raw_len, buffers, scratch, out)?;
    buffers.scaled = own;
    Ok(())
}
