//! Byte planes: plane `g` holds byte `g` of every element. Elements have 1, 2, 4 or 8 bytes.
//!
//! All loops consist of one step that compilers vectorise on every machine: deinterleaving pairs of bytes into even
//! and odd bytes, or interleaving two planes. Elements of 4 bytes need two steps: their even bytes are the 2-byte
//! elements of planes 0 and 2. Elements of 8 bytes need three. Blocks keep the intermediate bytes in the L1 cache. NEON
//! sorts the bytes of 2, 4 and 8 planes in loads instead.

use std::mem::MaybeUninit;

use super::dispatch::dispatch;

mod neon;

/// Bytes that may be uninitialised.
pub(super) type UninitBytes = [MaybeUninit<u8>];

/// Elements rearranged at a time.
const BLOCK_ELEMENTS: usize = 512;
/// Pairs deinterleaved at a time. A fixed number makes compilers use vectors.
const LANE: usize = 16;

/// Deinterleaves the elements of `raw` into `planes`, one plane after the other.
///
/// `width` is 1, 2, 4 or 8 bytes. Bytes after the last whole element are ignored. Does nothing for another `width`, or
/// unless `planes` has the length of all whole elements.
pub fn deinterleave(raw: &[u8], width: usize, planes: &mut [u8]) {
    let elements = raw.len().checked_div(width).unwrap_or(0);
    if elements == 0 || planes.len() != elements * width {
        return;
    }
    let raw = &raw[..elements * width];
    if deinterleave_vectors(raw, width, false, planes) {
        return;
    }
    match width {
        1 => planes.copy_from_slice(raw),
        2 => {
            let (even, odd) = planes.split_at_mut(elements);
            deinterleave_pairs(raw, even, odd);
        }
        4 => {
            let mut planes: [&mut [u8]; 4] = planes_mut(planes, elements);
            for (index, block) in raw.chunks(BLOCK_ELEMENTS * 4).enumerate() {
                let start = index * BLOCK_ELEMENTS;
                deinterleave_fours(block, planes.each_mut().map(|plane| &mut plane[start..start + block.len() / 4]));
            }
        }
        8 => {
            let mut planes: [&mut [u8]; 8] = planes_mut(planes, elements);
            for (index, block) in raw.chunks(BLOCK_ELEMENTS * 8).enumerate() {
                let start = index * BLOCK_ELEMENTS;
                deinterleave_eights(block, planes.each_mut().map(|plane| &mut plane[start..start + block.len() / 8]));
            }
        }
        _ => {}
    }
}

/// Inverse of [`deinterleave`]: interleaves 1, 2, 4 or 8 planes into `out`.
///
/// Does nothing for another number of planes, unless all have the same length, or unless `out` has their total length.
pub fn interleave(planes: &[&[u8]], out: &mut [u8]) {
    let elements = planes.first().map_or(0, |plane| plane.len());
    if planes.iter().any(|plane| plane.len() != elements) || out.len() != elements * planes.len() {
        return;
    }
    match *planes {
        [only] => out.copy_from_slice(only),
        [even, odd] => interleave_pairs(even, odd, out),
        [p0, p1, p2, p3] => {
            for (index, block) in out.chunks_mut(BLOCK_ELEMENTS * 4).enumerate() {
                let elements = index * BLOCK_ELEMENTS..index * BLOCK_ELEMENTS + block.len() / 4;
                interleave_fours([p0, p1, p2, p3].map(|plane| &plane[elements.clone()]), block);
            }
        }
        [p0, p1, p2, p3, p4, p5, p6, p7] => {
            for (index, block) in out.chunks_mut(BLOCK_ELEMENTS * 8).enumerate() {
                let elements = index * BLOCK_ELEMENTS..index * BLOCK_ELEMENTS + block.len() / 8;
                interleave_eights([p0, p1, p2, p3, p4, p5, p6, p7].map(|plane| &plane[elements.clone()]), block);
            }
        }
        _ => {}
    }
}

