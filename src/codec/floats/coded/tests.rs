//! Dequantised values of every codebook, type and length of group, palettes, what is neither, and hostile payloads.

use super::payload::{PALETTE, encode};
use super::rounding::Rounding;
use super::{CODED, is_dequantised};
use crate::codec::{Codec, ElementRows, ElementType, Floats, Scratch};
use crate::error::{Error, Result};
use crate::kernel::codebook::Codebook;
use crate::kernel::elements;
use proptest::prelude::*;

fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..6).map(|_| uniform()).sum::<f32>() * 0.03
    }
}

/// How a test quantises: by integers up to a number, or with a codebook.
#[derive(Debug, Clone, Copy)]
struct Quantiser {
    book: Codebook,
    top: f32,
    group: usize,
    /// Scales are rounded to BF16.
    short_scales: bool,
}

/// So many weights as codes times the scales of groups, as FP32.
fn dequantised(quantiser: Quantiser, count: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    let weights: Vec<f32> = (0..count).map(|_| next()).collect();
    let of_group = |weights: &[f32]| {
        let greatest = weights.iter().fold(0.0f32, |greatest, weight| greatest.max(weight.abs()));
        let scale = greatest / quantiser.top;
        let bits =
            if quantiser.short_scales { u32::from(elements::bf16(scale.to_bits())) << 16 } else { scale.to_bits() };
        let scale = f32::from_bits(bits);
        let value = |weight: &f32| quantiser.book.number(quantiser.book.nearest(weight / scale)) * scale;
        weights.iter().map(value).collect::<Vec<f32>>()
    };
    weights.chunks(quantiser.group).flat_map(of_group).collect()
}

fn bytes(values: &[f32], element_type: ElementType) -> Vec<u8> {
    let wide: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Rounding::of(element_type).unwrap().round(&wide, &mut Vec::new()).to_vec()
}

fn encoded(element_type: ElementType, rows: ElementRows, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut scratch = Scratch::of_writer(true);
    crate::codec::floats::encode_rows(element_type, 0, rows, raw, &mut scratch, &mut out).unwrap();
    out
}

fn decoded(payload: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    Floats.decode(payload, raw_len, &mut Scratch::default(), &mut out)?;
    Ok(out.split_off(6))
}

/// Entropy of the codes, bits of a value.
fn code_bits(quantiser: Quantiser, values: &[f32]) -> f64 {
    let mut counts = [0u32; 256];
    for group in values.chunks(quantiser.group) {
        let greatest = group.iter().fold(0.0f32, |greatest, value| greatest.max(value.abs()));
        group
            .iter()
            .for_each(|value| counts[usize::from(quantiser.book.nearest(value / greatest * quantiser.top))] += 1);
    }
    f64::from(crate::kernel::entropy::entropy_bits(&counts))
}

const TYPES: [ElementType; 3] = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32];

#[test]
fn dequantised_weights_take_the_entropy_of_their_codes() {
    let integers = |top, group, short_scales| Quantiser { book: Codebook::Integers, top, group, short_scales };
    let quantisers = [
        integers(7.0, 128, false),
        integers(8.0, 32, true),
        integers(127.0, 384, false),
        integers(127.0, 384, true),
        Quantiser { book: Codebook::NormalFloat, top: 1.0, group: 64, short_scales: false },
        Quantiser { book: Codebook::Fp8E4M3, top: 448.0, group: 384, short_scales: false },
    ];
    for quantiser in quantisers {
        let values = dequantised(quantiser, 384 * 400, 3);
        let bits = code_bits(quantiser, &values) + 34.0 / quantiser.group as f64;
        for element_type in TYPES {
            let raw = bytes(&values, element_type);
            let payload = encoded(element_type, ElementRows { elements: 384, first: 0 }, &raw);
            assert_eq!(decoded(&payload, raw.len()).unwrap(), raw, "{quantiser:?} {element_type:?}");
            let own = payload.len() as f64 * 8.0 / values.len() as f64;
            assert!(own < bits * 1.05, "{quantiser:?} {element_type:?}: {own} of {bits} bits");
            assert_eq!(payload[0] & CODED, CODED);
        }
    }
}

