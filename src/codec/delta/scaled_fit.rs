//! Scaled fit: the scale by which known codes follow from known values.
//!
//! A code tells between which two quotients its value divided by the scale is. So each pair has an interval of scales.
//! Where they have no scale in common, because some codes do not follow, the scale with the least squares of errors is
//! taken.

use std::sync::LazyLock;

use crate::kernel::codebook;
use crate::kernel::scaled::{QuotientRounding, ScaledCode, code_of, rank, rounded_quotient, scaled_codes};

/// Ranks of codes.
const RANKS: usize = 256;

/// For each rank the least quotient whose code has it or a later one; infinity if there is none.
type Thresholds = [f32; RANKS + 1];

/// How codes are arranged in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePacking {
    /// What codes are.
    pub code: ScaledCode,
    /// The first of two codes is in the upper four bits.
    pub high_first: bool,
    /// The highest bit of an integer is inverted: 8 bits have the integer plus 128, 4 bits have it in two's complement.
    pub flipped: bool,
}

impl CodePacking {
    /// All ways of codes with so many bits.
    pub fn all(bits: usize) -> impl Iterator<Item = CodePacking> {
        let of_code = move |code: ScaledCode| {
            let is_integer = matches!(code, ScaledCode::Int4 | ScaledCode::Int8);
            let orders = [false, true].into_iter().filter(move |high_first| !high_first || code.bits() == 4);
            let signs = [false, true].into_iter().filter(move |flipped| !flipped || is_integer);
            orders
                .flat_map(move |high_first| signs.clone().map(move |flipped| CodePacking { code, high_first, flipped }))
        };
        ScaledCode::ALL.into_iter().filter(move |code| code.bits() == bits).flat_map(of_code)
    }

    /// The bits that differ from those of the code.
    const fn mask(self) -> u8 {
        match (self.flipped, self.code.bits()) {
            (false, _) => 0,
            (true, 8) => 0x80,
            (true, _) => 8,
        }
    }

    /// Codes of a byte.
    pub const fn per_byte(self) -> usize {
        8 / self.code.bits()
    }

    /// Fills `codes`, a byte each, from `bytes`, up to the shorter of the two.
    pub fn unpack(self, bytes: &[u8], codes: &mut [u8]) {
        let mask = self.mask();
        if self.per_byte() == 1 {
            codes.iter_mut().zip(bytes).for_each(|(code, byte)| *code = byte ^ mask);
            return;
        }
        let mask = u16::from(mask) * 0x101;
        let pair = |byte: u8| {
            let byte = u16::from(byte);
            let apart = if self.high_first { byte >> 4 | byte << 8 } else { byte | byte << 4 };
            (apart & 0x0f0f ^ mask).to_le_bytes()
        };
        let (pairs, rest) = codes.as_chunks_mut::<2>();
        pairs.iter_mut().zip(bytes).for_each(|(codes, byte)| *codes = pair(*byte));
        rest.iter_mut().zip(bytes.get(pairs.len())).for_each(|(code, byte)| *code = pair(*byte)[0]);
    }

    /// Appends the bytes of `codes`. The missing bits of a last byte are zero.
    pub fn pack(self, codes: &[u8], bytes: &mut Vec<u8>) {
        let mask = self.mask();
        if self.per_byte() == 1 {
            bytes.extend(codes.iter().map(|code| code ^ mask));
            return;
        }
        let byte = |codes: [u8; 2]| {
            let codes = u16::from_le_bytes(codes) ^ (u16::from(mask) * 0x101);
            (if self.high_first { codes << 4 | codes >> 8 } else { codes | codes >> 4 }) as u8
        };
        let (pairs, rest) = codes.as_chunks::<2>();
        let start = bytes.len();
        bytes.resize(start + pairs.len(), 0);
        bytes[start..].iter_mut().zip(pairs).for_each(|(space, codes)| *space = byte(*codes));
        bytes.extend(rest.iter().map(|code| byte([*code, mask])));
    }
}

