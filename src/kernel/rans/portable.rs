//! The loops for any processor: one lane at a time.

use super::tables::{BIAS_MASK, FREQUENCY_AT, NUMBER_AT, NUMBER_MASK, SHIFT_AT, SHIFT_MASK, row};
use super::{LANES, RansDecoder, RansEncoder, STATE_MIN, UNIT_BYTES};

/// Encodes `symbols`, the last one first. The first one belongs to lane 0.
pub(super) fn encode(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    if contexts.is_empty() {
        encode_each(encoder, symbols, |_| 0);
    } else {
        let rows = encoder.tables.rows;
        encode_each(encoder, symbols, |at| row(&rows, contexts[at]) << 8);
    }
}

#[inline(always)]
fn encode_each(encoder: &mut RansEncoder<'_>, symbols: &[u8], first_of: impl Fn(usize) -> usize) {
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
                position -= UNIT_BYTES;
                buffer[position..position + UNIT_BYTES].copy_from_slice(&(x as u16).to_le_bytes());
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

/// Fills `out` with symbols, the first one of lane 0. False if the units end too early.
pub(super) fn decode(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    if contexts.is_empty() {
        decode_each(decoder, out, |_| 0)
    } else {
        let (rows, bits) = (decoder.tables.rows, decoder.tables.bits);
        decode_each(decoder, out, |at| row(&rows, contexts[at]) << bits)
    }
}

#[inline(always)]
fn decode_each(decoder: &mut RansDecoder<'_>, out: &mut [u8], first_of: impl Fn(usize) -> usize) -> bool {
    let (slots, bits) = (&decoder.tables.slots[..], decoder.tables.bits);
    let mask = (1u32 << bits) - 1;
    let states = &mut decoder.states;
    let mut units = decoder.units.as_chunks::<UNIT_BYTES>().0.iter();
    for (group, symbols) in out.chunks_mut(LANES).enumerate() {
        for (lane, symbol) in symbols.iter_mut().enumerate() {
            let x = states[lane];
            let slot = slots[first_of(group * LANES + lane) + (x & mask) as usize];
            *symbol = slot as u8;
            let quotient = x >> bits;
            let number = slot >> NUMBER_AT & NUMBER_MASK;
            let mut next = (slot >> FREQUENCY_AT) * quotient + quotient + number;
            if next < STATE_MIN {
                let Some(unit) = units.next() else { return false };
                next = next << 16 | u32::from(u16::from_le_bytes(*unit));
            }
            states[lane] = next;
        }
    }
    decoder.units = units.as_slice().as_flattened();
    true
}
