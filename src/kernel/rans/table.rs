//! Tables made of models, once for every call: of symbols for the encoder, of slots for the decoder.

use super::{BITS_MAX, FrequencyTable, MODELS_MAX};

/// Symbols of a model.
const SYMBOLS: usize = 256;

/// The row of each context in a table that has one for each model that differs from the one before.
pub(super) type Rows = [u8; MODELS_MAX];

/// The models that differ from the ones before them, and the row of each context: that of its model, or the last.
fn rows(models: &[FrequencyTable]) -> (Vec<&FrequencyTable>, Rows) {
    let mut distinct: Vec<&FrequencyTable> = Vec::with_capacity(MODELS_MAX);
    let mut rows = [0; MODELS_MAX];
    for (context, row) in rows.iter_mut().enumerate() {
        if let Some(model) = models.get(context).filter(|model| distinct.last() != Some(model)) {
            distinct.push(model);
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

/// The greatest context that may have a model of its own.
pub(super) const LAST_CONTEXT: u8 = MODELS_MAX as u8 - 1;

/// What encoding a symbol takes, for each symbol of each row.
///
/// In an entry, from the lowest bit: the reciprocal (32), what is added to the state (13), the shift that follows the
/// product with the reciprocal (4, from bit 45), and in the highest `bits` the frequency less one.
pub(super) struct Encoding {
    pub(super) entries: Vec<u64>,
    pub(super) rows: Rows,
    pub(super) bits: u32,
}

/// Where in an entry's high half the shift is.
pub(super) const SHIFT_AT: u32 = 13;
/// The shift, once at the lowest bits.
pub(super) const SHIFT_MASK: u32 = 15;
/// What is added to the state, in an entry's high half.
pub(super) const BIAS_MASK: u32 = (1 << SHIFT_AT) - 1;

/// The entry of a symbol that has `frequency` slots, one at least, from `start` on.
///
/// With `s` the least number that `frequency <= 1 << s`, the quotient of `x` is `x * r >> s + 31` where `r` is
/// `2^(s + 31) / frequency` rounded up, by `e / frequency`: `x * e < 2^31 * 2^s` for every state, so that the error
/// is too small to reach the next quotient. A `frequency` of one has no such `r` of 32 bits; the greatest number gives
/// `x - 1`, and what is added makes up for it.
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

impl Encoding {
    pub(super) fn new(models: &[FrequencyTable]) -> Self {
        let bits = models.first().map_or(BITS_MAX, FrequencyTable::bits);
        let (distinct, rows) = rows(models);
        let mut entries = vec![entry(1, 0, bits); distinct.len().max(1) * SYMBOLS];
        for (model, entries) in distinct.iter().zip(entries.as_chunks_mut::<SYMBOLS>().0) {
            let mut start = 0;
            for (symbol, frequency) in model.used() {
                entries[usize::from(symbol)] = entry(frequency, start, bits);
                start = (start + frequency) & ((1 << bits) - 1);
            }
        }
        Encoding { entries, rows, bits }
    }
}

/// What decoding takes, for each slot of each row.
///
/// In a slot, from the lowest bit: the symbol (8), the slot's number among those of the symbol (12), the symbol's
/// frequency less one (12).
pub(super) struct Decoding {
    pub(super) slots: Vec<u32>,
    pub(super) rows: Rows,
    pub(super) bits: u32,
}

/// Where in a slot its number is.
pub(super) const NUMBER_AT: u32 = 8;
/// Where in a slot the frequency less one is.
pub(super) const FREQUENCY_AT: u32 = NUMBER_AT + BITS_MAX;
/// The number of a slot, once at the lowest bits.
pub(super) const NUMBER_MASK: u32 = (1 << BITS_MAX) - 1;

impl Decoding {
    /// Of one model at least.
    pub(super) fn new(models: &[FrequencyTable]) -> Self {
        let bits = models.first().map_or(BITS_MAX, FrequencyTable::bits);
        let (distinct, rows) = rows(models);
        let mut slots = vec![0; distinct.len().max(1) << bits];
        for (model, mut slots) in distinct.iter().zip(slots.chunks_exact_mut(1 << bits)) {
            for (symbol, frequency) in model.used() {
                let first = (frequency - 1) << FREQUENCY_AT | u32::from(symbol);
                let Some((own, rest)) = slots.split_at_mut_checked(frequency as usize) else { break };
                (0..).zip(own).for_each(|(number, slot)| *slot = first | number << NUMBER_AT);
                slots = rest;
            }
        }
        Decoding { slots, rows, bits }
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
    fn quotients_are_exact_where_they_step() {
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
    fn a_frequency_of_one_gives_one_less() {
        let entry = entry(1, 0, 12);
        assert!((1..1 << 19).all(|x| quotient(entry, x) == x - 1));
    }
}
