//! Peaks as anchors of weights (ours): features of tensor blocks and float chunks, and the positions by which ranges of
//! them are found in others, whatever their names, shapes and formats.
//!
//! 1. *Anchors*: the peaks of a block ([`crate::kernel::peaks`]) are the same in every slice of the block, and nearly
//!    the same in a fine-tune of it.
//! 2. *Near hash*: the hash of the highest bytes of the elements around a peak: sign and most of the exponent. It is
//!    the same in most fine-tunes, and of FP32 and BF16. FP64 has a longer exponent, and that byte is made of its sign
//!    and of the bits that differ between weights.
//! 3. *Exact hash*: the hash of all bytes of these elements.
//! 4. *Features*: the exact hashes of 8 to 32 anchors whose near hashes come first in a pseudo-random order, by the
//!    length of the block, and the near hashes of 8. More are sought: what comes first in a short block need not in a
//!    longer one that has it.
//!
//! A peak whose surroundings have few different values, as in masks and constants, is no anchor.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::kernel::peaks::{elements, peaks, segments};
use crate::kernel::sieve::Anchor;
use crate::similar::HASH_MASK;

/// Elements around a peak that are hashed.
const ELEMENTS: usize = 16;
/// The same of single bytes, which say less.
const BYTES: usize = 32;
/// Different highest bytes that the surroundings of a peak must have.
const DIFFERENT_MIN: u32 = 4;
/// Peaks of a block whose exact, and whose near, hashes are its features.
const PEAKS_NEAR: usize = 8;
const PEAKS_MAX: usize = 32;
/// Bytes of a block for each exact feature: by these, short parts of it are found.
const PEAK_BYTES: usize = 16 << 10;
/// Peaks of a block whose exact, and whose near, hashes are sought: a part of a block may have none of its first peaks.
const SOUGHT: usize = 32;
const SOUGHT_NEAR: usize = 16;
/// Multiplier whose products order the hashes.
const ORDER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Name from which the seed of the hashes comes.
const NAME: &[u8] = b"peaks";
/// Position codes of these features have this bit, the logarithm of the element's width in bits 0 and 1, ...
const CODE: u64 = 128;
/// ... this bit for an exact hash, ...
const EXACT: u64 = 4;
/// ... and the phase above these bits.
const PHASE_SHIFT: u32 = 3;

/// Elements of a block: their width in bytes (1, 2, 4 or 8), and the bytes before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Bytes of an element.
    pub width: usize,
    /// Bytes before the first element, fewer than `width`.
    pub phase: usize,
}

impl Elements {
    /// Single bytes.
    pub const BYTES: Elements = Elements { width: 1, phase: 0 };
}

/// The features of a block.
#[derive(Debug, Default)]
pub struct PeakFeatures {
    /// Features by which later blocks find it: exact ones, then near ones.
    pub stored: Vec<u64>,
    /// Features that it seeks among them.
    pub sought: Vec<u64>,
}

/// A peak: where it is, and its hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Offset of the element in the block, bytes.
    pub position: u32,
    /// Hash of the highest bytes around it.
    pub near: u64,
    /// Hash of all bytes around it.
    pub exact: u64,
}

impl Peak {
    /// The peak as an anchor of exact matches.
    pub fn anchor(&self) -> Anchor {
        Anchor { position: self.position, hash: self.exact }
    }
}

/// Finds peaks; one per worker.
pub struct PeakFinder {
    seed: u64,
    maxima: Vec<i32>,
}

impl PeakFinder {
    /// A finder whose hashes are keyed with `seed`.
    pub fn new(seed: u64) -> Self {
        PeakFinder { seed: xxh3_64_with_seed(NAME, seed), maxima: Vec::new() }
    }

    /// Calls `found` with the offset in `bytes` of each peak, the start of its surroundings and their highest bytes.
    fn each(&mut self, bytes: &[u8], width: usize, mut found: impl FnMut(usize, usize, &[u8])) {
        self.maxima.resize(segments(elements(bytes.len(), width)), 0);
        let around = surroundings(width);
        peaks(bytes, width, &mut self.maxima, |at| {
            let start = at * width - around / 2;
            let Some(window) = bytes.get(start..start + around) else { return };
            let mut highest = [0; ELEMENTS];
            match width {
                1 => return found(at, start, window),
                2 => take_last::<2>(window, &mut highest),
                4 => take_last::<4>(window, &mut highest),
                _ => take_doubles(window, &mut highest),
            }
            found(at * width, start, &highest);
        });
    }

