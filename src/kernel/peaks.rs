//! Peaks: elements that are larger than all elements near them. What precedes or follows an array does not move them,
//! and small changes of the values move few.
//!
//! 1. Each element has a key: the bits of its size without the sign, whose order is that of the sizes. Elements of
//!    eight bytes count by their upper half. A single byte has as its key a hash of it and of the byte after it.
//! 2. The largest key of each segment of [`SEGMENT`] elements is found. This reads all bytes.
//! 3. An element is a peak if its key is greater than those of the [`REACH`] elements before it, and not less than
//!    those of the [`REACH`] elements after it. Only segments that exceed the segments around them can hold one.
//! 4. One key in [`SHARE`], chosen by its product, needs only [`REACH_NEAR`] elements on either side: where one column
//!    of a matrix has the largest elements of every row, other columns would have no peak.
//!
//! Keys are at most `i32::MAX`, and the key of a peak is not 0.

use super::dispatch::dispatch;

/// Elements of a segment.
pub const SEGMENT: usize = 64;
/// Elements on either side of a peak that are not larger.
pub const REACH: usize = 8 * SEGMENT;
/// The same for a share of the keys.
pub const REACH_NEAR: usize = SEGMENT;
/// One key in so many has this shorter reach.
pub const SHARE: u32 = 16;
/// Odd factor that chooses these keys.
const NEAR_FACTOR: u32 = 0x9e37_79b1;
/// Segments on either side of that of a peak that lie within its reach as a whole.
const WHOLE: usize = REACH / SEGMENT - 1;
/// Odd factor that spreads pairs of bytes.
const FACTOR: u16 = 0x9e37;

/// Segments of `elements` elements. The last one may be shorter.
pub const fn segments(elements: usize) -> usize {
    elements.div_ceil(SEGMENT)
}

/// Elements of `width` bytes (1, 2, 4 or 8) that `bytes` have a key for.
pub const fn elements(bytes: usize, width: usize) -> usize {
    if width == 1 { bytes.saturating_sub(1) } else { bytes / width }
}

#[inline(always)]
fn key_2(element: [u8; 2]) -> i16 {
    (u16::from_le_bytes(element) & 0x7fff) as i16
}

#[inline(always)]
fn key_4(element: [u8; 4]) -> i32 {
    (u32::from_le_bytes(element) & 0x7fff_ffff) as i32
}

#[inline(always)]
fn key_8(element: [u8; 8]) -> i32 {
    (u64::from_le_bytes(element) >> 32 & 0x7fff_ffff) as i32
}

#[inline(always)]
fn key_1(low: u8, high: u8) -> i16 {
    (u16::from_le_bytes([low, high]).wrapping_mul(FACTOR) >> 1) as i16
}

#[inline(always)]
fn maxima_loop(bytes: &[u8], width: usize, maxima: &mut [i32]) {
    match width {
        1 => {
            for (start, most) in (0..).step_by(SEGMENT).zip(maxima) {
                let segment = bytes.get(start..).unwrap_or_default();
                let segment = segment.get(..SEGMENT + 1).unwrap_or(segment);
                let pairs = segment.iter().zip(segment.get(1..).unwrap_or_default());
                *most = i32::from(pairs.fold(0, |most, (low, high)| most.max(key_1(*low, *high))));
            }
        }
        2 => {
            for (segment, most) in bytes.as_chunks::<2>().0.chunks(SEGMENT).zip(maxima) {
                *most = i32::from(segment.iter().fold(0, |most, element| most.max(key_2(*element))));
            }
        }
        4 => {
            for (segment, most) in bytes.as_chunks::<4>().0.chunks(SEGMENT).zip(maxima) {
                *most = segment.iter().fold(0, |most, element| most.max(key_4(*element)));
            }
        }
        _ => {
            for (segment, most) in bytes.as_chunks::<8>().0.chunks(SEGMENT).zip(maxima) {
                *most = segment.iter().fold(0, |most, element| most.max(key_8(*element)));
            }
        }
    }
}

