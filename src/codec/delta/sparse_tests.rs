//! Round trips of sparse changes, the frozen vector, and hostile payloads.

use super::payload::{CONTEXT, SAME, SPARSE};
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::{Error, Result};
use proptest::prelude::*;

const TYPES: [ElementType; 3] = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32];

fn encoded(element_type: ElementType, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let mut scratch = Scratch { has_derivations: true, ..Scratch::default() };
    let mut out = Vec::new();
    encode(Derivation::Context(element_type), raw, base, &mut scratch, &mut out).unwrap();
    out
}

fn decoded(element_type: ElementType, payload: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    tests::decoded(Derivation::Context(element_type).id(), payload, base, raw_len)
}

/// Elements of a base, and the same with the given changes: position and what is added to the bits.
fn pair(element_type: ElementType, elements: usize, changes: &[(usize, i32)]) -> (Vec<u8>, Vec<u8>) {
    let width = element_type.width();
    let value = |at: usize| 0x3c00_3c00u32.wrapping_add((at as u32).wrapping_mul(2_654_435_761) >> 20);
    let base: Vec<u8> = (0..elements).flat_map(|at| value(at).to_le_bytes()[4 - width..].to_vec()).collect();
    let mut raw = base.clone();
    for (at, change) in changes {
        let element = &mut raw[at * width..(at + 1) * width];
        let mut bytes = [0; 4];
        bytes[..width].copy_from_slice(element);
        let changed = u32::from_le_bytes(bytes).wrapping_add(*change as u32).to_le_bytes();
        element.copy_from_slice(&changed[..width]);
    }
    (raw, base)
}

#[test]
fn sparse_changes_take_little_more_than_their_entropy() {
    for element_type in TYPES {
        // One in a hundred: 8.1 bits of position and one of direction for each.
        let changes: Vec<(usize, i32)> = (0..1300)
            .map(|number| (number * 100 + number * number % 97, if number % 3 == 0 { -1 } else { 1 }))
            .collect();
        let (raw, base) = pair(element_type, 131_072, &changes);
        let payload = encoded(element_type, &raw, &base);
        assert_eq!(payload[0], SPARSE, "{element_type:?}");
        assert!(payload.len() < 1300 * 91 / 80 + 60, "{element_type:?}: {}", payload.len());
        assert!(decoded(element_type, &payload, &base, raw.len()).unwrap() == raw);
    }
}

fn noise(seed: u64) -> impl Iterator<Item = u32> {
    (0u64..).map(move |at| xxhash_rust::xxh3::xxh3_64_with_seed(&at.to_le_bytes(), seed) as u32)
}

/// Bytes of the payload in mode 2, and in mode 5.
fn lengths_of_others(raw: &[u8], base: &[u8]) -> [usize; 2] {
    let xor: Vec<u8> = raw.iter().zip(base).map(|(raw, base)| raw ^ base).collect();
    let (mut scratch, mut planes) = (Scratch::default(), Vec::new());
    let mut out = Vec::new();
    scratch.compress(&xor, super::payload::LEVEL, &mut out).unwrap();
    crate::codec::floats::encode(ElementType::Unknown, 0, &xor, &mut scratch, &mut planes).unwrap();
    [out.len(), planes.len()]
}

#[test]
fn rows_that_repeat_cost_no_more_than_in_other_modes() {
    // Of 64 rows of 8 KiB the last ones become one vector, as those of new tokens in an embedding.
    let (row, rows) = (8 << 10, 64);
    for (new, with_zeros) in [(3, true), (8, true), (3, false), (8, false)] {
        let (_, mut base) = pair(ElementType::Bf16, row / 2 * rows, &[]);
        let vector: Vec<u8> = noise(3).take(row).map(|number| number as u8).collect();
        let start = (rows - new) * row;
        if with_zeros {
            base[start..].fill(0);
        }
        let mut raw = base.clone();
        for row in raw[start..].chunks_mut(row) {
            row.iter_mut().zip(&vector).for_each(|(byte, new)| *byte ^= new);
        }
        let payload = encoded(ElementType::Bf16, &raw, &base);
        let bound = lengths_of_others(&raw, &base)[0];
        assert!(payload.len() <= bound + bound / 16 + 64, "{new}, {with_zeros}: {} of {bound}", payload.len());
        assert!(decoded(ElementType::Bf16, &payload, &base, raw.len()).unwrap() == raw);
    }
}

