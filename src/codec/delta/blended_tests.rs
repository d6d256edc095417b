//! Blends of two bases: what tools compute is found to the bit, what differs is kept, and hostile payloads are errors.

use super::payload::SAME;
use super::tests::normal;
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::Error;
use crate::kernel::float_format::FloatFormat;
use crate::kernel::float_mode;
use proptest::prelude::*;

const FORMATS: [(FloatFormat, ElementType); 3] = [
    (FloatFormat::Bf16, ElementType::Bf16),
    (FloatFormat::Fp16, ElementType::Fp16),
    (FloatFormat::Fp32, ElementType::Fp32),
];

/// Weights and a fine-tune of them.
fn models(elements: usize) -> [Vec<f32>; 2] {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let base: Vec<f32> = (0..elements).map(|_| normal(&mut state) * 0.03).collect();
    let tuned = base.iter().map(|weight| weight + normal(&mut state) * 0.002).collect();
    [base, tuned]
}

fn bytes(format: FloatFormat, values: &[f32]) -> Vec<u8> {
    let wide: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut narrow = vec![0; values.len() * format.width()];
    format.narrow(&wide, &mut narrow);
    narrow
}

fn values(format: FloatFormat, bytes: &[u8]) -> Vec<f32> {
    let mut wide = vec![0; bytes.len() / format.width() * 4];
    format.widen(bytes, &mut wide);
    wide.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

fn check(element_type: ElementType, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    let scratch = &mut Scratch::of_writer(true);
    let blended = Derivation::Blended(Blended::of(element_type).unwrap());
    encode(blended, raw, base, scratch, &mut payload).unwrap();
    decode(Derivation::BLENDED_ID, &payload, base, raw.len(), scratch, &mut out).unwrap();
    assert!(out == raw, "{element_type:?}");
    payload
}

#[test]
fn small_numbers_do_not_depend_on_the_mode_of_the_thread() {
    for (format, element_type) in [FORMATS[0], FORMATS[2]] {
        let small = |values: Vec<f32>| -> Vec<f32> {
            values.iter().zip(0u32..).map(|(value, at)| if at % 9 == 0 { value * 1e-37 } else { *value }).collect()
        };
        let [first, second] = models(20_000).map(|model| bytes(format, &small(model)));
        let [a, b] = [&first, &second].map(|bytes| values(format, bytes));
        let mean: Vec<f32> = a.iter().zip(&b).map(|(a, b)| (a + b) / 2.0).collect();
        assert!(mean.iter().filter(|value| value.is_subnormal()).count() > 1_000);
        let (raw, base) = (bytes(format, &mean), [first, second].concat());
        let payload = check(element_type, &raw, &base);
        assert!(float_mode::without_subnormals(|| check(element_type, &raw, &base)) == payload, "{element_type:?}");
    }
}

/// A way in which a tool blends two elements.
type Tool<'a> = &'a dyn Fn(f32, f32) -> f32;

#[test]
fn what_tools_compute_costs_ten_bytes() {
    for (format, element_type) in FORMATS {
        let [first, second] = models(20_000).map(|model| bytes(format, &model));
        let [a, b] = [&first, &second].map(|bytes| values(format, bytes));
        let round = |value: f32| values(format, &bytes(format, &[value]))[0];
        let tools: [(&str, Tool<'_>); 8] = [
            ("average", &|a, b| (a + b) / 2.0),
            ("products", &|a, b| a * 0.7 + b * 0.3),
            ("line", &|a, b| a + (b - a) * 0.35),
            ("two thirds", &|a, b| a + (b - a) * (2.0f64 / 3.0) as f32),
            ("torch.lerp", &|a, b| b - (b - a) * (1.0f64 - 0.8) as f32),
            ("beyond", &|a, b| a + (b - a) * 1.5),
            ("back", &|a, b| a + (b - a) * -0.5),
            ("step by step", &|a, b| a + round(round(b - a) * 0.3)),
        ];
        for (name, tool) in tools {
            let blend: Vec<f32> = std::iter::zip(&a, &b).map(|(a, b)| tool(*a, *b)).collect();
            let raw = bytes(format, &blend);
            let payload = check(element_type, &raw, &[&first[..], &second].concat());
            assert!(payload.len() == 10 && payload[9] == SAME, "{format:?}, {name}: {}", payload.len());
            let share = Blended::of(element_type).unwrap().share(&raw, [&first, &second]);
            assert!(share == 1.0, "{format:?}, {name}: {share}");
            let mut changed = raw.clone();
            changed[500..510].iter_mut().for_each(|byte| *byte ^= 0x31);
            assert!(check(element_type, &changed, &[&first[..], &second].concat()).len() < 700, "{format:?}, {name}");
        }
    }
}

#[test]
fn tools_that_round_weights_or_fuse_cost_ten_bytes() {
    let narrow = |format: FloatFormat, value: f32| values(format, &bytes(format, &[value]))[0];
    for (format, element_type) in FORMATS {
        let [first, second] = models(20_000).map(|model| bytes(format, &model));
        let [a, b] = [&first, &second].map(|bytes| values(format, bytes));
        let round = |value: f32| narrow(format, value);
        for weight in [0.37f64, 0.15, 0.65, 0.9, 1.4] {
            let (v, u) = (weight as f32, (1.0 - weight) as f32);
            let both: Tool<'_> = &|a, b| round(a * round(u)) + round(b * round(v));
            let add: Tool<'_> = &|a, b| (b - a).mul_add(v, a);
            let back: Tool<'_> = &|a, b| (a - b).mul_add(1.0 - v, b);
            let sum: Tool<'_> = &|a, b| b.mul_add(v, a * u);
            let tools = if format == FloatFormat::Fp32 { vec![add, back, sum] } else { vec![both] };
            for (number, tool) in tools.into_iter().enumerate() {
                let blend: Vec<f32> = std::iter::zip(&a, &b).map(|(a, b)| tool(*a, *b)).collect();
                let payload = check(element_type, &bytes(format, &blend), &[&first[..], &second].concat());
                // In FP32, rounding twice may differ from rounding once, hardly ever.
                assert!(payload.len() < 40, "{format:?}, {number}, {weight}: {}", payload.len());
            }
        }
    }
}

/// Models whose values differ by few of the steps that their format has.
#[test]
fn the_weight_is_found_where_most_values_differ_in_their_last_bit() {
    for (format, element_type) in &FORMATS[..2] {
        let scale = if *format == FloatFormat::Bf16 { 0.0002 } else { 0.00002 };
        let [base, _] = models(20_000);
        let mut state = 99;
        let tuned: Vec<f32> = base.iter().map(|weight| weight + normal(&mut state) * scale).collect();
        let [first, second] = [base, tuned].map(|model| bytes(*format, &model));
        let [a, b] = [&first, &second].map(|bytes| values(*format, bytes));
        for weight in [0.3f64, 0.5, 1.4, 0.85] {
            let line = std::iter::zip(&a, &b).map(|(a, b)| a + (b - a) * weight as f32);
            let raw = bytes(*format, &line.collect::<Vec<f32>>());
            let payload = check(*element_type, &raw, &[&first[..], &second].concat());
            assert_eq!((payload.len(), payload[9]), (10, SAME), "{format:?}, {weight}");
            let share = Blended::of(*element_type).unwrap().share(&raw, [&first, &second]);
            assert!(share == 1.0, "{format:?}, {weight}: {share}");
        }
    }
}

#[test]
fn what_is_no_blend_is_found_out() {
    for (format, element_type) in FORMATS {
        let [first, second] = models(4096).map(|model| bytes(format, &model));
        let other = bytes(format, &models(8192)[0][4096..]);
        let blended = Blended::of(element_type).unwrap();
        assert!(blended.share(&other, [&first, &second]) < 0.1, "{format:?}");
        assert!(blended.share(&first, [&first, &first]) == 0.0, "bases that do not differ");
        assert!(blended.share(&[], [&[], &[]]) == 0.0);
        // Steps of which each changes a few values: a step is no blend of those before, and most values are equal.
        let step = |from: &[u8], number: usize| {
            let mut next = from.to_vec();
            let changed = next.chunks_exact_mut(format.width()).skip(number).step_by(31);
            changed.for_each(|value| value[0] = value[0].wrapping_add(1 + number as u8));
            next
        };
        let (second, third) = (step(&first, 1), step(&step(&first, 1), 2));
        assert!(blended.share(&third, [&second, &first]) < 0.2, "{format:?}");
        // The next step goes the same way, and most of what differs in the bases is equal in one of them.
        let along = |from: &[u8], step: usize| {
            let mut next = from.to_vec();
            let changed = next.chunks_exact_mut(format.width()).step_by(step);
            changed.for_each(|value| value[0] ^= 1);
            next
        };
        let (second, third) = (along(&first, 2), along(&along(&first, 2), 5));
        assert!(blended.share(&third, [&second, &first]) < 0.2, "{format:?}");
        check(element_type, &other, &[&first[..], &second].concat());
    }
    assert_eq!(Blended::of(ElementType::Fp64), None);
    assert_eq!(Blended::of(ElementType::Byte), None);
}

#[test]
fn blends_of_few_elements_are_chance() {
    let elements = |changed: &[(std::ops::Range<usize>, u16)]| -> Vec<u8> {
        let mut all = [0x3f80u16; 1024];
        changed.iter().for_each(|(range, value)| all[range.clone()].fill(*value));
        all.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    let share = |raw: &[(std::ops::Range<usize>, u16)], second: std::ops::Range<usize>| {
        let bases = [elements(&[]), elements(&[(second, 0x3f82)])];
        Blended::of(ElementType::Bf16).unwrap().share(&elements(raw), [&bases[0], &bases[1]])
    };
    assert!(share(&[(0..16, 0x3f81)], 0..16) > 0.9);
    assert_eq!(share(&[(0..4, 0x3f81)], 0..4), 0.0);
    // What is new where the bases are equal counts, too.
    let few = share(&[(0..16, 0x3f81), (512..640, 0x3f85)], 0..16);
    assert!((0.05..0.2).contains(&few), "{few}");
}

#[test]
fn bases_that_are_odd_or_too_short_round_trip() {
    for (format, element_type) in FORMATS {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-45, 3e38, -3e38, f32::MIN_POSITIVE];
        let first = bytes(format, &odd);
        let second = bytes(format, &[&odd[3..], &odd[..3]].concat());
        let base = [&first[..], &second].concat();
        for len in 0..=base.len() {
            check(element_type, &first, &base[..len]);
            check(element_type, &base, &base[..len]);
        }
    }
}

#[test]
fn payloads_are_frozen() {
    let first = bytes(FloatFormat::Bf16, &[1.0, 2.0, -3.0, f32::INFINITY]);
    let second = bytes(FloatFormat::Bf16, &[2.0, 4.0, 1.0, f32::NEG_INFINITY]);
    let base = [first, second].concat();
    // A quarter of the way, in all kinds of arithmetic. Infinity less infinity is this NaN on every machine.
    for arithmetic in 0..9u8 {
        let payload = [&[1 | arithmetic << 4][..], &0.25f64.to_le_bytes(), &[SAME]].concat();
        let mut out = Vec::new();
        decode(Derivation::BLENDED_ID, &payload, &base, 8, &mut Scratch::default(), &mut out).unwrap();
        assert_eq!(values(FloatFormat::Bf16, &out)[..3], [1.25, 2.5, -2.0], "{arithmetic}");
        assert_eq!(out[6..], [0xc0, 0x7f], "{arithmetic}");
    }
}

#[test]
fn unknown_formats_and_arithmetics_are_of_a_newer_version() {
    for numbers in [0x00u8, 0x04, 0x05, 0x91, 0xf1, 0x0f] {
        let payload = [&[numbers][..], &[0; 8], &[SAME]].concat();
        let mut out = Vec::new();
        let error =
            decode(Derivation::BLENDED_ID, &payload, &[0; 8], 2, &mut Scratch::default(), &mut out).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{numbers:#x}: {error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_round_trip_and_hostile_payloads_are_errors_or_bytes(
        raw in prop::collection::vec(any::<u8>(), 0..300), base in prop::collection::vec(any::<u8>(), 0..600),
        format in 0usize..3, weight in any::<f64>(), arithmetic in 0u8..9,
        hostile in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        check(FORMATS[format].1, &raw, &base);
        let payload = [&[(format as u8 + 1) | arithmetic << 4][..], &weight.to_le_bytes(), &hostile].concat();
        let (mut out, scratch) = (Vec::new(), &mut Scratch::default());
        if decode(Derivation::BLENDED_ID, &payload, &base, raw.len(), scratch, &mut out).is_ok() {
            prop_assert_eq!(out.len(), raw.len());
        }
    }
}