    /// The peaks of `block`, ascending.
    pub fn peaks(&mut self, block: &[u8], layout: Elements) -> Vec<Peak> {
        let Elements { width, phase } = layout;
        let bytes = block.get(phase..).unwrap_or_default();
        let (seed, mut all) = (self.seed, Vec::new());
        self.each(bytes, width, |at, start, highest| {
            if are_different(highest.iter()) {
                let near = xxh3_64_with_seed(highest, seed);
                let window = bytes.get(start..start + surroundings(width)).unwrap_or_default();
                all.push(Peak { position: (phase + at) as u32, near, exact: exact_hash(window, width, seed) });
            }
        });
        all
    }

    /// The features of `block`; empty if it has no anchors.
    pub fn features(&mut self, block: &[u8], layout: Elements) -> PeakFeatures {
        let Elements { width, phase } = layout;
        let bytes = block.get(phase..).unwrap_or_default();
        let seed = self.seed;
        // The order, the near hash and the offset of each.
        let mut all: Vec<(u64, u64, usize)> = Vec::new();
        self.each(bytes, width, |_, start, highest| {
            let near = xxh3_64_with_seed(highest, seed);
            all.push((near.wrapping_mul(ORDER), near, start));
        });
        all.sort_unstable();
        all.dedup_by_key(|peak| peak.0);
        let code = CODE | u64::from(width.trailing_zeros()) | (phase as u64) << PHASE_SHIFT;
        let feature = |hash: u64, code: u64| hash & HASH_MASK | code << 48;
        let mut features = PeakFeatures::default();
        let (mut taken, mut near_features) = (0, Vec::with_capacity(SOUGHT_NEAR));
        for (_, near, start) in all {
            let window = bytes.get(start..start + surroundings(width)).unwrap_or_default();
            if taken == SOUGHT {
                break;
            }
            let is_anchor = match width {
                8 => {
                    let mut highest = [0; ELEMENTS];
                    take_doubles(window, &mut highest);
                    are_different(highest.iter())
                }
                _ => are_different(window.iter().skip(width - 1).step_by(width)),
            };
            if !is_anchor {
                continue;
            }
            features.sought.push(feature(exact_hash(window, width, seed), code | EXACT));
            if taken < SOUGHT_NEAR {
                near_features.push(feature(near, code));
            }
            taken += 1;
        }
        let peaks = (block.len() / PEAK_BYTES).clamp(PEAKS_NEAR, PEAKS_MAX);
        features.stored.extend(features.sought.iter().take(peaks).chain(near_features.iter().take(PEAKS_NEAR)));
        features.sought.append(&mut near_features);
        features
    }
}

/// The last byte of each element of `width` bytes.
fn take_last<const WIDTH: usize>(window: &[u8], out: &mut [u8; ELEMENTS]) {
    for (out, element) in out.iter_mut().zip(window.as_chunks::<WIDTH>().0) {
        *out = element.last().copied().unwrap_or_default();
    }
}

/// The sign of each FP64 element and bits 1 to 7 of its exponent. Bits 8 to 10 are the same in all weights.
fn take_doubles(window: &[u8], out: &mut [u8; ELEMENTS]) {
    for (out, element) in out.iter_mut().zip(window.as_chunks::<8>().0) {
        let bits = u64::from_le_bytes(*element);
        *out = (bits >> 56 & 0x80 | bits >> 53 & 0x7f) as u8;
    }
}

fn exact_hash(window: &[u8], width: usize, seed: u64) -> u64 {
    xxh3_64_with_seed(window, seed ^ width as u64)
}

/// Whether a feature is that of an exact hash.
pub fn is_exact(feature: u64) -> bool {
    feature >> 48 & EXACT != 0
}

/// The elements of the entry with these features; `None` if none of them is of a peak.
pub fn elements_of(features: &[u64]) -> Option<Elements> {
    let code = features.iter().map(|feature| feature >> 48).find(|code| code & CODE != 0)?;
    Some(Elements { width: 1 << (code & 3), phase: (code >> PHASE_SHIFT & 7) as usize })
}

/// Bytes around a peak that are hashed, half of them before it.
const fn surroundings(width: usize) -> usize {
    if width == 1 { BYTES } else { ELEMENTS * width }
}

