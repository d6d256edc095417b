//! Search: finds the codebook and the groups of a block, and the scale of each group.
//!
//! 1. The greatest magnitude of a group is that of some code. Each code that quantisers give it is tried, first the one
//!    of the last group. A few values refute most.
//! 2. The quotients by the scale give codes. If values are as coarse as codes, the scale is fitted to these twice.
//! 3. The codes bound the scale. Of the scales within the bounds, the one with the fewest bits is taken if its products
//!    are the values, bit by bit. The last group's scale comes first.
//! 4. Weights are told from coded ones by a group of each likely length.

use super::rounding::Rounding;
use crate::codec::{ElementRows, ElementType};
use crate::kernel::codebook::{Codebook, fitted_scale, greatest_magnitude, multiply, nearest_codes, scale_bounds};

/// Elements of groups that are looked for, besides rows, the longest first.
const GROUPS: [usize; 4] = [256, 128, 64, 32];
/// Elements of a row that is looked at as a group, at least and at most.
const ROW_MIN: usize = 24;
const ROW_MAX: usize = super::payload::GROUP_MAX;
/// Groups of each length that are looked at.
const PROBES: usize = 1;
/// Values that refute a scale.
const LOOKED_AT: usize = 64;
/// Error of a code above which it says nothing of the scale.
const VAGUE: f32 = 0.25;
/// Scales of a group that are tried with all values.
const TRIES: usize = 6;
/// Numbers that the greatest magnitude of a group may have: of integers of four bits, of eight, and of eight-bit floats
/// any fraction with the greatest exponent that has it.
const SMALL_TOPS: [f32; 15] = [8.0, 7.0, 15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
const LARGE_TOPS: [f32; 113] = {
    let mut tops = [127.0; 113];
    let mut at = 1;
    while at < tops.len() {
        tops[at] = (129 - at) as f32;
        at += 1;
    }
    tops
};
const FP8_TOPS: [f32; 8] = [448.0, 416.0, 384.0, 352.0, 320.0, 288.0, 256.0, 240.0];

/// How the values of a group may be coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Coding {
    pub(super) book: Codebook,
    pub(super) rounding: Rounding,
    /// Numbers that the greatest magnitude of a group may have.
    tops: &'static [f32],
}

/// Codings of few numbers, then those of many: these explain nearly any few values.
const CODINGS: [[(Codebook, &[f32]); 3]; 2] = [
    [(Codebook::Integers, &SMALL_TOPS), (Codebook::NormalFloat, &[1.0]), (Codebook::SignedIntegers, &SMALL_TOPS)],
    [(Codebook::Integers, &LARGE_TOPS), (Codebook::Fp8E4M3, &FP8_TOPS), (Codebook::SignedIntegers, &LARGE_TOPS)],
];

/// Where the groups of a block are: the first one ends after `first` elements, if that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) elements: usize,
    pub(super) first: usize,
}

impl Groups {
    /// The ranges of the groups of so many elements.
    pub(super) fn ranges(self, elements: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let first = self.first.min(elements);
        let rest = (first..elements).step_by(self.elements);
        let head = (first > 0).then_some(0..first);
        head.into_iter().chain(rest.map(move |from| from..elements.min(from + self.elements)))
    }

    /// The number of groups of so many elements.
    pub(super) fn count(self, elements: usize) -> usize {
        let first = self.first.min(elements);
        usize::from(first > 0) + (elements - first).div_ceil(self.elements)
    }

    /// The groups that are likely in a block with these rows, the longest first.
    fn likely(rows: ElementRows) -> impl Iterator<Item = Groups> {
        let (row, first) = (rows.elements as usize, rows.first as usize);
        let whole = (ROW_MIN..=ROW_MAX).contains(&row).then_some(Groups { elements: row, first });
        let parts = GROUPS.into_iter().filter(move |part| row != *part && row.is_multiple_of(*part));
        whole.into_iter().chain(parts.map(move |elements| Groups { elements, first: first % elements }))
    }
}

/// Finds the scales of groups, one after another.
#[derive(Default)]
pub(super) struct ScaleSearch {
    /// What the last group had.
    last_scale: Option<f32>,
    last_top: Option<f32>,
    /// Values of the group as FP32, with the signs of its codes.
    wide: Vec<u8>,
    greatest: u32,
    has_negative_zero: bool,
    codes: Vec<u8>,
    made: Vec<u8>,
    rounded: Vec<u8>,
}

