//! Eight elements at a time, whose bits are a byte of the mask, of two or four bytes each. Byte shuffles compact and
//! spread the elements: the mask selects one from a table.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::aarch64::*;

use super::EIGHT;

/// Bytes of a vector.
const VECTOR_BYTES: usize = 16;

/// For each mask of a vector's lanes, of `width` bytes: what moves the lanes not in it to the front, or spreads the
/// first ones to them. The bytes of others become zero.
const fn shuffles<const MASKS: usize>(width: usize, is_spread: bool) -> [[u8; VECTOR_BYTES]; MASKS] {
    let mut all = [[0xff; VECTOR_BYTES]; MASKS];
    let mut mask = 0;
    while mask < MASKS {
        let (mut next, mut lane) = (0, 0);
        while lane < VECTOR_BYTES / width {
            if mask >> lane & 1 == 0 {
                let (to, from) = if is_spread { (lane, next) } else { (next, lane) };
                let mut byte = 0;
                while byte < width {
                    all[mask][to * width + byte] = (from * width + byte) as u8;
                    byte += 1;
                }
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
}

static KEEP_2: [[u8; VECTOR_BYTES]; 256] = shuffles(2, false);
static SPREAD_2: [[u8; VECTOR_BYTES]; 256] = shuffles(2, true);
static KEEP_4: [[u8; VECTOR_BYTES]; 16] = shuffles(4, false);
static SPREAD_4: [[u8; VECTOR_BYTES]; 16] = shuffles(4, true);

#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8; VECTOR_BYTES]) -> uint8x16_t {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn load_2(bytes: &[u8; VECTOR_BYTES]) -> uint16x8_t {
    vreinterpretq_u16_u8(load(bytes))
}

#[target_feature(enable = "neon")]
#[inline]
fn load_4(bytes: &[u8; 2 * VECTOR_BYTES]) -> [uint32x4_t; 2] {
    // SAFETY: the array is as long as the two vectors; the load needs no alignment.
    let uint8x16x2_t(first, last) = unsafe { vld1q_u8_x2(bytes.as_ptr()) };
    [vreinterpretq_u32_u8(first), vreinterpretq_u32_u8(last)]
}

#[target_feature(enable = "neon")]
#[inline]
fn store(out: &mut [u8; VECTOR_BYTES], vector: uint8x16_t) {
    // SAFETY: the array is as long as the vector; the store needs no alignment.
    unsafe { vst1q_u8(out.as_mut_ptr(), vector) }
}

/// The low halves of lanes, which are all ones or zero.
#[target_feature(enable = "neon")]
#[inline]
fn narrow([first, last]: [uint32x4_t; 2]) -> uint16x8_t {
    vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(last))
}

/// A bit for each lane, which is all ones or zero.
#[target_feature(enable = "neon")]
#[inline]
fn mask_of(lanes: uint16x8_t) -> u8 {
    let weights = [1, 2, 4, 8, 16, 32, 64, 128u16];
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    vaddvq_u16(vandq_u16(lanes, unsafe { vld1q_u16(weights.as_ptr()) })) as u8
}

/// Elements of `bytes` that are in whole bytes of `mask`.
fn whole(width: usize, bytes: &[u8], mask: &[u8]) -> usize {
    (bytes.len() / width / EIGHT).min(mask.len()) * EIGHT
}

/// Fills whole bytes of a mask by `lanes_of`, which has eight elements of two inputs; then `rest` fills the others.
#[inline(always)]
fn fill<const BYTES: usize>(
    width: usize,
    raw: &[u8],
    base: &[u8],
    mask: &mut [u8],
    lanes_of: impl Fn(&[u8; BYTES], &[u8; BYTES]) -> u8,
    rest: impl FnOnce(&[u8], &[u8], &mut [u8]),
) {
    let done = whole(width, raw, mask).min(whole(width, base, mask));
    let (bits, bits_rest) = mask.split_at_mut(done / EIGHT);
    let inputs = raw.as_chunks::<BYTES>().0.iter().zip(base.as_chunks::<BYTES>().0);
    bits.iter_mut().zip(inputs).for_each(|(bits, (raw, base))| *bits = lanes_of(raw, base));
    rest(&raw[done * width..], &base[done * width..], bits_rest);
}

/// Like [`super::mark_any`].
#[target_feature(enable = "neon")]
pub(super) fn mark(width: usize, raw: &[u8], base: &[u8], is_signed: bool, mask: &mut [u8]) {
    let rest = |raw: &[u8], base: &[u8], mask: &mut [u8]| super::mark_any(width, raw, base, is_signed, mask);
    let (sign_2, sign_4) = if is_signed { (1 << 15, 1 << 31) } else { (0, 0) };
    let (sign_2, sign_4) = (vdupq_n_u16(sign_2), vdupq_n_u32(sign_4));
    match width {
        2 => {
            let lanes_of =
                |raw: &[u8; 16], base: &[u8; 16]| mask_of(vceqq_u16(load_2(raw), vandq_u16(load_2(base), sign_2)));
            fill(width, raw, base, mask, lanes_of, rest);
        }
        4 => {
            let lanes_of = |raw: &[u8; 32], base: &[u8; 32]| {
                let ([a, b], [p, q]) = (load_4(raw), load_4(base));
                let equal = |raw, base| vceqq_u32(raw, vandq_u32(base, sign_4));
                mask_of(narrow([equal(a, p), equal(b, q)]))
            };
            fill(width, raw, base, mask, lanes_of, rest);
        }
        _ => rest(raw, base, mask),
    }
}

/// Like [`super::mark_below_any`].
#[target_feature(enable = "neon")]
pub(super) fn mark_below(width: usize, base: &[u8], threshold: u32, mask: &mut [u8]) {
    let rest = |base: &[u8], _: &[u8], mask: &mut [u8]| super::mark_below_any(width, base, threshold, mask);
    match width {
        2 => {
            // All magnitudes are below 2^15.
            let limit = vdupq_n_u16(threshold.min(1 << 15) as u16);
            let lanes_of = |base: &[u8; 16], _: &[u8; 16]| mask_of(vcltq_u16(magnitudes_2(base), limit));
            fill(width, base, base, mask, lanes_of, rest);
        }
        4 => {
            let limit = vdupq_n_u32(threshold);
            let lanes_of = |base: &[u8; 32], _: &[u8; 32]| {
                let [first, last] = magnitudes_4(base);
                mask_of(narrow([vcltq_u32(first, limit), vcltq_u32(last, limit)]))
            };
            fill(width, base, base, mask, lanes_of, rest);
        }
        _ => {}
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn magnitudes_2(base: &[u8; VECTOR_BYTES]) -> uint16x8_t {
    vandq_u16(load_2(base), vdupq_n_u16(0x7fff))
}

#[target_feature(enable = "neon")]
#[inline]
fn magnitudes_4(base: &[u8; 2 * VECTOR_BYTES]) -> [uint32x4_t; 2] {
    let [first, last] = load_4(base);
    let magnitude = vdupq_n_u32(0x7fff_ffff);
    [vandq_u32(first, magnitude), vandq_u32(last, magnitude)]
}

/// Like [`super::mark_two_of_four_any`]. Each magnitude is compared with the others of its group. One is subtracted if
/// the other one comes before, so that equal ones count as greater.
#[target_feature(enable = "neon")]
pub(super) fn mark_two_of_four(width: usize, base: &[u8], mask: &mut [u8]) {
    let rest = |base: &[u8], _: &[u8], mask: &mut [u8]| super::mark_two_of_four_any(width, base, mask);
    match width {
        2 => fill(width, base, base, mask, |base, _| mask_of(lesser_2(magnitudes_2(base))), rest),
        4 => {
            let lanes_of = |base: &[u8; 32], _: &[u8; 32]| {
                let [first, last] = magnitudes_4(base);
                mask_of(narrow([lesser_4(first), lesser_4(last)]))
            };
            fill(width, base, base, mask, lanes_of, rest);
        }
        _ => {}
    }
}

/// The two lesser ones of each four magnitudes.
#[target_feature(enable = "neon")]
#[inline]
fn lesser_2(own: uint16x8_t) -> uint16x8_t {
    let greater = |shuffle: [u8; VECTOR_BYTES], before: [i16; EIGHT]| {
        let other = vqtbl1q_u8(vreinterpretq_u8_u16(own), load(&shuffle));
        // SAFETY: the array is as long as the vector; the load needs no alignment.
        let limit = vsubq_s16(vreinterpretq_s16_u16(own), unsafe { vld1q_s16(before.as_ptr()) });
        vreinterpretq_s16_u16(vcgtq_s16(vreinterpretq_s16_u8(other), limit))
    };
    let first = greater([2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9], [0, 0, 0, 1, 0, 0, 0, 1]);
    let second = greater([4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11], [0, 0, 1, 1, 0, 0, 1, 1]);
    let third = greater([6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13], [0, 1, 1, 1, 0, 1, 1, 1]);
    vcltq_s16(vaddq_s16(vaddq_s16(first, second), third), vdupq_n_s16(-1))
}

/// The two lesser ones of four magnitudes.
#[target_feature(enable = "neon")]
#[inline]
fn lesser_4(own: uint32x4_t) -> uint32x4_t {
    let greater = |other: uint32x4_t, before: [i32; 4]| {
        // SAFETY: the array is as long as the vector; the load needs no alignment.
        let limit = vsubq_s32(vreinterpretq_s32_u32(own), unsafe { vld1q_s32(before.as_ptr()) });
        vreinterpretq_s32_u32(vcgtq_s32(vreinterpretq_s32_u32(other), limit))
    };
    let first = greater(vextq_u32::<1>(own, own), [0, 0, 0, 1]);
    let second = greater(vextq_u32::<2>(own, own), [0, 0, 1, 1]);
    let third = greater(vextq_u32::<3>(own, own), [0, 1, 1, 1]);
    vcltq_s32(vaddq_s32(vaddq_s32(first, second), third), vdupq_n_s32(-1))
}

/// Like [`super::keep_any`].
#[target_feature(enable = "neon")]
pub(super) fn keep(width: usize, bytes: &[u8], mask: &[u8], out: &mut [u8]) -> usize {
    let whole = if out.len() < bytes.len() { 0 } else { whole(width.max(1), bytes, mask) };
    let mut at = 0;
    match width {
        2 => {
            for (vector, bits) in bytes[..2 * whole].as_chunks().0.iter().zip(mask) {
                at = keep_vector(vector, &KEEP_2[usize::from(*bits)], out, at, 2 * bits.count_zeros());
            }
        }
        4 => {
            for ([first, last], bits) in bytes[..4 * whole].as_chunks().0.as_chunks().0.iter().zip(mask) {
                let bits = usize::from(*bits);
                at = keep_vector(first, &KEEP_4[bits % 16], out, at, 16 - 4 * (bits % 16).count_ones());
                at = keep_vector(last, &KEEP_4[bits / 16], out, at, 16 - 4 * (bits / 16).count_ones());
            }
        }
        _ => return super::keep_any(width, bytes, mask, out),
    }
    at + super::keep_any(width, &bytes[whole * width..], &mask[whole / EIGHT..], &mut out[at..])
}

/// Stores the shuffled lanes at `at`; returns the end of those that are kept. It never goes beyond the input's end, so
/// there is always space for a vector.
#[target_feature(enable = "neon")]
#[inline]
fn keep_vector(
    vector: &[u8; VECTOR_BYTES],
    shuffle: &[u8; VECTOR_BYTES],
    out: &mut [u8],
    at: usize,
    count: u32,
) -> usize {
    if let Some(out) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        store(out, vqtbl1q_u8(load(vector), load(shuffle)));
    }
    at + count as usize
}

/// Like [`super::spread_any`].
#[target_feature(enable = "neon")]
pub(super) fn spread(width: usize, left: &[u8], mask: &[u8], out: &mut [u8]) {
    let whole = whole(width.max(1), out, mask);
    let (mut at, mut done) = (0, 0);
    let (vectors, _) = out.as_chunks_mut::<VECTOR_BYTES>();
    match width {
        2 => {
            let sign = vreinterpretq_u8_u16(vdupq_n_u16(1 << 15));
            for (out, bits) in vectors.iter_mut().zip(mask) {
                let Some(next) = left.get(at..).and_then(|rest| rest.first_chunk()) else { break };
                spread_vector(next, &SPREAD_2[usize::from(*bits)], sign, out);
                (at, done) = (at + 2 * bits.count_zeros() as usize, done + EIGHT);
            }
        }
        4 => {
            let sign = vreinterpretq_u8_u32(vdupq_n_u32(1 << 31));
            for ([first, last], bits) in vectors.as_chunks_mut().0.iter_mut().zip(mask) {
                let Some(next) = left.get(at..).and_then(|rest| rest.first_chunk::<32>()) else { break };
                let (low, high) = (bits % 16, bits / 16);
                let middle = 16 - 4 * low.count_ones() as usize;
                let Some((next, rest)) = next.split_first_chunk().zip(next[middle..].first_chunk()) else { break };
                spread_vector(next.0, &SPREAD_4[usize::from(low)], sign, first);
                spread_vector(rest, &SPREAD_4[usize::from(high)], sign, last);
                (at, done) = (at + 4 * bits.count_zeros() as usize, done + EIGHT);
            }
        }
        _ => {}
    }
    debug_assert!(done <= whole);
    super::spread_any(width, left.get(at..).unwrap_or_default(), &mask[done / EIGHT..], &mut out[done * width..]);
}

/// Fills lanes with the next ones, and leaves of the others only the bits of `sign`.
#[target_feature(enable = "neon")]
#[inline]
fn spread_vector(
    next: &[u8; VECTOR_BYTES],
    shuffle: &[u8; VECTOR_BYTES],
    sign: uint8x16_t,
    out: &mut [u8; VECTOR_BYTES],
) {
    let shuffle = load(shuffle);
    let is_marked = vcltzq_s8(vreinterpretq_s8_u8(shuffle));
    let zeros = vandq_u8(vandq_u8(load(out), sign), is_marked);
    store(out, vorrq_u8(vqtbl1q_u8(load(next), shuffle), zeros));
}