#[test]
fn sparse_changes_of_bf16_in_fp32_cost_no_more_than_planes() {
    for every in [9, 16, 33] {
        let base: Vec<u8> =
            noise(1).take(65_536).flat_map(|number| (0x3d00_0000 | number & 0x1f_0000).to_le_bytes()).collect();
        let mut raw = base.clone();
        for (element, number) in raw.chunks_mut(4).zip(noise(2)).filter(|(_, number)| number % every == 0) {
            element[2] ^= (1 + number / every % 60) as u8;
        }
        let payload = encoded(ElementType::Fp32, &raw, &base);
        let bound = lengths_of_others(&raw, &base)[1];
        assert!(payload.len() <= bound + bound / 32 + 64, "one in {every}: {} of {bound}", payload.len());
        assert!(decoded(ElementType::Fp32, &payload, &base, raw.len()).unwrap() == raw);
    }
}

#[test]
fn a_repository_without_the_feature_gets_other_modes() {
    let (raw, base) = pair(ElementType::Bf16, 65_536, &[(5, 1), (900, -1), (40_000, 3)]);
    let mut out = Vec::new();
    encode(Derivation::Context(ElementType::Bf16), &raw, &base, &mut Scratch::default(), &mut out).unwrap();
    assert!(![SAME, SPARSE].contains(&out[0]), "mode {}", out[0]);
    assert!(decoded(ElementType::Bf16, &out, &base, raw.len()).unwrap() == raw);
}

#[test]
fn the_longest_gap_and_the_shortest_ones() {
    // Two elements with 2^18 - 1 unchanged ones between them have a token. With one more they have none.
    for (gap, is_sparse) in [((1 << 18) - 1, true), (1 << 18, false)] {
        let changes = [(0, 1), (1, -1), (gap + 2, 2), (gap + 3, 1), (gap + 3 + 5, -128), (gap + 3 + 6, 128)];
        let (raw, base) = pair(ElementType::Bf16, (1 << 18) + 20, &changes);
        let payload = encoded(ElementType::Bf16, &raw, &base);
        assert_eq!(payload[0] == SPARSE, is_sparse, "{gap}: mode {}", payload[0]);
        assert!(decoded(ElementType::Bf16, &payload, &base, raw.len()).unwrap() == raw, "{gap}");
    }
}

/// The example of FORMAT section 16: eight elements in BF16, of which 1 and 7 have changed.
#[test]
fn the_frozen_vector() {
    let base: Vec<u8> = (0u8..8).flat_map(|at| [at, 0x3f]).collect();
    // 1 is preceded by one unchanged element, 7 by five: the token 4 and the low bit 1.
    let payload = [SPARSE, 2, 0, 1, 4, 1, 1, 0, 0, 1];
    let mut expected = base.clone();
    expected[2] += 1;
    expected[14] -= 1;
    assert_eq!(decoded(ElementType::Bf16, &payload, &base, 16).unwrap(), expected);
    // Above 0, steps are differences.
    let steps = [SPARSE, 2, 0, 1, 4, 1, 2, 0, 0, 1];
    assert_eq!(decoded(ElementType::Bf16, &steps, &base, 16).unwrap(), expected);
    let beyond = [SPARSE, 2, 0, 1, 5, 1, 1, 0, 0, 1];
    assert!(matches!(decoded(ElementType::Bf16, &beyond, &base, 16), Err(Error::Corrupt { .. })), "an element 9");
}

