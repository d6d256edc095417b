//! Models: frequencies of symbols that sum to a power of two, made of counts, written and read.
//!
//! A model is written as bits, the lowest of a byte first, symbol after symbol, until the frequencies sum to the whole.
//! A frequency is the length of its binary number, then that number without its leading one. A length is
//! `0` where it is that of the frequency before; `1 0` and a bit where it is one more (0) or one less (1); `1 1` and
//! four bits otherwise. Four zero bits stand for a run of symbols that do not occur: as many as the Elias gamma code
//! that follows says.

use super::{BITS_MAX, BITS_MIN};
use crate::error::Result;
use crate::kernel::packed::{BitReader, BitWriter};
use crate::wire::Reader;

/// Symbols of a model.
const SYMBOLS: usize = 256;

/// Frequencies that sum to `1 << bits`; every symbol counted has at least 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequencyTable {
    frequencies: [u16; SYMBOLS],
    bits: u32,
}

impl FrequencyTable {
    /// The model whose frequencies are nearest to these counts; without any, that of symbol 0 alone. `bits` is taken
    /// for the nearest number that models can have.
    pub fn of_counts(counts: &[u32; SYMBOLS], bits: u32) -> FrequencyTable {
        let bits = bits.clamp(BITS_MIN, BITS_MAX);
        let slots = 1u32 << bits;
        let mut used: Vec<Share> = (0..=u8::MAX).zip(counts).filter(|(_, count)| **count > 0).map(Share::new).collect();
        if used.is_empty() {
            used.push(Share { symbol: 0, count: 1, frequency: 1 });
        }
        share_out(&mut used, slots);
        let mut frequencies = [0; SYMBOLS];
        used.iter().for_each(|share| frequencies[usize::from(share.symbol)] = share.frequency as u16);
        FrequencyTable { frequencies, bits }
    }

    /// Bits that coding these counts with this model takes; infinite where a symbol counted has no frequency.
    pub fn cost_bits(&self, counts: &[u32; SYMBOLS]) -> f64 {
        let costs = self.frequencies.iter().zip(counts).filter(|(_, count)| **count > 0);
        costs.map(|(frequency, count)| f64::from(*count) * (f64::from(self.bits) - f64::from(*frequency).log2())).sum()
    }

    /// The logarithm of what the frequencies sum to.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The frequency of each symbol, 0 where it has none.
    pub fn frequencies(&self) -> &[u16; SYMBOLS] {
        &self.frequencies
    }

    /// The symbols that have a frequency, and that.
    pub(super) fn used(&self) -> impl Iterator<Item = (u8, u32)> {
        let all = (0..=u8::MAX).zip(self.frequencies.iter().map(|frequency| u32::from(*frequency)));
        all.filter(|(_, frequency)| *frequency > 0)
    }

    /// Appends the model.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut bits = BitWriter::new(out);
        let (mut before, mut next) = (self.bits / 2, 0u32);
        for (symbol, frequency) in self.used() {
            let symbol = u32::from(symbol);
            if symbol > next {
                bits.put(0b11, 2 + 4);
                bits.put_gamma(symbol - next);
            }
            next = symbol + 1;
            let len = frequency.ilog2() + 1;
            match len.wrapping_sub(before) {
                0 => bits.put(0, 1),
                1 => bits.put(0b001, 3),
                u32::MAX => bits.put(0b101, 3),
                _ => bits.put(0b11 | len << 2, 6),
            }
            bits.put(frequency & !(1 << (len - 1)), len - 1);
            before = len;
        }
        bits.finish();
    }

    /// Reads what [`FrequencyTable::write`] wrote for as many `bits`.
    pub fn read(reader: &mut Reader<'_>, bits: u32) -> Result<FrequencyTable> {
        if !(BITS_MIN..=BITS_MAX).contains(&bits) {
            return Err(reader.error(format!("a model of {BITS_MIN} to {BITS_MAX} bits"), format!("{bits}")));
        }
        let slots = 1u32 << bits;
        let mut frequencies = [0; SYMBOLS];
        let mut source = BitReader::new(reader);
        let (mut before, mut next, mut sum) = (bits / 2, 0usize, 0u32);
        while sum < slots {
            let len = match take_length(&mut source, before)? {
                Some(len) => len,
                None => {
                    next += source.take_gamma()? as usize;
                    continue;
                }
            };
            if !(1..=bits + 1).contains(&len) {
                return Err(source.error(format!("a frequency of 1 to {} bits", bits + 1), format!("{len}")));
            }
            let frequency = 1 << (len - 1) | source.take(len - 1)?;
            sum += frequency;
            match frequencies.get_mut(next).filter(|_| sum <= slots) {
                Some(slot) => *slot = frequency as u16,
                None => return Err(source.error(format!("frequencies that sum to {slots}"), format!("{sum}"))),
            }
            (before, next) = (len, next + 1);
        }
        Ok(FrequencyTable { frequencies, bits })
    }
}

/// What a symbol gets.
struct Share {
    symbol: u8,
    count: u32,
    frequency: u32,
}

impl Share {
    fn new((symbol, count): (u8, &u32)) -> Self {
        Share { symbol, count: *count, frequency: 1 }
    }

    /// What one slot more is worth: the derivative of the cost half-way.
    fn worth(&self) -> u64 {
        (u64::from(self.count) << 31) / u64::from(2 * self.frequency + 1)
    }

    /// What one slot less costs, likewise.
    fn price(&self) -> u64 {
        (u64::from(self.count) << 31) / u64::from(2 * self.frequency - 1)
    }
}

/// Gives each of `used` its part of `slots`, rounded, and one at least. What this leaves over, or what is missing, is
/// spread where it is worth most, or costs least.
fn share_out(used: &mut [Share], slots: u32) {
    // Symbols that get less than their one slot take it from the others.
    let (mut left, mut total) = (u64::from(slots), used.iter().map(|share| u64::from(share.count)).sum::<u64>());
    let mut is_rare = [false; SYMBOLS];
    loop {
        let before = left;
        let whole = (left, total);
        for share in used.iter() {
            let rare = &mut is_rare[usize::from(share.symbol)];
            if !*rare && u64::from(share.count) * whole.0 < whole.1 {
                *rare = true;
                left -= 1;
                total -= u64::from(share.count);
            }
        }
        if left == before {
            break;
        }
    }
    for share in used.iter_mut().filter(|share| !is_rare[usize::from(share.symbol)]) {
        let part = (2 * u64::from(share.count) * left + total) / (2 * total);
        share.frequency = (part as u32).max(1);
    }
    loop {
        let sum: u32 = used.iter().map(|share| share.frequency).sum();
        if sum < slots {
            let more = (slots - sum) as usize;
            used.sort_unstable_by_key(|share| (u64::MAX - share.worth(), share.symbol));
            used.iter_mut().take(more).for_each(|share| share.frequency += 1);
        } else if sum > slots {
            let less = (sum - slots) as usize;
            used.sort_unstable_by_key(|share| (share.price(), share.symbol));
            used.iter_mut().filter(|share| share.frequency > 1).take(less).for_each(|share| share.frequency -= 1);
        } else {
            return;
        }
    }
}

/// The length of a frequency, given that of the one before; none where a run of unused symbols follows.
fn take_length(source: &mut BitReader<'_, '_>, before: u32) -> Result<Option<u32>> {
    if source.take(1)? == 0 {
        return Ok(Some(before));
    }
    if source.take(1)? == 0 {
        return Ok(Some(if source.take(1)? == 0 { before + 1 } else { before - 1 }));
    }
    Ok(Some(source.take(4)?).filter(|len| *len > 0))
}
