//! The kernels agree with a scalar reference at every position.

use proptest::prelude::*;

use super::filter::*;
use super::*;
use crate::kernel::cpu_features::CpuFeatures;

/// Scalar reference of the filter, the guard and the window.
struct ScalarSieve {
    maps: Box<Maps>,
    sieve: Sieve,
}

impl ScalarSieve {
    fn new(seed: u64) -> Self {
        let sieve = Sieve::with_features(seed, CpuFeatures::empty());
        ScalarSieve { maps: draw(seed).0, sieve }
    }

    fn value(&self, bytes: &[u8], position: usize) -> u8 {
        let map = |number: usize, value: u8| self.maps[number][usize::from(value)];
        let pair = |end: usize| bytes[end - 1] ^ map(0, bytes[end - 2]);
        let four = |end: usize| pair(end) ^ map(1, pair(end - 2));
        four(position) ^ map(2, four(position - 4))
    }

    fn anchors(&self, bytes: &[u8]) -> Vec<Anchor> {
        let passes = |position: usize| self.value(bytes, position) == 0;
        (WINDOW_BYTES..=bytes.len())
            .filter(|position| passes(*position) && !(position - 15..*position).any(passes))
            .map(|position| {
                let window = bytes[..position].last_chunk().expect("is long enough");
                Anchor { position: position as u32, hash: self.sieve.hash(window) }
            })
            .collect()
    }

    /// Bytes after `start` of which every position passes.
    fn adversary(&self, start: [u8; 7], len: usize) -> Vec<u8> {
        let mut bytes = start.to_vec();
        while bytes.len() < len {
            let at = bytes.len();
            bytes.push(0);
            // The last byte is not mapped, so this XOR makes the result zero.
            bytes[at] = self.value(&bytes, at + 1);
        }
        bytes.truncate(len);
        bytes
    }
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len).map(|_| next_random(&mut state) as u8).collect()
}

/// A sieve with each loop that this processor can run.
fn sieves(seed: u64) -> Vec<(CpuFeatures, Sieve)> {
    let subsets = CpuFeatures::subsets().into_iter().filter(|subset| !subset.contains(CpuFeatures::PEXT));
    subsets.chain([CpuFeatures::all()]).map(|subset| (subset, Sieve::with_features(seed, subset))).collect()
}

/// Checks that every loop gives the anchors of the scalar reference, at most one in 16 positions.
fn check(scalar: &ScalarSieve, sieves: &[(CpuFeatures, Sieve)], bytes: &[u8]) {
    let expected = scalar.anchors(bytes);
    for (features, sieve) in sieves {
        assert_eq!(sieve.anchors(bytes), expected, "{features}, {} bytes", bytes.len());
    }
    assert!(expected.windows(2).all(|pair| pair[1].position - pair[0].position >= 16));
}

#[test]
fn every_length_and_offset_agrees_with_the_scalar_reference() {
    let (scalar, sieves) = (ScalarSieve::new(3), sieves(3));
    let bytes = random(4, 20_000);
    for len in 0..300 {
        for offset in [0, 1, 3, 7, 17, 63] {
            check(&scalar, &sieves, &bytes[offset..offset + len]);
        }
    }
    for len in (4096 - 70..4096 + 90).chain(8192..8192 + 40) {
        check(&scalar, &sieves, &bytes[len % 61..][..len]);
    }
    let anchors = scalar.anchors(&bytes);
    let per_anchor = bytes.len() / anchors.len();
    assert!((200..350).contains(&per_anchor), "{per_anchor} bytes to an anchor");
}

#[test]
fn periodic_bytes_agree_and_constant_bytes_have_no_anchors() {
    let (scalar, sieves) = (ScalarSieve::new(5), sieves(5));
    for period in 1..=40 {
        for seed in 0..20 {
            let bytes: Vec<u8> = random(seed, period).into_iter().cycle().take(700).collect();
            check(&scalar, &sieves, &bytes);
        }
    }
    for byte in 0..=255 {
        let bytes = vec![byte; 5000];
        check(&scalar, &sieves, &bytes);
        assert!(scalar.anchors(&bytes).is_empty());
    }
}

