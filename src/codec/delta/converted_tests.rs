//! Conversions between all pairs of float formats: what agrees costs nothing, what differs is kept, and hostile
//! payloads are errors.

use super::payload::SAME;
use super::tests::normal;
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::Error;
use crate::kernel::float_format::FloatFormat;
use proptest::prelude::*;

/// Each format, its element type and its number on disk.
const FORMATS: [(FloatFormat, ElementType, u8); 5] = [
    (FloatFormat::Bf16, ElementType::Bf16, 1),
    (FloatFormat::Fp16, ElementType::Fp16, 2),
    (FloatFormat::Fp32, ElementType::Fp32, 3),
    (FloatFormat::E4m3, ElementType::Byte, 4),
    (FloatFormat::E5m2, ElementType::Byte, 5),
];

/// FP32 weights behind what is odd: zeros, infinities, numbers that are none, subnormal ones, ties and huge ones.
fn wide(elements: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut wide: Vec<u8> = (0..elements).flat_map(|_| (normal(&mut state) * 0.03).to_le_bytes()).collect();
    let odd = [
        0x7fc0_1234u32,
        0xff80_0000,
        0x7f80_0001,
        0x8000_0000,
        1,
        0x8000_0007,
        0x0040_0000,
        0x3f80_8000,
        0x3f81_8000,
        0x477f_f000,
        0x43e8_0000,
        0x43e8_0001,
        0x4770_0000,
        0x3380_0000,
        0xff7f_ffff,
    ];
    wide.chunks_mut(4).zip(odd).for_each(|(element, odd)| element.copy_from_slice(&odd.to_le_bytes()));
    wide
}

fn converted(from: FloatFormat, to: FloatFormat, bytes: &[u8]) -> Vec<u8> {
    let elements = bytes.len() / from.width();
    let (mut wide, mut out) = (vec![0; elements * 4], vec![0; elements * to.width()]);
    from.widen(bytes, &mut wide);
    to.narrow(&wide, &mut out);
    out
}

fn check(types: Converted, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    let scratch = &mut Scratch::of_writer(true);
    encode(Derivation::Converted(types), raw, base, scratch, &mut payload).unwrap();
    decode(Derivation::CONVERTED_ID, &payload, base, raw.len(), scratch, &mut out).unwrap();
    assert!(out == raw, "{types:?}");
    payload
}

#[test]
fn what_agrees_costs_two_bytes_and_what_does_not_is_kept() {
    for (from, base_type, from_number) in FORMATS {
        let base = converted(FloatFormat::Fp32, from, &wide(20_000));
        for (to, raw_type, to_number) in FORMATS {
            let Some(types) = Converted::between(base_type, raw_type) else {
                assert_eq!(base_type, raw_type);
                continue;
            };
            let raw = converted(from, to, &base);
            assert_eq!(check(types, &raw, &base), [from_number | to_number << 4, SAME], "{from:?} {to:?}");
            let mut damaged = raw.clone();
            damaged[500..503].iter_mut().for_each(|byte| *byte ^= 0x55);
            assert!(check(types, &damaged, &base).len() < 700, "{from:?} {to:?}");
            // The beginning and the end of the chunk need not fit.
            check(types, &raw[..raw.len() - 1], &base);
            check(types, &[&raw[..], &raw[..3]].concat(), &base);
            check(types, &raw, &base[..base.len() - 1]);
            check(types, &raw, &[]);
        }
    }
    let of = |one, other| Converted::between(one, other);
    assert_eq!(of(ElementType::Fp64, ElementType::Fp32), None);
    assert_eq!(of(ElementType::Bf16, ElementType::Unknown), None);
}

#[test]
fn the_original_of_a_cast_costs_the_bits_that_the_cast_lost() {
    let wide = wide(100_000);
    let narrow = converted(FloatFormat::Fp32, FloatFormat::Fp16, &wide);
    let cast = converted(FloatFormat::Fp16, FloatFormat::Bf16, &narrow);
    let types = Converted::between(ElementType::Bf16, ElementType::Fp16).unwrap();
    // Three bits of the fraction, and the sign of the step.
    let payload = check(types, &narrow, &cast).len();
    assert!(payload < 100_000 * 7 / 16, "{payload}");
}

#[test]
fn unknown_formats_are_of_a_newer_version() {
    for numbers in [0x00u8, 0x11, 0x10, 0x01, 0x61, 0x16, 0x44, 0xff] {
        let mut out = Vec::new();
        let scratch = &mut Scratch::default();
        let error = decode(Derivation::CONVERTED_ID, &[numbers, SAME], &[0; 8], 2, scratch, &mut out).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{numbers:#x}: {error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_round_trip_and_hostile_payloads_are_errors_or_bytes(
        raw in prop::collection::vec(any::<u8>(), 0..300), base in prop::collection::vec(any::<u8>(), 0..300),
        from in 0usize..5, to in 0usize..5, hostile in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        if let Some(types) = Converted::between(FORMATS[from].1, FORMATS[to].1) {
            check(types, &raw, &base);
        }
        let payload = [&[FORMATS[from].2 | FORMATS[to].2 << 4], &hostile[..]].concat();
        let mut out = Vec::new();
        let scratch = &mut Scratch::default();
        if decode(Derivation::CONVERTED_ID, &payload, &base, raw.len(), scratch, &mut out).is_ok() {
            prop_assert_eq!(out.len(), raw.len());
        }
    }
}
