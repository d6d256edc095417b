//! The loops for AVX2: four vectors of eight lanes.
//!
//! Byte shuffles compact and spread units. The mask of the lanes selects a shuffle from a table.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads and stores vectors")]

use std::arch::x86_64::*;

use super::groups::{GROUP_BYTES, decode_each, decode_rest};
use super::tables::{BIAS_MASK, FREQUENCY_AT, LAST_CONTEXT, NUMBER_AT, NUMBER_MASK, Rows, SHIFT_AT, SHIFT_MASK};
use super::{LANES, RansDecoder, RansEncoder, STATE_MIN, UNIT_BYTES, portable};

/// Lanes of a vector.
const WIDTH: usize = 8;
/// Vectors for all lanes.
const VECTORS: usize = LANES / WIDTH;
/// Bytes of the units of a vector.
const VECTOR_BYTES: usize = WIDTH * UNIT_BYTES;

/// A shuffle for each mask of lanes.
type Shuffles = [[u8; VECTOR_BYTES]; 1 << WIDTH];

/// Moves the units of the lanes in the mask to the end, in their order.
static COMPACT: Shuffles = shuffles(false);
/// Moves the first units to the lanes in the mask. The other lanes become zero.
static SPREAD: Shuffles = shuffles(true);

const fn shuffles(is_spread: bool) -> Shuffles {
    let mut all = [[0x80; VECTOR_BYTES]; 1 << WIDTH];
    let mut mask = 0;
    while mask < all.len() {
        let mut at = if is_spread { 0 } else { WIDTH - mask.count_ones() as usize };
        let mut lane = 0;
        while lane < WIDTH {
            if mask >> lane & 1 == 1 {
                let (to, from) = if is_spread { (lane, at) } else { (at, lane) };
                all[mask][2 * to] = 2 * from as u8;
                all[mask][2 * to + 1] = 2 * from as u8 + 1;
                at += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_states(states: &[u32; LANES]) -> [__m256i; VECTORS] {
    std::array::from_fn(|vector| {
        // SAFETY: the vector lies in the array, which is as long as all of them; the load needs no alignment.
        unsafe { _mm256_loadu_si256(states.as_ptr().add(vector * WIDTH).cast()) }
    })
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_states(vectors: [__m256i; VECTORS], states: &mut [u32; LANES]) {
    for (vector, lanes) in vectors.into_iter().zip(states.as_chunks_mut::<WIDTH>().0) {
        // SAFETY: the array is as long as the vector; the store needs no alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_128(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn all(value: u32) -> __m256i {
    _mm256_set1_epi32(value as i32)
}

/// Mask of the lanes for which a comparison is true.
#[target_feature(enable = "avx2")]
#[inline]
fn mask_of(lanes: __m256i) -> usize {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as usize
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_rows(rows: &Rows) -> __m128i {
    load_128(rows)
}

/// The rows of these contexts.
#[target_feature(enable = "avx2")]
#[inline]
fn rows_of(contexts: __m128i, rows: __m128i) -> __m128i {
    _mm_shuffle_epi8(rows, _mm_min_epu8(contexts, _mm_set1_epi8(LAST_CONTEXT as i8)))
}

/// Encodes like [`portable::encode`].
#[target_feature(enable = "avx2,popcnt")]
pub(super) fn encode(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    if contexts.is_empty() {
        encode_groups::<false>(encoder, symbols, contexts);
    } else {
        encode_groups::<true>(encoder, symbols, contexts);
    }
}

#[target_feature(enable = "avx2,popcnt")]
fn encode_groups<const CONTEXTS: bool>(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    let (groups, rest) = symbols.as_chunks::<LANES>();
    portable::encode(encoder, rest, contexts.get(groups.len() * LANES..).unwrap_or_default());
    let (entries, bits) = (&encoder.tables.entries[..], encoder.tables.bits);
    let rows = load_rows(&encoder.tables.rows);
    let (below, others) = (all((1 << (31 - bits)) - 1), all((1 << bits) - 1));
    let frequency_at = _mm_cvtsi32_si128(32 - bits as i32);
    let mut states = load_states(&encoder.states);
    let mut position = encoder.position;
    let none = [0; LANES];
    let contexts = contexts.as_chunks::<LANES>().0;
    for (number, group) in groups.iter().enumerate().rev() {
        let context = if CONTEXTS { contexts.get(number).unwrap_or(&none) } else { &none };
        let indices = if CONTEXTS { indices_of(group, context, rows) } else { [0; LANES] };
        // The bytes that this group's units may take, and a vector more in front, as each store has a whole vector.
        let front = &mut encoder.buffer[position - GROUP_BYTES - VECTOR_BYTES..position];
        let mut end = front.len();
        for vector in (0..VECTORS).rev() {
            let index = |lane| usize::from(if CONTEXTS { indices[lane] } else { u16::from(group[lane]) });
            let (reciprocal, high) = gather_entries(entries, std::array::from_fn(|lane| index(WIDTH * vector + lane)));
            let x = states[vector];
            let is_over = _mm256_cmpgt_epi32(x, _mm256_or_si256(_mm256_srli_epi32::<1>(high), below));
            let low = _mm256_blend_epi16::<0xaa>(x, _mm256_setzero_si256());
            let units = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
            let mask = mask_of(is_over);
            let compact = _mm_shuffle_epi8(units, load_128(&COMPACT[mask]));
            // SAFETY: each vector moves `end` by 16 at most, so it stays at 32 or more; the store ends there.
            unsafe { _mm_storeu_si128(front.as_mut_ptr().add(end - VECTOR_BYTES).cast(), compact) };
            end -= UNIT_BYTES * mask.count_ones() as usize;

            let x = _mm256_srlv_epi32(x, _mm256_and_si256(is_over, all(16)));
            let even = _mm256_mul_epu32(x, reciprocal);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(x), _mm256_srli_epi64::<32>(reciprocal));
            let product = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd);
            let shift = _mm256_and_si256(_mm256_srli_epi32::<{ SHIFT_AT as i32 }>(high), all(SHIFT_MASK));
            let quotient = _mm256_srlv_epi32(product, shift);
            let factor = _mm256_xor_si256(_mm256_srl_epi32(high, frequency_at), others);
            let sum = _mm256_add_epi32(x, _mm256_and_si256(high, all(BIAS_MASK)));
            states[vector] = _mm256_add_epi32(sum, _mm256_mullo_epi32(quotient, factor));
        }
        position -= front.len() - end;
    }
    encoder.position = position;
    store_states(states, &mut encoder.states);
}

/// Index of each symbol's entry.
#[target_feature(enable = "avx2")]
#[inline]
fn indices_of(symbols: &[u8; LANES], contexts: &[u8; LANES], rows: __m128i) -> [u16; LANES] {
    let mut indices = [0; LANES];
    for (half, indices) in indices.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let part = |all: &[u8; LANES]| load_128(&all.as_chunks().0[half]);
        let (symbols, contexts) = (part(symbols), rows_of(part(contexts), rows));
        // SAFETY: the array is as long as both vectors; the stores need no alignment.
        unsafe {
            _mm_storeu_si128(indices.as_mut_ptr().cast(), _mm_unpacklo_epi8(symbols, contexts));
            _mm_storeu_si128(indices.as_mut_ptr().add(8).cast(), _mm_unpackhi_epi8(symbols, contexts));
        }
    }
    indices
}

/// The low and the high halves of the entries at these indices.
#[target_feature(enable = "avx2")]
#[inline]
fn gather_entries(entries: &[u64], indices: [usize; WIDTH]) -> (__m256i, __m256i) {
    debug_assert!(indices.iter().all(|index| *index < entries.len()));
    let pair = |lane: usize| {
        // SAFETY: an index is a row of the table and a symbol, and each row has 256 entries; each load has 8 bytes.
        unsafe {
            let low = _mm_loadl_epi64(entries.as_ptr().add(indices[lane]).cast());
            _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), entries.as_ptr().add(indices[lane + 1]).cast()))
        }
    };
    let one = _mm256_castsi256_ps(_mm256_set_m128i(pair(4), pair(0)));
    let other = _mm256_castsi256_ps(_mm256_set_m128i(pair(6), pair(2)));
    let low = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(one, other));
    (low, _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(one, other)))
}

