//! The loops for any processor: one lane after the other.

use super::table::{BIAS_MASK, FREQUENCY_AT, NUMBER_AT, NUMBER_MASK, SHIFT_AT, SHIFT_MASK, row};
use super::{Decoder, Encoder, LANES, STATE_MIN, WORD_BYTES};

/// Encodes `symbols`, whose first is of lane 0, last one first.
pub(super) fn encode(encoder: &mut Encoder<'_>, symbols: &[u8], contexts: &[u8]) {
    if contexts.is_empty() {
        encode_each(encoder, symbols, |_| 0);
    } else {
        let rows = encoder.tables.rows;
        encode_each(encoder, symbols, |at| row(&rows, contexts[at]) << 8);
    }
}

#[inline(always)]
fn encode_each(encoder: &mut Encoder<'_>, symbols: &[u8], first_of: impl Fn(usize) -> usize) {
    let (entries, bits) = (&encoder.tables.entries[..], encoder.tables.bits);
    let below = (1u32 << (31 - bits)) - 1;
    let slots_less_one = (1u32 << bits) - 1;
    let (states, buffer) = (&mut encoder.states, &mut *encoder.buffer);
    let mut position = encoder.position;
    for (group, symbols) in symbols.chunks(LANES).enumerate().rev() {
        for (lane, symbol) in symbols.iter().enumerate().rev() {
            let entry = entries[first_of(group * LANES + lane) + usize::from(*symbol)];
            let high = (entry >> 32) as u32;
            let mut x = states[lane];
            if x > (high >> 1 | below) {
                position -= WORD_BYTES;
                buffer[position..position + WORD_BYTES].copy_from_slice(&(x as u16).to_le_bytes());
                x >>= 16;
            }
            let product = (u64::from(x) * u64::from(entry as u32)) >> 32;
            let quotient = product as u32 >> (high >> SHIFT_AT & SHIFT_MASK);
            let others = (high >> (32 - bits)) ^ slots_less_one;
            states[lane] = x.wrapping_add(high & BIAS_MASK).wrapping_add(quotient.wrapping_mul(others));
        }
    }
    encoder.position = position;
}

/// Decodes symbols, the first of lane 0, until `out` is full; false where the words end before.
pub(super) fn decode(decoder: &mut Decoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    if contexts.is_empty() {
        decode_each(decoder, out, |_| 0)
    } else {
        let (rows, bits) = (decoder.tables.rows, decoder.tables.bits);
        decode_each(decoder, out, |at| row(&rows, contexts[at]) << bits)
    }
}

#[inline(always)]
fn decode_each(decoder: &mut Decoder<'_>, out: &mut [u8], first_of: impl Fn(usize) -> usize) -> bool {
    let (slots, bits) = (&decoder.tables.slots[..], decoder.tables.bits);
    let mask = (1u32 << bits) - 1;
    let states = &mut decoder.states;
    let mut words = decoder.words.as_chunks::<WORD_BYTES>().0.iter();
    for (group, symbols) in out.chunks_mut(LANES).enumerate() {
        for (lane, symbol) in symbols.iter_mut().enumerate() {
            let x = states[lane];
            let slot = slots[first_of(group * LANES + lane) + (x & mask) as usize];
            *symbol = slot as u8;
            let quotient = x >> bits;
            let number = slot >> NUMBER_AT & NUMBER_MASK;
            let mut next = (slot >> FREQUENCY_AT) * quotient + quotient + number;
            if next < STATE_MIN {
                let Some(word) = words.next() else { return false };
                next = next << 16 | u32::from(u16::from_le_bytes(*word));
            }
            states[lane] = next;
        }
    }
    decoder.words = words.as_slice().as_flattened();
    true
}