/// FP32 numbers in their order, as integers.
fn key(number: f32) -> u32 {
    let bits = number.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn of_key(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

fn thresholds_of(code: ScaledCode, rounding: QuotientRounding) -> Thresholds {
    std::array::from_fn(|wanted| {
        let reaches = |key| usize::from(rank(code, code_of(code, rounded_quotient(rounding, of_key(key))))) >= wanted;
        let (mut low, mut high) = (key(f32::MIN), key(f32::MAX));
        if !reaches(high) {
            return f32::INFINITY;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if reaches(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if low == key(f32::MIN) { f32::NEG_INFINITY } else { of_key(low) }
    })
}

/// For each code and sign of its value what the magnitude times gives the least and the greatest scale.
type Limits = [[f64; 2]; 2 * RANKS];

/// A code is that of quotients from the threshold of its rank to that of the next rank.
fn limits_of(code: ScaledCode, thresholds: &Thresholds) -> Limits {
    std::array::from_fn(|at| {
        let rank = usize::from(rank(code, (at / 2) as u8));
        let (low, high) = (f64::from(thresholds[rank]), f64::from(thresholds[rank + 1]));
        // As magnitudes on the side of the value.
        let (low, high) = if at % 2 == 0 { (low, high) } else { (-high, -low) };
        // No scale gives a value the code of the other side.
        let least = if high > 0.0 { 1.0 / high } else { f64::INFINITY };
        [least, if low > 0.0 { 1.0 / low } else { f64::INFINITY }]
    })
}

/// What is known of a kind of codes, and of a rounding.
struct Known {
    limits: [Limits; QuotientRounding::ALL.len()],
    numbers: [f32; RANKS],
}

fn known(code: ScaledCode) -> &'static Known {
    static TABLES: LazyLock<Vec<Known>> = LazyLock::new(|| {
        let known = |code: ScaledCode| Known {
            limits: QuotientRounding::ALL.map(|rounding| limits_of(code, &thresholds_of(code, rounding))),
            numbers: std::array::from_fn(|byte| code.value(byte as u8)),
        };
        ScaledCode::ALL.map(known).into()
    });
    &TABLES[ScaledCode::ALL.iter().position(|one| *one == code).unwrap_or(0)]
}

/// Values of which the bounds are folded at a time.
const BOUND_VALUES: usize = 512;
/// Bounds that are kept apart, so that none waits for the one before.
const LANES: usize = 4;

/// Two bounds may be one number, where quotients are halfway between codes, and are products that are rounded.
const SLACK: f64 = 1.0 + 1e-14;

/// The scales that give each pair its code have this least and this greatest one; `None` if there is none.
fn bounds(limits: &Limits, values: &[u8], codes: &[u8]) -> Option<[f64; 2]> {
    let (mut least, mut greatest) = ([0.0f64; LANES], [f64::INFINITY; LANES]);
    let fold = |least: [f64; LANES], greatest: [f64; LANES]| {
        let found = [least.into_iter().fold(0.0, f64::max), greatest.into_iter().fold(f64::INFINITY, f64::min)];
        (found[0] <= found[1] * SLACK).then_some(found)
    };
    for (values, codes) in values.as_chunks::<4>().0.chunks(BOUND_VALUES).zip(codes.chunks(BOUND_VALUES)) {
        for (values, codes) in values.chunks(LANES).zip(codes.chunks(LANES)) {
            for (lane, (value, code)) in values.iter().zip(codes).enumerate() {
                let value = f32::from_le_bytes(*value);
                let [low, high] = limits[usize::from(*code) * 2 + usize::from(value < 0.0)];
                // What is not a number, as zero times infinity, is no bound.
                let magnitude = f64::from(value.abs());
                let (low, high) = (magnitude * low, magnitude * high);
                least[lane] = if low > least[lane] { low } else { least[lane] };
                greatest[lane] = if high < greatest[lane] { high } else { greatest[lane] };
            }
        }
        fold(least, greatest)?;
    }
    fold(least, greatest).filter(|found| found[0] > 0.0 && found[0] < f64::INFINITY)
}

/// The scale by which `codes`, a byte each, follow from `values` (FP32), or most of them do; 0 if there is none.
pub fn fitted_scale(code: ScaledCode, rounding: QuotientRounding, values: &[u8], codes: &[u8]) -> f32 {
    let known = known(code);
    let at = QuotientRounding::ALL.iter().position(|one| *one == rounding).unwrap_or(0);
    if let Some([least, greatest]) = bounds(&known.limits[at], values, codes) {
        // The bounds are of quotients that are rounded. The middle is far from both.
        return (if greatest.is_finite() { (least + greatest) / 2.0 } else { least * 1.5 }) as f32;
    }
    let factor = codebook::fitted_scale(&known.numbers, values, codes) as f32;
    if factor.is_finite() { factor } else { 0.0 }
}

/// Of codes in such bytes the number that tell something, and how many of these follow from `values` (FP32) by one
/// scale. A zero that follows tells nothing.
pub fn following(packing: CodePacking, values: &[u8], bytes: &[u8]) -> [u64; 2] {
    let mut space = [[0u8; 64]; 2];
    let [codes, made] = &mut space;
    let count = (values.len() / 4).min(bytes.len() * packing.per_byte()).min(codes.len());
    let (codes, made) = (&mut codes[..count], &mut made[..count]);
    packing.unpack(bytes, codes);
    let scale = fitted_scale(packing.code, QuotientRounding::Fp32, values, codes);
    if scale == 0.0 {
        return [count as u64, 0];
    }
    scaled_codes(packing.code, QuotientRounding::Fp32, values, scale, made);
    let telling =
        codes.iter().zip(made.iter()).filter(|(code, made)| code != made || packing.code.value(**code) != 0.0);
    telling.fold([0, 0], |[telling, same], (code, made)| [telling + 1, same + u64::from(code == made)])
}