/// [`deinterleave`], but rotates each element left by 1 bit first if `rotated`.
pub fn deinterleave_rotated(raw: &[u8], width: usize, rotated: bool, planes: &mut [u8]) {
    let elements = raw.len().checked_div(width).unwrap_or(0);
    if !rotated || planes.len() != elements * width {
        return deinterleave(raw, width, planes);
    }
    if deinterleave_vectors(&raw[..elements * width], width, rotated, planes) {
        return;
    }
    match width {
        2 => {
            let (low, high) = planes.split_at_mut(elements);
            deinterleave_rotated_pairs(raw, low, high);
        }
        4 => {
            let mut planes: [&mut [u8]; 4] = planes_mut(planes, elements.max(1));
            for (index, block) in raw.as_chunks::<4>().0.chunks(BLOCK_ELEMENTS).enumerate() {
                let start = index * BLOCK_ELEMENTS;
                deinterleave_rotated_fours(
                    block,
                    planes.each_mut().map(|plane| &mut plane[start..start + block.len()]),
                );
            }
        }
        8 => {
            let mut planes: [&mut [u8]; 8] = planes_mut(planes, elements.max(1));
            for (index, block) in raw.as_chunks::<8>().0.chunks(BLOCK_ELEMENTS).enumerate() {
                let start = index * BLOCK_ELEMENTS;
                deinterleave_rotated_eights(
                    block,
                    planes.each_mut().map(|plane| &mut plane[start..start + block.len()]),
                );
            }
        }
        _ => deinterleave(raw, width, planes),
    }
}

/// Inverse of [`deinterleave_rotated`], with the conditions of [`interleave`].
pub fn interleave_rotated(planes: &[&[u8]], rotated: bool, out: &mut [u8]) {
    let elements = planes.first().map_or(0, |plane| plane.len());
    if !rotated || planes.iter().any(|plane| plane.len() != elements) || out.len() != elements * planes.len() {
        return interleave(planes, out);
    }
    match *planes {
        [low, high] => interleave_rotated_pairs(low, high, out),
        [p0, p1, p2, p3] => {
            for (index, block) in out.chunks_mut(BLOCK_ELEMENTS * 4).enumerate() {
                let elements = index * BLOCK_ELEMENTS..index * BLOCK_ELEMENTS + block.len() / 4;
                interleave_rotated_fours([p0, p1, p2, p3].map(|plane| &plane[elements.clone()]), block);
            }
        }
        [p0, p1, p2, p3, p4, p5, p6, p7] => {
            for (index, block) in out.chunks_mut(BLOCK_ELEMENTS * 8).enumerate() {
                let elements = index * BLOCK_ELEMENTS..index * BLOCK_ELEMENTS + block.len() / 8;
                let planes = [p0, p1, p2, p3, p4, p5, p6, p7].map(|plane| &plane[elements.clone()]);
                interleave_rotated_eights(planes, block);
            }
        }
        _ => interleave(planes, out),
    }
}