impl ScaleSearch {
    /// The scale of a group. Its codes are then [`Self::codes`].
    pub(super) fn scale(&mut self, (coding, numbers): (Coding, &[f32; 256]), raw: &[u8]) -> Option<f32> {
        self.open(coding.rounding, raw);
        self.search((coding, numbers), raw)
    }

    /// Takes the values of a group.
    fn open(&mut self, rounding: Rounding, raw: &[u8]) {
        rounding.widen(raw, &mut self.wide);
        self.codes.resize(self.wide.len() / 4, 0);
        self.greatest = greatest_magnitude(&self.wide);
        self.has_negative_zero = self.has_zero(-0.0);
    }

    /// The scale of the group that was taken, which is `raw`.
    fn search(&mut self, (coding, numbers): (Coding, &[f32; 256]), raw: &[u8]) -> Option<f32> {
        let (book, bits) = (coding.book, self.greatest);
        if bits >= f32::INFINITY.to_bits() {
            return None;
        }
        // A zero has the sign of the scale, if codes have none.
        let has_sign = matches!(book, Codebook::Fp8E4M3 | Codebook::SignedIntegers);
        let is_negative = !has_sign && self.has_negative_zero;
        if is_negative {
            self.wide.as_chunks_mut::<4>().0.iter_mut().for_each(|value| value[3] ^= 0x80);
        }
        let sign = if is_negative { -1.0 } else { 1.0 };
        let greatest = f32::from_bits(bits);
        let last = self.last_scale.map_or(1.0, f32::abs);
        let found = if greatest == 0.0 || self.may_be(coding, last) {
            self.codes_by((coding, numbers), raw, last, sign)
        } else {
            None
        };
        let found = found.or_else(|| self.scale_by_top((coding, numbers), raw, greatest, sign))?;
        self.last_scale = Some(found);
        Some(found)
    }

    /// The codes of the group that was found last.
    pub(super) fn codes(&self) -> &[u8] {
        &self.codes
    }

    fn scale_by_top(
        &mut self,
        (coding, numbers): (Coding, &[f32; 256]),
        raw: &[u8],
        greatest: f32,
        sign: f32,
    ) -> Option<f32> {
        if greatest == 0.0 {
            return None;
        }
        let mut tries = TRIES;
        for top in self.last_top.into_iter().chain(coding.tops.iter().copied()) {
            let scale = greatest / top;
            if tries == 0 {
                return None;
            }
            if !self.may_be(coding, scale) {
                continue;
            }
            tries -= 1;
            if let Some(found) = self.refined((coding, numbers), raw, (scale, top), sign) {
                self.last_top = Some(top);
                return Some(found);
            }
        }
        None
    }

    /// The exact scale near this one, which the greatest value gives if its number is `top`.
    fn refined(
        &mut self,
        (coding, numbers): (Coding, &[f32; 256]),
        raw: &[u8],
        (mut scale, top): (f32, f32),
        sign: f32,
    ) -> Option<f32> {
        let Coding { book, rounding, .. } = coding;
        let is_coarse =
            matches!(book, Codebook::Integers | Codebook::SignedIntegers) && top * rounding.error() > VAGUE / 2.0;
        for _ in 0..if is_coarse { 2 } else { 0 } {
            nearest_codes(book, &self.wide, 1.0 / scale, &mut self.codes);
            scale = fitted_scale(numbers, &self.wide, &self.codes) as f32;
        }
        nearest_codes(book, &self.wide, 1.0 / scale, &mut self.codes);
        let [least, greatest] =
            scale_bounds(numbers, &self.wide, &self.codes, rounding.half_step(), rounding.least_normal());
        // A product that is rounded twice may be a little beyond the bounds.
        if least > greatest * (1.0 + 1e-7) || !greatest.is_finite() {
            return None;
        }
        let middle = ((least + greatest) / 2.0) as f32;
        let candidates = [shortest(least, greatest), Some(middle), Some(least as f32), Some(greatest as f32)];
        candidates.into_iter().flatten().find_map(|scale| self.made_by((coding, numbers), raw, scale * sign))
    }

