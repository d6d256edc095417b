//! The loops agree with a scalar reference for every difference of two bytes and every length near a lane width.

use super::*;
use crate::kernel::cpu_features::with_each_subset;

/// Random values. The greater `few`, the more of the high bits are clear.
fn noise(elements: usize, few: u32) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..elements).map(|_| (next() >> 32) as u32 >> (next() as u32 % (few + 1))).collect()
}

/// Position of a value of `bits` bits in the order of values.
fn order(element: u32, bits: u32) -> i64 {
    let size = i64::from(element & ((1 << (bits - 1)) - 1));
    if element >> (bits - 1) == 0 { size } else { -1 - size }
}

fn folded_scalar(raw: u32, base: u32, bits: u32) -> u32 {
    let whole = 1i64 << bits;
    let difference = (order(raw, bits) - order(base, bits) + whole / 2).rem_euclid(whole) - whole / 2;
    (if difference < 0 { -2 * difference - 1 } else { 2 * difference }) as u32
}

fn token_scalar(folded: u32) -> (u8, u32) {
    match folded {
        0..16 => (folded as u8, 0),
        _ => {
            let leading = folded.ilog2();
            ((16 + 4 * (leading - 4) + (folded >> (leading - 2) & 3)) as u8, leading - 2)
        }
    }
}

/// Tokens, contexts and extra bits, one element after the other.
fn scalar(width: usize, raw: &[u32], base: &[u32], exponent: Exponent) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (mut tokens, mut contexts, mut bits) = (Vec::new(), Vec::new(), Vec::new());
    for (raw, base) in raw.iter().zip(base) {
        let folded = folded_scalar(*raw, *base, width as u32 * 8);
        let (token, count) = token_scalar(folded);
        tokens.push(token);
        bits.extend((0..count).map(|bit| folded >> bit & 1));
        let below = i64::from(exponent.top) - i64::from(base >> exponent.shift & exponent.mask);
        contexts.push(below.clamp(0, 15) as u8);
    }
    let bytes = bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect();
    (tokens, contexts, bytes)
}

fn bytes(elements: &[u32], width: usize) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_le_bytes()[..width].to_vec()).collect()
}

fn check(width: usize, raw: &[u32], base: &[u32], exponent: Exponent) {
    let (want_tokens, want_contexts, want_extra) = scalar(width, raw, base, exponent);
    let (raw_bytes, base_bytes) = (bytes(raw, width), bytes(base, width));
    let elements = raw.len();
    with_each_subset(|features| {
        let (mut found, mut found_contexts, mut extra) =
            (vec![0; elements], vec![0; elements], vec![0xa5; raw_bytes.len() + SLACK_BYTES]);
        let mut counts = [[0; CONTEXTS * SLOTS]; TABLES];
        let both = [raw_bytes.as_slice(), base_bytes.as_slice()];
        let extra_len = encode(width, both, exponent, &mut found, &mut found_contexts, &mut counts, &mut extra);
        assert_eq!(
            (&found, &found_contexts),
            (&want_tokens, &want_contexts),
            "{elements} elements of {width}, {features}"
        );
        assert_eq!(extra[..extra_len], want_extra, "{elements} elements of {width}, {features}");
        let mut expected = [[0; SLOTS]; CONTEXTS];
        found
            .iter()
            .zip(&found_contexts)
            .for_each(|(token, context)| expected[usize::from(*context)][usize::from(*token)] += 1);
        let sum =
            |context: usize, token: usize| counts.iter().map(|counts| counts[context * SLOTS + token]).sum::<u32>();
        assert!((0..CONTEXTS).all(|context| (0..SLOTS).all(|token| expected[context][token] == sum(context, token))));
        let mut again = vec![0; elements];
        contexts(width, &base_bytes, exponent, &mut again);
        assert_eq!(again, found_contexts);
        let decode = |extra: &[u8]| {
            let mut elements = base_bytes.clone();
            super::decode(width, &found, extra, &mut elements).then_some(elements)
        };
        assert_eq!(decode(&extra[..extra_len]), Some(raw_bytes.clone()), "{elements} elements of {width}, {features}");
        extra.truncate(extra_len);
        extra.push(0);
        assert_eq!(decode(&extra), None);
        if extra_len > 0 {
            assert_eq!(decode(&extra[..extra_len - 1]), None);
        }
    });
}

#[test]
fn every_length_agrees_with_the_scalar_reference() {
    let lanes = [8, 16, 32, 64, BLOCK, 2 * BLOCK].into_iter();
    for elements in lanes.flat_map(|lane| [lane - 1, lane, lane + 1]).chain(0..4) {
        for few in [0, 14, 30] {
            let base = noise(elements, 0);
            let wide: Vec<u32> =
                base.iter().zip(noise(elements, few)).map(|(base, by)| base.wrapping_add(by)).collect();
            check(4, &wide, &base, Exponent { shift: 23, mask: 0xff, top: 127 });
            let narrow = |elements: &[u32]| elements.iter().map(|element| element & 0xffff).collect::<Vec<_>>();
            check(2, &narrow(&wide), &narrow(&base), Exponent { shift: 7, mask: 0xff, top: 130 });
            check(2, &narrow(&wide), &narrow(&base), Exponent { shift: 10, mask: 0x1f, top: 14 });
        }
    }
}

#[test]
fn bits_after_eight_full_bytes_are_written() {
    // Only at the end of a block that is the last one does nothing follow these bits.
    let all = noise(BLOCK + 500, 1);
    for start in 0..500 {
        let raw = &all[start..start + BLOCK];
        check(4, raw, &[0x3f80_0000; BLOCK], Exponent { shift: 23, mask: 0xff, top: 127 });
    }
}

#[test]
fn every_difference_of_two_bytes_agrees_with_the_scalar_reference() {
    let all: Vec<u32> = (0..=0xffff).collect();
    for base in [0, 1, 0x3f80, 0x7f80, 0x7fff, 0x8000, 0x8001, 0xbf80, 0xffff] {
        check(2, &all, &vec![base; all.len()], Exponent { shift: 7, mask: 0xff, top: 130 });
    }
}

#[test]
fn tokens_change_where_the_scalar_reference_does() {
    for token in 0..SLOTS as u8 {
        let first = leading(u32::from(token), u32::from(extra_bits(token)));
        let last = first + ((1u64 << extra_bits(token)) - 1) as u32;
        for folded in [first, first + (last - first) / 2, last] {
            assert_eq!(
                (DeltaElement::token(folded), token_scalar(folded)),
                (token, (token, u32::from(extra_bits(token)))),
                "{folded:#x}"
            );
            if let Ok(narrow) = u16::try_from(folded) {
                assert_eq!(narrow.token(), token);
            }
        }
    }
}

#[test]
fn unknown_tokens_are_refused() {
    for (width, token, is_known) in [(2, 63, true), (2, 64, false), (4, 127, true), (4, 128, false), (4, 255, false)] {
        let extra = vec![0; usize::from(extra_bits(token).div_ceil(8))];
        assert_eq!(super::decode(width, &[token], &extra, &mut vec![0; width]), is_known, "{width} {token}");
    }
    assert!(!super::decode(2, &[0; 4], &[], &mut [0; 10]));
    assert!(!super::decode(2, &[0; 4], &[], &mut [0; 6]));
    assert!(!super::decode(3, &[0; 2], &[], &mut [0; 6]));
}
