//! Round trips of any bytes and of floats against any base, bounds on sizes, and hostile payloads.

use super::payload::{CONTEXT, SAME, SPARSE, combine};
use super::*;
use crate::codec::{ElementType, Scratch};
use crate::error::{Error, Result};
use crate::kernel::elements as kernel;
use proptest::prelude::*;

pub(super) fn derivations() -> impl Strategy<Value = Derivation> {
    prop::sample::select(Derivation::ALL.to_vec())
}

fn encoded(derivation: Derivation, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode(derivation, raw, base, &mut Scratch::default(), &mut out).unwrap();
    assert_eq!(out[..6], *b"before");
    out.split_off(6)
}

/// The chunk, which is the same when it is decoded in place.
pub(super) fn decoded(id: u8, payload: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    let decoded = decode(id, payload, base, raw_len, &mut Scratch::default(), &mut out);
    assert_eq!(out[..6], *b"before");
    let decoded = decoded.map(|()| out.split_off(6));
    if base.len() == raw_len {
        let mut content = base.to_vec();
        match apply(id, payload, &mut content, &mut Scratch::default()) {
            Ok(true) => assert!(decoded.as_ref().is_ok_and(|decoded| *decoded == content)),
            Ok(false) => {
                let has_changes = matches!(payload.first(), Some(&(SAME | CONTEXT | SPARSE)));
                assert!(content == base && !(has_changes && (1..=3).contains(&id)), "{id} {:?}", payload.first());
            }
            Err(_) => assert!(decoded.is_err()),
        }
    }
    decoded
}

fn check(derivation: Derivation, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let payload = encoded(derivation, raw, base);
    let back = decoded(derivation.id(), &payload, base, raw.len()).unwrap();
    assert!(back == raw, "{derivation:?} of {} bytes by {}", raw.len(), base.len());
    payload
}

fn element_type_of(derivation: Derivation) -> ElementType {
    match derivation {
        Derivation::Context(element_type) => element_type,
        Derivation::Cast(cast) => cast.to(),
        Derivation::Converted(types) => types.to(),
        Derivation::Bytes
        | Derivation::Blocks(_)
        | Derivation::Xor
        | Derivation::Quantised(_)
        | Derivation::Blended(_)
        | Derivation::Scaled(_) => ElementType::Unknown,
    }
}

/// Upper bound of a payload: the smaller of the chunk encoded alone and its XOR with the base, plus a tolerance. For a
/// cast, the XOR does not count.
fn bound(derivation: Derivation, raw: &[u8], base: &[u8]) -> usize {
    let (mut alone, mut bitx) = (Vec::new(), Vec::new());
    let scratch = &mut Scratch::default();
    crate::codec::floats::encode(element_type_of(derivation), 0, raw, scratch, &mut alone).unwrap();
    let mut combined = Vec::new();
    combine(kernel::xor, raw, base, &mut combined);
    scratch.compress(&combined, 1, &mut bitx).unwrap();
    let least = match derivation {
        Derivation::Xor => bitx.len(),
        Derivation::Cast(_) => alone.len(),
        _ => alone.len().min(bitx.len()),
    };
    least + least / 50 + 32
}

/// The next number of a xorshift generator.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// An approximately normal number with a standard deviation of 1.
pub(super) fn normal(state: &mut u64) -> f32 {
    (0..6).map(|_| (next(state) >> 40) as f32 / 16_777_216.0 - 0.5).sum::<f32>() * 1.414
}

/// FP32 weights with a standard deviation of 0.03, and the same weights after an update with deviation `sigma`.
fn tuned(elements: usize, sigma: f32) -> (Vec<u8>, Vec<u8>) {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let base: Vec<f32> = (0..elements).map(|_| normal(&mut state) * 0.03).collect();
    let raw: Vec<u8> = base.iter().flat_map(|weight| (weight + normal(&mut state) * sigma).to_le_bytes()).collect();
    (base.iter().flat_map(|weight| weight.to_le_bytes()).collect(), raw)
}

