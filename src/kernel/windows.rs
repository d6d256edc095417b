//! Windows: whether the XOR of two inputs repeats itself, at any distance.
//!
//! 1. The windows at every multiple of 128 bytes are put into a table by the hash of their first 32 bytes.
//! 2. In each segment of 8 KiB, the windows at 128 adjacent offsets are looked up before its own are put there. If
//!    these bytes came before, at any distance, one of the 128 windows is in the table.
//! 3. Windows whose first 32 bytes are zeros are ignored.

/// Bytes of a window.
const WINDOW_BYTES: usize = 64;
/// Bytes of a window that are hashed.
const HASHED_BYTES: usize = 32;
/// Bytes from one window in the table to the next, and adjacent offsets that are looked up.
const STEP: usize = 128;
/// Bytes of a segment, in which [`STEP`] adjacent windows are looked up.
const SEGMENT_BYTES: usize = 8 << 10;
/// Steps of a segment.
const STEPS: usize = SEGMENT_BYTES / STEP;
/// Slots of a table.
const SLOTS: usize = 8192;
/// Odd factor of the hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Windows seen before, by hash. A slot holds 16 bits of the hash (never 0) above 16 bits of the step number, or 0.
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
    let slots = &mut *table.0;
    slots.fill(0);
    let (mut looked_up, mut seen) = (0u32, 0u32);
    let len = raw.len();
    for (number, start) in (0..len).step_by(SEGMENT_BYTES).enumerate() {
        // The offset differs between segments, in case the data is periodic.
        let from = start + number * 37 % (STEPS - 1) * STEP;
        if from + STEP + WINDOW_BYTES <= len {
            looked_up += 1;
            seen += u32::from((from..from + STEP).any(|at| {
                let slot = slot_of([raw, base], at);
                let found = slot.map(|(slot, tag)| (slots[slot], tag)).filter(|(found, tag)| found >> 16 == *tag);
                found.is_some_and(|(found, _)| is_equal([raw, base], at, found as u16))
            }));
        }
        for at in (start..len.min(start + SEGMENT_BYTES)).step_by(STEP) {
            if let Some((slot, tag)) = slot_of([raw, base], at) {
                slots[slot] = tag << 16 | (at / STEP) as u16 as u32;
            }
        }
    }
    f64::from(seen) / f64::from(looked_up.max(1))
}

/// Slot and tag (16 bits of the hash) of the window at `at`. `None` if it is incomplete or starts with zeros.
#[inline(always)]
fn slot_of([raw, base]: [&[u8]; 2], at: usize) -> Option<(usize, u32)> {
    let raw = raw.get(at..)?.first_chunk::<HASHED_BYTES>()?;
    let base = base.get(at..).map_or(Some(&[0; HASHED_BYTES]), |base| base.first_chunk())?;
    let lanes = raw.as_chunks().0.iter().zip(base.as_chunks().0);
    let sum = lanes.fold(0u64, |sum, (raw, base)| {
        sum.rotate_left(23).wrapping_add(u64::from_le_bytes(*raw) ^ u64::from_le_bytes(*base))
    });
    let hash = sum.wrapping_mul(FACTOR);
    (sum != 0).then_some(((hash >> 51) as usize % SLOTS, (hash >> 35) as u16 as u32 | 1))
}

/// Whether the window at `at` equals the one of this step.
fn is_equal([raw, base]: [&[u8]; 2], at: usize, step: u16) -> bool {
    let window = |at: usize| {
        let base = base.get(at..).map_or(Some(&[0; WINDOW_BYTES]), |base| base.first_chunk());
        let both = raw.get(at..at + WINDOW_BYTES).zip(base);
        both.map(|(raw, base)| raw.iter().zip(base).map(|(raw, base)| raw ^ base))
    };
    window(at).zip(window(step as usize * STEP)).is_some_and(|(one, other)| one.eq(other))
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
