//! Repeats: whether the bytes of an input came before in it, near or at any distance, from samples of it.
//!
//! *Near*: every element of a short sample is looked up among those before it, by its first four bytes.
//! *Far*: windows at every multiple of 1 KiB are put into a table. In each segment of 64 KiB, the windows of 1024
//! adjacent bytes are looked up before those of the segment are put there, one for each element ([`super::windows`]).

use super::windows::{WindowSampling, share_seen};

/// Bytes compared of an element: the shortest match of zstd.
const NEAR_BYTES: usize = 4;
/// Longest sample, bytes: positions have 16 bits.
pub const NEAR_SAMPLE_MAX: usize = 1 << 15;
const NEAR_SLOTS: usize = 2048;
/// Bytes of a far window: short enough for phrases of tokens, long enough that those of weights do not recur.
const WINDOW_BYTES: usize = 8;
const FAR_SLOTS: usize = 4096;
/// Odd factor of the hash of near positions.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Windows seen so far.
pub struct RepeatTable {
    /// Positions plus one; 0 is empty.
    near: Box<[u16; NEAR_SLOTS]>,
    far: Box<[u32; FAR_SLOTS]>,
}

impl Default for RepeatTable {
    fn default() -> Self {
        RepeatTable { near: Box::new([0; NEAR_SLOTS]), far: Box::new([0; FAR_SLOTS]) }
    }
}

/// Share of the positions of `sample`, `step` bytes apart, whose four bytes came before at such a position.
pub fn share_near(sample: &[u8], step: usize, table: &mut RepeatTable) -> f64 {
    let slots = &mut *table.near;
    slots.fill(0);
    let (mut looked_up, mut seen) = (0u32, 0u32);
    let sample = &sample[..sample.len().min(NEAR_SAMPLE_MAX)];
    for (position, window) in sample.windows(NEAR_BYTES).enumerate().step_by(step.max(1)) {
        let Some(value) = window.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else { continue };
        let slot = &mut slots[(u64::from(value).wrapping_mul(FACTOR) >> 53) as usize % NEAR_SLOTS];
        looked_up += 1;
        let before = usize::from(*slot).checked_sub(1);
        seen += u32::from(before.is_some_and(|before| sample.get(before..before + NEAR_BYTES) == Some(window)));
        *slot = position as u16 + 1;
    }
    f64::from(seen) / f64::from(looked_up.max(1))
}

/// Share of the segments in which a window came before, at a distance of whole elements of `width` bytes, 0 to 1; 0
/// without segments.
pub fn share_far(raw: &[u8], width: usize, table: &mut RepeatTable) -> f64 {
    let sampling = WindowSampling {
        window_bytes: WINDOW_BYTES,
        step: 1 << 10,
        segment_bytes: 64 << 10,
        stride: width.max(1),
        number_bits: 18,
        // The offset differs between segments, in case the data is periodic.
        looked_up: |number| 62 - number * 37 % 32,
    };
    let sum_of = |at: usize| Some(u64::from_le_bytes(*raw.get(at..)?.first_chunk()?));
    let is_equal = |at: usize, before: usize| raw.get(before..before + WINDOW_BYTES) == raw.get(at..at + WINDOW_BYTES);
    share_seen(sampling, raw.len(), &mut table.far, sum_of, is_equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        bytes.take(len).collect()
    }

    #[test]
    fn far_repeats_are_found_at_any_distance_and_nothing_in_noise() {
        let mut table = RepeatTable::default();
        for len in [0, 1, 127, 128, 8191, 8192, 40_000, 512 << 10, 4 << 20] {
            assert_eq!(share_far(&noise(len, 5), 2, &mut table), 0.0, "{len}");
            assert_eq!(share_far(&vec![0; len], 2, &mut table), 0.0, "{len}");
        }
        for period in [1002, 8192, 64 << 10, 100_002, 200_002] {
            let raw: Vec<u8> = noise(period, 3).into_iter().cycle().take(512 << 10).collect();
            let (found, expected) = (share_far(&raw, 2, &mut table), 1.0 - period as f64 / raw.len() as f64);
            assert!((found - expected).abs() < 0.26, "{period}: {found} of {expected}");
        }
    }

    #[test]
    fn near_repeats_are_counted_by_element() {
        let mut table = RepeatTable::default();
        assert!(share_near(&noise(4096, 1), 2, &mut table) < 0.01);
        assert!(share_near(&noise(400, 1).repeat(10), 2, &mut table) > 0.7);
        assert_eq!(share_near(&[1; 100], 1, &mut table), 96.0 / 97.0);
        assert_eq!(share_near(&[1; 3], 1, &mut table), 0.0);
        // Longer samples are cut: positions have 16 bits.
        assert!(share_near(&noise(200_000, 1), 1, &mut table) < 0.01);
    }
}