fn narrowed(elements: &[u8], to: ElementType) -> Vec<u8> {
    let mut out = vec![0; elements.len() / 2];
    if to == ElementType::Bf16 {
        kernel::fp32_to_bf16(elements, &mut out)
    } else {
        kernel::fp32_to_fp16(elements, &mut out)
    }
    out
}

proptest! {
    #[test]
    fn any_bytes_against_any_base_round_trip(derivation in derivations(), raw: Vec<u8>, base: Vec<u8>) {
        let payload = check(derivation, &raw, &base);
        prop_assert!(payload.len() <= bound(derivation, &raw, &base));
    }

    #[test]
    fn changed_bytes_round_trip_within_the_size_bound(
        derivation in derivations(),
        base in prop::collection::vec(any::<u8>(), 0..6000),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        cut in 0usize..7000,
        more in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut raw = base.clone();
        raw.truncate(cut);
        if cut % 3 == 0 {
            raw.extend_from_slice(&more);
        }
        let len = raw.len();
        if len > 0 {
            changes.iter().for_each(|(at, to)| raw[at.index(len)] = *to);
        }
        let payload = check(derivation, &raw, &base);
        prop_assert!(payload.len() <= bound(derivation, &raw, &base));
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(
        derivation in derivations(), mut payload: Vec<u8>, mode in 0u8..11, base: Vec<u8>, raw_len in 0usize..3000,
    ) {
        for _ in 0..2 {
            if let Ok(bytes) = decoded(derivation.id(), &payload, &base, raw_len) {
                prop_assert_eq!(bytes.len(), raw_len);
            }
            let at = usize::from(matches!(derivation, Derivation::Cast(_)));
            payload.get_mut(..at).unwrap_or_default().fill(0);
            if let Some(first) = payload.get_mut(at) {
                *first = mode;
            }
        }
    }

    #[test]
    fn a_changed_payload_is_an_error_or_other_bytes(
        which in 0usize..6, at: prop::sample::Index, to: u8, cut: bool, base_len in 0usize..8000,
    ) {
        let element_type = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32][which % 3];
        let (mut base, mut raw) = tuned(4000, if which < 3 { 0.001 } else { 0.0 });
        if element_type != ElementType::Fp32 {
            (base, raw) = (narrowed(&base, element_type), narrowed(&raw, element_type));
        }
        raw[100..140].fill(9);
        let derivation = Derivation::Context(element_type);
        let mut payload = check(derivation, &raw, &base);
        prop_assert!(decoded(derivation.id(), &payload, &base, raw.len() - 64).is_err());
        prop_assert!(decoded(derivation.id(), &payload, &base, raw.len() + 64).is_err());
        if let Ok(bytes) = decoded(derivation.id(), &payload, &base[..base_len.min(base.len())], raw.len()) {
            prop_assert_eq!(bytes.len(), raw.len());
        }
        let at = at.index(payload.len());
        payload[at] = to;
        if cut {
            payload.truncate(at);
            prop_assert!(decoded(derivation.id(), &payload, &base, raw.len()).is_err());
        } else if let Ok(bytes) = decoded(derivation.id(), &payload, &base, raw.len()) {
            prop_assert_eq!(bytes.len(), raw.len());
        }
    }
}

#[test]
fn every_sixteen_bit_pattern_round_trips_against_special_bases() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for element_type in [ElementType::Bf16, ElementType::Fp16] {
        for base in [0u16, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7c00, 0xfc01, 0xffff, 0x3f80, 0x7fff] {
            check(Derivation::Context(element_type), &all, &base.to_le_bytes().repeat(65_536));
        }
        let rotated: Vec<u8> = all.chunks(2).rev().flatten().copied().collect();
        check(Derivation::Context(element_type), &all, &rotated);
    }
}