dispatch! {
    /// Largest key of each segment.
    fn fill_maxima(bytes: &[u8], width: usize, maxima: &mut [i32]) {
        AVX512 | AVX2 | PORTABLE => maxima_loop,
    }
}

/// Bit i of the result: whether segment `first` + i exceeds the segments around it that are within reach as a whole.
#[inline(always)]
fn exceeding(maxima: &[i32], first: usize) -> u64 {
    let mut exceeds = [true; BITS];
    let shifted = |segment: usize| maxima.get(segment..).unwrap_or_default();
    let own = shifted(first);
    for distance in 1..=WHOLE {
        let around = shifted(first - distance).iter().zip(shifted(first + distance));
        for ((exceeds, own), (before, after)) in exceeds.iter_mut().zip(own).zip(around) {
            *exceeds &= *own > *before && *own >= *after;
        }
    }
    let bits = exceeds.iter().zip(own).enumerate();
    bits.fold(0, |bits, (at, (exceeds, own))| bits | u64::from(*exceeds && *own > 0) << at)
}

/// Segments that are looked at together.
const BITS: usize = u64::BITS as usize;

/// Whether elements with this key may be peaks with [`REACH_NEAR`] elements on either side.
#[inline(always)]
fn has_short_reach(key: i32) -> bool {
    key.cast_unsigned().wrapping_mul(NEAR_FACTOR) < u32::MAX / SHARE
}

/// The first largest element of a segment, if it is a peak with `reach` elements on either side. `key` gives the key of
/// an element, 0 beyond the end. Segments within reach as a whole, if there are any, have been compared.
#[inline(always)]
fn peak_of(
    maxima: &[i32],
    elements: usize,
    key: &impl Fn(usize) -> i32,
    segment: usize,
    reach: usize,
) -> Option<usize> {
    let most = maxima.get(segment).copied()?;
    let start = segment * SEGMENT;
    let at = (start..(start + SEGMENT).min(elements)).find(|at| key(*at) == most)?;
    if at < reach || at + reach >= elements {
        return None;
    }
    // The two segments that are within reach in part.
    let whole = reach / SEGMENT - 1;
    let (before, after) = ((segment - whole).wrapping_sub(1), segment + whole + 1);
    let is_first = maxima.get(before).is_none_or(|other| *other < most)
        || (at - reach..(before + 1) * SEGMENT).all(|other| key(other) < most);
    let is_last = maxima.get(after).is_none_or(|other| *other <= most)
        || (after * SEGMENT..at + reach + 1).all(|other| key(other) <= most);
    (is_first && is_last).then_some(at)
}

/// Calls `found` with each peak.
#[inline(always)]
fn select(maxima: &[i32], elements: usize, key: impl Fn(usize) -> i32, mut found: impl FnMut(usize)) {
    let near = |segments: std::ops::Range<usize>, found: &mut dyn FnMut(usize)| {
        for (segment, most) in segments.clone().zip(maxima.get(segments).unwrap_or_default()) {
            if *most > 0 && has_short_reach(*most) {
                peak_of(maxima, elements, &key, segment, REACH_NEAR).into_iter().for_each(&mut *found);
            }
        }
    };
    // Segments whose neighbours are all there.
    let end = maxima.len().saturating_sub(WHOLE);
    let mut next = 0;
    for first in (WHOLE..end).step_by(BITS) {
        let mut bits = exceeding(maxima, first);
        while bits != 0 {
            let segment = first + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let most = maxima.get(segment).copied().filter(|most| segment < end && !has_short_reach(*most));
            if most.is_some() {
                near(next..segment, &mut found);
                next = segment;
                peak_of(maxima, elements, &key, segment, REACH).into_iter().for_each(&mut found);
            }
        }
    }
    near(next..maxima.len(), &mut found);
}

