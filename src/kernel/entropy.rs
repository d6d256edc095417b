//! Sampled byte entropy: histograms of the eight byte groups (offset mod 8), merged for narrower elements.
//!
//! 1. [`sample`] takes 8-byte windows at offsets that are multiples of eight. It divides the bytes into ranges of equal
//!    length and takes one window at a scattered offset of each, so that records of a fixed length cannot evade it.
//!    Byte `i` of a window is counted in group `i`.
//! 2. [`merge`] adds group `i + width` to group `i`, which gives the groups of elements of 4, 2 or 1 bytes.
//! 3. [`entropy_bits`] is the plug-in entropy of a histogram with the Miller-Madow correction for few samples.

use std::sync::LazyLock;

/// Byte groups of a sample.
pub const GROUPS: usize = 8;

/// Windows read at a time.
const FETCHED: usize = 64;

/// Number of occurrences of each byte value.
pub type Histogram = [u32; 256];

/// Histograms of the eight groups.
pub type GroupHistograms = [Histogram; GROUPS];

/// Overwrites `groups` with the histograms of at most `windows_max` windows of `bytes`; returns the number of windows.
/// Takes all windows if there are at most `windows_max`.
pub fn sample(bytes: &[u8], windows_max: usize, groups: &mut GroupHistograms) -> usize {
    for histogram in groups.iter_mut() {
        histogram.fill(0);
    }
    for_each_window(bytes, windows_max, |window| count(window, groups))
}

/// Share of bytes that equal the byte `lag` (1 to 7) bytes later, in at most `windows_max` windows; 0 without windows.
/// Records whose bytes change slowly repeat at the lag of their length.
pub fn repeat_share(bytes: &[u8], windows_max: usize, lag: usize) -> f32 {
    let lag = lag.clamp(1, GROUPS - 1);
    let mut equal = 0;
    let windows = for_each_window(bytes, windows_max, |window| {
        equal += window.iter().zip(&window[lag..]).filter(|(a, b)| a == b).count();
    });
    equal as f32 / (windows * (GROUPS - lag)).max(1) as f32
}

/// Calls `see` with at most `windows_max` windows of `bytes`, one from each of equal ranges; returns their number.
#[inline]
fn for_each_window(bytes: &[u8], windows_max: usize, mut see: impl FnMut(&[u8; GROUPS])) -> usize {
    let (windows, _) = bytes.as_chunks::<GROUPS>();
    if windows.len() <= windows_max {
        windows.iter().for_each(see);
        return windows.len();
    }
    // Range `i` ends at window `(i + 1) * windows / windows_max`. These steps give the same ends without divisions.
    let (step, rest) = (windows.len() / windows_max, windows.len() % windows_max);
    let (mut start, mut remainder, mut scatter) = (0, 0, 0u32);
    let mut fetched = [[0; GROUPS]; FETCHED];
    let mut left = windows_max;
    while left > 0 {
        // The offsets do not depend on the bytes, so the processor loads many windows at the same time.
        let fetched = &mut fetched[..left.min(FETCHED)];
        for window in fetched.iter_mut() {
            remainder += rest;
            let carry = usize::from(remainder >= windows_max);
            remainder -= carry * windows_max;
            scatter = scatter.wrapping_add(0x9e37_79b9);
            let within = ((step + carry) as u64 * u64::from(scatter)) >> 32;
            *window = windows[start + within as usize];
            start += step + carry;
        }
        left -= fetched.len();
        fetched.iter().for_each(&mut see);
    }
    windows_max
}

#[inline]
fn count(window: &[u8; GROUPS], groups: &mut GroupHistograms) {
    for (byte, histogram) in window.iter().zip(groups) {
        histogram[usize::from(*byte)] += 1;
    }
}

/// Adds the upper half of `groups` to the lower half: the groups of elements of half the width.
pub fn merge(groups: &mut [Histogram]) {
    let (low, high) = groups.split_at_mut(groups.len() / 2);
    for (into, from) in low.iter_mut().zip(high) {
        for (into, from) in into.iter_mut().zip(from) {
            *into += *from;
        }
    }
}

/// `c log2 c` for the usual counts `c` of a sample.
static COUNT_LOG: LazyLock<[f32; 1025]> = LazyLock::new(|| std::array::from_fn(|count| count_log(count as u32)));

fn count_log(count: u32) -> f32 {
    if count < 2 { 0.0 } else { count as f32 * (count as f32).log2() }
}

/// Entropy in bits per byte, 0 to 8, with the Miller-Madow correction; 0 for an empty histogram.
pub fn entropy_bits(histogram: &Histogram) -> f32 {
    let table = &*COUNT_LOG;
    let (mut total, mut kinds, mut sum) = (0u32, 0u32, 0f32);
    for count in histogram {
        total += count;
        kinds += u32::from(*count != 0);
        sum += table.get(*count as usize).copied().unwrap_or_else(|| count_log(*count));
    }
    if total == 0 {
        return 0.0;
    }
    let total = total as f32;
    let plug_in = total.log2() - sum / total;
    let correction = kinds.saturating_sub(1) as f32 / (2.0 * std::f32::consts::LN_2 * total);
    (plug_in + correction).clamp(0.0, 8.0)
}

