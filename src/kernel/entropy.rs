//! Sampled byte entropy: histograms of the eight byte groups (position mod 8), merged for narrower words.
//!
//! 1. [`sample`] takes 8-byte windows at 8-aligned offsets, one at a scattered place in each of equal stretches, so
//!    that neither rows nor records of a fixed length can hide from it; byte `i` of a window counts in group `i`.
//! 2. [`merge`] adds group `i + width` to group `i`: the groups of words of 4, 2 or 1 bytes.
//! 3. [`entropy_bits`] is the plug-in entropy of a histogram with the Miller-Madow correction for few samples.

use std::sync::LazyLock;

/// Byte groups a sample tells apart.
pub const GROUPS: usize = 8;

/// Windows fetched at a time.
const FETCHED: usize = 64;

/// How often each byte value was seen.
pub type Histogram = [u32; 256];

/// Histograms of the eight groups.
pub type GroupHistograms = [Histogram; GROUPS];

/// Counts the bytes of at most `windows_max` windows of `bytes` into `groups`, replacing what was there; returns how
/// many windows were taken. All are taken where there are no more than `windows_max`.
pub fn sample(bytes: &[u8], windows_max: usize, groups: &mut GroupHistograms) -> usize {
    for histogram in groups.iter_mut() {
        histogram.fill(0);
    }
    for_each_window(bytes, windows_max, |window| count(window, groups))
}

/// Share of bytes that are equal to the byte `lag` (1 to 7) later, in at most `windows_max` windows; 0 without any.
/// Records whose bytes change slowly repeat at the lag of their length.
pub fn repeat_share(bytes: &[u8], windows_max: usize, lag: usize) -> f32 {
    let lag = lag.clamp(1, GROUPS - 1);
    let mut equal = 0;
    let windows = for_each_window(bytes, windows_max, |window| {
        equal += window.iter().zip(&window[lag..]).filter(|(a, b)| a == b).count();
    });
    equal as f32 / (windows * (GROUPS - lag)).max(1) as f32
}

/// Shows at most `windows_max` windows of `bytes`, one from each of equal stretches; returns how many.
#[inline]
fn for_each_window(bytes: &[u8], windows_max: usize, mut see: impl FnMut(&[u8; GROUPS])) -> usize {
    let (windows, _) = bytes.as_chunks::<GROUPS>();
    if windows.len() <= windows_max {
        windows.iter().for_each(see);
        return windows.len();
    }
    // The end of a stretch is its ordinal times the windows, over `windows_max`: in steps that need no division.
    let (step, rest) = (windows.len() / windows_max, windows.len() % windows_max);
    let (mut start, mut remainder, mut scatter) = (0, 0, 0u32);
    let mut fetched = [[0; GROUPS]; FETCHED];
    let mut left = windows_max;
    while left > 0 {
        // Nothing depends on the bytes here, so the processor waits for many windows at a time.
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

/// Adds the upper half of `groups` to the lower half: from words of `groups.len()` bytes to words of half as many.
pub fn merge(groups: &mut [Histogram]) {
    let (low, high) = groups.split_at_mut(groups.len() / 2);
    for (into, from) in low.iter_mut().zip(high) {
        for (into, from) in into.iter_mut().zip(from) {
            *into += *from;
        }
    }
}

/// `c log2 c` for the counts a sample usually has.
static COUNT_LOG: LazyLock<[f32; 1025]> = LazyLock::new(|| std::array::from_fn(|count| count_log(count as u32)));

fn count_log(count: u32) -> f32 {
    if count < 2 { 0.0 } else { count as f32 * (count as f32).log2() }
}

/// Entropy in bits per byte, 0 to 8, Miller-Madow corrected; 0 for an empty histogram.
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

/// Entropy of every byte group, for words of 1, 2, 4 and 8 bytes.
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

    /// Bits per byte of the groups of words of `width` (1, 2, 4 or 8) bytes; no groups for any other width.
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
    fn the_table_agrees_with_the_formula() {
        for total in [1usize, 2, 511, 512, 513, 4096, 40_000] {
            let mut histogram = [0u32; 256];
            noise(total).iter().for_each(|byte| histogram[usize::from(byte & 0x3f)] += 1);
            assert!((f64::from(entropy_bits(&histogram)) - scalar(&histogram)).abs() < 1e-3, "{total}");
        }
        assert_eq!(entropy_bits(&[0; 256]), 0.0);
    }

    #[test]
    fn groups_are_told_apart_and_merge_into_narrower_words() {
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
    fn one_window_is_taken_from_each_of_equal_stretches() {
        for (windows, taken) in [(513, 512), (1023, 512), (16_384, 512), (1000, 7), (65, 64), (9, 1)] {
            let bytes: Vec<u8> = (0..windows as u64).flat_map(u64::to_le_bytes).collect();
            let mut seen = Vec::new();
            assert_eq!(for_each_window(&bytes, taken, |window| seen.push(u64::from_le_bytes(*window) as usize)), taken);
            let stretch = |ordinal: usize| windows * ordinal / taken..windows * (ordinal + 1) / taken;
            assert!(seen.iter().enumerate().all(|(ordinal, at)| stretch(ordinal).contains(at)), "{windows}: {seen:?}");
        }
    }

    #[test]
    fn short_inputs_are_counted_whole() {
        for len in [0usize, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097] {
            let mut groups = [[9; 256]; GROUPS];
            let taken = sample(&noise(len), 512, &mut groups);
            assert_eq!(taken, (len / 8).min(512));
            assert!(groups.iter().all(|histogram| histogram.iter().sum::<u32>() as usize == taken));
        }
    }
}
