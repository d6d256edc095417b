//! Round trips of any bytes as any element type, sizes, and hostile payloads.

use super::*;
use crate::codec::{Codec, ElementType, Scratch};
use crate::error::Result;
use proptest::prelude::*;

fn element_types() -> impl Strategy<Value = ElementType> {
    prop::sample::select(vec![
        ElementType::Bf16,
        ElementType::Fp16,
        ElementType::Fp32,
        ElementType::Fp64,
        ElementType::Byte,
        ElementType::Unknown,
    ])
}

fn encoded(element_type: ElementType, phase: usize, raw: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode(element_type, phase, raw, &mut Scratch::default(), &mut out).unwrap();
    assert_eq!(out[..6], *b"before");
    out.split_off(6)
}

fn decoded(payload: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    Floats.decode(payload, raw_len, &mut Scratch::default(), &mut out)?;
    assert_eq!(out[..6], *b"before");
    Ok(out.split_off(6))
}

/// Elements with noise in their low bytes and few values in their high bytes.
fn weights(elements: usize, width: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut bytes = Vec::new();
    for _ in 0..elements {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let exponent = 0x3b + (state >> 40).trailing_zeros().min(5) as u64;
        let element = (state >> 8 << 8 & 0x80ff_ffff_ffff_ffff) | exponent << 56;
        bytes.extend_from_slice(&element.to_le_bytes()[8 - width..]);
    }
    bytes
}

fn huffman(element_type: ElementType, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_huffman(element_type, raw, &mut Scratch::default(), &mut out).unwrap();
    out
}

#[test]
fn a_rotated_exponent_has_a_huffman_code_and_the_mantissa_is_stored() {
    let raw = weights(40_000, 2);
    let payload = huffman(ElementType::Bf16, &raw);
    assert_eq!(payload[0] >> 2 & 1, 1, "the elements are rotated");
    let exponent_bits = payload.len() as f64 * 8.0 / 40_000.0 - 8.0;
    // Two bits of the exponent, and one that is noise.
    assert!((2.5..3.2).contains(&exponent_bits), "{exponent_bits} bits");
    // Nothing rotates FP16, and there are no matches: a repeated text costs its entropy.
    assert_eq!(huffman(ElementType::Fp16, &raw)[0] >> 2 & 1, 0);
    let text = "ab".repeat(20_000);
    assert!((5_000..5_200).contains(&huffman(ElementType::Byte, text.as_bytes()).len()));
}