    /// This scale with the codes that it gives, if these give the values.
    fn codes_by(&mut self, (coding, numbers): (Coding, &[f32; 256]), raw: &[u8], scale: f32, sign: f32) -> Option<f32> {
        nearest_codes(coding.book, &self.wide, 1.0 / scale, &mut self.codes);
        self.made_by((coding, numbers), raw, scale * sign)
    }

    /// This scale, if the codes times it are the values.
    fn made_by(&mut self, (coding, numbers): (Coding, &[f32; 256]), raw: &[u8], scale: f32) -> Option<f32> {
        self.made.resize(self.wide.len(), 0);
        multiply(coding.book, numbers, &self.codes, scale, &mut self.made);
        let made = coding.rounding.round(&self.made, &mut self.rounded);
        (made == raw).then_some(scale)
    }

    /// Whether the first values do not refute a scale.
    fn may_be(&self, Coding { book, rounding, .. }: Coding, scale: f32) -> bool {
        let inverse = 1.0 / scale;
        let (error, least) = (rounding.error(), rounding.least_step() * inverse);
        inverse.is_finite()
            && self.wide.as_chunks::<4>().0.iter().take(LOOKED_AT).all(|value| {
                let quotient = f32::from_le_bytes(*value) * inverse;
                let number = book.number(book.nearest(quotient));
                let allowed = quotient.abs() * error + least;
                let is_vague = matches!(book, Codebook::Integers | Codebook::SignedIntegers) && allowed > VAGUE;
                is_vague || (quotient - number).abs() <= allowed
            })
    }

    /// Whether a value is this zero.
    fn has_zero(&self, zero: f32) -> bool {
        self.wide.as_chunks::<4>().0.contains(&zero.to_le_bytes())
    }

    /// The coding and the groups of a block of whole elements; `None` if it does not seem to be coded.
    pub(super) fn recognise(
        &mut self,
        element_type: ElementType,
        rows: ElementRows,
        whole: &[u8],
    ) -> Option<(Coding, Groups)> {
        let rounding = Rounding::of(element_type)?;
        let elements = whole.len() / rounding.width();
        for codings in CODINGS {
            for groups in Groups::likely(rows).filter(|groups| groups.first + groups.elements <= elements) {
                let count = (elements - groups.first) / groups.elements;
                for number in 0..PROBES.min(count) {
                    let from = groups.first + (count * (number + 1) / (PROBES + 1)).min(count - 1) * groups.elements;
                    let range = from * rounding.width()..(from + groups.elements) * rounding.width();
                    let raw = whole.get(range).unwrap_or_default();
                    self.open(rounding, raw);
                    let found =
                        codings.iter().find(|(book, tops)| self.probe(Coding { book: *book, rounding, tops }, raw));
                    if let Some((book, tops)) = found {
                        rounding.widen(whole, &mut self.wide);
                        let has_both = *book == Codebook::Integers && self.has_zero(0.0) && self.has_zero(-0.0);
                        let book = if has_both { Codebook::SignedIntegers } else { *book };
                        return Some((Coding { book, rounding, tops }, groups));
                    }
                }
            }
        }
        None
    }

    /// Whether a group has this coding, and not only equal values.
    fn probe(&mut self, coding: Coding, raw: &[u8]) -> bool {
        (self.last_scale, self.last_top) = (None, None);
        // Groups without a negative zero are integers of no sign.
        if coding.book == Codebook::SignedIntegers && !self.has_negative_zero {
            return false;
        }
        let is_coded = self.search((coding, coding.book.numbers()), raw).is_some();
        // Then the values have changed their signs.
        if self.has_negative_zero {
            self.open(coding.rounding, raw);
        }
        is_coded && self.codes.iter().any(|code| Some(code) != self.codes.first())
    }
}

/// The FP32 number with the fewest bits from `least` to `greatest`, which are positive; `None` if there is none.
fn shortest(least: f64, greatest: f64) -> Option<f32> {
    let (mut low, mut high) = (least as f32, greatest as f32);
    if f64::from(low) < least {
        low = low.next_up();
    }
    if f64::from(high) > greatest {
        high = high.next_down();
    }
    let (low, high) = (low.to_bits(), high.to_bits());
    let cut = |bits: u32| high >> bits << bits;
    (0..24).rev().map(cut).find(|bits| *bits >= low && *bits > 0 && low <= high).map(f32::from_bits)
}