#[test]
fn the_frozen_vector_of_steps() {
    // Across the sign of FP32: -0 is one step below 0, so the step is -3, which is 5 as a number.
    let mut base = [0u8; 16];
    base[4] = 1;
    let payload = [SPARSE, 1, 1, 1, 2, 1, 4, 1];
    let mut expected = base;
    expected[4..8].copy_from_slice(&[1, 0, 0, 0x80]);
    assert_eq!(decoded(ElementType::Fp32, &payload, &base, 16).unwrap(), expected);
}

#[test]
fn few_changes_of_any_length_take_no_states() {
    for element_type in [ElementType::Bf16, ElementType::Fp32] {
        // Steps of up to 13 bits, most of them short.
        let changes: Vec<(usize, i32)> = (0..900usize)
            .map(|at| (at * 1000 + at * at % 700, 1 + ((at * 37 % 97) as i32 >> 3 << (at % 10))))
            .collect();
        let (raw, base) = pair(element_type, 1_000_000, &changes);
        let payload = encoded(element_type, &raw, &base);
        assert!(decoded(element_type, &payload, &base, raw.len()).unwrap() == raw);
        // Gaps have about 10.5 bits, steps 7. The tables and states of mode 3 take 350 bytes more.
        assert!(payload.len() < 900 * 35 / 16 + 200, "{element_type:?}: {}", payload.len());
    }
}

#[test]
fn hostile_payloads_are_damage_or_newer() {
    let base = [0u8; 16];
    let cases: [(&[u8], bool); 9] = [
        (&[SPARSE], false),
        (&[SPARSE, 9, 0], false),
        (&[SPARSE, 1, 1, 36, 1, 1, 0], false),
        (&[SPARSE, 1, 1, 35, 0xff, 0xff, 1, 1, 0], false),
        (&[SPARSE, 1, 1, 0, 3, 1, 0], true),
        (&[SPARSE, 1, 1, 0, 2, 1, 36], false),
        (&[SPARSE, 1, 1, 0, 2, 1, 35, 0xff], false),
        (&[SPARSE, 1, 1, 0, 2, 1, 0, 0], false),
        (&[SPARSE, 1, 1, 0, 1, 1, 0, 0], false),
    ];
    for (payload, is_newer) in cases {
        let error = decoded(ElementType::Bf16, payload, &base, 16).unwrap_err();
        assert_eq!(matches!(error, Error::Unsupported { .. }), is_newer, "{payload:?}: {error}");
    }
    // The modes for floats are not for bytes.
    let error = decoded(ElementType::Byte, &[SPARSE, 1, 1, 0, 1, 1, 0], &base, 16).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

proptest! {
    #[test]
    fn any_changes_come_back(
        kind in 0usize..3,
        elements in 1usize..3000,
        changes in prop::collection::vec((0usize..3000, any::<i32>()), 0..200),
        small in any::<bool>(),
        shorter in 0usize..40,
    ) {
        let element_type = TYPES[kind];
        let changes: Vec<(usize, i32)> = changes
            .into_iter()
            .map(|(at, change)| (at % elements, if small { change % 200 } else { change }))
            .collect();
        let (raw, base) = pair(element_type, elements, &changes);
        // Chunk and base need not have the same length.
        let (less, less_base) = (raw.len().saturating_sub(shorter), base.len().saturating_sub(shorter));
        for (raw, base) in [(&raw[..], &base[..]), (&raw[..less], &base[..]), (&raw[..], &base[..less_base])] {
            let payload = encoded(element_type, raw, base);
            prop_assert!(decoded(element_type, &payload, base, raw.len()).unwrap() == raw);
        }
    }

    #[test]
    fn any_bytes_end_without_a_panic(payload in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..3) {
        let mut payload = payload;
        payload.insert(0, SPARSE);
        let base: Vec<u8> = (0..400u32).map(|at| at as u8).collect();
        let _ = decoded(TYPES[kind], &payload, &base, 400);
        payload[0] = CONTEXT;
        let _ = decoded(TYPES[kind], &payload, &base, 400);
    }
}
