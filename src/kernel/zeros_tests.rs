//! Masks and what follows from them equal references that take one element after another.

use proptest::prelude::*;

use super::*;
use crate::kernel::cpu_features::with_each_subset;

/// Elements of `width` bytes, of which many are zeros of either sign.
fn elements(width: usize, seeds: &[(u8, u32)]) -> Vec<u8> {
    let element = |(kind, seed): &(u8, u32)| {
        let bits = u64::from(*seed) << 32 | u64::from(*seed).wrapping_mul(0x9e37_79b9);
        let bytes = (bits >> (64 - 8 * width)).to_le_bytes()[..width].to_vec();
        match kind % 4 {
            0 => vec![0; width],
            1 => [vec![0; width - 1], vec![0x80]].concat(),
            _ => bytes,
        }
    };
    seeds.iter().flat_map(element).collect()
}

fn bit(mask: &[u8], at: usize) -> bool {
    mask[at / 8] >> (at % 8) & 1 == 1
}

fn magnitudes(bytes: &[u8], width: usize) -> Vec<u32> {
    let number = |element: &[u8]| element.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    bytes.chunks(width).map(|element| (number(element) & ((1 << (8 * width - 1)) - 1)) as u32).collect()
}

proptest! {
    #[test]
    fn elements_that_are_no_zeros_come_back(
        seeds in prop::collection::vec(any::<(u8, u32)>(), 0..200), power in 1usize..4, is_signed: bool,
    ) {
        let width = 1 << power;
        let raw = elements(width, &seeds);
        let others: Vec<(u8, u32)> = seeds.iter().map(|(kind, seed)| (3, seed.rotate_left(u32::from(*kind)))).collect();
        let base = elements(width, &others);
        with_each_subset(|features| {
            let mut mask = vec![0xff; seeds.len().div_ceil(8)];
            mark(width, &raw, &base, is_signed, &mut mask);
            assert!(is_mask_of(&mask, seeds.len()), "{features:?}");
            let mut expected = Vec::new();
            for (at, (raw, base)) in raw.chunks(width).zip(base.chunks(width)).enumerate() {
                let sign = if is_signed { base[width - 1] & 0x80 } else { 0 };
                let is_zero = raw[..width - 1].iter().all(|byte| *byte == 0) && raw[width - 1] == sign;
                assert_eq!(bit(&mask, at), is_zero, "{features:?}: {at}");
                if !is_zero {
                    expected.extend_from_slice(raw);
                }
            }
            let mut left = vec![9; raw.len()];
            let len = keep(width, &raw, &mask, &mut left);
            assert_eq!(left[..len], expected, "{features:?}");
            assert_eq!(len, (seeds.len() - marked(&mask)) * width);
            let mut back = if is_signed { base.clone() } else { vec![0; raw.len()] };
            spread(width, &left[..len], &mask, &mut back);
            assert_eq!(back, raw, "{features:?}");
        });
    }

    #[test]
    fn masks_follow_from_magnitudes(
        seeds in prop::collection::vec(any::<(u8, u32)>(), 0..100), power in 1usize..3, threshold: u32,
    ) {
        let width = 1 << power;
        let base = elements(width, &seeds);
        let magnitudes = magnitudes(&base, width);
        let threshold = threshold >> (32 - 8 * width);
        with_each_subset(|features| {
            let mut mask = vec![0xff; seeds.len().div_ceil(8)];
            mark_below(width, &base, threshold, &mut mask);
            assert!(is_mask_of(&mask, seeds.len()));
            magnitudes.iter().enumerate().for_each(|(at, own)| {
                assert_eq!(bit(&mask, at), *own < threshold, "{features:?}: {at}");
            });
            mask.fill(0xff);
            mark_two_of_four(width, &base, &mut mask);
            assert!(is_mask_of(&mask, seeds.len()));
            for (group, own) in magnitudes.chunks(4).enumerate() {
                let mut padded = own.to_vec();
                padded.resize(4, 0);
                let mut order = [0, 1, 2, 3];
                order.sort_by_key(|at| std::cmp::Reverse(padded[*at]));
                for at in 0..own.len() {
                    assert_eq!(bit(&mask, group * 4 + at), order[2..].contains(&at), "{features:?}: {own:?}");
                }
            }
        });
    }

    #[test]
    fn a_threshold_is_found(
        seeds in prop::collection::vec(any::<u32>(), 1..300), power in 1usize..3, at: prop::sample::Index,
    ) {
        let width = 1 << power;
        let base = elements(width, &seeds.iter().map(|seed| (3, *seed)).collect::<Vec<_>>());
        let own = magnitudes(&base, width)[at.index(seeds.len())];
        let (mut mask, mut counters) = (vec![0; seeds.len().div_ceil(8)], vec![7; COUNTERS]);
        mark_below(width, &base, own, &mut mask);
        let found = threshold(width, &base, &mask, &mut counters);
        prop_assert!(found <= own);
        let mut back = vec![0; mask.len()];
        mark_below(width, &base, found, &mut back);
        prop_assert_eq!(back, mask);
    }
}

#[test]
fn the_best_threshold_of_a_mask_that_is_none() {
    let base: Vec<u8> = (0..100u32).flat_map(|value| (value * 70_000).to_le_bytes()).collect();
    let (mut mask, mut counters) = (vec![0; 13], vec![0; COUNTERS]);
    mark_below(4, &base, 40 * 70_000, &mut mask);
    // One below is not marked, one above is.
    mask[1] ^= 1;
    mask[9] ^= 1;
    assert_eq!(threshold(4, &base, &mask, &mut counters), 39 * 70_000 + 1);
    assert_eq!(threshold(4, &base, &[0; 13], &mut counters), 0);
    assert_eq!(threshold(8, &base, &mask, &mut counters), 0);
}

#[test]
fn every_length_agrees_with_the_portable_loops() {
    let seeds: Vec<(u8, u32)> =
        (0..70u32).map(|at| ((at * 7 / 3) as u8, at.wrapping_mul(2_654_435_761) ^ ((at % 5) << 30))).collect();
    let bits: Vec<u8> = seeds.iter().map(|(_, seed)| (seed >> 11) as u8).collect();
    for (width, len) in [2, 4, 8].into_iter().flat_map(|width| (0..=seeds.len()).map(move |len| (width, len))) {
        let raw = elements(width, &seeds[..len]);
        let base =
            elements(width, &seeds.iter().rev().map(|(kind, seed)| (kind / 2, *seed)).collect::<Vec<_>>()[..len]);
        let mask_len = len.div_ceil(8);
        let mut mask = bits[..mask_len].to_vec();
        if let Some(last) = mask.last_mut().filter(|_| len % 8 > 0) {
            *last &= (1 << (len % 8)) - 1;
        }
        let mut all = Vec::new();
        with_each_subset(|features| {
            let mut marks: [Vec<u8>; 4] = std::array::from_fn(|_| vec![0; mask_len]);
            let [signed, unsigned, below, two] = &mut marks;
            mark(width, &raw, &base, true, signed);
            mark(width, &raw, &base, false, unsigned);
            mark_below(width, &base, magnitudes(&base, width.min(4)).first().copied().unwrap_or(9), below);
            mark_two_of_four(width, &base, two);
            let (mut left, mut out) = (vec![0; raw.len()], base.clone());
            let count = keep(width, &raw, &mask, &mut left);
            left.truncate(count);
            spread(width, &left, &mask, &mut out);
            all.push((marks, left, out));
            assert!(all.first() == all.last(), "{len} elements of {width}, {features}");
        });
    }
}