dispatch! {
    /// Deinterleaves whole elements, if the processor sorts bytes by plane as it loads them. False if nothing was done.
    fn deinterleave_vectors(raw: &[u8], width: usize, rotated: bool, planes: &mut [u8]) -> bool {
        NEON => neon::deinterleave,
        PORTABLE => unavailable,
    }
}
dispatch! {
    fn deinterleave_rotated_pairs(raw: &[u8], low: &mut [u8], high: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => deinterleave_rotated_pairs_loop,
    }
}
dispatch! {
    fn deinterleave_rotated_fours(raw: &[[u8; 4]], planes: [&mut [u8]; 4]) {
        AVX512 | AVX2 | PORTABLE => deinterleave_rotated_fours_loop,
    }
}
dispatch! {
    fn deinterleave_rotated_eights(raw: &[[u8; 8]], planes: [&mut [u8]; 8]) {
        AVX512 | AVX2 | PORTABLE => deinterleave_rotated_eights_loop,
    }
}
dispatch! {
    fn interleave_rotated_pairs(low: &[u8], high: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => interleave_rotated_pairs_loop,
    }
}
dispatch! {
    fn interleave_rotated_fours(planes: [&[u8]; 4], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => interleave_rotated_fours_loop,
    }
}
dispatch! {
    fn interleave_rotated_eights(planes: [&[u8]; 8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => interleave_rotated_eights_loop,
    }
}

fn unavailable(_: &[u8], _: usize, _: bool, _: &mut [u8]) -> bool {
    false
}

#[inline(always)]
fn deinterleave_rotated_pairs_loop(raw: &[u8], low: &mut [u8], high: &mut [u8]) {
    for ((element, low), high) in raw.as_chunks().0.iter().zip(low).zip(high) {
        [*low, *high] = u16::from_le_bytes(*element).rotate_left(1).to_le_bytes();
    }
}

#[inline(always)]
fn deinterleave_rotated_fours_loop(raw: &[[u8; 4]], planes: [&mut [u8]; 4]) {
    let mut rotated = [[0; 4]; BLOCK_ELEMENTS];
    let rotated = &mut rotated[..raw.len()];
    for (rotated, element) in rotated.iter_mut().zip(raw) {
        *rotated = u32::from_le_bytes(*element).rotate_left(1).to_le_bytes();
    }
    deinterleave_fours(rotated.as_flattened(), planes);
}

#[inline(always)]
fn deinterleave_rotated_eights_loop(raw: &[[u8; 8]], planes: [&mut [u8]; 8]) {
    let mut rotated = [[0; 8]; BLOCK_ELEMENTS];
    let rotated = &mut rotated[..raw.len()];
    for (rotated, element) in rotated.iter_mut().zip(raw) {
        *rotated = u64::from_le_bytes(*element).rotate_left(1).to_le_bytes();
    }
    deinterleave_eights(rotated.as_flattened(), planes);
}

#[inline(always)]
fn interleave_rotated_pairs_loop(low: &[u8], high: &[u8], out: &mut [u8]) {
    for ((element, low), high) in out.as_chunks_mut().0.iter_mut().zip(low).zip(high) {
        *element = u16::from_le_bytes([*low, *high]).rotate_right(1).to_le_bytes();
    }
}

#[inline(always)]
fn interleave_rotated_fours_loop(planes: [&[u8]; 4], out: &mut [u8]) {
    interleave_fours(planes, out);
    for element in out.as_chunks_mut().0 {
        *element = u32::from_le_bytes(*element).rotate_right(1).to_le_bytes();
    }
}

#[inline(always)]
fn interleave_rotated_eights_loop(planes: [&[u8]; 8], out: &mut [u8]) {
    interleave_eights(planes, out);
    for element in out.as_chunks_mut().0 {
        *element = u64::from_le_bytes(*element).rotate_right(1).to_le_bytes();
    }
}

/// `N` adjacent planes of `len` bytes; empty ones if `bytes` is too short.
pub(super) fn planes_mut<const N: usize>(bytes: &mut [u8], len: usize) -> [&mut [u8]; N] {
    let mut planes = bytes.chunks_exact_mut(len);
    std::array::from_fn(|_| planes.next().unwrap_or_default())
}

#[inline(always)]
fn deinterleave_pairs(pairs: &[u8], even: &mut [u8], odd: &mut [u8]) {
    let (lanes, pairs_rest) = pairs.as_chunks::<{ LANE * 2 }>();
    let (even_lanes, even_rest) = even.as_chunks_mut::<LANE>();
    let (odd_lanes, odd_rest) = odd.as_chunks_mut::<LANE>();
    for ((pairs, even), odd) in lanes.iter().zip(even_lanes).zip(odd_lanes) {
        let elements: [u16; LANE] = std::array::from_fn(|i| u16::from_le_bytes([pairs[2 * i], pairs[2 * i + 1]]));
        *even = elements.map(|element| element as u8);
        *odd = elements.map(|element| (element >> 8) as u8);
    }
    for ((pair, even), odd) in pairs_rest.as_chunks::<2>().0.iter().zip(even_rest).zip(odd_rest) {
        [*even, *odd] = *pair;
    }
}

#[inline(always)]
fn deinterleave_fours(elements: &[u8], [p0, p1, p2, p3]: [&mut [u8]; 4]) {
    let (mut even, mut odd) = ([0u8; BLOCK_ELEMENTS * 2], [0u8; BLOCK_ELEMENTS * 2]);
    let (even, odd) = (&mut even[..elements.len() / 2], &mut odd[..elements.len() / 2]);
    deinterleave_pairs(elements, even, odd);
    deinterleave_pairs(even, p0, p2);
    deinterleave_pairs(odd, p1, p3);
}

#[inline(always)]
fn deinterleave_eights(elements: &[u8], [p0, p1, p2, p3, p4, p5, p6, p7]: [&mut [u8]; 8]) {
    let (mut even, mut odd) = ([0u8; BLOCK_ELEMENTS * 4], [0u8; BLOCK_ELEMENTS * 4]);
    let (even, odd) = (&mut even[..elements.len() / 2], &mut odd[..elements.len() / 2]);
    deinterleave_pairs(elements, even, odd);
    deinterleave_fours(even, [p0, p2, p4, p6]);
    deinterleave_fours(odd, [p1, p3, p5, p7]);
}

#[inline(always)]
fn interleave_pairs(even: &[u8], odd: &[u8], pairs: &mut [u8]) {
    for ((pair, even), odd) in pairs.as_chunks_mut::<2>().0.iter_mut().zip(even).zip(odd) {
        *pair = [*even, *odd];
    }
}

#[inline(always)]
fn interleave_fours([p0, p1, p2, p3]: [&[u8]; 4], elements: &mut [u8]) {
    let (mut even, mut odd) = ([0u8; BLOCK_ELEMENTS * 2], [0u8; BLOCK_ELEMENTS * 2]);
    let (even, odd) = (&mut even[..elements.len() / 2], &mut odd[..elements.len() / 2]);
    interleave_pairs(p0, p2, even);
    interleave_pairs(p1, p3, odd);
    interleave_pairs(even, odd, elements);
}

#[inline(always)]
fn interleave_eights([p0, p1, p2, p3, p4, p5, p6, p7]: [&[u8]; 8], elements: &mut [u8]) {
    let (mut even, mut odd) = ([0u8; BLOCK_ELEMENTS * 4], [0u8; BLOCK_ELEMENTS * 4]);
    let (even, odd) = (&mut even[..elements.len() / 2], &mut odd[..elements.len() / 2]);
    interleave_fours([p0, p2, p4, p6], even);
    interleave_fours([p1, p3, p5, p7], odd);
    interleave_pairs(even, odd, elements);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    fn deinterleave_scalar(raw: &[u8], width: usize) -> Vec<u8> {
        let elements = raw.len() / width;
        (0..width).flat_map(|group| (0..elements).map(move |element| raw[element * width + group])).collect()
    }

    #[test]
    fn every_length_agrees_with_the_scalar_reference_and_round_trips() {
        with_each_subset(|_| {
            let raw: Vec<u8> = (0..40_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            for width in [1, 2, 4, 8] {
                let lanes = [8, 16, 32, 64, 512, 1024, 4096].into_iter();
                let elements = lanes.flat_map(|lane| [lane - 1, lane, lane + 1]).chain(0..8);
                for elements in elements.filter(|elements| elements * width <= raw.len() - 8) {
                    for tail in [0, width - 1] {
                        let raw = &raw[..elements * width + tail];
                        let mut planes = vec![0; elements * width];
                        deinterleave(raw, width, &mut planes);
                        assert_eq!(planes, deinterleave_scalar(raw, width), "width {width}, {elements} elements");
                        let views: Vec<&[u8]> = (0..width).map(|g| &planes[g * elements..(g + 1) * elements]).collect();
                        let mut interleaved = vec![0; elements * width];
                        interleave(&views, &mut interleaved);
                        assert_eq!(interleaved, &raw[..elements * width], "width {width}, {elements} elements");
                    }
                }
            }
        });
    }

    /// Every element rotated left by 1 bit.
    fn rotated_scalar(raw: &[u8], width: usize) -> Vec<u8> {
        let rotated = |element: &[u8]| {
            let last = element.last().map_or(0, |byte| byte >> 7);
            let lower = std::iter::once(last).chain(element.iter().map(|byte| byte >> 7));
            element.iter().zip(lower).map(|(byte, low)| byte << 1 | low).collect::<Vec<u8>>()
        };
        raw.chunks_exact(width).flat_map(rotated).collect()
    }

    #[test]
    fn rotated_elements_agree_with_the_scalar_reference_and_round_trip() {
        with_each_subset(|_| {
            let raw: Vec<u8> = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            for width in [1, 2, 4, 8] {
                for elements in [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025] {
                    let raw = &raw[..elements * width + width - 1];
                    let (mut planes, mut interleaved) = (vec![0; elements * width], vec![0; elements * width]);
                    deinterleave_rotated(raw, width, width > 1, &mut planes);
                    let scalar = if width > 1 { rotated_scalar(raw, width) } else { raw[..elements].to_vec() };
                    assert_eq!(planes, deinterleave_scalar(&scalar, width), "width {width}, {elements} elements");
                    let views: Vec<&[u8]> = (0..width).map(|g| &planes[g * elements..(g + 1) * elements]).collect();
                    interleave_rotated(&views, width > 1, &mut interleaved);
                    assert_eq!(interleaved, &raw[..elements * width], "width {width}, {elements} elements");
                }
            }
        });
    }

    #[test]
    fn inputs_of_wrong_lengths_are_ignored() {
        let mut out = [9u8; 6];
        deinterleave(&[1; 7], 3, &mut out);
        deinterleave(&[1; 8], 4, &mut out);
        deinterleave(&[1; 8], 0, &mut out);
        interleave(&[&[1, 1], &[1]], &mut out[..3]);
        interleave(&[&[1, 1], &[1, 1]], &mut out);
        interleave(&[&[1, 1], &[1, 1], &[1, 1]], &mut out);
        interleave(&[], &mut out);
        deinterleave_rotated(&[1; 7], 3, true, &mut out);
        deinterleave_rotated(&[1; 8], 4, true, &mut out);
        interleave_rotated(&[&[1, 1], &[1]], true, &mut out[..3]);
        interleave_rotated(&[&[1, 1], &[1, 1]], true, &mut out);
        interleave_rotated(&[], true, &mut out);
        assert_eq!(out, [9; 6]);
    }
}
