//! Zeros: masks of elements that are zero, the other elements one after another, and masks that follow from magnitudes.
//!
//! A mask has a bit for each element, the lowest bit of a byte first. The bits after the last element are zero.
//! Elements have 2, 4 or 8 bytes, where magnitudes matter 2 or 4. Other widths do nothing.

use super::dispatch::dispatch;

mod neon;

/// Counters that [`threshold`] needs.
pub const COUNTERS: usize = 1 << (HIGH_BITS + 1);
/// Bits of a magnitude that are counted first: all of an element of two bytes.
const HIGH_BITS: u32 = 15;
/// Elements that a byte of a mask covers.
const EIGHT: usize = 8;

dispatch! {
    /// Marks the elements of `raw` that are zero. If `is_signed`, a zero has the sign of the element of `base`, else it
    /// is positive, and `base` may be anything of the same length.
    pub fn mark(width: usize, raw: &[u8], base: &[u8], is_signed: bool, mask: &mut [u8]) {
        NEON => neon::mark,
        AVX512 | AVX2 | PORTABLE => mark_any,
    }
}
dispatch! {
    /// Copies the elements that are not marked to the front of `out`, which has the length of `bytes`. Returns their
    /// bytes.
    pub fn keep(width: usize, bytes: &[u8], mask: &[u8], out: &mut [u8]) -> usize {
        NEON => neon::keep,
        AVX512 | AVX2 | PORTABLE => keep_any,
    }
}
dispatch! {
    /// Inverse of [`keep`]: fills the elements of `out` that are not marked with those of `left`. Of the others only
    /// the sign stays.
    pub fn spread(width: usize, left: &[u8], mask: &[u8], out: &mut [u8]) {
        NEON => neon::spread,
        AVX512 | AVX2 | PORTABLE => spread_any,
    }
}
dispatch! {
    /// Marks the elements with a magnitude below `threshold`.
    pub fn mark_below(width: usize, base: &[u8], threshold: u32, mask: &mut [u8]) {
        NEON => neon::mark_below,
        AVX512 | AVX2 | PORTABLE => mark_below_any,
    }
}
dispatch! {
    /// Marks in each group of four elements the two of least magnitude, of equal ones the later. A missing element has
    /// the magnitude 0.
    pub fn mark_two_of_four(width: usize, base: &[u8], mask: &mut [u8]) {
        NEON => neon::mark_two_of_four,
        AVX512 | AVX2 | PORTABLE => mark_two_of_four_any,
    }
}

/// The bits of an element without its sign, as a number.
#[inline(always)]
fn magnitude<const WIDTH: usize>(element: [u8; WIDTH]) -> u32 {
    let mut bits = [0; 4];
    bits.iter_mut().zip(element).for_each(|(to, from)| *to = from);
    u32::from_le_bytes(bits) & (u32::MAX >> (33 - 8 * WIDTH.min(4) as u32))
}

/// The zero with the sign of an element.
#[inline(always)]
fn signed_zero<const WIDTH: usize>(element: [u8; WIDTH]) -> [u8; WIDTH] {
    std::array::from_fn(|at| if at + 1 == WIDTH { element[at] & 0x80 } else { 0 })
}

/// Fills `mask` with what `is_marked` says of each pair of elements.
#[inline(always)]
fn fill<const WIDTH: usize>(
    raw: &[u8],
    base: &[u8],
    mask: &mut [u8],
    is_marked: impl Fn([u8; WIDTH], [u8; WIDTH]) -> bool,
) {
    let (raw, raw_rest) = raw.as_chunks::<WIDTH>().0.as_chunks::<EIGHT>();
    let (base, base_rest) = base.as_chunks::<WIDTH>().0.as_chunks::<EIGHT>();
    for (bits, (raw, base)) in mask.iter_mut().zip(raw.iter().zip(base)) {
        let pairs = raw.iter().zip(base).enumerate();
        *bits = pairs.fold(0, |bits, (at, (raw, base))| bits | u8::from(is_marked(*raw, *base)) << at);
    }
    let pairs = raw_rest.iter().zip(base_rest).enumerate();
    let rest = pairs.fold(0, |bits, (at, (raw, base))| bits | u8::from(is_marked(*raw, *base)) << at);
    if let Some(bits) = mask.get_mut(raw.len()) {
        *bits = rest;
    }
}

