//! The loops for NEON: eight vectors of four lanes, two of which share a step of units.
//!
//! 1. Byte shuffles compact and spread units. The mask of eight lanes selects one from a table. It is the sum of a
//!    weight for each lane, whose upper half counts the bytes of the units.
//! 2. The decoder's shuffle has two sources: the new state of a lane, and its unit. It shifts and merges them at once.
//! 3. A multiplication gives the high half of a product that is doubled and signed. Reciprocals have their highest bit
//!    set, so twice the state is added. The shift that follows is one greater.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores vectors")]

use std::arch::aarch64::*;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

use super::groups::{GROUP_BYTES, decode_each, decode_rest};
use super::tables::{BIAS_MASK, FREQUENCY_AT, LAST_CONTEXT, NUMBER_AT, NUMBER_MASK, Rows, SHIFT_AT, SHIFT_MASK};
use super::{BITS_MAX, LANES, RansDecoder, RansEncoder, STATE_MIN, UNIT_BYTES, portable};

/// Lanes of a vector.
const WIDTH: usize = 4;
/// Vectors for all lanes.
const VECTORS: usize = LANES / WIDTH;
/// Lanes whose units are moved in a step: those of two vectors.
const STEP: usize = 2 * WIDTH;
/// Bytes of the units of a step.
const STEP_BYTES: usize = STEP * UNIT_BYTES;