/// Entropy of every byte group, for elements of 1, 2, 4 and 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntropyProfile {
    bits: [[f32; GROUPS]; 4],
}

impl EntropyProfile {
    /// EntropyProfile of at most `windows_max` windows of `bytes`.
    pub fn of(bytes: &[u8], windows_max: usize) -> EntropyProfile {
        let mut groups = [[0; 256]; GROUPS];
        sample(bytes, windows_max, &mut groups);
        let mut bits = [[0.0; GROUPS]; 4];
        for (power, bits) in bits.iter_mut().enumerate().rev() {
            let groups = &mut groups[..1 << power];
            for (bits, histogram) in bits.iter_mut().zip(groups.iter()) {
                *bits = entropy_bits(histogram);
            }
            merge(groups);
        }
        EntropyProfile { bits }
    }

    /// Bits per byte of each group of elements of `width` bytes (1, 2, 4 or 8). Empty for any other width.
    pub fn bits(&self, width: usize) -> &[f32] {
        match width {
            1 | 2 | 4 | 8 => &self.bits[width.trailing_zeros() as usize][..width],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(histogram: &Histogram) -> f64 {
        let total = histogram.iter().map(|count| f64::from(*count)).sum::<f64>();
        let seen = histogram.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / total);
        let kinds = seen.clone().count() as f64;
        let plug_in = -seen.map(|p| p * p.log2()).sum::<f64>();
        (plug_in + (kinds - 1.0) / (2.0 * total * std::f64::consts::LN_2)).min(8.0)
    }

    /// xorshift: enough for bytes without structure.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn the_table_agrees_with_the_scalar_reference() {
        for total in [1usize, 2, 511, 512, 513, 4096, 40_000] {
            let mut histogram = [0u32; 256];
            noise(total).iter().for_each(|byte| histogram[usize::from(byte & 0x3f)] += 1);
            assert!((f64::from(entropy_bits(&histogram)) - scalar(&histogram)).abs() < 1e-3, "{total}");
        }
        assert_eq!(entropy_bits(&[0; 256]), 0.0);
    }

    #[test]
    fn groups_differ_and_merge_for_narrower_elements() {
        let mut bytes = noise(65_536);
        bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte = 7);
        let mut groups = [[0; 256]; GROUPS];
        assert_eq!(sample(&bytes, 512, &mut groups), 512);
        let eight: Vec<f32> = groups.iter().map(entropy_bits).collect();
        assert!(eight[3] < 0.1 && eight[7] < 0.1 && eight[0] > 7.7 && eight[6] > 7.7, "{eight:?}");
        let profile = EntropyProfile::of(&bytes, 512);
        assert_eq!(profile.bits(8), eight);
        assert!(profile.bits(4)[3] < 0.1 && profile.bits(2)[1] > 4.0 && profile.bits(1)[0] > 6.0, "{profile:?}");
        assert!(profile.bits(3).is_empty() && profile.bits(0).is_empty());
        merge(&mut groups);
        assert_eq!(groups[0].iter().sum::<u32>(), 1024);
        assert!(entropy_bits(&groups[3]) < 0.1 && entropy_bits(&groups[2]) > 7.8);
        merge(&mut groups[..4]);
        merge(&mut groups[..2]);
        assert_eq!(groups[0].iter().sum::<u32>(), 4096);
        assert_eq!(groups[0][7] / 1000, 1);
    }

    #[test]
    fn records_repeat_at_their_length() {
        let noise = noise(16_384);
        let records: Vec<u8> = (0..65_536).map(|i| noise[i / 64 * 4 + i % 4]).collect();
        assert!(repeat_share(&records, 512, 4) > 0.9 && repeat_share(&records, 512, 1) < 0.05);
        assert!(repeat_share(&noise, 512, 4) < 0.05);
        assert_eq!((repeat_share(&[5; 100], 512, 7), repeat_share(&[], 512, 1)), (1.0, 0.0));
    }

    #[test]
    fn one_window_is_taken_from_each_of_equal_ranges() {
        for (windows, taken) in [(513, 512), (1023, 512), (16_384, 512), (1000, 7), (65, 64), (9, 1)] {
            let bytes: Vec<u8> = (0..windows as u64).flat_map(u64::to_le_bytes).collect();
            let mut seen = Vec::new();
            assert_eq!(for_each_window(&bytes, taken, |window| seen.push(u64::from_le_bytes(*window) as usize)), taken);
            let range = |ordinal: usize| windows * ordinal / taken..windows * (ordinal + 1) / taken;
            assert!(seen.iter().enumerate().all(|(ordinal, at)| range(ordinal).contains(at)), "{windows}: {seen:?}");
        }
    }

    #[test]
    fn all_windows_of_short_inputs_are_counted() {
        for len in [0usize, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097] {
            let mut groups = [[9; 256]; GROUPS];
            let taken = sample(&noise(len), 512, &mut groups);
            assert_eq!(taken, (len / 8).min(512));
            assert!(groups.iter().all(|histogram| histogram.iter().sum::<u32>() as usize == taken));
        }
    }
}
