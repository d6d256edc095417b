//! Frequency tables: frequencies of symbols that sum to a power of two, made of counts.

use super::{BITS_MAX, BITS_MIN};

/// Number of different symbols.
const SYMBOLS: usize = 256;

/// Frequencies that sum to `1 << bits`; every symbol counted has at least 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequencyTable {
    frequencies: [u16; SYMBOLS],
    bits: u32,
}

impl FrequencyTable {
    /// The table whose frequencies are nearest to these counts. Without any counts symbol 0 has all slots. `bits` is
    /// clamped to [`BITS_MIN`] and [`BITS_MAX`].
    pub fn of_counts(counts: &[u32; SYMBOLS], bits: u32) -> FrequencyTable {
        let bits = bits.clamp(BITS_MIN, BITS_MAX);
        let slots = 1u32 << bits;
        let mut used: Vec<SlotShare> =
            (0..=u8::MAX).zip(counts).filter(|(_, count)| **count > 0).map(SlotShare::new).collect();
        if used.is_empty() {
            used.push(SlotShare { symbol: 0, count: 1, frequency: 1 });
        }
        share_out(&mut used, slots);
        let mut frequencies = [0; SYMBOLS];
        used.iter().for_each(|share| frequencies[usize::from(share.symbol)] = share.frequency as u16);
        FrequencyTable { frequencies, bits }
    }

    /// The table with these frequencies. `None` if they do not sum to `1 << bits` or if no table has `bits` bits.
    pub fn of_frequencies(frequencies: [u16; SYMBOLS], bits: u32) -> Option<FrequencyTable> {
        let sum: u32 = frequencies.iter().map(|frequency| u32::from(*frequency)).sum();
        let is_whole = (BITS_MIN..=BITS_MAX).contains(&bits) && sum == 1 << bits;
        is_whole.then_some(FrequencyTable { frequencies, bits })
    }

    /// Bits of the encoding of symbols with these counts; infinite if a counted symbol has no frequency.
    pub fn cost_bits(&self, counts: &[u32; SYMBOLS]) -> f64 {
        let costs = self.frequencies.iter().zip(counts).filter(|(_, count)| **count > 0);
        costs.map(|(frequency, count)| f64::from(*count) * (f64::from(self.bits) - f64::from(*frequency).log2())).sum()
    }

    /// Binary logarithm of the sum of the frequencies.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Frequency of each symbol, 0 for a symbol without one.
    pub fn frequencies(&self) -> &[u16; SYMBOLS] {
        &self.frequencies
    }

    /// Symbol and frequency of each symbol that has one, in the order of the symbols.
    pub fn used(&self) -> impl Iterator<Item = (u8, u32)> {
        let all = (0..=u8::MAX).zip(self.frequencies.iter().map(|frequency| u32::from(*frequency)));
        all.filter(|(_, frequency)| *frequency > 0)
    }
}

/// The slots of one symbol.
struct SlotShare {
    symbol: u8,
    count: u32,
    frequency: u32,
}

impl SlotShare {
    fn new((symbol, count): (u8, &u32)) -> Self {
        SlotShare { symbol, count: *count, frequency: 1 }
    }

    /// Gain of one more slot: the derivative of the cost half-way between.
    fn worth(&self) -> u64 {
        (u64::from(self.count) << 31) / u64::from(2 * self.frequency + 1)
    }

    /// Cost of one slot less: the derivative half-way between.
    fn price(&self) -> u64 {
        (u64::from(self.count) << 31) / u64::from(2 * self.frequency - 1)
    }
}

/// Gives each of `used` its rounded share of `slots`, at least one. The slots left over go to the symbols that gain
/// most. Missing slots are taken from the symbols that lose least.
fn share_out(used: &mut [SlotShare], slots: u32) {
    // Symbols whose share is below one slot get one at the expense of the others.
    let (mut left, mut total) = (u64::from(slots), used.iter().map(|share| u64::from(share.count)).sum::<u64>());
    let mut is_rare = [false; SYMBOLS];
    loop {
        let left_before = left;
        let whole = (left, total);
        for share in used.iter() {
            let rare = &mut is_rare[usize::from(share.symbol)];
            if !*rare && u64::from(share.count) * whole.0 < whole.1 {
                *rare = true;
                left -= 1;
                total -= u64::from(share.count);
            }
        }
        if left == left_before {
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