/// Moves the units of the lanes in the mask to the end, in their order.
static COMPACT: [[u8; STEP_BYTES]; 1 << STEP] = {
    let mut all = [[0xff; STEP_BYTES]; 1 << STEP];
    let mut mask = 0usize;
    while mask < all.len() {
        let (mut at, mut lane) = (STEP - mask.count_ones() as usize, 0);
        while lane < STEP {
            if mask >> lane & 1 == 1 {
                all[mask][2 * at] = 2 * lane as u8;
                all[mask][2 * at + 1] = 2 * lane as u8 + 1;
                at += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
};

/// For each vector of a step: shifts the lanes in the mask left by a unit, and fills them with the next units. The
/// states are the first source, the units the second.
static SPREAD: [[[u8; 4 * WIDTH]; 2]; 1 << STEP] = {
    let mut all = [[[0; 4 * WIDTH]; 2]; 1 << STEP];
    let mut mask = 0usize;
    while mask < all.len() {
        let (mut unit, mut lane) = (4 * WIDTH as u8, 0);
        while lane < STEP {
            let (shuffle, at) = (&mut all[mask][lane / WIDTH], lane % WIDTH * 4);
            let mut byte = 0;
            if mask >> lane & 1 == 1 {
                (shuffle[at], shuffle[at + 1]) = (unit, unit + 1);
                unit += 2;
                byte = 2;
            }
            let mut from = at as u8;
            while byte < 4 {
                shuffle[at + byte] = from;
                from += 1;
                byte += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
};

/// Weights of the lanes of a step: a bit of the mask, and above it the bytes of a unit.
const WEIGHTS: [u16; STEP] = {
    let (mut weights, mut lane) = ([(UNIT_BYTES as u16) << STEP; STEP], 0);
    while lane < STEP {
        weights[lane] |= 1 << lane;
        lane += 1;
    }
    weights
};

/// The mask of a step's lanes for which a comparison is true, and the bytes of their units.
#[target_feature(enable = "neon")]
#[inline]
fn mask_of([first, last]: [uint32x4_t; 2]) -> (usize, usize) {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    let weights = unsafe { vld1q_u16(WEIGHTS.as_ptr()) };
    // The long sum is a number of 32 bits, whose upper ones are known to be zero.
    let sum = vaddlvq_u16(vandq_u16(low_halves([first, last]), weights)) as usize;
    (sum & ((1 << STEP) - 1), sum >> STEP)
}

/// The low halves of the lanes of two vectors.
#[target_feature(enable = "neon")]
#[inline]
fn low_halves([first, last]: [uint32x4_t; 2]) -> uint16x8_t {
    vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(last))
}

#[target_feature(enable = "neon")]
#[inline]
fn load_states(states: &[u32; LANES]) -> [uint32x4_t; VECTORS] {
    std::array::from_fn(|vector| {
        // SAFETY: the vector lies in the array, which is as long as all of them; the load needs no alignment.
        unsafe { vld1q_u32(states.as_ptr().add(vector * WIDTH)) }
    })
}

#[target_feature(enable = "neon")]
#[inline]
fn store_states(vectors: [uint32x4_t; VECTORS], states: &mut [u32; LANES]) {
    for (vector, lanes) in vectors.into_iter().zip(states.as_chunks_mut::<WIDTH>().0) {
        // SAFETY: the array is as long as the vector; the store needs no alignment.
        unsafe { vst1q_u32(lanes.as_mut_ptr(), vector) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// The rows of these contexts.
#[target_feature(enable = "neon")]
#[inline]
fn rows_of(contexts: &[u8; 16], rows: &Rows) -> uint8x16_t {
    vqtbl1q_u8(load(rows), vminq_u8(load(contexts), vdupq_n_u8(LAST_CONTEXT)))
}

/// Encodes like [`portable::encode`].
#[target_feature(enable = "neon")]
pub(super) fn encode(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    if contexts.is_empty() {
        encode_groups::<false>(encoder, symbols, contexts);
    } else {
        encode_groups::<true>(encoder, symbols, contexts);
    }
}

#[target_feature(enable = "neon")]
fn encode_groups<const CONTEXTS: bool>(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
    let (groups, rest) = symbols.as_chunks::<LANES>();
    portable::encode(encoder, rest, contexts.get(groups.len() * LANES..).unwrap_or_default());
    let bits = encoder.tables.bits;
    let entries: Vec<u64> = encoder.tables.entries.iter().map(|entry| packed(*entry, bits)).collect();
    let rows = load(&encoder.tables.rows);
    let constants = EncodingConstants::new(bits);
    let mut states = load_states(&encoder.states);
    let mut position = encoder.position;
    let none = [0; LANES];
    let contexts = contexts.as_chunks::<LANES>().0;
    for (number, group) in groups.iter().enumerate().rev() {
        let context = if CONTEXTS { contexts.get(number).unwrap_or(&none) } else { &none };
        // The bytes that this group's units may take, and a vector more in front, as each store has a whole vector.
        let Some(front) = encoder.buffer[position - FRONT..].first_chunk_mut::<FRONT>() else { return };
        let group = GroupToEncode { symbols: group, contexts: context, entries: &entries, rows };
        let end = encode_step::<CONTEXTS, 3>(group, constants, &mut states, front, FRONT);
        let end = encode_step::<CONTEXTS, 2>(group, constants, &mut states, front, end);
        let end = encode_step::<CONTEXTS, 1>(group, constants, &mut states, front, end);
        position -= FRONT - encode_step::<CONTEXTS, 0>(group, constants, &mut states, front, end);
    }
    encoder.position = position;
    store_states(states, &mut encoder.states);
}

/// Bytes in front of the units that a group may change.
const FRONT: usize = GROUP_BYTES + STEP_BYTES;

/// A group of symbols, and the tables.
#[derive(Clone, Copy)]
struct GroupToEncode<'a> {
    symbols: &'a [u8; LANES],
    contexts: &'a [u8; LANES],
    entries: &'a [u64],
    rows: uint8x16_t,
}

/// Encodes the symbols of a step. Its units end at `end`; returns their start.
///
/// The step is no argument, so that it is compiled once for each: the states stay in registers.
#[target_feature(enable = "neon")]
#[inline]
fn encode_step<const CONTEXTS: bool, const STEP_NUMBER: usize>(
    group: GroupToEncode<'_>,
    constants: EncodingConstants,
    states: &mut [uint32x4_t; VECTORS],
    front: &mut [u8; FRONT],
    end: usize,
) -> usize {
    let indices = if CONTEXTS { indices_of(group, STEP_NUMBER) } else { symbols_of(group.symbols, STEP_NUMBER) };
    let entries = indices.map(|indices| gather_entries(group.entries, indices));
    let own = [states[2 * STEP_NUMBER], states[2 * STEP_NUMBER + 1]];
    let is_over = [0, 1].map(|half| constants.is_over(own[half], entries[half].1));
    let (mask, bytes) = mask_of(is_over);
    let compact = vqtbl1q_u8(vreinterpretq_u8_u16(low_halves(own)), load(&COMPACT[mask]));
    // SAFETY: each of the four steps moves `end` by 16 at most, so it is 32 or more here; the store ends there.
    unsafe { vst1q_u8(front.as_mut_ptr().add(end - STEP_BYTES), compact) };
    for half in [0, 1] {
        // The lowest byte of a shift counts: 16 to the right, or none.
        let shift = vshlq_n_u32::<4>(is_over[half]);
        let x = vshlq_u32(own[half], vreinterpretq_s32_u32(shift));
        states[2 * STEP_NUMBER + half] = constants.next(x, entries[half]);
    }
    // The next step's loads stay behind this one's: all at once would take more registers than there are.
    compiler_fence(Ordering::SeqCst);
    end - bytes
}

/// The entry of a symbol in the form of these loops, with the reciprocal in the low half.
///
/// From its lowest bit, the high half has `-1 - shift` (8 bits), the start of the symbol's slots (12 bits), and the
/// frequency less one. The reciprocal of a frequency of one is 2^32, as zero: nothing needs to be corrected.
fn packed(entry: u64, bits: u32) -> u64 {
    let high = (entry >> 32) as u32;
    let (less_one, shift, bias) = (high >> (u32::BITS - bits), high >> SHIFT_AT & SHIFT_MASK, high & BIAS_MASK);
    let (reciprocal, start) =
        if less_one == 0 { (0, bias.wrapping_sub((1 << bits) - 1)) } else { (entry & u64::from(u32::MAX), bias) };
    let start = start & ((1 << BITS_MAX) - 1);
    u64::from(less_one << PACKED_FREQUENCY_AT | start << PACKED_START_AT | (u32::from(u8::MAX) - shift)) << 32
        | reciprocal
}

/// Position of the start in the high half of a packed entry.
const PACKED_START_AT: u32 = 8;
/// Position of the frequency less one in the high half of a packed entry.
const PACKED_FREQUENCY_AT: u32 = PACKED_START_AT + BITS_MAX;

/// What all lanes need that depends on the number of bits.
#[derive(Clone, Copy)]
struct EncodingConstants {
    /// Shift to the right of a state for its comparison.
    limit_at: int32x4_t,
    /// Slots less one.
    others: uint32x4_t,
    /// Two. If the compiler knew, it would make two instructions of a product and its sum.
    two: uint32x4_t,
    /// Shift of a packed entry so that its start has no frequency above it. The same holds for it.
    start_at: int32x4_t,
}

impl EncodingConstants {
    #[target_feature(enable = "neon")]
    fn new(bits: u32) -> EncodingConstants {
        EncodingConstants {
            limit_at: vdupq_n_s32(bits as i32 - 31),
            others: vdupq_n_u32((1 << bits) - 1),
            two: vdupq_n_u32(black_box(2)),
            start_at: vdupq_n_s32(black_box(BITS_MAX as i32)),
        }
    }

    /// Whether states would leave the range.
    #[target_feature(enable = "neon")]
    #[inline]
    fn is_over(self, x: uint32x4_t, high: uint32x4_t) -> uint32x4_t {
        vcgtq_u32(vshlq_u32(x, self.limit_at), vshrq_n_u32::<{ PACKED_FREQUENCY_AT as i32 }>(high))
    }

    /// The states after these, which are in the range of their entries' symbols.
    #[target_feature(enable = "neon")]
    #[inline]
    fn next(self, x: uint32x4_t, (reciprocal, high): (uint32x4_t, uint32x4_t)) -> uint32x4_t {
        let signed = vqdmulhq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(reciprocal));
        let doubled = vmlaq_u32(vreinterpretq_u32_s32(signed), x, self.two);
        let quotient = vshlq_u32(doubled, vreinterpretq_s32_u32(high));
        let factor = veorq_u32(vshrq_n_u32::<{ PACKED_FREQUENCY_AT as i32 }>(high), self.others);
        let start = vshlq_u32(high, self.start_at);
        vmlaq_u32(vsraq_n_u32::<{ (u32::BITS - BITS_MAX) as i32 }>(x, start), quotient, factor)
    }
}

/// The symbols of a step. They come out of one number: single loads would take all registers.
#[target_feature(enable = "neon")]
#[inline]
fn symbols_of(symbols: &[u8; LANES], step: usize) -> [[usize; WIDTH]; 2] {
    let symbols = u64::from_le_bytes(symbols.as_chunks().0[step]);
    [0, 1].map(|half| std::array::from_fn(|lane| usize::from((symbols >> (8 * (WIDTH * half + lane))) as u8)))
}

/// Index of the entry of each symbol of a step.
#[target_feature(enable = "neon")]
#[inline]
fn indices_of(group: GroupToEncode<'_>, step: usize) -> [[usize; WIDTH]; 2] {
    let [symbols, contexts] =
        [group.symbols, group.contexts].map(|all| vcreate_u8(u64::from_le_bytes(all.as_chunks::<STEP>().0[step])));
    let rows = vqtbl1_u8(group.rows, vmin_u8(contexts, vdup_n_u8(LAST_CONTEXT)));
    [vzip1_u8(symbols, rows), vzip2_u8(symbols, rows)].map(|half| {
        let indices = vget_lane_u64::<0>(vreinterpret_u64_u8(half));
        std::array::from_fn(|lane| usize::from((indices >> (16 * lane)) as u16))
    })
}

/// The low and the high halves of the entries at these indices.
#[target_feature(enable = "neon")]
#[inline]
fn gather_entries(entries: &[u64], indices: [usize; WIDTH]) -> (uint32x4_t, uint32x4_t) {
    debug_assert!(indices.iter().all(|index| *index < entries.len()));
    let pair = |lane: usize| {
        // SAFETY: an index is a row of the table and a symbol, and each row has 256 entries; each load has 8 bytes.
        let [low, high] = [0, 1].map(|next| unsafe { vld1_u64(entries.as_ptr().add(indices[lane + next])) });
        vreinterpretq_u32_u64(vcombine_u64(low, high))
    };
    let (low, high) = (pair(0), pair(2));
    (vuzp1q_u32(low, high), vuzp2q_u32(low, high))
}

/// Decodes like [`portable::decode`].
#[target_feature(enable = "neon")]
pub(super) fn decode(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let is_good = if contexts.is_empty() {
        decode_groups::<false>(decoder, contexts, out)
    } else {
        decode_groups::<true>(decoder, contexts, out)
    };
    is_good && decode_rest(decoder, contexts, out)
}

#[target_feature(enable = "neon")]
fn decode_groups<const CONTEXTS: bool>(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let (slots, rows, bits) = (&decoder.tables.slots[..], &decoder.tables.rows, decoder.tables.bits as i32);
    let (slot_mask, row_at, quotient_at) = (vdupq_n_u32((1 << bits) - 1), vdupq_n_s32(bits), vdupq_n_s32(-bits));
    let mut states = load_states(&decoder.states);
    let is_good = decode_each(decoder, contexts, out, |contexts, units, group| {
        let mut taken = 0;
        let rows: [[uint32x4_t; 2]; VECTORS / 2] =
            if CONTEXTS { wide_rows(contexts, rows) } else { [[vdupq_n_u32(0); 2]; VECTORS / 2] };
        let found: [uint16x8_t; VECTORS / 2] = std::array::from_fn(|step| {
            let [(slot, next), (other_slot, other_next)] = [0, 1].map(|half| {
                let x = states[2 * step + half];
                let mut index = vandq_u32(x, slot_mask);
                if CONTEXTS {
                    index = vorrq_u32(index, vshlq_u32(rows[step][half], row_at));
                }
                let slot = gather_slots(slots, index);
                let quotient = vshlq_u32(x, quotient_at);
                let number = vandq_u32(vshrq_n_u32::<{ NUMBER_AT as i32 }>(slot), vdupq_n_u32(NUMBER_MASK));
                let sum = vaddq_u32(quotient, number);
                (slot, vmlaq_u32(sum, vshrq_n_u32::<{ FREQUENCY_AT as i32 }>(slot), quotient))
            });
            let limit = vdupq_n_u32(STATE_MIN);
            let (mask, bytes) = mask_of([vcltq_u32(next, limit), vcltq_u32(other_next, limit)]);
            // SAFETY: each step takes 16 bytes at most, so the last load ends within the group's units.
            let units = unsafe { vld1q_u8(units.as_ptr().add(taken)) };
            for (half, next) in [next, other_next].into_iter().enumerate() {
                let sources = uint8x16x2_t(vreinterpretq_u8_u32(next), units);
                states[2 * step + half] = vreinterpretq_u32_u8(vqtbl2q_u8(sources, load(&SPREAD[mask][half])));
            }
            taken += bytes;
            // As in the encoder.
            compiler_fence(Ordering::SeqCst);
            low_halves([slot, other_slot])
        });
        store_symbols(found, group);
        taken
    });
    store_states(states, &mut decoder.states);
    is_good
}

/// The rows of these contexts, in the lanes of the states.
#[target_feature(enable = "neon")]
#[inline]
fn wide_rows(contexts: &[u8; LANES], rows: &Rows) -> [[uint32x4_t; 2]; VECTORS / 2] {
    let mut wide = [[vdupq_n_u32(0); 2]; VECTORS / 2];
    for (steps, contexts) in wide.as_chunks_mut::<2>().0.iter_mut().zip(contexts.as_chunks().0) {
        let rows = rows_of(contexts, rows);
        let halves = [vmovl_u8(vget_low_u8(rows)), vmovl_high_u8(rows)];
        *steps = halves.map(|half| [vmovl_u16(vget_low_u16(half)), vmovl_high_u16(half)]);
    }
    wide
}

/// The entries of the slots at these indices.
#[target_feature(enable = "neon")]
#[inline]
fn gather_slots(slots: &[u32], indices: uint32x4_t) -> uint32x4_t {
    let pairs = vreinterpretq_u64_u32(indices);
    let (first, last) = (vgetq_lane_u64::<0>(pairs), vgetq_lane_u64::<1>(pairs));
    let start = slots.as_ptr();
    // An index is below 2^16, so a shift by 30 leaves nothing of the lower one of a pair: it gives the bytes before the
    // higher one's slot.
    let all = [first & 0xffff_ffff, first >> 32, last & 0xffff_ffff, last >> 32];
    debug_assert!(all.iter().all(|index| (*index as usize) < slots.len()));
    // SAFETY: the low bits of an index are a slot, and its high bits are a row of the table.
    unsafe {
        let found = vld1q_lane_u32::<0>(start.add(first as u32 as usize), vdupq_n_u32(0));
        let found = vld1q_lane_u32::<1>(start.byte_add((first >> 30) as usize), found);
        let found = vld1q_lane_u32::<2>(start.add(last as u32 as usize), found);
        vld1q_lane_u32::<3>(start.byte_add((last >> 30) as usize), found)
    }
}

/// Stores the low bytes of all lanes.
#[target_feature(enable = "neon")]
#[inline]
fn store_symbols([a, b, c, d]: [uint16x8_t; VECTORS / 2], group: &mut [u8; LANES]) {
    let low = |first: uint16x8_t, last: uint16x8_t| vuzp1q_u8(vreinterpretq_u8_u16(first), vreinterpretq_u8_u16(last));
    // SAFETY: the array is as long as the two vectors; the store needs no alignment.
    unsafe { vst1q_u8_x2(group.as_mut_ptr(), uint8x16x2_t(low(a, b), low(c, d))) }
}