#[test]
fn groups_go_on_where_the_block_of_a_tensor_begins_and_some_need_no_scale() {
    let quantiser = Quantiser { book: Codebook::Integers, top: 7.0, group: 312, short_scales: false };
    let mut values = dequantised(quantiser, 312 * 300, 5);
    let mut next = random(9);
    values[312 * 20..312 * 24].iter_mut().for_each(|value| *value = next());
    values[312 * 30] = f32::NAN;
    values[312 * 40] = f32::INFINITY;
    values[312 * 50..312 * 52].fill(0.0);
    values[312 * 52..312 * 53].fill(-0.0);
    for element_type in TYPES {
        let raw = bytes(&values, element_type);
        let raw = &raw[100 * element_type.width()..raw.len() - 1];
        let payload = encoded(element_type, ElementRows { elements: 312, first: 212 }, raw);
        assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
        assert!(payload.len() * 4 * 8 < 312 * 300 * 4 * 5, "{element_type:?}: {}", payload.len());
    }
}

#[test]
fn a_scale_with_a_sign_gives_negative_zeros() {
    let quantiser = Quantiser { book: Codebook::Integers, top: 8.0, group: 32, short_scales: true };
    let values: Vec<f32> = dequantised(quantiser, 32 * 500, 5).iter().map(|value| value * -1.0).collect();
    assert!(values.iter().any(|value| value.to_bits() == 0x8000_0000));
    let raw = bytes(&values, ElementType::Bf16);
    let payload = encoded(ElementType::Bf16, ElementRows::default(), &raw);
    assert!(payload[0] & CODED != 0 && payload.len() * 16 < raw.len() * 5, "{}", payload.len());
    assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
}

#[test]
fn zeros_of_both_signs_have_codes_of_their_own() {
    let quantiser = Quantiser { book: Codebook::SignedIntegers, top: 7.0, group: 64, short_scales: false };
    let values = dequantised(quantiser, 64 * 500, 5);
    let has = |bits: u32| values.iter().any(|value| value.to_bits() == bits);
    assert!(has(0) && has(0x8000_0000));
    for element_type in TYPES {
        let raw = bytes(&values, element_type);
        let payload = encoded(element_type, ElementRows::default(), &raw);
        assert!(payload[0] >> 2 == CODED >> 2 | 4 && payload.len() * 8 < values.len() * 5, "{}", payload.len());
        assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
    }
}

#[test]
fn few_values_become_numbers_in_a_palette() {
    let mut next = random(3);
    let pixels: Vec<f32> = (0..60_000).map(|_| ((next() * 1e7) as i32).rem_euclid(211) as f32 / 255.0).collect();
    for element_type in [ElementType::Fp32, ElementType::Fp16] {
        let raw = bytes(&pixels, element_type);
        let payload = encoded(element_type, ElementRows::default(), &raw);
        assert!(payload[0] == PALETTE | Rounding::of(element_type).unwrap().id() && payload.len() <= 60_000 + 1024);
        assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
    }
}

#[test]
fn weights_are_not_coded() {
    let mut next = random(1);
    let weights: Vec<f32> = (0..100_000).map(|_| next()).collect();
    for element_type in TYPES {
        let raw = bytes(&weights, element_type);
        for rows in [ElementRows::default(), ElementRows { elements: 1024, first: 24 }] {
            let mut out = Vec::new();
            assert!(!encode(element_type, rows, &raw, &mut Scratch::default(), &mut out).unwrap() && out.is_empty());
        }
        assert!(!is_dequantised(element_type, &raw));
    }
}