/// Whether there are enough different values among `bytes`.
fn are_different<'a>(bytes: impl Iterator<Item = &'a u8>) -> bool {
    let mut seen = [0u64; 4];
    for byte in bytes {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|seen| seen.count_ones()).sum::<u32>() >= DIFFERENT_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BF16 weights.
    fn weights(count: usize, mut state: u64) -> Vec<u8> {
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let values = (0..count).map(|_| (uniform() + uniform() + uniform() + uniform()) * 0.04);
        values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect()
    }

    fn shared(one: &[u64], other: &[u64]) -> usize {
        one.iter().filter(|feature| other.iter().any(|other| other & HASH_MASK == **feature & HASH_MASK)).count()
    }

    #[test]
    fn slices_share_exact_features_and_tuned_weights_near_ones() {
        let mut finder = PeakFinder::new(1);
        let layout = Elements { width: 2, phase: 0 };
        let block = weights(1 << 18, 1);
        let mut stored = |block: &[u8], layout| finder.features(block, layout).stored;
        let features = stored(&block, layout);
        assert_eq!(features.len(), PEAKS_MAX + PEAKS_NEAR);
        assert!(features.iter().take(PEAKS_MAX).all(|feature| is_exact(*feature)));
        let slice = [&weights(3000, 2), &block[2 * 100_000..]].concat();
        assert!(shared(&features, &stored(&slice, layout)) >= 4);
        // One bit of the mantissa, which is up to 0.8 %.
        let tuned: Vec<u8> = block.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at % 6 == 0)).collect();
        let tuned = stored(&tuned, layout);
        assert!(
            shared(&features[PEAKS_MAX..], &tuned[PEAKS_MAX..]) >= 4
                && shared(&features[..PEAKS_MAX], &tuned[..PEAKS_MAX]) <= 1
        );
        assert_eq!(shared(&features, &stored(&weights(1 << 18, 3), layout)), 0);
        // FP32 with these values shares them, too.
        let wide: Vec<u8> = block.as_chunks::<2>().0.iter().flat_map(|value| [0, 0, value[0], value[1]]).collect();
        assert!(shared(&features[PEAKS_MAX..], &stored(&wide, Elements { width: 4, phase: 0 })[PEAKS_MAX..]) >= 4);
        // FP64 has peaks, too, and finds its like by them.
        let doubles = |low: u64| -> Vec<u8> {
            let value = |value: &[u8; 4]| f64::from(f32::from_le_bytes(*value)).to_bits() | low;
            wide.as_chunks::<4>().0.iter().flat_map(|wide| value(wide).to_le_bytes()).collect()
        };
        let (one, other) = (doubles(77), doubles(78));
        let layout = Elements { width: 8, phase: 0 };
        let (one, other) = (finder.features(&one, layout).stored, finder.features(&other, layout).stored);
        assert_eq!(one.len(), PEAKS_MAX + PEAKS_NEAR);
        assert!(
            shared(&one[PEAKS_MAX..], &other[PEAKS_MAX..]) == PEAKS_NEAR
                && shared(&one[..PEAKS_MAX], &other[..PEAKS_MAX]) == 0
        );
    }

    #[test]
    fn columns_beside_one_that_has_the_largest_elements_share_features_with_their_matrix() {
        let mut finder = PeakFinder::new(1);
        let layout = Elements { width: 2, phase: 0 };
        let mut matrix = weights(1 << 18, 1);
        matrix.chunks_exact_mut(1024).for_each(|row| row[601] = 0x41);
        let columns: Vec<u8> = matrix.chunks_exact(1024).flat_map(|row| row[..512].to_vec()).collect();
        let stored = finder.features(&matrix, layout).stored;
        let sought = finder.features(&columns, layout).sought;
        assert!(shared(&stored, &sought) >= 2, "{}", shared(&stored, &sought));
    }

    #[test]
    fn features_tell_the_elements() {
        let mut finder = PeakFinder::new(1);
        for (width, phase) in [(1, 0), (2, 0), (2, 1), (4, 3), (8, 5)] {
            let layout = Elements { width, phase };
            assert_eq!(elements_of(&finder.features(&weights(100_000, 5), layout).stored), Some(layout));
        }
        assert_eq!(elements_of(&[1 << 47, 127 << 48]), None);
        assert!(finder.features(&[], Elements { width: 4, phase: 3 }).sought.is_empty());
        assert!(finder.features(&[7; 100_000], Elements { width: 2, phase: 0 }).sought.is_empty());
    }
}
