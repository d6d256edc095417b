//! Pruned chunks: sizes, round trips against bases of other lengths, and hostile payloads.

use proptest::prelude::*;

use super::payload::PRUNED;
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::{Error, Result};
use crate::kernel::elements as kernel;

const TYPES: [ElementType; 3] = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32];

/// A number from 0 to below 1 that depends on `number` alone.
fn uniform(number: usize) -> f32 {
    let mixed = (number as u32 ^ 0x5bd1_e995).wrapping_mul(2_654_435_761);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    (mixed >> 8) as f32 / (1 << 24) as f32
}

/// Weights in this type.
fn weights(element_type: ElementType, elements: usize, step: f32) -> Vec<u8> {
    let weight = |at: usize| (0..4).map(|part| uniform(4 * at + part) - 0.5).sum::<f32>() * 0.04;
    let moved = |at: usize| weight(at) + step * (uniform(at + 1_000_003) - 0.5);
    let wide: Vec<u8> = (0..elements).flat_map(|at| moved(at).to_le_bytes()).collect();
    let mut narrow = vec![0; wide.len() / 2];
    match element_type {
        ElementType::Bf16 => kernel::fp32_to_bf16(&wide, &mut narrow),
        ElementType::Fp16 => kernel::fp32_to_fp16(&wide, &mut narrow),
        _ => return wide,
    }
    narrow
}

/// The elements, of which those that are chosen became zero; with their sign if `is_signed`.
fn pruned(bytes: &[u8], width: usize, is_signed: bool, is_chosen: impl Fn(usize, &[u8]) -> bool) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for (at, (element, own)) in out.chunks_mut(width).zip(bytes.chunks(width)).enumerate() {
        if is_chosen(at, own) {
            element.fill(0);
            element[width - 1] = if is_signed { own[width - 1] & 0x80 } else { 0 };
        }
    }
    out
}

fn magnitude(element: &[u8]) -> u32 {
    let bits = element.iter().rev().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
    bits & (u32::MAX >> (33 - 8 * element.len()))
}