#[test]
fn coded_payloads_are_those_of_the_format() {
    let two = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    // BF16, a palette of two values, its numbers stored.
    let palette = [0x81, 1, 0x80, 0x3f, 0x00, 0x40, 0, 0, 1, 1];
    assert_eq!(decoded(&palette, 6).unwrap(), two(&[0x3f80, 0x4000, 0x4000]));
    // FP32, integers, groups of 8 after one of 2, the second without a scale: scales of 0.5, rotated.
    let mut payload = vec![0x80 | 1 << 2 | 3, 8, 2, 1, 2, 1, 0, 1, 0, 1, 0, 1, 0x7e, 0, 129, 126];
    payload.extend_from_slice(&[1, 0, 1, 0, 1, 0, 1, 0x7f, 9]);
    let mut expected: Vec<u8> = [0.5f32, -1.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    expected.extend([1.0f32, 1.0].iter().flat_map(|_| 0x3f80_0000u32.to_le_bytes()));
    expected.push(9);
    assert_eq!(decoded(&payload, 17).unwrap(), expected);
    // Numbers that are none, rounded to each type.
    for (id, nan) in [(1, vec![0xc0, 0x7f]), (2, vec![0, 0x7e]), (3, vec![0, 0, 0xc0, 0x7f])] {
        let payload = [0x80 | 3 << 2 | id, 8, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0x7f, 1, 0x7f];
        let none = [vec![0; nan.len()], vec![0; nan.len()]].concat();
        let rest: Vec<u8> = (0..nan.len()).map(|_| 0).collect();
        assert_eq!(decoded(&[payload.as_slice(), &rest].concat(), 2 * nan.len()).unwrap(), nan.repeat(2), "{none:?}");
    }
}

#[test]
fn payloads_of_newer_versions_and_wrong_ones_are_told_apart() {
    let unsupported = |first: u8| matches!(decoded(&[first, 0, 0, 0, 0], 2), Err(Error::Unsupported { .. }));
    assert!([0x80, 0x84, 0x95, 0x96, 0xa1, 0xc1, 0xff].into_iter().all(unsupported));
    let corrupt = |payload: &[u8], raw_len| matches!(decoded(payload, raw_len), Err(Error::Corrupt { .. }));
    assert!(corrupt(&[0x81, 0, 0x80, 0x3f, 0, 1], 2), "beyond the palette");
    assert!(corrupt(&[0x87, 7, 0, 1, 0], 4) && corrupt(&[0x87, 8, 8, 1, 0], 4), "groups");
    assert!(corrupt(&[0x87, 0x81, 0x80, 4, 0, 1, 0], 4), "a group of 65537");
    assert!(corrupt(&[0x87, 8, 0, 1, 2], 4), "a mask of two groups");
    assert!(corrupt(&[0x81, 0, 0x80, 0x3f, 1, 0, 7], 2), "more bytes");
}

proptest! {
    #[test]
    fn any_bytes_round_trip(
        raw in prop::collection::vec(any::<u8>(), 0..4000),
        kind in 0usize..3,
        elements in 0u32..500,
        first in 0u32..500,
    ) {
        let rows = ElementRows { elements, first: first.min(elements.saturating_sub(1)) };
        let payload = encoded(TYPES[kind], rows, &raw);
        prop_assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
    }

    #[test]
    fn any_quantiser_round_trips(
        top in 1u32..128, group in 24usize..300, kind in 0usize..3, book in 0usize..4, seed: u64, first in 0usize..24,
    ) {
        let book = Codebook::ALL[book];
        let top = match book {
            Codebook::Integers | Codebook::SignedIntegers => top as f32,
            Codebook::NormalFloat => 1.0,
            Codebook::Fp8E4M3 => 448.0,
        };
        let values = dequantised(Quantiser { book, top, group, short_scales: seed & 1 == 1 }, group * 30, seed);
        let raw = bytes(&values[first..], TYPES[kind]);
        let rows = ElementRows { elements: group as u32, first: (group - first) as u32 % group as u32 };
        prop_assert_eq!(decoded(&encoded(TYPES[kind], rows, &raw), raw.len()).unwrap(), raw);
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(
        mut payload in prop::collection::vec(any::<u8>(), 1..200),
        kind in 0u8..4,
        book in 0u8..6,
        raw_len in 0usize..3000,
        small: bool,
    ) {
        payload[0] = 0x80 | kind | book << 2;
        if small && payload.len() > 3 {
            (payload[1], payload[2]) = (payload[1] & 31, payload[2] & 7);
        }
        if let Ok(bytes) = decoded(&payload, raw_len) {
            prop_assert_eq!(bytes.len(), raw_len);
        }
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(at: prop::sample::Index, to: u8, cut: bool) {
        let quantiser = Quantiser { book: Codebook::Integers, top: 7.0, group: 64, short_scales: false };
        let raw = bytes(&dequantised(quantiser, 1280, 1), ElementType::Bf16);
        let mut payload = encoded(ElementType::Bf16, ElementRows::default(), &raw);
        prop_assert!(decoded(&payload, raw.len() + 2).is_err());
        if cut {
            payload.truncate(at.index(payload.len()));
            prop_assert!(decoded(&payload, raw.len()).is_err());
        } else {
            let at = at.index(payload.len());
            payload[at] = to;
            if let Ok(bytes) = decoded(&payload, raw.len()) {
                prop_assert_eq!(bytes.len(), raw.len());
            }
        }
    }
}
