//! Quantised blocks: what follows from a base costs little, anything else comes back, and hostile payloads end.

use proptest::prelude::*;

use super::payload::standalone;
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::{Error, Result};
use crate::kernel::elements as kernel;
use crate::kernel::quantise::{BlockType, ScaleSource, quantise};

const FLOATS: [ElementType; 3] = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32];

fn encoded(quantised: Quantised, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(Derivation::Quantised(quantised), raw, base, &mut Scratch::default(), &mut out).unwrap();
    out
}

fn decoded(payload: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    decode(Derivation::QUANTISED_ID, payload, base, raw_len, &mut Scratch::default(), &mut out)?;
    assert_eq!(out[..6], *b"before");
    Ok(out.split_off(6))
}

/// Weights with a standard deviation of about 0.02, FP32.
fn weights(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    (0..count).flat_map(|_| ((uniform() + uniform() + uniform()) * 0.04).to_le_bytes()).collect()
}

fn narrowed(values: &[u8], to: ElementType) -> Vec<u8> {
    let mut narrow = vec![0; values.len() / 2];
    match to {
        ElementType::Bf16 => kernel::fp32_to_bf16(values, &mut narrow),
        ElementType::Fp16 => kernel::fp32_to_fp16(values, &mut narrow),
        _ => return values.to_vec(),
    }
    narrow
}

fn widened(values: &[u8], from: ElementType) -> Vec<u8> {
    let mut wide = vec![0; values.len() * 2];
    match from {
        ElementType::Bf16 => kernel::bf16_to_fp32(values, &mut wide),
        ElementType::Fp16 => kernel::fp16_to_fp32(values, &mut wide),
        _ => return values.to_vec(),
    }
    wide
}

/// Blocks of these FP32 values. Those of larger types have scales as a search could give them.
fn blocks(block_type: BlockType, source: ScaleSource, values: &[u8]) -> Vec<u8> {
    let count = values.len() / 4 / block_type.values();
    let mut blocks = vec![0; count * block_type.bytes()];
    for (number, block) in blocks.chunks_mut(block_type.bytes()).enumerate() {
        block_type.scale_bytes().zip(0..).for_each(|(at, nth)| block[at] = 0x21 + (number * 7 + nth * 5) as u8 % 30);
        // The higher bytes of the block's own scales: about 2^-13.
        let high: &[usize] = match block_type {
            BlockType::Q2K => &[81, 83],
            BlockType::Q3K => &[109],
            BlockType::Q6K => &[209],
            _ => &[1, 3],
        };
        high.iter().for_each(|at| block[*at] = 0x08);
    }
    quantise(block_type, source, values, &mut blocks);
    blocks
}

#[test]
fn blocks_that_follow_from_the_base_take_the_bytes_of_given_scales_at_most() {
    let values = weights(256 * 40, 1);
    for (block_type, from) in BlockType::ALL.into_iter().flat_map(|one| FLOATS.map(|from| (one, from))) {
        let base = narrowed(&values, from);
        for source in block_type.sources().iter().copied() {
            let raw = blocks(block_type, source, &widened(&base, from));
            // The chunk begins and ends inside of blocks.
            let (bytes, cut) = (block_type.bytes(), block_type.bytes() / 3);
            let chunk = &raw[cut..raw.len() - 5];
            let base = &base[block_type.values() * from.width()..];
            let quantised = Quantised { block_type, from, head: (bytes - cut) as u8 };
            let payload = encoded(quantised, chunk, base);
            let scales = if source == ScaleSource::Given { block_type.row_bytes() } else { 0 };
            let bound = 2 * bytes + 50 + scales * (raw.len() / bytes);
            assert!(payload.len() <= bound, "{block_type:?} {from:?} {source:?}: {}", payload.len());
            assert!(decoded(&payload, base, chunk.len()).unwrap() == chunk);
        }
    }
}

#[test]
fn values_that_were_rounded_first_are_rounded_again() {
    let values = weights(32 * 600, 2);
    for (stored, made_from) in [
        (ElementType::Fp32, ElementType::Bf16),
        (ElementType::Fp32, ElementType::Fp16),
        (ElementType::Bf16, ElementType::Fp16),
    ] {
        let base = narrowed(&values, stored);
        let raw = blocks(
            BlockType::Q8_0,
            ScaleSource::Computed,
            &widened(&narrowed(&widened(&base, stored), made_from), made_from),
        );
        let payload = encoded(Quantised { block_type: BlockType::Q8_0, from: stored, head: 0 }, &raw, &base);
        assert_eq!(payload.len(), 4, "{stored:?} {made_from:?}");
        assert!(decoded(&payload, &base, raw.len()).unwrap() == raw);
    }
    // The base has fewer bits than the values that the blocks were made from.
    let base = narrowed(&values, ElementType::Bf16);
    let raw = blocks(BlockType::Q8_0, ScaleSource::Computed, &values);
    let payload = encoded(Quantised { block_type: BlockType::Q8_0, from: ElementType::Bf16, head: 0 }, &raw, &base);
    assert!(payload.len() < raw.len() / 8, "{} of {}", payload.len(), raw.len());
}

