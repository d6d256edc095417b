//! Blended: a delta to a weighted mean of two bases, as averages of models and steps between two models are.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-3: format of all elements, 1 BF16, 2 FP16, 3 FP32; bits 4-7: [`Arithmetic`] |
//! | 8 | weight of the second base, FP64 |
//! | the rest | a payload of floats against the blend |
//!
//! The base content is both bases, one after another, of the same length. Tools compute blends in several ways, which
//! differ in the last bits. The writer takes the way and the weight that give most elements of a sample.

use super::converted::{element_type, formats, number, of_number};
use super::{DeltaBuffers, elements, payload};
use crate::codec::{ElementType, Scratch};
use crate::error::{Error, Result};
use crate::kernel::float_format::FloatFormat;
use crate::wire::WireReader;

/// Elements of a sample, at most, in runs of [`RUN`].
const SAMPLE_ELEMENTS: usize = 1024;
const RUN: usize = 16;
/// Elements that neither base has which tell a blend from chance: of a few changed ones, some blend gives half.
const DECIDING_MIN: usize = 8;
/// People choose weights that are multiples of one of these.
const DENOMINATORS: [f64; 11] = [2.0, 3.0, 5.0, 7.0, 8.0, 9.0, 10.0, 20.0, 64.0, 100.0, 1000.0];
/// The largest denominator of a weight that is preferred to one that is no short fraction.
const DENOMINATOR_MAX: u32 = 1000;
/// Part of the squares of the differences from the first base that a blend must explain. Rounding is the rest.
const EXPLAINED_MIN: f64 = 0.05;
/// Blends whose shares of a sample differ by less may be in any order. So many of them are tried on all elements.
const SHARE_NOISE: f64 = 0.02;
const TRIED_MAX: usize = 8;
/// The bits of a blend that is not a number: machines give them other signs and fractions.
const NAN: u32 = 0x7fc0_0000;

/// The type of both bases and of the chunk: BF16, FP16 or FP32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blended {
    element_type: ElementType,
}

/// In which steps elements a and b are blended. Each step is rounded to FP32, or to the format of the elements. The
/// fused ones are computed in FP64 from b - a or a · (1 - w) on, as by processors that multiply and add at once.
/// Numbers are on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    /// a · (1 - w) + b · w
    Products = 0,
    /// a + (b - a) · w
    Line = 1,
    /// b - (b - a) · (1 - w)
    LineBack = 2,
    /// As `Products`; each step is rounded to the format.
    NarrowProducts = 3,
    /// As `Line`; each step is rounded to the format.
    NarrowLine = 4,
    /// As `NarrowProducts`; both weights are rounded to the format first.
    NarrowWeights = 5,
    /// As `Products`; the second product and the sum are fused.
    FusedProducts = 6,
    /// As `Line`; the product and the sum are fused.
    FusedLine = 7,
    /// As `LineBack` with 1 - w in FP32; the product and the sum are fused.
    FusedLineBack = 8,
}

const ALL: [Arithmetic; 9] = [
    Arithmetic::Products,
    Arithmetic::Line,
    Arithmetic::LineBack,
    Arithmetic::NarrowProducts,
    Arithmetic::NarrowLine,
    Arithmetic::NarrowWeights,
    Arithmetic::FusedProducts,
    Arithmetic::FusedLine,
    Arithmetic::FusedLineBack,
];

impl Arithmetic {
    /// Whether both products are rounded to the format before they are added.
    fn rounds_products(self) -> bool {
        matches!(self, Arithmetic::NarrowProducts | Arithmetic::NarrowWeights)
    }

    /// Whether writers try it for elements of a format. In narrow ones, a fused step hardly differs.
    fn is_tried(self, format: FloatFormat) -> bool {
        use Arithmetic as A;
        match self {
            A::Products | A::Line | A::LineBack => true,
            A::NarrowProducts | A::NarrowLine | A::NarrowWeights => format != FloatFormat::Fp32,
            A::FusedProducts | A::FusedLine | A::FusedLineBack => format == FloatFormat::Fp32,
        }
    }
}

/// The format of elements of a type, if they are blended: those of FP8 have two.
fn format_of(element_type: ElementType) -> Option<FloatFormat> {
    match formats(element_type) {
        [only] => Some(*only),
        _ => None,
    }
}

impl Blended {
    /// Blends of elements of this type; `None` if these are not blended.
    pub fn of(element_type: ElementType) -> Option<Blended> {
        format_of(element_type).map(|_| Blended { element_type })
    }