#[test]
fn special_thirty_two_bit_patterns_round_trip_against_each_other() {
    let kinds = [0u32, 1, 0x007f_ffff, 0x0080_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fff_ffff];
    let kinds: Vec<u32> = kinds.iter().flat_map(|bits| [*bits, bits | 0x8000_0000]).collect();
    let mut state = 5;
    let near = |bits: u32, state: &mut u64| bits.wrapping_add((next(state) >> 40) as u32 >> (next(state) % 24));
    let pairs: Vec<(u32, u32)> = (0..30)
        .flat_map(|_| kinds.iter().flat_map(|raw| kinds.iter().map(move |base| (*raw, *base))).collect::<Vec<_>>())
        .map(|(raw, base)| (near(raw, &mut state), near(base, &mut state)))
        .collect();
    let raw: Vec<u8> = pairs.iter().flat_map(|(raw, _)| raw.to_le_bytes()).collect();
    let base: Vec<u8> = pairs.iter().flat_map(|(_, base)| base.to_le_bytes()).collect();
    check(Derivation::Context(ElementType::Fp32), &raw, &base);
    check(Derivation::Context(ElementType::Fp32), &base, &raw);
}

#[test]
fn an_unrelated_base_costs_no_more_than_xor() {
    let (len, mut state) = (256 << 10, 7);
    let mut noise = |len: usize| (0..len).map(|_| (next(&mut state) >> 40) as u8).collect::<Vec<u8>>();
    let base = noise(len);
    let again = |noise: Vec<u8>| noise.into_iter().cycle().take(len).collect::<Vec<u8>>();
    let entries = noise(256 * 16);
    let dictionary = noise(len / 16).into_iter().flat_map(|number| entries[usize::from(number) * 16..][..16].to_vec());
    let lines = (0u32..).flat_map(|line| format!("line {}\n", line.wrapping_mul(2_654_435_761)).into_bytes());
    let left = [again(noise(20_001)), again(noise(100_000)), dictionary.collect(), lines.take(len).collect()];
    for (number, left) in left.iter().enumerate() {
        let raw: Vec<u8> = base.iter().zip(left).map(|(base, left)| base ^ left).collect();
        for element_type in [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32] {
            let (context, bitx) =
                (check(Derivation::Context(element_type), &raw, &base), check(Derivation::Xor, &raw, &base));
            assert!(bitx.len() < raw.len() / 3 * 2, "{number}: XOR must find repeats in {}", bitx.len());
            let bound = bitx.len() + bitx.len() / 50 + 32;
            assert!(context.len() <= bound, "{number}, {element_type:?}: {} {}", context.len(), bitx.len());
        }
    }
}

#[test]
fn dense_updates_are_far_smaller_than_their_xor() {
    for (element_type, sigma, share) in
        [(ElementType::Bf16, 0.0005, 0.70), (ElementType::Fp16, 0.0005, 0.92), (ElementType::Fp32, 0.000_02, 0.90)]
    {
        let (mut base, mut raw) = tuned(70_001, sigma);
        if element_type != ElementType::Fp32 {
            (base, raw) = (narrowed(&base, element_type), narrowed(&raw, element_type));
        }
        let (context, bitx) =
            (check(Derivation::Context(element_type), &raw, &base), check(Derivation::Xor, &raw, &base));
        assert!(
            (context.len() as f64) < bitx.len() as f64 * share,
            "{element_type:?}: {} {}",
            context.len(),
            bitx.len()
        );
        assert_eq!(context[0], CONTEXT);
        let grown = check(Derivation::Context(element_type), &raw, &base[..base.len() / 3 * 2 + 1]);
        assert!(grown.len() < raw.len() && grown[0] == CONTEXT);
        check(Derivation::Context(element_type), &raw[..raw.len() / 3 + 1], &base);
        check(Derivation::Context(element_type), &raw[1..], &base[1..]);
    }
}