/// The magnitude that half of the elements are below.
fn median(bytes: &[u8], width: usize) -> u32 {
    let mut all: Vec<u32> = bytes.chunks(width).map(magnitude).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn encoded(element_type: ElementType, leaves_out_zeros: bool, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let scratch = &mut Scratch::of_writer(leaves_out_zeros);
    encode(Derivation::Context(element_type), raw, base, scratch, &mut out).unwrap();
    out.split_off(6)
}

fn decoded(element_type: ElementType, payload: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    decode(Derivation::Context(element_type).id(), payload, base, raw_len, &mut Scratch::default(), &mut out)?;
    Ok(out.split_off(6))
}

fn check(element_type: ElementType, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let payload = encoded(element_type, true, raw, base);
    assert!(decoded(element_type, &payload, base, raw.len()).unwrap() == raw, "{element_type:?}");
    payload
}

#[test]
fn weights_pruned_by_their_magnitude_cost_almost_nothing() {
    for element_type in TYPES {
        let width = element_type.width();
        let base = weights(element_type, 70_001, 0.0);
        let half = median(&base, width);
        for is_signed in [false, true] {
            let raw = pruned(&base, width, is_signed, |_, element| magnitude(element) < half);
            let payload = check(element_type, &raw, &base);
            assert!(payload[0] == PRUNED && payload.len() < 20, "{element_type:?}: {}", payload.len());
            // Two of four.
            let is_lesser = |at: usize, own: &[u8]| {
                let group = at / 4 * 4;
                let others = (group..group + 4).filter_map(|other| base.get(other * width..(other + 1) * width));
                others
                    .enumerate()
                    .filter(|(other, element)| {
                        let (other_magnitude, own) = (magnitude(element), magnitude(own));
                        other_magnitude > own || other_magnitude == own && group + other < at
                    })
                    .count()
                    >= 2
            };
            let payload = check(element_type, &pruned(&base, width, is_signed, is_lesser), &base);
            assert!(payload[0] == PRUNED && payload.len() < 30, "{element_type:?}: {}", payload.len());
            // Others that are as many: one bit of each.
            let raw = pruned(&base, width, is_signed, |at, _| uniform(at + 77) < 0.5);
            let payload = check(element_type, &raw, &base);
            assert!(payload.len() < 70_001 / 8 + 50, "{element_type:?}: {}", payload.len());
        }
    }
}

#[test]
fn weights_that_moved_and_were_pruned_cost_less_than_before() {
    for element_type in TYPES {
        let (width, base) = (element_type.width(), weights(element_type, 70_001, 0.0));
        let moved = weights(element_type, 70_001, 0.001);
        let half = median(&moved, width);
        let raw = pruned(&moved, width, false, |_, element| magnitude(element) < half);
        let (payload, before) = (check(element_type, &raw, &base), encoded(element_type, false, &raw, &base));
        assert_eq!(payload[0], PRUNED, "{element_type:?}");
        assert!(payload.len() * 10 < before.len() * 7, "{element_type:?}: {} {}", payload.len(), before.len());
        // Bases that are shorter, longer, or end inside of an element.
        for (raw_len, base_len) in [(raw.len() - 1, raw.len()), (raw.len(), raw.len() - 40_001), (50_003, raw.len())] {
            let payload = check(element_type, &raw[..raw_len], &base[..base_len]);
            assert!(payload[0] == PRUNED, "{element_type:?}: {raw_len} of {base_len}");
        }
    }
}

#[test]
fn dense_weights_are_encoded_as_before() {
    for element_type in TYPES {
        let (base, raw) = (weights(element_type, 40_000, 0.0), weights(element_type, 40_000, 0.001));
        assert!(check(element_type, &raw, &base) == encoded(element_type, false, &raw, &base));
        // Nothing became zero that was not.
        let zeros = pruned(&base, element_type.width(), false, |at, _| at % 2 == 0);
        assert!(check(element_type, &zeros, &zeros) == [payload::SAME]);
    }
}

#[test]
fn hostile_masks_are_damage_or_of_a_newer_version() {
    // The words 1, 2^-7, 2, 2^-6 without the lesser two: the mask, a constant plane, and no change of the others.
    let base = [0x80, 0x3f, 0, 0x3c, 0, 0x40, 0x80, 0x3c];
    let raw = [0x80, 0x3f, 0, 0, 0, 0x40, 0, 0];
    let good = [PRUNED, 0, 1, 0x0a, 0];
    assert_eq!(check(ElementType::Bf16, &raw, &base), good);
    let read = |payload: &[u8], raw_len: usize| decoded(ElementType::Bf16, payload, &base, raw_len);
    for payload in [&[PRUNED, 1, 0x81, 0x79, 1, 0, 0][..], &[PRUNED, 2, 1, 0, 0]] {
        assert_eq!(read(payload, 8).unwrap(), raw, "{payload:?}");
    }
    for payload in [&[PRUNED, 3, 1, 0x0a, 0][..], &[PRUNED, 8, 1, 0x0a, 0], &[PRUNED, 0, 1, 0x0a, 99]] {
        assert!(matches!(read(payload, 8), Err(Error::Unsupported { .. })), "{payload:?}");
    }
    let nested = [PRUNED, 0, 1, 0x0a, PRUNED, 0, 1, 1, 0];
    let large = [PRUNED, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 0, 0];
    for payload in [&nested[..], &large, &[PRUNED, 0, 1, 0x1a, 0], &[PRUNED, 0, 1, 0x0a], &[PRUNED, 0], &[PRUNED]] {
        assert!(matches!(read(payload, 8), Err(Error::Corrupt { .. })), "{payload:?}");
    }
    assert!(matches!(read(&good, 10), Err(Error::Corrupt { .. })));
    assert!(matches!(read(&[good.as_slice(), &[0]].concat(), 8), Err(Error::Corrupt { .. })));
    // Elements of other types have no such mode.
    let bytes = decode(5u8, &good, &base, 8, &mut Scratch::default(), &mut Vec::new());
    assert!(matches!(bytes, Err(Error::Unsupported { .. })));
}

proptest! {
    #[test]
    fn any_pruned_elements_round_trip(
        which in 0usize..3, base: Vec<u8>, more: Vec<u8>, choices: u32, is_signed: bool, cut in 0usize..40,
    ) {
        let element_type = TYPES[which];
        let mut raw = pruned(&base, element_type.width(), is_signed, |at, own| {
            choices >> (at % 32) & 1 == 1 && own.len() == element_type.width()
        });
        raw.truncate(raw.len().saturating_sub(cut));
        if choices % 3 == 0 {
            raw.extend_from_slice(&more);
        }
        check(element_type, &raw, &base);
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(
        which in 0usize..3, at: prop::sample::Index, to: u8, cut: bool, base_len in 0usize..8000,
    ) {
        let (element_type, width) = (TYPES[which], TYPES[which].width());
        let base = weights(element_type, 2000, 0.0);
        let raw = pruned(&weights(element_type, 2000, 0.001), width, which == 0, |at, _| uniform(at) < 0.6);
        let mut payload = check(element_type, &raw, &base);
        prop_assert_eq!(payload[0], PRUNED);
        prop_assert!(decoded(element_type, &payload, &base, raw.len() - 64).is_err());
        prop_assert!(decoded(element_type, &payload, &base, raw.len() + 64).is_err());
        if let Ok(bytes) = decoded(element_type, &payload, &base[..base_len.min(base.len())], raw.len()) {
            prop_assert_eq!(bytes.len(), raw.len());
        }
        let at = at.index(payload.len());
        payload[at] = to;
        if cut {
            payload.truncate(at);
            prop_assert!(decoded(element_type, &payload, &base, raw.len()).is_err());
        } else if let Ok(bytes) = decoded(element_type, &payload, &base, raw.len()) {
            prop_assert_eq!(bytes.len(), raw.len());
        }
    }
}
