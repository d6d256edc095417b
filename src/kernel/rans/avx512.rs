//! The loops for AVX-512: two vectors of sixteen lanes. It has instructions that compact and spread units.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads and stores vectors")]

use std::arch::x86_64::*;

use super::groups::{GROUP_BYTES, decode_each, decode_rest};
use super::tables::{BIAS_MASK, FREQUENCY_AT, LAST_CONTEXT, NUMBER_AT, NUMBER_MASK, Rows, SHIFT_AT, SHIFT_MASK};
use super::{LANES, RansDecoder, RansEncoder, STATE_MIN, UNIT_BYTES, portable};

/// Lanes of a vector.
const WIDTH: usize = 16;
/// Vectors for all lanes.
const VECTORS: usize = LANES / WIDTH;

#[target_feature(enable = "avx512f")]
#[inline]
fn load_states(states: &[u32; LANES]) -> [__m512i; VECTORS] {
    std::array::from_fn(|vector| {
        // SAFETY: the vector lies in the array, which is as long as all of them; the load needs no alignment.
        unsafe { _mm512_loadu_epi32(states.as_ptr().add(vector * WIDTH).cast()) }
    })
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_states(vectors: [__m512i; VECTORS], states: &mut [u32; LANES]) {
    for (vector, lanes) in vectors.into_iter().zip(states.as_chunks_mut::<WIDTH>().0) {
        // SAFETY: the array is as long as the vector; the store needs no alignment.
        unsafe { _mm512_storeu_epi32(lanes.as_mut_ptr().cast(), vector) }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn all(value: u32) -> __m512i {
    _mm512_set1_epi32(value as i32)
}

/// The bytes of a vector's lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn load_bytes(bytes: &[u8; LANES], vector: usize) -> __m128i {
    debug_assert!(vector < VECTORS);
    // SAFETY: the vector's sixteen bytes lie in the array; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(vector * WIDTH).cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_rows(rows: &Rows) -> __m128i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm_loadu_si128(rows.as_ptr().cast()) }
}

/// The rows of these contexts.
#[target_feature(enable = "avx2")]
#[inline]
fn rows_of(contexts: __m128i, rows: __m128i) -> __m128i {
    _mm_shuffle_epi8(rows, _mm_min_epu8(contexts, _mm_set1_epi8(LAST_CONTEXT as i8)))
}

/// Encodes like [`portable::encode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt")]
pub(super) fn encode(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    if contexts.is_empty() {
        encode_groups::<false>(encoder, symbols, contexts);
    } else {
        encode_groups::<true>(encoder, symbols, contexts);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt")]
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
        // The bytes that this group's units may take.
        let front = &mut encoder.buffer[position - GROUP_BYTES..position];
        let mut end = front.len();
        for vector in (0..VECTORS).rev() {
            let mut indices = _mm512_cvtepu8_epi32(load_bytes(group, vector));
            if CONTEXTS {
                let context = rows_of(load_bytes(context, vector), rows);
                indices = _mm512_or_si512(indices, _mm512_slli_epi32::<8>(_mm512_cvtepu8_epi32(context)));
            }
            let (reciprocal, high) = gather_entries(entries, indices);
            let x = states[vector];
            let is_over = _mm512_cmpgt_epu32_mask(x, _mm512_or_si512(_mm512_srli_epi32::<1>(high), below));
            let units = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(is_over, x));
            let count = is_over.count_ones();
            end -= UNIT_BYTES * count as usize;
            // SAFETY: each vector moves `end` by 32 at most, so it stays in the slice; `count` units are stored.
            unsafe { _mm256_mask_storeu_epi16(front.as_mut_ptr().add(end).cast(), ((1 << count) - 1) as u16, units) };

            let x = _mm512_mask_srli_epi32::<16>(x, is_over, x);
            let even = _mm512_mul_epu32(x, reciprocal);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(reciprocal));
            let product = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(even), odd);
            let shift = _mm512_and_si512(_mm512_srli_epi32::<SHIFT_AT>(high), all(SHIFT_MASK));
            let quotient = _mm512_srlv_epi32(product, shift);
            let factor = _mm512_xor_si512(_mm512_srl_epi32(high, frequency_at), others);
            let sum = _mm512_add_epi32(x, _mm512_and_si512(high, all(BIAS_MASK)));
            states[vector] = _mm512_add_epi32(sum, _mm512_mullo_epi32(quotient, factor));
        }
        position -= front.len() - end;
    }
    encoder.position = position;
    store_states(states, &mut encoder.states);
}