#[test]
fn few_changes_cost_little_and_no_changes_one_byte() {
    let (base, tuned_elements) = tuned(131_072, 0.001);
    for element_type in [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32] {
        let (base, tuned) = match element_type {
            ElementType::Fp32 => (base.clone(), tuned_elements.clone()),
            _ => (narrowed(&base, element_type), narrowed(&tuned_elements, element_type)),
        };
        let mut raw = base.clone();
        raw[50_000..50_768].copy_from_slice(&tuned[50_000..50_768]);
        let payload = check(Derivation::Context(element_type), &raw, &base);
        assert!(payload.len() <= bound(Derivation::Context(element_type), &raw, &base));
        assert!(payload.len() < 1100, "{element_type:?}: {}", payload.len());
        assert_eq!(check(Derivation::Context(element_type), &base, &base), [SAME]);
        assert_eq!(check(Derivation::Context(element_type), &base[..9999], &base), [SAME]);
    }
}

#[test]
fn a_base_that_does_not_help_costs_almost_nothing() {
    let (base, _) = tuned(70_000, 0.0);
    let raw: Vec<u8> = base.chunks(4).rev().flatten().copied().collect();
    for derivation in Derivation::ALL {
        let other: Vec<u8> = base.iter().map(|byte| byte.wrapping_mul(77)).collect();
        for base in [&base, &other] {
            let payload = check(derivation, &raw, base);
            assert!(payload.len() <= bound(derivation, &raw, base), "{derivation:?}");
        }
    }
}

#[test]
fn casts_cost_almost_nothing_and_originals_cost_the_lost_bits() {
    let (mut wide, _) = tuned(100_000, 0.0);
    let odd = [0x7fc0_1234u32, 0xff80_0000, 0x7f80_0001, 0x8000_0000, 1, 0x3f80_8000, 0x3f81_8000, 0x477f_f000];
    wide.chunks_mut(4).zip(odd).for_each(|(element, odd)| element.copy_from_slice(&odd.to_le_bytes()));
    for (element_type, down, up) in [
        (ElementType::Bf16, Cast::Fp32ToBf16, Cast::Bf16ToFp32),
        (ElementType::Fp16, Cast::Fp32ToFp16, Cast::Fp16ToFp32),
    ] {
        let narrow = narrowed(&wide, element_type);
        assert_eq!(check(Derivation::Cast(down), &narrow, &wide), [ROUNDED, SAME]);
        let mut damaged = narrow.clone();
        damaged[5000..5003].fill(1);
        assert!(check(Derivation::Cast(down), &damaged, &wide).len() < 600);
        let original = check(Derivation::Cast(up), &wide, &narrow);
        assert!(
            original.len() < if element_type == ElementType::Bf16 { 201_500 } else { 176_000 },
            "{}",
            original.len()
        );
        let mut widened = vec![0; wide.len()];
        if element_type == ElementType::Bf16 {
            kernel::bf16_to_fp32(&narrow, &mut widened)
        } else {
            kernel::fp16_to_fp32(&narrow, &mut widened)
        }
        assert_eq!(check(Derivation::Cast(up), &widened, &narrow), [ROUNDED, SAME]);
    }
    let cut: Vec<u8> = wide.chunks(4).flat_map(|element| [element[2], element[3]]).collect();
    assert_eq!(check(Derivation::Cast(Cast::Fp32ToBf16), &cut, &wide), [TRUNCATED, SAME]);
}

const ROUNDED: u8 = 0;
const TRUNCATED: u8 = 1;

#[test]
fn ids_of_derivations_are_unique_and_others_are_unsupported() {
    for derivation in Derivation::ALL {
        assert_eq!(Derivation::of_id(derivation.id().into()), Some(derivation));
    }
    assert!((0..=255).filter_map(Derivation::of_id).count() == Derivation::ALL.len());
    for id in [0, 15, 99] {
        assert!(matches!(decoded(id, &[SAME], &[], 0), Err(Error::Unsupported { .. })), "{id}");
    }
}

