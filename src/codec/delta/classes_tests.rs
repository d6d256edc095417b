//! Fine-tunes of quantised weights take what their codes do given those of the base; round trips and hostile payloads.

use super::payload::{CLASSES, decode};
use super::*;
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::quantise::{BlockType, ScaleSource, quantise};
use proptest::prelude::*;

const BYTES: u8 = 5;

fn encoded(derivation: Derivation, raw: &[u8], base: &[u8], has_derivations: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode(derivation, raw, base, &mut Scratch::of_writer(has_derivations), &mut out).unwrap();
    out
}

fn decoded(payload: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    decode(BYTES, payload, base, raw_len, &mut Scratch::default(), &mut out)?;
    Ok(out.split_off(6))
}

fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..6).map(|_| uniform()).sum::<f32>()
    }
}

/// Weights and a fine-tune of them.
fn fine_tune(count: usize) -> [Vec<u8>; 2] {
    let mut next = random(5);
    let weights: Vec<[f32; 2]> = (0..count).map(|_| [next() * 0.03, next() * 0.003]).collect();
    let bytes = |with: f32| weights.iter().flat_map(|[one, more]| (one + more * with).to_le_bytes()).collect();
    [bytes(0.0), bytes(1.0)]
}

/// Blocks of a type, made of values. Those of the large types have the scales of Q4_K's like.
fn blocks(block_type: BlockType, values: &[u8]) -> Vec<u8> {
    let mut blocks = vec![0; values.len() / 4 / block_type.values() * block_type.bytes()];
    for block in blocks.chunks_exact_mut(block_type.bytes()) {
        block_type.packed_scales().flatten().for_each(|at| block[at] = 0x25);
        block_type.halves().for_each(|at| block[at..at + 2].copy_from_slice(&[0x10, 0x0c]));
    }
    let source = block_type.sources()[0];
    quantise(
        block_type,
        if source == ScaleSource::Given { source } else { ScaleSource::Computed },
        values,
        &mut blocks,
    );
    blocks
}

#[test]
fn codes_of_a_fine_tune_take_less_by_those_of_the_base() {
    let [base, tuned] = fine_tune(256 * 300);
    for block_type in BlockType::ALL {
        let (base, tuned) = (blocks(block_type, &base), blocks(block_type, &tuned));
        let head = 7usize;
        let (base, tuned) = (&base[block_type.bytes() - head..], &tuned[block_type.bytes() - head..]);
        let derivation = Derivation::Blocks(BlockGrid { block_type, head: head as u8 });
        let (own, before) = (encoded(derivation, tuned, base, true), encoded(derivation, tuned, base, false));
        assert_eq!(own[..2], [CLASSES, block_type.number()], "{block_type:?}");
        assert!(own.len() * 20 < before.len() * 19, "{block_type:?}: {} of {}", own.len(), before.len());
        assert_eq!(decoded(&own, base, tuned.len()).unwrap(), tuned, "{block_type:?}");
        assert_eq!(decoded(&before, base, tuned.len()).unwrap(), tuned, "{block_type:?}");
        for (raw_len, base_len) in [(tuned.len() - 3, base.len()), (tuned.len(), base.len() - 50), (3, 900), (900, 5)] {
            let (raw, base) = (&tuned[..raw_len], &base[..base_len]);
            assert_eq!(decoded(&encoded(derivation, raw, base, true), base, raw_len).unwrap(), raw);
        }
    }
}

#[test]
fn bytes_and_nibbles_of_no_block_are_told_apart_by_what_they_take() {
    let mut next = random(9);
    let mut changed = |of: u8, by: f32| if next() > by { of } else { of.wrapping_add(1) };
    let base: Vec<u8> = (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // Small numbers change, large ones do not.
    let mut nibble = |of: u8| if of < 5 { changed(of, 0.0) } else { of };
    let nibbles: Vec<u8> = base.iter().map(|byte| nibble(byte & 15) | nibble(byte >> 4) << 4).collect();
    let bytes: Vec<u8> = base.iter().map(|byte| if *byte < 100 { changed(*byte, 0.0) } else { *byte }).collect();
    for (raw, kind) in [(nibbles, 1), (bytes, 0)] {
        let payload = encoded(Derivation::Bytes, &raw, &base, true);
        assert_eq!(payload[..3], [CLASSES, 0, kind]);
        assert!(payload.len() * 10 < encoded(Derivation::Bytes, &raw, &base, false).len() * 9);
        assert_eq!(decoded(&payload, &base, raw.len()).unwrap(), raw);
    }
}

#[test]
fn wrong_payloads_and_those_of_newer_versions_are_told_apart() {
    let newer = |payload: &[u8]| matches!(decoded(payload, &[0; 99], 99), Err(Error::Unsupported { .. }));
    assert!(newer(&[CLASSES, 1, 0]) && newer(&[CLASSES, 0, 2]) && newer(&[CLASSES, 99]));
    let wrong = |payload: &[u8]| matches!(decoded(payload, &[0; 99], 99), Err(Error::Corrupt { .. }));
    assert!(wrong(&[CLASSES, 0, 1, 0, 0]), "no class");
    assert!(wrong(&[CLASSES, 0, 1, 2, 0]), "no class of 0");
    assert!(wrong(&[&[CLASSES, 0, 0][..], &[255; 3], &[0; 29]].concat()), "24 classes");
    assert!(wrong(&[CLASSES, 8, 34]), "a head of a block");
    assert!(wrong(&[CLASSES, 8, 33, 1]) && wrong(&[CLASSES]) && wrong(&[CLASSES, 0, 1, 1, 0, 7]));
}

proptest! {
    #[test]
    fn any_bytes_round_trip(
        raw: Vec<u8>, mut base: Vec<u8>, number in 0usize..11, head in 0u8..40, like: bool, long: bool,
    ) {
        if like {
            base = raw.iter().enumerate().map(|(at, byte)| if at % 5 == 0 { byte ^ 1 } else { *byte }).collect();
        }
        let (raw, base) = if long { (raw.repeat(300), base.repeat(300)) } else { (raw, base) };
        let derivation = match BlockType::ALL.get(number) {
            Some(block_type) => {
                Derivation::Blocks(BlockGrid { block_type: *block_type, head: head % block_type.bytes() as u8 })
            }
            None => Derivation::Bytes,
        };
        let payload = encoded(derivation, &raw, &base, true);
        prop_assert_eq!(decoded(&payload, &base, raw.len()).unwrap(), raw);
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(
        mut payload: Vec<u8>, base: Vec<u8>, raw_len in 0usize..3000, kind in 0u8..16,
    ) {
        payload.splice(0..0, [CLASSES, kind]);
        if let Ok(bytes) = decoded(&payload, &base, raw_len) {
            prop_assert_eq!(bytes.len(), raw_len);
        }
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(at: prop::sample::Index, to: u8, cut: bool) {
        let [base, tuned] = fine_tune(256 * 8);
        let (base, tuned) = (blocks(BlockType::Q4K, &base), blocks(BlockType::Q4K, &tuned));
        let derivation = Derivation::Blocks(BlockGrid { block_type: BlockType::Q4K, head: 0 });
        let mut payload = encoded(derivation, &tuned, &base, true);
        if cut {
            payload.truncate(at.index(payload.len()));
            prop_assert!(decoded(&payload, &base, tuned.len()).is_err());
        } else {
            let at = at.index(payload.len());
            payload[at] = to;
            if let Ok(bytes) = decoded(&payload, &base, tuned.len()) {
                prop_assert_eq!(bytes.len(), tuned.len());
            }
        }
    }
}
