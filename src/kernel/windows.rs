//! Windows: whether bytes repeat themselves, at any distance.
//!
//! 1. The windows at every multiple of a step are put into a table, by a hash of their first bytes.
//! 2. In each segment, the windows at a step of adjacent offsets are looked up before those of the segment are put
//!    there. If these bytes came before, at any distance, one of the windows is in the table.
//! 3. Windows that begin with zeros are ignored.
//!
//! [`share_seen_before`] does so with the XOR of two inputs, [`super::repeats::share_far`] with the elements of one.

/// Odd factor of the hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Position of a slot's number in a hash. The bits below it are the tag.
const SLOT_AT: u32 = 51;

/// Which windows are put into the table, and which are looked up.
#[derive(Clone, Copy)]
pub(super) struct WindowSampling {
    /// Bytes of a window.
    pub(super) window_bytes: usize,
    /// Bytes from one window in the table to the next, and adjacent offsets that are looked up.
    pub(super) step: usize,
    /// Bytes of a segment, in which a step is looked up.
    pub(super) segment_bytes: usize,
    /// Bytes from one window that is looked up to the next.
    pub(super) stride: usize,
    /// Bits of a slot that hold the number of a window; the bits above hold a part of its hash, never 0. Empty slots
    /// are 0.
    pub(super) number_bits: u32,
    /// Steps from the start of a segment, by its number, to the windows that are looked up.
    pub(super) looked_up: fn(usize) -> usize,
}

/// Share of the segments of `len` bytes in which a window came before, 0 to 1; 0 without segments.
///
/// `sum_of` gives a sum of the first bytes of the window at an offset, 0 if they are zeros; `None` if it is incomplete.
/// `is_equal` compares the windows at two offsets. The table is cleared first.
#[inline(always)]
pub(super) fn share_seen<const SLOTS: usize>(
    sampling: WindowSampling,
    len: usize,
    slots: &mut [u32; SLOTS],
    sum_of: impl Fn(usize) -> Option<u64>,
    is_equal: impl Fn(usize, usize) -> bool,
) -> f64 {
    let WindowSampling { window_bytes, step, segment_bytes, stride, number_bits, looked_up } = sampling;
    let number_mask = (1u32 << number_bits) - 1;
    let tag_bits = u32::BITS - number_bits;
    let slot_of = |at: usize| {
        let hash = sum_of(at).filter(|sum| *sum != 0)?.wrapping_mul(FACTOR);
        let tag = (hash >> (SLOT_AT - tag_bits)) as u32 & ((1 << tag_bits) - 1) | 1;
        Some(((hash >> SLOT_AT) as usize % SLOTS, tag))
    };
    slots.fill(0);
    let (mut looked_up_in, mut seen) = (0u32, 0u32);
    for (number, start) in (0..len).step_by(segment_bytes).enumerate() {
        let from = start + looked_up(number) * step;
        if from + step + window_bytes <= len {
            looked_up_in += 1;
            seen += u32::from((from..from + step).step_by(stride).any(|at| {
                let found = slot_of(at).map(|(slot, tag)| (slots[slot], tag));
                let found = found.filter(|(found, tag)| found >> number_bits == *tag);
                found.is_some_and(|(found, _)| is_equal(at, (found & number_mask) as usize * step))
            }));
        }
        for at in (start..len.min(start + segment_bytes)).step_by(step) {
            if let Some((slot, tag)) = slot_of(at) {
                slots[slot] = tag << number_bits | (at / step) as u32 & number_mask;
            }
        }
    }
    f64::from(seen) / f64::from(looked_up_in.max(1))
}

/// Bytes of a window of [`share_seen_before`].
const WINDOW_BYTES: usize = 64;
/// Bytes of a window that are hashed.
const HASHED_BYTES: usize = 32;
/// Slots of a table.
const SLOTS: usize = 8192;
const SAMPLING: WindowSampling = WindowSampling {
    window_bytes: WINDOW_BYTES,
    step: 128,
    segment_bytes: 8 << 10,
    stride: 1,
    number_bits: u16::BITS,
    // The offset differs between segments, in case the data is periodic.
    looked_up: |number| number * 37 % 63,
};