#[test]
fn blocks_that_fused_operations_make_are_found_if_the_sample_has_none() {
    let block_type = BlockType::Q4_0;
    // Values half-way between two codes, as the greatest one has the lowest code.
    let halves = |unit: u8| -> Vec<u8> {
        let value = |at: u8| (if at == 0 { 16.0 } else { f32::from(at % 16) * 2.0 - 15.0 }) * f32::from(unit) * 0.001;
        (0..32).flat_map(|at| value(at).to_le_bytes()).collect()
    };
    let made = |source, values: &[u8]| blocks(block_type, source, values);
    let is_apart = |values: &Vec<u8>| made(ScaleSource::Fused, values) != made(ScaleSource::Computed, values);
    let apart = (1..100).map(halves).find(is_apart).unwrap();
    // The sample has every second one of 256 blocks.
    let mut values = weights(32 * 256, 6);
    values[101 * apart.len()..][..apart.len()].copy_from_slice(&apart);
    let raw = made(ScaleSource::Fused, &values);
    let payload = encoded(Quantised { block_type, from: ElementType::Fp32, head: 0 }, &raw, &values);
    assert_eq!(payload, [2, 0x23, 0, 0]);
    assert!(decoded(&payload, &values, raw.len()).unwrap() == raw);
}

#[test]
fn blocks_that_do_not_follow_are_stored_without_their_base() {
    let raw = blocks(BlockType::Q4_0, ScaleSource::Computed, &weights(32 * 900, 3));
    let base = narrowed(&weights(32 * 900, 4), ElementType::Bf16);
    let quantised = Quantised { block_type: BlockType::Q4_0, from: ElementType::Bf16, head: 0 };
    let (mut tagged, mut alone, mut back) = (Vec::new(), vec![Derivation::Bytes.id()], Vec::new());
    let scratch = &mut Scratch::default();
    encode_tagged(Derivation::Quantised(quantised), 0, &raw, &base, scratch, &mut tagged).unwrap();
    standalone(ElementType::Unknown, &raw, scratch, &mut alone).unwrap();
    assert_eq!(tagged.len(), alone.len());
    decode_tagged(&tagged, &base, raw.len(), scratch, &mut back).unwrap();
    assert!(back == raw);
}

#[test]
fn what_this_version_does_not_know_is_no_damage() {
    let [good, unknown_type, no_type, rounding, source, none_of_type] =
        [[8, 0x11], [9, 0x11], [8, 0x10], [8, 0x1d], [8, 0x31], [12, 0x11]]
            .map(|start| decoded(&[start[0], start[1], 0, 0], &[], 0));
    assert_eq!(good.unwrap(), [0u8; 0]);
    for refused in [unknown_type, no_type, rounding, source, none_of_type] {
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    for damaged in [[8, 0x11, 34, 0], [8, 0x11, 1, 0], [8, 0x11, 0, 1]] {
        let result = decoded(&damaged, &[], 0);
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    }
    // As many bytes before the first whole block as a block has, of a chunk that has them.
    let mut long = [0; 3 + 40 + 1];
    long[..3].copy_from_slice(&[8, 0x11, 34]);
    let result = decoded(&long, &[], 40);
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    long[2] = 33;
    assert_eq!(decoded(&long, &[], 40).unwrap(), [0; 40]);
}

proptest! {
    #[test]
    fn any_chunk_against_any_base_round_trips(
        which in 0usize..10, from in 0usize..3, head in 0u8..84,
        raw in prop::collection::vec(any::<u8>(), 0..3000), base in prop::collection::vec(any::<u8>(), 0..20_000),
    ) {
        let block_type = BlockType::ALL[which];
        let head = head % block_type.bytes() as u8;
        let payload = encoded(Quantised { block_type, from: FLOATS[from], head }, &raw, &base);
        prop_assert!(decoded(&payload, &base, raw.len()).unwrap() == raw);
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(
        which in 0usize..10, flags in 0u8..48, mut payload: Vec<u8>, base: Vec<u8>, raw_len in 0usize..3000,
    ) {
        for _ in 0..2 {
            if let Ok(bytes) = decoded(&payload, &base, raw_len) {
                prop_assert_eq!(bytes.len(), raw_len);
            }
            if let [number, way, ..] = payload.as_mut_slice() {
                (*number, *way) = (BlockType::ALL[which].number(), flags);
            }
        }
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(
        which in 0usize..10, at: prop::sample::Index, to: u8, cut: bool, missing in 0usize..2000,
    ) {
        let (block_type, values) = (BlockType::ALL[which], weights(256 * 6, 5));
        let raw = blocks(block_type, block_type.sources()[0], &values);
        let mut payload = encoded(Quantised { block_type, from: ElementType::Fp32, head: 0 }, &raw, &values);
        let at = at.index(payload.len());
        if cut {
            payload.truncate(at);
            prop_assert!(decoded(&payload, &values, raw.len()).is_err());
        } else {
            payload[at] = to;
            let _ = decoded(&payload, &values[missing..], raw.len());
        }
    }
}