    /// Share of the elements of `raw` that the best blend of two bases gives, of those that neither base has; 0 if too
    /// few are where the bases differ. All have the same length.
    pub fn share(self, raw: &[u8], bases: [&[u8]; 2]) -> f64 {
        let (new, deciding) = self.new_elements(raw, bases);
        let Some(format) = format_of(self.element_type).filter(|_| deciding >= DECIDING_MIN) else { return 0.0 };
        let found = Blend::fit(format, raw, bases);
        // Where the bases are equal, no blend gives what is new.
        found.first().map_or(0.0, |(_, share)| *share * deciding as f64 / new as f64)
    }

    /// Elements of `raw` that neither base has: all, and those in runs in which the bases differ.
    fn new_elements(self, raw: &[u8], bases: [&[u8]; 2]) -> (usize, usize) {
        let width = self.element_type.width();
        let [first, second] = bases.map(|base| base.chunks(RUN * width));
        let (mut new, mut deciding) = (0, 0);
        for ((raw, first), second) in raw.chunks(RUN * width).zip(first).zip(second) {
            let [a, b] = [first, second].map(|base| base.chunks_exact(width));
            let elements = raw.chunks_exact(width).zip(a).zip(b);
            let count = elements.filter(|((raw, a), b)| raw != a && raw != b).count();
            new += count;
            deciding += if first == second { 0 } else { count };
        }
        (new, deciding)
    }
}

/// A way to blend.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Blend {
    format: FloatFormat,
    arithmetic: Arithmetic,
    /// Weight of the second base.
    weight: f64,
}

/// One element, rounded to `format`, as FP32.
#[inline(always)]
fn rounded(format: FloatFormat, value: f32) -> f32 {
    f32::from_bits(format.widened(format.narrowed(value.to_bits())))
}

/// x · y + z, rounded to FP64 and then to FP32.
#[inline(always)]
fn fused(x: f32, y: f32, z: f32) -> f32 {
    (f64::from(x) * f64::from(y) + f64::from(z)) as f32
}

/// The elements of a base at a position, as FP32.
fn element(format: FloatFormat, bytes: &[u8], at: usize) -> f32 {
    let width = format.width();
    let mut wide = [0; 4];
    if let Some(element) = bytes.get(at * width..(at + 1) * width) {
        wide.iter_mut().zip(element).for_each(|(wide, byte)| *wide = *byte);
    }
    f32::from_bits(format.widened(u32::from_le_bytes(wide)))
}

impl Blend {
    /// The blend of two elements, as FP32 that is still to be narrowed.
    #[inline(always)]
    fn value(self, a: f32, b: f32) -> f32 {
        let (other, weight, format) = ((1.0 - self.weight) as f32, self.weight as f32, self.format);
        let value = match self.arithmetic {
            Arithmetic::Products => a * other + b * weight,
            Arithmetic::Line => a + (b - a) * weight,
            Arithmetic::LineBack => b - (b - a) * other,
            Arithmetic::NarrowProducts => rounded(format, a * other) + rounded(format, b * weight),
            Arithmetic::NarrowLine => a + rounded(format, rounded(format, b - a) * weight),
            Arithmetic::NarrowWeights => {
                rounded(format, a * rounded(format, other)) + rounded(format, b * rounded(format, weight))
            }
            Arithmetic::FusedProducts => fused(b, weight, a * other),
            Arithmetic::FusedLine => fused(b - a, weight, a),
            Arithmetic::FusedLineBack => fused(a - b, 1.0 - weight, b),
        };
        if value.is_nan() { f32::from_bits(NAN) } else { value }
    }

    /// Fills `wide` and `blended` with the blend of the two halves of `base`, at most `raw_len` bytes.
    fn blend(self, base: &[u8], raw_len: usize, [wide, second]: [&mut Vec<u8>; 2], blended: &mut Vec<u8>) {
        let width = self.format.width();
        let (a, b) = base.split_at(base.len() / 2);
        let bytes = a.len().min(raw_len) / width * width;
        wide.resize(bytes / width * 4, 0);
        second.resize(bytes / width * 4, 0);
        blended.resize(bytes, 0);
        self.format.widen(a.get(..bytes).unwrap_or_default(), wide);
        self.format.widen(b.get(..bytes).unwrap_or_default(), second);
        let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let (a, b) = (wide.as_chunks_mut::<4>().0, second.as_chunks::<4>().0);
        match self.arithmetic {
            // The cases are apart so that each loop has one.
            Arithmetic::Products => {
                let blend = Blend { arithmetic: Arithmetic::Products, ..self };
                a.iter_mut().zip(b).for_each(|(a, b)| *a = blend.value(number(a), number(b)).to_le_bytes());
            }
            Arithmetic::Line => {
                let blend = Blend { arithmetic: Arithmetic::Line, ..self };
                a.iter_mut().zip(b).for_each(|(a, b)| *a = blend.value(number(a), number(b)).to_le_bytes());
            }
            _ => a.iter_mut().zip(b).for_each(|(a, b)| *a = self.value(number(a), number(b)).to_le_bytes()),
        }
        self.format.narrow(wide, blended);
    }

