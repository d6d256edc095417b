//! Tables of the loops, made of frequency tables in each call: by symbol for the encoder, by slot for the decoder.

use super::{BITS_MAX, FrequencyTable, TABLES_MAX};

/// Number of different symbols.
const SYMBOLS: usize = 256;

/// The row of each context. A table of the loops has a row for each frequency table that differs from the previous one.
pub(super) type Rows = [u8; TABLES_MAX];

/// The frequency tables that differ from the previous ones, and the row of each context. Contexts without a frequency
/// table have the last row.
fn rows(tables: &[FrequencyTable]) -> (Vec<&FrequencyTable>, Rows) {
    let mut distinct: Vec<&FrequencyTable> = Vec::with_capacity(TABLES_MAX);
    let mut rows = [0; TABLES_MAX];
    for (context, row) in rows.iter_mut().enumerate() {
        if let Some(table) = tables.get(context).filter(|table| distinct.last() != Some(table)) {
            distinct.push(table);
        }
        *row = distinct.len().saturating_sub(1) as u8;
    }
    (distinct, rows)
}

/// The row of a context.
#[inline(always)]
pub(super) fn row(rows: &Rows, context: u8) -> usize {
    usize::from(rows[usize::from(context.min(LAST_CONTEXT))])
}

/// The greatest context that may have a frequency table.
pub(super) const LAST_CONTEXT: u8 = TABLES_MAX as u8 - 1;

/// An entry for each symbol of each row.
///
/// From the lowest bit, an entry has the reciprocal (32 bits), the bias that is added to the state (13 bits), the shift
/// after the product with the reciprocal (4 bits, from bit 45), and in the highest `bits` the frequency less one.
pub(super) struct EncodingTable {
    pub(super) entries: Vec<u64>,
    pub(super) rows: Rows,
    pub(super) bits: u32,
}

/// Position of the shift in the high half of an entry.
pub(super) const SHIFT_AT: u32 = 13;
/// Mask of the shift, after it is shifted right.
pub(super) const SHIFT_MASK: u32 = 15;
/// Mask of the bias in the high half of an entry.
pub(super) const BIAS_MASK: u32 = (1 << SHIFT_AT) - 1;

/// The entry of a symbol that has `frequency` slots, at least one, from `start` on.
///
/// Let `s` be the least number with `frequency <= 1 << s`, and the reciprocal `r` be `2^(s + 31) / frequency`, rounded
/// up by `e / frequency`. The quotient of `x` is `x * r >> s + 31`: `x * e < 2^31 * 2^s` for every state, so the error
/// is too small to reach the next quotient. A `frequency` of one has no such `r` of 32 bits. The greatest number gives
/// `x - 1` instead, and the bias corrects it.
fn entry(frequency: u32, start: u32, bits: u32) -> u64 {
    let slots = 1u32 << bits;
    let (reciprocal, shift, bias) = if frequency == 1 {
        (u64::from(u32::MAX), 0, start + slots - 1)
    } else {
        let log = (frequency - 1).ilog2() + 1;
        ((1u64 << (log + 31)).div_ceil(u64::from(frequency)), log - 1, start)
    };
    let high = (frequency - 1) << (32 - bits) | shift << SHIFT_AT | bias;
    u64::from(high) << 32 | reciprocal
}

impl EncodingTable {
    pub(super) fn new(tables: &[FrequencyTable]) -> Self {
        let bits = tables.first().map_or(BITS_MAX, FrequencyTable::bits);
        let (distinct, rows) = rows(tables);
        let mut entries = vec![entry(1, 0, bits); distinct.len().max(1) * SYMBOLS];
        for (table, entries) in distinct.iter().zip(entries.as_chunks_mut::<SYMBOLS>().0) {
            let mut start = 0;
            for (symbol, frequency) in table.used() {
                entries[usize::from(symbol)] = entry(frequency, start, bits);
                start = (start + frequency) & ((1 << bits) - 1);
            }
        }
        EncodingTable { entries, rows, bits }
    }
}

/// An entry for each slot of each row.
///
/// From the lowest bit, an entry has the symbol (8 bits), the slot's number among the slots of the symbol (12 bits),
/// and the symbol's frequency less one (12 bits).
pub(super) struct DecodingTable {
    pub(super) slots: Vec<u32>,
    pub(super) rows: Rows,
    pub(super) bits: u32,
}

/// Position of the slot's number in an entry.
pub(super) const NUMBER_AT: u32 = 8;
/// Position of the frequency less one in an entry.
pub(super) const FREQUENCY_AT: u32 = NUMBER_AT + BITS_MAX;
/// Mask of the slot's number, after it is shifted right.
pub(super) const NUMBER_MASK: u32 = (1 << BITS_MAX) - 1;

impl DecodingTable {
    pub(super) fn new(tables: &[FrequencyTable]) -> Self {
        let bits = tables.first().map_or(BITS_MAX, FrequencyTable::bits);
        let (distinct, rows) = rows(tables);
        let mut slots = vec![0; distinct.len().max(1) << bits];
        for (table, mut slots) in distinct.iter().zip(slots.chunks_exact_mut(1 << bits)) {
            for (symbol, frequency) in table.used() {
                let first = (frequency - 1) << FREQUENCY_AT | u32::from(symbol);
                let Some((own, rest)) = slots.split_at_mut_checked(frequency as usize) else { break };
                (0..).zip(own).for_each(|(number, slot)| *slot = first | number << NUMBER_AT);
                slots = rest;
            }
        }
        DecodingTable { slots, rows, bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient(entry: u64, x: u32) -> u32 {
        let product = u64::from(x) * u64::from(entry as u32);
        (product >> 32) as u32 >> ((entry >> 32) as u32 >> SHIFT_AT & SHIFT_MASK)
    }

    #[test]
    fn quotients_are_exact_where_they_change() {
        for bits in 8..=12 {
            for frequency in 2..=1u32 << bits {
                let entry = entry(frequency, 0, bits);
                let end = (u64::from(frequency) << (31 - bits)) as u32;
                let steps = end / frequency;
                let stride = (steps / 512).max(1) | 1;
                for step in (1..=steps).step_by(stride as usize).chain(steps.saturating_sub(64).max(1)..=steps) {
                    let x = step * frequency;
                    assert_eq!(quotient(entry, x), step, "{x} / {frequency}");
                    assert_eq!(quotient(entry, x - 1), step - 1, "{} / {frequency}", x - 1);
                }
            }
        }
    }

    #[test]
    fn a_frequency_of_one_gives_a_quotient_less_one() {
        let entry = entry(1, 0, 12);
        assert!((1..1 << 19).all(|x| quotient(entry, x) == x - 1));
    }
}