#[inline(always)]
fn mark_loop<const WIDTH: usize>(raw: &[u8], base: &[u8], is_signed: bool, mask: &mut [u8]) {
    if is_signed {
        fill::<WIDTH>(raw, base, mask, |raw, base| raw == signed_zero(base));
    } else {
        fill::<WIDTH>(raw, base, mask, |raw, _| raw == [0; WIDTH]);
    }
}

#[inline(always)]
fn mark_any(width: usize, raw: &[u8], base: &[u8], is_signed: bool, mask: &mut [u8]) {
    match width {
        2 => mark_loop::<2>(raw, base, is_signed, mask),
        4 => mark_loop::<4>(raw, base, is_signed, mask),
        8 => mark_loop::<8>(raw, base, is_signed, mask),
        _ => {}
    }
}

#[inline(always)]
fn keep_loop<const WIDTH: usize>(bytes: &[u8], mask: &[u8], out: &mut [u8]) -> usize {
    let out = out.as_chunks_mut::<WIDTH>().0;
    let mut at = 0;
    for (elements, bits) in bytes.as_chunks::<WIDTH>().0.chunks(EIGHT).zip(mask) {
        for (number, element) in elements.iter().enumerate() {
            // Written in any case, so that no branch depends on the mask.
            if let Some(slot) = out.get_mut(at) {
                *slot = *element;
            }
            at += usize::from(bits >> number & 1 == 0);
        }
    }
    at * WIDTH
}

#[inline(always)]
fn keep_any(width: usize, bytes: &[u8], mask: &[u8], out: &mut [u8]) -> usize {
    match width {
        2 => keep_loop::<2>(bytes, mask, out),
        4 => keep_loop::<4>(bytes, mask, out),
        8 => keep_loop::<8>(bytes, mask, out),
        _ => 0,
    }
}

#[inline(always)]
fn spread_loop<const WIDTH: usize>(left: &[u8], mask: &[u8], out: &mut [u8]) {
    let left = left.as_chunks::<WIDTH>().0;
    let mut at = 0;
    for (elements, bits) in out.as_chunks_mut::<WIDTH>().0.chunks_mut(EIGHT).zip(mask) {
        for (number, slot) in elements.iter_mut().enumerate() {
            let is_marked = bits >> number & 1 == 1;
            let next = left.get(at).copied().unwrap_or([0; WIDTH]);
            *slot = if is_marked { signed_zero(*slot) } else { next };
            at += usize::from(!is_marked);
        }
    }
}

#[inline(always)]
fn spread_any(width: usize, left: &[u8], mask: &[u8], out: &mut [u8]) {
    match width {
        2 => spread_loop::<2>(left, mask, out),
        4 => spread_loop::<4>(left, mask, out),
        8 => spread_loop::<8>(left, mask, out),
        _ => {}
    }
}

#[inline(always)]
fn mark_below_any(width: usize, base: &[u8], threshold: u32, mask: &mut [u8]) {
    match width {
        2 => fill::<2>(base, base, mask, |base, _| magnitude(base) < threshold),
        4 => fill::<4>(base, base, mask, |base, _| magnitude(base) < threshold),
        _ => {}
    }
}

#[inline(always)]
fn mark_two_of_four_loop<const WIDTH: usize>(base: &[u8], mask: &mut [u8]) {
    for (bits, elements) in mask.iter_mut().zip(base.as_chunks::<WIDTH>().0.chunks(EIGHT)) {
        let mut magnitudes = [0; EIGHT];
        magnitudes.iter_mut().zip(elements).for_each(|(to, from)| *to = magnitude(*from));
        let is_lesser = |at: usize| {
            let group = at & !3;
            let greater = (group..group + 4).map(|other| {
                let (own, other_magnitude) = (magnitudes[at], magnitudes[other]);
                u8::from(other_magnitude > own || other_magnitude == own && other < at)
            });
            greater.sum::<u8>() >= 2
        };
        *bits = (0..elements.len()).fold(0, |bits, at| bits | u8::from(is_lesser(at)) << at);
    }
}