    /// The blends of two bases that give most elements of a sample of `raw`, the best first, each with its share of
    /// those that neither base has. None if `raw` is not on the line through both.
    fn fit(format: FloatFormat, raw: &[u8], [first, second]: [&[u8]; 2]) -> Vec<(Blend, f64)> {
        let (width, len) = (format.width(), raw.len().min(first.len()).min(second.len()));
        let elements = len / width;
        let range = |run: usize| run * RUN..((run + 1) * RUN).min(elements);
        let bases = first.chunks(RUN * width).zip(second.chunks(RUN * width)).enumerate();
        let differs = bases.filter(|(_, (first, second))| first != second).map(|(run, _)| run);
        let runs: Vec<usize> = differs.take_while(|run| run * RUN < elements).collect();
        let step = runs.len().div_ceil(SAMPLE_ELEMENTS / RUN).max(1);
        let sampled = runs.into_iter().step_by(step).flat_map(range);
        let triple = |at| [raw, first, second].map(|bytes| element(format, bytes, at));
        let sample: Vec<[f32; 3]> = sampled.map(triple).filter(|of| of.iter().all(|x| x.is_finite())).collect();
        let (mut along, mut square, mut all) = (0.0, 0.0, 0.0);
        for [raw, a, b] in &sample {
            let (way, taken) = (f64::from(*b) - f64::from(*a), f64::from(*raw) - f64::from(*a));
            along += way * taken;
            square += way * way;
            all += taken * taken;
        }
        let measured = along / square;
        if !measured.is_finite() || measured * along < EXPLAINED_MIN * all {
            return Vec::new();
        }
        let mut found: Vec<(Blend, usize)> = Vec::new();
        for (weight, is_of_products) in weights(format, &sample, measured) {
            let ways = ALL.into_iter().filter(|way| way.is_tried(format) && (way.rounds_products() || !is_of_products));
            for blend in ways.map(|arithmetic| Blend { format, arithmetic, weight }) {
                let narrow = |value: f32| format.narrowed(value.to_bits());
                let is_equal = |[raw, a, b]: &&[f32; 3]| narrow(blend.value(*a, *b)) == narrow(*raw);
                let equal = sample.iter().filter(is_equal).count();
                if !found.iter().any(|(known, _)| *known == blend) {
                    found.push((blend, equal));
                }
            }
            if found.iter().any(|(_, equal)| *equal == sample.len()) {
                break;
            }
        }
        // The sort is stable: of equal ones, the shorter denominator comes first.
        found.sort_by_key(|(_, equal)| std::cmp::Reverse(*equal));
        let equal = |base: usize| sample.iter().filter(|of| of.first() == of.get(base)).count();
        let alone = equal(1).max(equal(2));
        let gained = |equal: usize| equal.saturating_sub(alone) as f64 / (sample.len() - alone).max(1) as f64;
        found.into_iter().map(|(blend, equal)| (blend, gained(equal))).collect()
    }
}

/// The weights to try, the likely ones first, and whether each is for products that are rounded alone.
fn weights(format: FloatFormat, sample: &[[f32; 3]], measured: f64) -> impl Iterator<Item = (f64, bool)> {
    let short = DENOMINATORS.map(|of| (measured * of).round() / of);
    let usual = between_neighbours(format, sample).into_iter().chain(short).chain([measured]);
    let of_products = around_products(format, sample).into_iter().map(|weight| (weight, true));
    usual.map(|weight| (weight, false)).chain(of_products)
}

/// Hundredths around the weight of the second base, by least squares in which the weights of both are free: if they are
/// rounded, their sum is not one.
fn around_products(format: FloatFormat, sample: &[[f32; 3]]) -> Vec<f64> {
    if format == FloatFormat::Fp32 {
        return Vec::new();
    }
    let (mut aa, mut ab, mut bb, mut ra, mut rb) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for [raw, a, b] in sample.iter().map(|of| of.map(f64::from)) {
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ra += raw * a;
        rb += raw * b;
    }
    let nearest = ((rb * aa - ra * ab) / (aa * bb - ab * ab) * 100.0).round();
    if !nearest.is_finite() {
        return Vec::new();
    }
    [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0].map(|step| (nearest + step) / 100.0).to_vec()
}