/// The low and the high halves of the entries at these indices.
#[target_feature(enable = "avx512f")]
#[inline]
fn gather_entries(entries: &[u64], indices: __m512i) -> (__m512i, __m512i) {
    // SAFETY: the low 8 bits of an index are a symbol, and its high bits are a row of the table.
    let (first, second) = unsafe {
        let (low, high) = (_mm512_castsi512_si256(indices), _mm512_extracti64x4_epi64::<1>(indices));
        let start = entries.as_ptr().cast();
        (_mm512_i32gather_epi64::<8>(low, start), _mm512_i32gather_epi64::<8>(high, start))
    };
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_or_si512(even, all(1));
    (_mm512_permutex2var_epi32(first, even, second), _mm512_permutex2var_epi32(first, odd, second))
}

/// Decodes like [`portable::decode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt")]
pub(super) fn decode(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let is_good = if contexts.is_empty() {
        decode_groups::<false>(decoder, contexts, out)
    } else {
        decode_groups::<true>(decoder, contexts, out)
    };
    is_good && decode_rest(decoder, contexts, out)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt")]
fn decode_groups<const CONTEXTS: bool>(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let (slots, bits) = (&decoder.tables.slots[..], decoder.tables.bits);
    let rows = load_rows(&decoder.tables.rows);
    let (slot_mask, shift) = (all((1 << bits) - 1), _mm_cvtsi32_si128(bits as i32));
    let mut states = load_states(&decoder.states);
    let is_good = decode_each(decoder, contexts, out, |contexts, units, group| {
        let mut taken = 0;
        for (vector, symbols) in group.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            let x = states[vector];
            let mut index = _mm512_and_si512(x, slot_mask);
            if CONTEXTS {
                let context = rows_of(load_bytes(contexts, vector), rows);
                index = _mm512_or_si512(index, _mm512_sll_epi32(_mm512_cvtepu8_epi32(context), shift));
            }
            // SAFETY: the low bits of an index are a slot, and its high bits are a row of the table.
            let slot = unsafe { _mm512_i32gather_epi32::<4>(index, slots.as_ptr().cast()) };
            let quotient = _mm512_srl_epi32(x, shift);
            let number = _mm512_and_si512(_mm512_srli_epi32::<NUMBER_AT>(slot), all(NUMBER_MASK));
            let more = _mm512_mullo_epi32(_mm512_srli_epi32::<FREQUENCY_AT>(slot), quotient);
            let next = _mm512_add_epi32(more, _mm512_add_epi32(quotient, number));
            let is_under = _mm512_cmplt_epu32_mask(next, all(STATE_MIN));
            // SAFETY: each vector takes 32 bytes at most, so the second load ends within the group's units.
            let units = unsafe { _mm256_loadu_epi16(units.as_ptr().add(taken).cast()) };
            let spread = _mm512_maskz_expand_epi32(is_under, _mm512_cvtepu16_epi32(units));
            taken += UNIT_BYTES * is_under.count_ones() as usize;
            let shifted = _mm512_mask_slli_epi32::<16>(next, is_under, next);
            states[vector] = _mm512_or_si512(shifted, spread);
            // SAFETY: the array is as long as the vector; the store needs no alignment.
            unsafe { _mm_storeu_si128(symbols.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(slot)) };
        }
        taken
    });
    store_states(states, &mut decoder.states);
    is_good
}