#[test]
fn adversarial_positions_are_dropped() {
    for seed in 0..8 {
        let (scalar, sieves) = (ScalarSieve::new(seed), sieves(seed));
        let bytes = scalar.adversary([seed as u8, 7, 200, 0, 1, 2, 3], 10_000);
        assert!((8..=bytes.len()).all(|position| scalar.value(&bytes, position) == 0), "all pass");
        check(&scalar, &sieves, &bytes);
        assert!(scalar.anchors(&bytes).is_empty());
        // Parts of it between random bytes, so that the distances vary.
        let mut mixed = random(seed, 40);
        for part in 1..120 {
            mixed.extend_from_slice(&bytes[..part % 37 + 8]);
            mixed.extend(random(part as u64, part % 23));
        }
        check(&scalar, &sieves, &mixed);
    }
}

/// With any key. Otherwise only the length would determine the chunk boundaries of a genome.
#[test]
fn content_of_four_letters_has_anchors() {
    let letters: Vec<u8> = random(6, 200_000).iter().map(|byte| b"ACGT"[usize::from(byte & 3)]).collect();
    for seed in 0..200 {
        let count = Sieve::new(seed).anchors(&letters).len();
        assert!((300..2000).contains(&count), "{count} anchors with key {seed}");
    }
}

/// Emulates the instruction of GFNI, so that processors without it check the matrices too.
#[test]
fn matrices_give_the_same_results_as_maps() {
    for seed in 0..8 {
        for map in of_each_byte(&draw(seed).0) {
            let rows = matrix(&map).to_le_bytes();
            for byte in 0..=255u8 {
                let bit = |i: usize| ((rows[7 - i] & byte).count_ones() & 1) << i;
                let product = (0..8).fold(0, |product, i| product | bit(i)) as u8;
                assert_eq!(product ^ map[0], map[usize::from(byte)]);
            }
        }
    }
}

#[test]
fn zero_bytes_are_found_exactly() {
    for seed in 0..2000 {
        let bytes: [u8; 8] = std::array::from_fn(|at| random(seed, 8)[at] & 3);
        let expected = (0..8).filter(|at| bytes[*at] == 0).fold(0, |mask, at| mask | 1 << at);
        assert_eq!(portable::zero_bytes(u64::from_le_bytes(bytes)), expected);
    }
}

proptest! {
    #[test]
    fn kernels_agree(seed: u64, low in 1..=255u8, content in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let bytes: Vec<u8> = content.iter().map(|byte| byte % low).collect();
        check(&ScalarSieve::new(seed), &sieves(seed), &bytes);
    }

    #[test]
    fn an_anchor_depends_only_on_its_window(seed: u64, before in 0..5000usize, other: u64) {
        let sieve = Sieve::new(seed);
        let content = random(seed ^ 1, 9000);
        let mut moved = random(other, before);
        moved.extend_from_slice(&content);
        let shifted: Vec<Anchor> = sieve.anchors(&content).into_iter()
            .map(|anchor| Anchor { position: anchor.position + before as u32, ..anchor }).collect();
        let after: Vec<Anchor> = sieve.anchors(&moved).into_iter()
            .filter(|anchor| anchor.position as usize >= before + WINDOW_BYTES).collect();
        prop_assert_eq!(after, shifted);
    }

    #[test]
    fn a_scan_ends_when_the_visitor_returns_false(seed: u64, count in 1..20usize) {
        let (sieve, bytes) = (Sieve::new(seed), random(seed, 20_000));
        let mut seen = Vec::new();
        sieve.scan(&bytes, |anchor| { seen.push(anchor); seen.len() < count });
        prop_assert_eq!(&seen[..], &sieve.anchors(&bytes)[..count]);
    }
}