/// Weights that give most elements of a narrow format, the shortest fraction first. Each sampled `[raw, a, b]` allows
/// an interval of weights: those whose blends are nearer to `raw` than to the numbers next to it. Where bases differ in
/// their last bits, least squares miss the weight, because all is rounded to few numbers.
fn between_neighbours(format: FloatFormat, sample: &[[f32; 3]]) -> Vec<f64> {
    if format == FloatFormat::Fp32 {
        return Vec::new();
    }
    let mut ends: Vec<(f64, i32)> = Vec::new();
    for [raw, a, b] in sample.iter().filter(|[_, a, b]| a != b) {
        let bits = format.narrowed(raw.to_bits());
        let next = |bits: u32| f64::from(f32::from_bits(format.widened(bits)));
        let (raw, a, way) = (f64::from(*raw), f64::from(*a), f64::from(*b) - f64::from(*a));
        let above = next(bits.wrapping_add(1)) - raw;
        let half = above.abs() / 2.0;
        let [start, end] = [(raw - half - a) / way, (raw + half - a) / way];
        if start.is_finite() && end.is_finite() {
            ends.extend([(start.min(end), 1), (start.max(end), -1)]);
        }
    }
    // Where one interval ends and another begins, the weight is in both.
    ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    let (mut count, mut most, mut widest) = (0, 0, None);
    for (number, (start, step)) in ends.iter().enumerate() {
        count += step;
        if count > most {
            most = count;
            widest = ends.get(number + 1).map(|(end, _)| (*start, *end));
        }
    }
    let Some((start, end)) = widest else { return Vec::new() };
    let within = |of: f64| (start * of).ceil() / of;
    let shortest = (1..=DENOMINATOR_MAX).map(f64::from).find(|of| within(*of) <= end).map(within);
    let middle = (start + end) / 2.0;
    let usual = [10.0, 100.0].map(|of| (middle * of).round() / of);
    shortest.into_iter().chain(usual).chain([middle]).collect()
}

/// The blend of those `found` that gives most of all elements. A sample does not tell ways apart that differ in few.
fn best(found: Vec<(Blend, f64)>, [raw, base]: [&[u8]; 2], buffers: &mut DeltaBuffers) -> Option<Blend> {
    let least = found.first()?.1 - SHARE_NOISE;
    let mut best: Option<(Blend, usize)> = None;
    for (blend, _) in found.into_iter().filter(|(_, share)| *share >= least).take(TRIED_MAX) {
        let width = blend.format.width();
        let mut equal = 0;
        let counted = with_blend(blend, base, raw.len(), buffers, |blended, _| {
            let pairs = blended.chunks_exact(width).zip(raw.chunks_exact(width));
            equal = pairs.filter(|(blended, raw)| blended == raw).count();
            Ok(())
        });
        if counted.is_ok() && best.is_none_or(|best| equal > best.1) {
            best = Some((blend, equal));
        }
        if equal == raw.len() / width {
            break;
        }
    }
    best.map(|(blend, _)| blend)
}

/// Appends the way to blend and the payload of `raw` against the blend of the halves of `base`.
pub(super) fn encode(
    Blended { element_type }: Blended,
    [raw, base]: [&[u8]; 2],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let format = format_of(element_type).ok_or_else(|| Error::internal("a blend of no floats"))?;
    let halves = base.split_at(base.len() / 2);
    let blend = best(Blend::fit(format, raw, halves.into()), [raw, base], buffers);
    let blend = blend.unwrap_or(Blend { format, arithmetic: Arithmetic::Line, weight: 0.0 });
    out.push(number(format) | (blend.arithmetic as u8) << 4);
    out.extend_from_slice(&blend.weight.to_le_bytes());
    with_blend(blend, base, raw.len(), buffers, |blended, buffers| {
        elements::encode(element_type, raw, blended, buffers, scratch, out)
    })
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
    let numbers = reader.u8()?;
    let format = of_number(numbers & 15).filter(|format| format_of(element_type(*format)).is_some());
    let arithmetic = ALL.into_iter().find(|arithmetic| *arithmetic as u8 == numbers >> 4);
    let Some((format, arithmetic)) = format.zip(arithmetic) else {
        return Err(reader.unsupported(format!("a blend of format {} by arithmetic {}", numbers & 15, numbers >> 4)));
    };
    let blend = Blend { format, arithmetic, weight: f64::from_le_bytes(reader.array()?) };
    with_blend(blend, base, raw_len, buffers, |blended, buffers| {
        payload::decode_mode(element_type(format), reader, blended, raw_len, buffers, scratch, out)
    })
}

/// Calls `act` with the blend of the halves of `base`.
fn with_blend(
    blend: Blend,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    act: impl FnOnce(&[u8], &mut DeltaBuffers) -> Result<()>,
) -> Result<()> {
    let take = std::mem::take;
    let (mut wide, mut second) = (take(&mut buffers.wide), take(&mut buffers.second));
    let mut blended = take(&mut buffers.converted);
    blend.blend(base, raw_len, [&mut wide, &mut second], &mut blended);
    let done = act(&blended, buffers);
    (buffers.wide, buffers.second, buffers.converted) = (wide, second, blended);
    done
}