proptest! {
    #[test]
    fn any_bytes_as_any_element_type_round_trip_with_huffman_codes(raw: Vec<u8>, element_type in element_types()) {
        let payload = huffman(element_type, &raw);
        prop_assert!(payload.len() <= raw.len() + 9);
        prop_assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
    }

    #[test]
    fn any_bytes_as_any_element_type_round_trip(raw: Vec<u8>, element_type in element_types(), phase in 0usize..9) {
        let payload = encoded(element_type, phase, &raw);
        prop_assert!(payload.len() <= raw.len() + 9);
        prop_assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
    }

    #[test]
    fn few_values_round_trip(
        raw in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x3f]), 0..6000),
        element_type in element_types(),
        phase in 0usize..9,
    ) {
        prop_assert_eq!(decoded(&encoded(element_type, phase, &raw), raw.len()).unwrap(), raw);
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(mut payload: Vec<u8>, header in 0u8..128, raw_len in 0usize..5000) {
        if let Ok(bytes) = decoded(&payload, raw_len) {
            prop_assert_eq!(bytes.len(), raw_len);
        }
        if let Some(first) = payload.first_mut() {
            *first = header;
            let _ = decoded(&payload, raw_len);
        }
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(
        at: prop::sample::Index, to: u8, cut: bool, element_type in element_types(),
    ) {
        let raw = weights(1500, 4);
        let mut payload = encoded(element_type, 0, &raw);
        prop_assert!(decoded(&payload, raw.len() + 1).is_err());
        prop_assert!(decoded(&payload, raw.len() - 1).is_err());
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

#[test]
fn the_layout_of_an_unknown_type_is_found_in_every_phase() {
    for width in [2usize, 4] {
        let bytes = weights(70_000, width);
        for phase in 0..width {
            let raw = &bytes[(width - phase) % width..][..65_536];
            let (known, found) = (
                encoded(if width == 2 { ElementType::Bf16 } else { ElementType::Fp32 }, phase, raw),
                encoded(ElementType::Unknown, 0, raw),
            );
            assert!(found.len() <= known.len() + known.len() / 100, "{width} {phase}: {} {}", known.len(), found.len());
            assert!(known.len() < 65_536 - 65_536 / width * 5 / 8);
            assert_eq!(decoded(&known, raw.len()).unwrap(), raw);
            assert_eq!(decoded(&found, raw.len()).unwrap(), raw);
        }
    }
}

#[test]
fn noise_costs_a_header_and_a_constant_almost_nothing() {
    let noise: Vec<u8> = weights(70_000, 4).chunks(4).flat_map(|element| [element[0], element[1]]).collect();
    for element_type in
        [ElementType::Bf16, ElementType::Fp32, ElementType::Fp64, ElementType::Byte, ElementType::Unknown]
    {
        assert!(encoded(element_type, 0, &noise).len() <= noise.len() + 9);
        assert!(encoded(element_type, 0, &[7; 100_000]).len() <= 20);
    }
}

#[test]
fn repeated_planes_are_found() {
    let row = weights(512, 2);
    let raw = row.repeat(128);
    assert!(encoded(ElementType::Bf16, 0, &raw).len() < raw.len() / 8);
}

/// What a writer that leaves out zeros makes of it, and what another one does.
fn both_ways(element_type: ElementType, phase: usize, raw: &[u8]) -> [Vec<u8>; 2] {
    let mut out = Vec::new();
    encode(element_type, phase, raw, &mut Scratch::of_writer(true), &mut out).unwrap();
    assert!(decoded(&out, raw.len()).unwrap() == raw, "{element_type:?}");
    [out, encoded(element_type, phase, raw)]
}

#[test]
fn zeros_are_left_out_where_that_is_smaller() {
    for (element_type, width) in [(ElementType::Bf16, 2), (ElementType::Fp32, 4), (ElementType::Fp64, 8)] {
        let dense = weights(40_000, width);
        let [out, before] = both_ways(element_type, 0, &dense);
        assert!(out == before, "{element_type:?}");
        for (tenths, most) in [(5, 93), (9, 80)] {
            let mut raw = dense.clone();
            let mut state = 3u32;
            for element in raw.chunks_mut(width) {
                state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                if (state >> 20) % 10 < tenths {
                    element.fill(0);
                }
            }
            let [out, before] = both_ways(element_type, 0, &raw);
            assert_eq!((out[0] & 0x40, before[0] & 0x40), (0x40, 0));
            assert!(out.len() * 100 < before.len() * most, "{element_type:?}: {} {}", out.len(), before.len());
            let [out, before] = both_ways(ElementType::Unknown, 0, &[&[1u8][..], &raw, &[2]].concat());
            assert!(out.len() <= before.len(), "{element_type:?}: {} {}", out.len(), before.len());
        }
        let [out, before] = both_ways(element_type, 0, &vec![0; 4000 * width]);
        assert!(out.len() <= before.len() && out[0] & 0x40 == 0, "{element_type:?}");
    }
}

#[test]
fn hostile_masks_of_zeros_are_damage() {
    // Four BF16 words, 0, 3d02, 0, 3d01: the mask as a constant plane, then two stored planes.
    let (good, raw) = ([0x45, 1, 0x05, 0, 4, 2, 0, 0x7a, 0x7a], [0, 0, 2, 0x3d, 0, 0, 1, 0x3d]);
    assert_eq!(decoded(&good, 8).unwrap(), raw);
    let wrong = [
        (&good[..8], 8),
        (&good, 6),
        (&good, 10),
        (&[0x45, 1, 0x15, 0, 4, 2, 0, 0x7a, 0x7a], 8),
        (&[0x40, 1, 0x05, 0, 4, 2], 4),
        (&[0x45], 8),
    ];
    for (payload, raw_len) in wrong {
        assert!(decoded(payload, raw_len).is_err(), "{payload:?}");
    }
    assert!(matches!(decoded(&[0xc5, 0, 0, 0], 8), Err(crate::Error::Unsupported { .. })));
}

proptest! {
    #[test]
    fn elements_with_many_zeros_round_trip(
        raw in prop::collection::vec(prop::sample::select(vec![0u8, 0, 0, 0, 0, 1, 0x3f, 0x80]), 0..3000),
        element_type in element_types(), phase in 0usize..9, times in 1usize..4,
    ) {
        let [out, before] = both_ways(element_type, phase, &raw.repeat(times));
        prop_assert!(out.len() <= before.len());
    }
}

#[test]
fn a_payload_without_elements_decodes_alike_whatever_was_decoded_before() {
    // Two planes that are constant, of no elements, and a byte behind them.
    let payload = [1, 1, 0xaa, 1, 0xbb, 7];
    let decode = |scratch: &mut Scratch| {
        let mut out = Vec::new();
        Floats.decode(&payload, 1, scratch, &mut out).map(|()| out)
    };
    let mut warm = Scratch::default();
    let raw = weights(5_000, 2);
    Floats.decode(&encoded(ElementType::Bf16, 0, &raw), raw.len(), &mut warm, &mut Vec::new()).unwrap();
    assert_eq!(decode(&mut warm).unwrap(), decode(&mut Scratch::default()).unwrap());
    assert_eq!(decode(&mut warm).unwrap(), [7]);
}