#[test]
fn a_derivation_of_15_is_followed_by_its_number() {
    let decoded = |tagged: &[u8]| {
        let mut out = Vec::new();
        decode_tagged(tagged, b"base", 4, &mut Scratch::default(), &mut out).map(|()| out)
    };
    // 5 in the long form, and numbers that no version defines.
    assert_eq!(decoded(&[15, 5, SAME]).unwrap(), b"base");
    for (tagged, number) in
        [(&[15, 0xac, 0x02, 0][..], "derivation 300"), (&[0, 0], "derivation 0"), (&[0x85, SAME], "phase 8")]
    {
        let error = decoded(tagged).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }) && error.to_string().ends_with(number), "{error}");
    }
}

proptest! {
    #[test]
    fn tagged_payloads_round_trip_in_any_phase_and_hostile_ones_are_errors_or_bytes(
        raw in prop::collection::vec(any::<u8>(), 0..300), base in prop::collection::vec(any::<u8>(), 0..300),
        phase in 0usize..12, which in 0..Derivation::ALL.len(), hostile in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut scratch = Scratch::default();
        let derivation = Derivation::ALL[which];
        if !matches!(derivation, Derivation::Cast(_)) {
            let (mut tagged, mut out) = (Vec::new(), Vec::new());
            encode_tagged(derivation, phase, &raw, &base, &mut scratch, &mut tagged).unwrap();
            decode_tagged(&tagged, &base, raw.len(), &mut scratch, &mut out).unwrap();
            prop_assert_eq!(&out, &raw);
        }
        let mut out = Vec::new();
        if decode_tagged(&hostile, &base, raw.len(), &mut scratch, &mut out).is_ok() {
            prop_assert_eq!(out.len(), raw.len());
        }
    }
}

#[test]
fn small_differences_with_distant_repeats_cost_no_more_than_xor() {
    let (base, _) = tuned(128 << 10, 0.0);
    let mut state = 5;
    for period in [20 << 10, 64 << 10, 100_002, 200 << 10] {
        // So few bits of each element that samples cannot distinguish them from an update.
        let differences: Vec<u8> =
            (0..period).map(|at| if at % 2 == 0 { next(&mut state) as u8 & 7 } else { 0 }).collect();
        let raw: Vec<u8> = base.iter().zip(differences.iter().cycle()).map(|(base, left)| base ^ left).collect();
        for derivation in Derivation::ALL[..5].iter().copied() {
            let (payload, bitx) = (check(derivation, &raw, &base), check(Derivation::Xor, &raw, &base));
            let bound = bitx.len() + bitx.len() / 50 + 32;
            assert!(payload.len() <= bound, "{period}, {derivation:?}: {} {}", payload.len(), bitx.len());
        }
    }
}

#[test]
fn bf16_in_fp32_costs_little_more_than_bf16() {
    let value = |at: u32| 0x3d00_0000 | (at.wrapping_mul(2_654_435_761) >> 11 & 0x1ff_0000);
    let wide = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let narrow =
        |values: &[u32]| values.iter().flat_map(|value| ((value >> 16) as u16).to_le_bytes()).collect::<Vec<u8>>();
    let base: Vec<u32> = (0..8192).map(value).collect();
    let step = |(at, value): (usize, &u32)| value + (u32::from(at % 4 == 1) << 16) + (u32::from(at % 7 == 3) << 17);
    let raw: Vec<u32> = base.iter().enumerate().map(step).collect();
    let len = |element_type, raw: &[u8], base: &[u8]| {
        let (mut scratch, mut out, mut back) = (Scratch::default(), Vec::new(), Vec::new());
        let derivation = Derivation::Context(element_type);
        encode(derivation, raw, base, &mut scratch, &mut out).unwrap();
        decode(derivation.id(), &out, base, raw.len(), &mut scratch, &mut back).unwrap();
        assert!(back == raw);
        out.len()
    };
    let (of_wide, of_narrow) =
        (len(ElementType::Fp32, &wide(&raw), &wide(&base)), len(ElementType::Bf16, &narrow(&raw), &narrow(&base)));
    assert!(of_wide < of_narrow + of_narrow / 2, "{of_wide} and {of_narrow} bytes");
}
