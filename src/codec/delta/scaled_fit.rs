//! Scaled fit: the scale by which known codes follow from known values.
//!
//! A code tells between which two quotients its value divided by the scale is. So each pair has an interval of scales.
//! Where they have no scale in common, because some codes do not follow, the scale with the least squares of errors is
//! taken.

use std::sync::LazyLock;

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
        let shifts = if self.high_first { [4, 0] } else { [0, 4] };
        for (pair, byte) in codes.chunks_mut(2).zip(bytes) {
            pair.iter_mut().zip(shifts).for_each(|(code, shift)| *code = (byte >> shift & 15) ^ mask);
        }
    }

    /// Appends the bytes of `codes`. The missing bits of a last byte are zero.
    pub fn pack(self, codes: &[u8], bytes: &mut Vec<u8>) {
        let mask = self.mask();
        if self.per_byte() == 1 {
            bytes.extend(codes.iter().map(|code| code ^ mask));
            return;
        }
        let shifts = if self.high_first { [4, 0] } else { [0, 4] };
        let (pairs, rest) = codes.as_chunks::<2>();
        bytes.extend(pairs.iter().map(|[one, other]| (one ^ mask) << shifts[0] | (other ^ mask) << shifts[1]));
        bytes.extend(rest.iter().map(|code| (code ^ mask) << shifts[0]));
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

fn thresholds(code: ScaledCode, rounding: QuotientRounding) -> &'static Thresholds {
    const ROUNDINGS: usize = QuotientRounding::ALL.len();
    static TABLES: LazyLock<Vec<Thresholds>> = LazyLock::new(|| {
        let pairs = ScaledCode::ALL.into_iter().flat_map(|code| QuotientRounding::ALL.map(|rounding| (code, rounding)));
        pairs.map(|(code, rounding)| thresholds_of(code, rounding)).collect()
    });
    static NONE: Thresholds = [f32::INFINITY; RANKS + 1];
    let at = |found: Option<usize>| found.unwrap_or(0);
    let code = at(ScaledCode::ALL.iter().position(|one| *one == code));
    let rounding = at(QuotientRounding::ALL.iter().position(|one| *one == rounding));
    TABLES.get(code * ROUNDINGS + rounding).unwrap_or(&NONE)
}

/// The scales that give each pair its code have this least and this greatest one; `None` if there is none.
fn bounds(thresholds: &Thresholds, code: ScaledCode, values: &[u8], codes: &[u8]) -> Option<[f64; 2]> {
    let (mut least, mut greatest) = (0.0f64, f64::INFINITY);
    for (value, byte) in values.as_chunks::<4>().0.iter().zip(codes) {
        let value = f64::from(f32::from_le_bytes(*value));
        let rank = usize::from(rank(code, *byte));
        let (low, high) = (f64::from(*thresholds.get(rank)?), f64::from(*thresholds.get(rank + 1)?));
        if value == 0.0 || value.is_nan() {
            continue;
        }
        // As magnitudes on the side of the value.
        let (low, high) = if value > 0.0 { (low, high) } else { (-high, -low) };
        if high <= 0.0 {
            return None;
        }
        least = least.max(if high == f64::INFINITY { 0.0 } else { value.abs() / high });
        greatest = greatest.min(if low > 0.0 { value.abs() / low } else { f64::INFINITY });
    }
    (least <= greatest && least > 0.0).then_some([least, greatest])
}

/// The scale by which `codes`, a byte each, follow from `values` (FP32), or most of them do; 0 if there is none.
pub fn fitted_scale(code: ScaledCode, rounding: QuotientRounding, values: &[u8], codes: &[u8]) -> f32 {
    if let Some([least, greatest]) = bounds(thresholds(code, rounding), code, values, codes) {
        // The bounds are of quotients that are rounded. The middle is far from both.
        return (if greatest.is_finite() { (least + greatest) / 2.0 } else { least * 1.5 }) as f32;
    }
    let (mut products, mut squares) = (0.0f64, 0.0f64);
    for (value, byte) in values.as_chunks::<4>().0.iter().zip(codes) {
        let number = f64::from(code.value(*byte));
        products += number * f64::from(f32::from_le_bytes(*value));
        squares += number * number;
    }
    let scale = (products / squares) as f32;
    if scale.is_finite() { scale } else { 0.0 }
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