/// Windows of [`share_seen_before`] so far.
pub struct WindowTable(Box<[u32; SLOTS]>);

impl Default for WindowTable {
    fn default() -> Self {
        WindowTable(Box::new([0; SLOTS]))
    }
}

/// Share of the segments of `raw` XOR `base` in which a window came before, 0 to 1; 0 without segments.
///
/// If `base` is shorter, zeros follow it, but windows across its end are ignored. `table` is cleared first.
pub fn share_seen_before(raw: &[u8], base: &[u8], table: &mut WindowTable) -> f64 {
    let sum_of = |at: usize| {
        let raw = raw.get(at..)?.first_chunk::<HASHED_BYTES>()?;
        let base = base.get(at..).map_or(Some(&[0; HASHED_BYTES]), |base| base.first_chunk())?;
        let lanes = raw.as_chunks().0.iter().zip(base.as_chunks().0);
        Some(lanes.fold(0u64, |sum, (raw, base)| {
            sum.rotate_left(23).wrapping_add(u64::from_le_bytes(*raw) ^ u64::from_le_bytes(*base))
        }))
    };
    let window = |at: usize| {
        let base = base.get(at..).map_or(Some(&[0; WINDOW_BYTES]), |base| base.first_chunk());
        let both = raw.get(at..at + WINDOW_BYTES).zip(base);
        both.map(|(raw, base)| raw.iter().zip(base).map(|(raw, base)| raw ^ base))
    };
    let is_equal = |at, before| window(at).zip(window(before)).is_some_and(|(one, other)| one.eq(other));
    share_seen(SAMPLING, raw.len(), &mut table.0, sum_of, is_equal)
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

    /// Elements of two bytes that differ from those of `base` by less than `most`, with differences of this period.
    fn near(base: &[u8], period: usize, most: u8) -> Vec<u8> {
        let differences = noise(period, 3);
        let bytes = base.iter().zip(differences.iter().cycle()).enumerate();
        bytes
            .map(|(at, (base, difference))| if at % 2 == 0 { base ^ (difference & (most - 1)) } else { *base })
            .collect()
    }

    #[test]
    fn repeats_are_found_at_any_distance() {
        let base = noise(512 << 10, 1);
        let mut table = WindowTable::default();
        for period in [1002, 4096, 64 << 10, 100_002, 200_002, 256 << 10] {
            for most in [4, 8, 128] {
                let found = share_seen_before(&near(&base, period, most), &base, &mut table);
                let expected = 1.0 - period as f64 / base.len() as f64;
                // Some windows are overwritten by others in the same slot.
                let range = expected * 0.5..expected + 0.03;
                assert!(range.contains(&found), "{period}: {found} of {expected}");
            }
        }
    }

    #[test]
    fn nothing_is_found_without_repeats() {
        let base = noise(512 << 10, 1);
        let mut table = WindowTable::default();
        assert_eq!(share_seen_before(&near(&base, 512 << 10, 4), &base, &mut table), 0.0);
        assert_eq!(share_seen_before(&base, &base, &mut table), 0.0);
        // The table is cleared.
        let other = noise(100_000, 2);
        assert_eq!(share_seen_before(&other, &base, &mut table), 0.0);
        assert_eq!(share_seen_before(&other, &base, &mut table), 0.0);
    }

    #[test]
    fn zeros_follow_a_shorter_base() {
        let (raw, base) = (noise(20_000, 1).repeat(3), noise(60_000, 2));
        let mut table = WindowTable::default();
        for len in [0, 1, 31, 32, 33, 95, 96, 97, 8191, 8192, 8193, 20_000, 60_000] {
            assert_eq!(share_seen_before(&raw[..len.min(20_000)], &base, &mut table), 0.0);
            let found = share_seen_before(&raw, &base[..len], &mut table);
            let zeros = [&base[..len], &vec![0; raw.len() - len]].concat();
            let padded = share_seen_before(&raw, &zeros, &mut table);
            assert!((padded - found).abs() < 0.15 && (found > 0.5) == (len < 20_000), "{len}: {found}, {padded}");
        }
    }
}