/// Decodes like [`portable::decode`].
#[target_feature(enable = "avx2,popcnt")]
pub(super) fn decode(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let is_good = if contexts.is_empty() {
        decode_groups::<false>(decoder, contexts, out)
    } else {
        decode_groups::<true>(decoder, contexts, out)
    };
    is_good && decode_rest(decoder, contexts, out)
}

#[target_feature(enable = "avx2,popcnt")]
fn decode_groups<const CONTEXTS: bool>(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let (slots, bits) = (&decoder.tables.slots[..], decoder.tables.bits);
    let rows = load_rows(&decoder.tables.rows);
    let (slot_mask, shift) = (all((1 << bits) - 1), _mm_cvtsi32_si128(bits as i32));
    let mut states = load_states(&decoder.states);
    let is_good = decode_each(decoder, contexts, out, |contexts, units, group| {
        let mut taken = 0;
        let found: [__m256i; VECTORS] = std::array::from_fn(|vector| {
            let x = states[vector];
            let mut index = _mm256_and_si256(x, slot_mask);
            if CONTEXTS {
                // SAFETY: the vector's eight bytes lie in the array.
                let context = unsafe { _mm_loadl_epi64(contexts.as_ptr().add(vector * WIDTH).cast()) };
                index = _mm256_or_si256(index, _mm256_sll_epi32(_mm256_cvtepu8_epi32(rows_of(context, rows)), shift));
            }
            let slot = gather_slots(slots, index);
            let quotient = _mm256_srl_epi32(x, shift);
            let number = _mm256_and_si256(_mm256_srli_epi32::<{ NUMBER_AT as i32 }>(slot), all(NUMBER_MASK));
            let more = _mm256_mullo_epi32(_mm256_srli_epi32::<{ FREQUENCY_AT as i32 }>(slot), quotient);
            let next = _mm256_add_epi32(more, _mm256_add_epi32(quotient, number));
            let is_under = _mm256_cmpgt_epi32(all(STATE_MIN), next);
            let mask = mask_of(is_under);
            // SAFETY: each vector takes 16 bytes at most, so the last load ends within the group's units.
            let units = unsafe { _mm_loadu_si128(units.as_ptr().add(taken).cast()) };
            let spread = _mm256_cvtepu16_epi32(_mm_shuffle_epi8(units, load_128(&SPREAD[mask])));
            taken += UNIT_BYTES * mask.count_ones() as usize;
            states[vector] = _mm256_or_si256(_mm256_sllv_epi32(next, _mm256_and_si256(is_under, all(16))), spread);
            slot
        });
        store_symbols(found, group);
        taken
    });
    store_states(states, &mut decoder.states);
    is_good
}

/// The entries of the slots at these indices.
#[target_feature(enable = "avx2")]
#[inline]
fn gather_slots(slots: &[u32], indices: __m256i) -> __m256i {
    // SAFETY: the low bits of an index are a slot, and its high bits are a row of the table.
    unsafe { _mm256_i32gather_epi32::<4>(slots.as_ptr().cast(), indices) }
}

/// Stores the low bytes of all lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn store_symbols([a, b, c, d]: [__m256i; VECTORS], group: &mut [u8; LANES]) {
    let low = |slots: __m256i| _mm256_and_si256(slots, all(0xff));
    let halves = (_mm256_packus_epi32(low(a), low(b)), _mm256_packus_epi32(low(c), low(d)));
    // Each half of the vector has four bytes of each of the four.
    let bytes = _mm256_packus_epi16(halves.0, halves.1);
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    // SAFETY: the array is as long as the vector; the store needs no alignment.
    unsafe { _mm256_storeu_si256(group.as_mut_ptr().cast(), _mm256_permutevar8x32_epi32(bytes, order)) };
}
