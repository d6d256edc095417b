//! Byte classes: how bytes and nibbles differ from those of a base, counted by the byte or nibble there.
//!
//! A difference is that of two bytes modulo 256, or of two nibbles modulo 16. The class of a base's byte chooses the
//! table that its difference is encoded with.

use super::dispatch::dispatch;

mod neon;

/// Counts of differences for each byte of the base.
pub type DifferenceCounts = [[u32; 256]; 256];
/// Counts of differences for each nibble of the base.
pub type NibbleCounts = [[u32; 16]; 16];

dispatch! {
    /// Fills `contexts` with the classes of the bytes of `base`.
    pub fn classes_of(classes: &[u8; 256], base: &[u8], contexts: &mut [u8]) {
        NEON => neon::classes,
        AVX512 | AVX2 | PORTABLE => classes_loop,
    }
}
dispatch! {
    /// Fills both halves of `differences` with those of nibbles, the lower ones first, and those of `contexts` with the
    /// nibbles of `base`. Both are twice as long as `raw` and `base`.
    pub fn split_nibbles(raw: &[u8], base: &[u8], differences: &mut [u8], contexts: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => split_nibbles_loop,
    }
}
dispatch! {
    /// Inverse of [`split_nibbles`]: fills `out` from the nibbles of `base` and the differences.
    pub fn join_nibbles(differences: &[u8], base: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => join_nibbles_loop,
    }
}
dispatch! {
    /// Fills both halves of `contexts` with the nibbles of `base`, the lower ones first.
    pub fn nibbles_of(base: &[u8], contexts: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => nibbles_loop,
    }
}

/// Adds the differences of bytes to `counts`.
pub fn count_pairs(raw: &[u8], base: &[u8], counts: &mut DifferenceCounts) {
    for (raw, base) in raw.iter().zip(base) {
        counts[usize::from(*base)][usize::from(raw.wrapping_sub(*base))] += 1;
    }
}

/// The counts of the nibbles' differences that follow from those of bytes.
pub fn nibble_counts(pairs: &DifferenceCounts) -> NibbleCounts {
    let mut counts = [[0; 16]; 16];
    for (base, differences) in pairs.iter().enumerate() {
        for (difference, count) in differences.iter().enumerate().filter(|(_, count)| **count > 0) {
            let raw = base + difference;
            counts[base & 15][raw.wrapping_sub(base) & 15] += count;
            counts[base >> 4 & 15][((raw & 255) >> 4).wrapping_sub(base >> 4) & 15] += count;
        }
    }
    counts
}

#[inline(always)]
fn classes_loop(classes: &[u8; 256], base: &[u8], contexts: &mut [u8]) {
    contexts.iter_mut().zip(base).for_each(|(context, base)| *context = classes[usize::from(*base)]);
}

#[inline(always)]
fn split_nibbles_loop(raw: &[u8], base: &[u8], differences: &mut [u8], contexts: &mut [u8]) {
    let (low, high) = differences.split_at_mut(raw.len());
    for ((low, high), (raw, base)) in low.iter_mut().zip(high).zip(raw.iter().zip(base)) {
        *low = raw.wrapping_sub(*base) & 15;
        *high = (raw >> 4).wrapping_sub(base >> 4) & 15;
    }
    nibbles_loop(base, contexts);
}

#[inline(always)]
fn nibbles_loop(base: &[u8], contexts: &mut [u8]) {
    let (low, high) = contexts.split_at_mut(base.len());
    for ((low, high), base) in low.iter_mut().zip(high).zip(base) {
        (*low, *high) = (base & 15, base >> 4);
    }
}

#[inline(always)]
fn join_nibbles_loop(differences: &[u8], base: &[u8], out: &mut [u8]) {
    let (low, high) = differences.split_at(out.len());
    for ((out, base), (low, high)) in out.iter_mut().zip(base).zip(low.iter().zip(high)) {
        *out = base.wrapping_add(*low) & 15 | (base >> 4).wrapping_add(*high) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    #[test]
    fn every_length_of_classes_agrees_with_the_scalar_reference() {
        let classes: [u8; 256] = std::array::from_fn(|base| (base as u8).wrapping_mul(167) ^ 0x5a);
        let base: Vec<u8> = (0..100u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let all: Vec<u8> = (0..=255).chain(base).collect();
        with_each_subset(|features| {
            for (len, shorter) in (0..all.len()).flat_map(|len| [(len, len), (len, len.saturating_sub(7))]) {
                for [base_len, out_len] in [[len, shorter], [shorter, len]] {
                    let mut own = vec![99; out_len];
                    classes_of(&classes, &all[all.len() - base_len..], &mut own);
                    for (at, own) in own.iter().enumerate() {
                        let base = all[all.len() - base_len..].get(at);
                        assert_eq!(
                            *own,
                            base.map_or(99, |base| classes[usize::from(*base)]),
                            "{at} of {len}, {features}"
                        );
                    }
                }
            }
        });
    }

    #[test]
    fn nibbles_come_back_and_are_counted_for_each_set_of_cpu_features() {
        let byte = |at: u32, seed: u32| (at.wrapping_mul(seed) >> 13) as u8;
        let raw: Vec<u8> = (0..1003).map(|at| byte(at, 2_654_435_761)).collect();
        let base: Vec<u8> = (0..1003).map(|at| byte(at, 2_246_822_519)).collect();
        let mut pairs = Box::new([[0; 256]; 256]);
        count_pairs(&raw, &base, &mut pairs);
        let counted = nibble_counts(&pairs);
        let classes: [u8; 256] = std::array::from_fn(|base| (base / 17) as u8);
        with_each_subset(|features| {
            let (mut differences, mut contexts) = (vec![99; 2006], vec![99; 2006]);
            split_nibbles(&raw, &base, &mut differences, &mut contexts);
            let mut counts = [[0; 16]; 16];
            for (difference, base) in differences.iter().zip(&contexts) {
                counts[usize::from(*base)][usize::from(*difference)] += 1;
            }
            assert_eq!(counts, counted, "{features:?}");
            for (at, (raw, base)) in raw.iter().zip(&base).enumerate() {
                assert_eq!((contexts[at], contexts[at + 1003]), (base & 15, base >> 4));
                assert_eq!(differences[at], (raw & 15).wrapping_sub(base & 15) & 15);
            }
            let mut out = vec![0; 1003];
            join_nibbles(&differences, &base, &mut out);
            assert_eq!(out, raw, "{features:?}");
            let mut own = vec![0; 1003];
            classes_of(&classes, &base, &mut own);
            assert!(own.iter().zip(&base).all(|(own, base)| *own == base / 17), "{features:?}");
        });
    }
}