/// Calls `found` with the position, in elements, of each peak among the elements of `width` bytes (1, 2, 4 or 8) of
/// `bytes`, ascending. Peaks have [`REACH_NEAR`] elements on either side, most of them [`REACH`]. `maxima` has a place
/// for each of the [`segments`].
pub fn peaks(bytes: &[u8], width: usize, maxima: &mut [i32], found: impl FnMut(usize)) {
    let elements = elements(bytes.len(), width);
    let Some(maxima) = maxima.get_mut(..segments(elements)) else { return };
    fill_maxima(bytes, width, maxima);
    match width {
        1 => {
            let key = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
            select(maxima, elements, |at| key(at).map_or(0, |pair| i32::from(key_1(pair[0], pair[1]))), found);
        }
        2 => {
            let all = bytes.as_chunks::<2>().0;
            select(maxima, elements, |at| all.get(at).map_or(0, |element| i32::from(key_2(*element))), found);
        }
        4 => {
            let all = bytes.as_chunks::<4>().0;
            select(maxima, elements, |at| all.get(at).map_or(0, |element| key_4(*element)), found);
        }
        _ => {
            let all = bytes.as_chunks::<8>().0;
            select(maxima, elements, |at| all.get(at).map_or(0, |element| key_8(*element)), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        bytes.take(len).collect()
    }

    fn found(bytes: &[u8], width: usize) -> Vec<usize> {
        let mut maxima = vec![7; segments(elements(bytes.len(), width))];
        let mut positions = Vec::new();
        peaks(bytes, width, &mut maxima, |at| positions.push(at));
        positions
    }

    /// Key of element `at`.
    fn key(bytes: &[u8], width: usize, at: usize) -> i32 {
        match width {
            1 => i32::from(key_1(bytes[at], bytes[at + 1])),
            2 => i32::from(key_2(bytes.as_chunks().0[at])),
            4 => key_4(bytes.as_chunks().0[at]),
            _ => key_8(bytes.as_chunks().0[at]),
        }
    }

    /// From the definition.
    fn reference(bytes: &[u8], width: usize) -> Vec<usize> {
        let count = elements(bytes.len(), width);
        let key = |at: usize| key(bytes, width, at);
        let is_peak = |at: &usize| {
            let reach = if has_short_reach(key(*at)) { REACH_NEAR } else { REACH };
            key(*at) > 0
                && (reach..count.saturating_sub(reach)).contains(at)
                && (at - reach..*at).all(|other| key(other) < key(*at))
                && (at + 1..=at + reach).all(|other| key(other) <= key(*at))
        };
        (0..count).filter(is_peak).collect()
    }

    #[test]
    fn peaks_are_those_of_the_definition() {
        for width in [1, 2, 4, 8] {
            for elements in
                [0, 1, SEGMENT, 2 * SEGMENT + 1, 1000, 2 * REACH, 2 * REACH + 1, 2 * REACH + 2, 5000, 20_001]
            {
                let mut bytes = noise(elements * width + width / 2, elements as u64);
                with_each_subset(|_| assert_eq!(found(&bytes, width), reference(&bytes, width), "{width}: {elements}"));
                // Few values, so many are equal.
                bytes.iter_mut().for_each(|byte| *byte &= 3);
                assert_eq!(found(&bytes, width), reference(&bytes, width), "{width}: {elements} alike");
            }
            assert!(found(&vec![0; 40_000], width).is_empty());
        }
        let count = found(&noise(1 << 19, 1), 2).len();
        assert!((1 << 18) / (2 * REACH + 1) * 9 / 10 < count, "{count}");
    }

    #[test]
    fn bytes_around_an_array_do_not_move_its_peaks() {
        for width in [1, 2, 4, 8] {
            let array = noise(40_000 * width, 9);
            let inside = found(&array, width);
            for shift in [1, 63, 64, 1000] {
                let moved = [noise(shift * width, 5), array.clone(), noise(900 * width, 6)].concat();
                let moved: Vec<usize> =
                    found(&moved, width).into_iter().filter_map(|at| at.checked_sub(shift)).collect();
                assert!(inside.iter().all(|at| moved.contains(at)), "{width}: {shift}");
                assert!(moved.iter().all(|at| inside.contains(at) || *at < REACH || *at + REACH >= 40_000), "{width}");
            }
        }
    }
}