#[inline(always)]
fn mark_two_of_four_any(width: usize, base: &[u8], mask: &mut [u8]) {
    match width {
        2 => mark_two_of_four_loop::<2>(base, mask),
        4 => mark_two_of_four_loop::<4>(base, mask),
        _ => {}
    }
}

/// Whether no bit after those of `elements` is set.
pub fn is_mask_of(mask: &[u8], elements: usize) -> bool {
    mask.len() == elements.div_ceil(EIGHT)
        && (elements.is_multiple_of(EIGHT) || mask.last().is_none_or(|last| last >> (elements % EIGHT) == 0))
}

/// Number of marked elements.
pub fn marked(mask: &[u8]) -> usize {
    mask.iter().map(|bits| bits.count_ones() as usize).sum()
}

/// The threshold for which [`mark_below`] gives `mask`, the least of such. If none does, one that gives most bits, or
/// for elements of four bytes nearly as many. `counters` are [`COUNTERS`]; what is in them does not matter.
pub fn threshold(width: usize, base: &[u8], mask: &[u8], counters: &mut [i32]) -> u32 {
    match width {
        2 => threshold_of::<2>(base, mask, counters),
        4 => threshold_of::<4>(base, mask, counters),
        _ => 0,
    }
}

fn threshold_of<const WIDTH: usize>(base: &[u8], mask: &[u8], counters: &mut [i32]) -> u32 {
    let shift = 8 * WIDTH as u32 - 1 - HIGH_BITS;
    if shift == 0 {
        count::<WIDTH>(base, mask, counters, |magnitude, is_marked| (magnitude, i32::from(is_marked) * 2 - 1));
        return most_before(counters);
    }
    // The range of magnitudes that the threshold is in, if the mask has one: all marked elements in it, and all before.
    count::<WIDTH>(base, mask, counters, |magnitude, is_marked| (magnitude >> shift << 1 | u32::from(is_marked), 1));
    let (mut sum, mut best, mut first) = (0i64, 0i64, 0);
    for ([others, marked], range) in counters.as_chunks::<2>().0.iter().zip(0u32..) {
        let most = sum + i64::from(*marked);
        if most > best {
            (best, first) = (most, range << shift);
        }
        sum = most - i64::from(*others);
    }
    count::<WIDTH>(base, mask, counters, |magnitude, is_marked| {
        (magnitude.wrapping_sub(first), i32::from(is_marked) * 2 - 1)
    });
    first + most_before(counters)
}

/// Sets the counters: each element adds to the counter that `add` names, if there is one, what it says.
#[inline(always)]
fn count<const WIDTH: usize>(base: &[u8], mask: &[u8], counters: &mut [i32], add: impl Fn(u32, bool) -> (u32, i32)) {
    counters.fill(0);
    for (elements, bits) in base.as_chunks::<WIDTH>().0.chunks(EIGHT).zip(mask) {
        for (number, element) in elements.iter().enumerate() {
            let (slot, by) = add(magnitude(*element), bits >> number & 1 == 1);
            if let Some(counter) = counters.get_mut(slot as usize) {
                *counter += by;
            }
        }
    }
}

/// The number of counters whose sum is greatest, from the first on; the least of equally good ones.
fn most_before(counters: &[i32]) -> u32 {
    let (mut sum, mut best, mut before) = (0i64, 0i64, 0);
    for (counter, number) in counters.iter().zip(1..) {
        sum += i64::from(*counter);
        if sum > best {
            (best, before) = (sum, number);
        }
    }
    before
}

#[cfg(test)]
#[path = "zeros_tests.rs"]
mod tests;
