//! The loops agree with a scalar reference that processes single bits, for any input.

use proptest::prelude::*;

use super::*;
use crate::kernel::counts::count;
use crate::kernel::cpu_features::with_each_subset;

/// Hash of the first encoding of the text below.
const ENCODING_HASH: u32 = 3_041_644_646;

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Symbols below `alphabet`, plus `first`. The greater `skew` is, the more frequent the low ones are.
fn drawn(len: usize, alphabet: u64, skew: u32, first: u8, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut draw = || (0..=skew).map(|_| random(&mut state) % alphabet).min().unwrap() as u8;
    (0..len).map(|_| draw().wrapping_add(first)).collect()
}

/// The codes of the symbols as strings of bits.
fn codes_scalar(code: &PrefixCode) -> Vec<String> {
    let mut codes = vec![String::new(); 256];
    let mut next = 0u32;
    for length in 1..=LENGTH_MAX as usize {
        next <<= 1;
        for symbol in (0..256).filter(|symbol| usize::from(code.lengths()[*symbol]) == length) {
            codes[symbol] = format!("{next:0length$b}");
            next += 1;
        }
    }
    codes
}

fn encode_scalar(symbols: &[u8], code: &PrefixCode) -> Vec<u8> {
    let codes = codes_scalar(code);
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let segment = symbols.len().div_ceil(STREAMS);
        let own = symbols.iter().skip(number * segment).take(segment);
        let bits: String = own.map(|symbol| codes[usize::from(*symbol)].as_str()).collect();
        let byte = |bits: &[u8]| bits.iter().enumerate().map(|(at, bit)| (bit - b'0') << at).sum();
        streams.push(bits.as_bytes().chunks(8).map(byte).collect::<Vec<u8>>());
    }
    let lengths = streams[..STREAMS - 1].iter().flat_map(|stream| (stream.len() as u32).to_le_bytes());
    lengths.chain(streams.iter().flatten().copied()).collect()
}

/// `None` if `payload` is no encoding.
fn decode_scalar(payload: &[u8], code: &PrefixCode, len: usize) -> Option<Vec<u8>> {
    let codes = codes_scalar(code);
    let (lengths, mut rest) = payload.split_at_checked(LENGTHS_BYTES)?;
    let mut symbols = Vec::new();
    for number in 0..STREAMS {
        let own = lengths.as_chunks().0.get(number).map_or(rest.len(), |length| u32::from_le_bytes(*length) as usize);
        let (stream, others) = rest.split_at_checked(own)?;
        rest = others;
        let segment = len.div_ceil(STREAMS);
        let wanted = len.min((number + 1) * segment) - len.min(number * segment);
        let mut bits = stream.iter().flat_map(|byte| (0..8).map(move |at| byte >> at & 1));
        let mut left = 8 * stream.len();
        for _ in 0..wanted {
            let mut code = String::new();
            let found = loop {
                code.push(char::from(b'0' + bits.next()?));
                left -= 1;
                if let Some(symbol) = codes.iter().position(|other| *other == code) {
                    break symbol;
                }
            };
            symbols.push(found as u8);
        }
        if left >= 8 || bits.any(|bit| bit == 1) {
            return None;
        }
    }
    Some(symbols)
}

/// Decodes with every loop to the same symbols.
fn decoded(payload: &[u8], code: &PrefixCode, len: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    with_each_subset(|features| {
        let mut out = vec![0xaa; len];
        all.push(decode(payload, code, &mut out).then_some(out));
        assert!(all.first() == all.last(), "{features}");
    });
    all.swap_remove(0)
}

/// Encodes with every loop to the same bytes, and decodes them.
fn round_trip(symbols: &[u8], code: &PrefixCode) -> Vec<u8> {
    let mut portable = vec![7];
    super::encoder::encode_portable(symbols, code, &mut portable);
    with_each_subset(|features| {
        let mut payload = vec![7];
        encode(symbols, code, &mut payload);
        assert!(payload == portable, "{} symbols, {features}", symbols.len());
    });
    let payload = portable.split_off(1);
    assert!(decoded(&payload, code, symbols.len()).as_deref() == Some(symbols), "{} symbols", symbols.len());
    payload
}

fn code_of(symbols: &[u8]) -> PrefixCode {
    PrefixCode::of_counts(&count(symbols))
}

fn lengths() -> impl Iterator<Item = usize> {
    let near = [64, 128, 148, 152, 184, 256, 512, 1024, 2048, 4096, 16384, 65536];
    (0..=44).chain(near.into_iter().flat_map(|len| [len - 1, len, len + 1])).chain([100_003])
}

#[test]
fn every_length_round_trips() {
    for len in lengths() {
        for (alphabet, skew, first) in
            [(1, 0, 9), (2, 9, 0), (3, 0, 255), (40, 3, 90), (64, 2, 100), (256, 0, 0), (256, 30, 3)]
        {
            let symbols = drawn(len, alphabet, skew, first, len as u64);
            let code = code_of(&symbols);
            let payload = round_trip(&symbols, &code);
            if len < 5000 {
                assert!(payload == encode_scalar(&symbols, &code), "{len} symbols of {alphabet}");
            }
        }
    }
}

#[test]
fn segments_of_different_symbols_round_trip() {
    // The streams have very different lengths.
    let parts = [(40, 0), (40, 60), (2, 0), (256, 0)];
    let symbols: Vec<u8> = parts.iter().flat_map(|(alphabet, skew)| drawn(9000, *alphabet, *skew, 5, 1)).collect();
    round_trip(&symbols, &code_of(&symbols));
    let symbols: Vec<u8> = symbols.into_iter().rev().collect();
    round_trip(&symbols, &code_of(&symbols));
}

#[test]
fn sizes_are_as_computed_and_near_the_entropy() {
    for (alphabet, skew, limit) in [(256, 0, 1.001), (64, 3, 1.02), (30, 12, 1.05)] {
        let symbols = drawn(1 << 17, alphabet, skew, 0, 5);
        let counts = count(&symbols);
        let code = PrefixCode::of_counts(&counts);
        let terms = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count));
        let entropy: f64 = terms.map(|count| count * (symbols.len() as f64 / count).log2()).sum();
        let cost = code.cost_bits(&counts);
        assert!((1.0..limit).contains(&(cost as f64 / entropy)), "{cost} bits, {entropy} of entropy");
        let bytes = (round_trip(&symbols, &code).len() - LENGTHS_BYTES) as u64;
        assert!((cost.div_ceil(8)..=cost / 8 + STREAMS as u64).contains(&bytes), "{bytes} bytes for {cost} bits");
    }
}

/// Cost of the code by Huffman's method, which has no limit of length. `None` if a code is too long.
fn huffman_cost(counts: &[u32; 256]) -> Option<u64> {
    let mut nodes: Vec<(u64, u64, u32)> =
        counts.iter().filter(|count| **count > 0).map(|count| (u64::from(*count), 0, 0)).collect();
    while nodes.len() > 1 {
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        let (a, b) = (nodes.pop()?, nodes.pop()?);
        nodes.push((a.0 + b.0, a.1 + b.1 + a.0 + b.0, a.2.max(b.2) + 1));
    }
    nodes.first().filter(|node| node.2 <= LENGTH_MAX).map(|node| node.1)
}

fn counts_of(kind: u32, seed: u64) -> [u32; 256] {
    let mut state = seed;
    let mut draw = || random(&mut state);
    std::array::from_fn(|symbol| match kind {
        0 => draw() as u32,
        1 => 1,
        2 => u32::MAX,
        3 => (1 << 20 >> symbol.min(31)) as u32,
        4 => (draw() % 3) as u32 * (draw() % 1000) as u32,
        5 => u32::from(draw() % 40 == 0) * (draw() >> 33 >> (draw() % 31)) as u32,
        6 => [(draw() % 2) as u32, u32::MAX][usize::from(symbol == 77)],
        7 => u32::from(symbol == 200),
        _ => 0,
    })
}

#[test]
fn codes_fill_the_code_space_at_the_least_cost() {
    let mut compared = 0;
    for (kind, seed) in (0..9).flat_map(|kind| (0..40).map(move |seed| (kind, seed))) {
        let counts = counts_of(kind, seed);
        let code = PrefixCode::of_counts(&counts);
        let used = code.lengths().iter().filter(|length| **length > 0);
        assert_eq!(used.map(|length| 1u32 << (LENGTH_MAX - u32::from(*length))).sum::<u32>(), 1 << LENGTH_MAX);
        assert!(counts.iter().zip(code.lengths()).all(|(count, length)| *count == 0 || *length > 0));
        if let Some(cost) = huffman_cost(&counts).filter(|cost| *cost > 0) {
            assert_eq!(code.cost_bits(&counts), cost);
            compared += 1;
        }
        assert_eq!(PrefixCode::of_lengths(*code.lengths()), Some(code));
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn lengths_of_no_code_are_refused() {
    let of = |used: &[u8]| PrefixCode::of_lengths(std::array::from_fn(|symbol| used.get(symbol).copied().unwrap_or(0)));
    assert!(of(&[1, 1]).is_some() && of(&[2, 0, 1, 2]).is_some());
    for lengths in [&[][..], &[1], &[1, 1, 1], &[1, 2], &[1, 1, 12], &[1, 1, 255], &[12; 256]] {
        assert!(of(lengths).is_none(), "{lengths:?}");
    }
}

#[test]
fn codes_are_canonical() {
    let code = code_of(&drawn(10_000, 50, 4, 30, 8));
    let scalar = codes_scalar(&code);
    let mut number = 0;
    for (symbol, bits, length) in code.codes() {
        let bits: String = (0..length).map(|at| char::from(b'0' + (bits >> at & 1) as u8)).collect();
        assert_eq!(bits, scalar[usize::from(symbol)]);
        number += 1;
    }
    assert_eq!(number, scalar.iter().filter(|code| !code.is_empty()).count());
}

#[test]
fn invalid_encodings_are_refused() {
    let symbols = drawn(5000, 60, 2, 0, 3);
    let code = code_of(&symbols);
    let payload = round_trip(&symbols, &code);
    for len in 0..payload.len() {
        assert!(decoded(&payload[..len], &code, symbols.len()).is_none(), "{len} of {} bytes", payload.len());
    }
    for more in 1..100 {
        assert!(decoded(&[&payload[..], &vec![0; more]].concat(), &code, symbols.len()).is_none(), "{more} bytes more");
    }
    for len in [0, 1, 31, 32, 4900, 5100] {
        assert!(decoded(&payload, &code, len).is_none(), "{len} symbols");
    }
    for (at, to) in [(3, 0xff), (7, 0xff), (11, 0x7f), (0, payload[0] ^ 1)] {
        let mut other = payload.clone();
        other[at] = to;
        assert!(decoded(&other, &code, symbols.len()).is_none(), "{to:#x} at {at}");
    }
}

#[test]
fn symbols_without_a_code_do_no_harm() {
    let code = code_of(&[3; 10]);
    for len in [1, 1000, 20_000] {
        let mut out = Vec::new();
        encode(&drawn(len, 256, 0, 0, 1), &code, &mut out);
        assert!(out.len() >= LENGTHS_BYTES);
    }
}

#[test]
fn no_symbols_are_encoded_as_empty_streams() {
    let code = code_of(&[]);
    assert_eq!(round_trip(&[], &code), [0; LENGTHS_BYTES]);
    assert!(decoded(&[], &code, 0).is_none());
}

#[test]
fn encodings_do_not_change() {
    let symbols = b"four streams of bits, each of a quarter of the symbols".repeat(3);
    let code = code_of(&symbols);
    let payload = round_trip(&symbols, &code);
    assert_eq!(payload.iter().fold(0, |hash: u32, byte| hash.wrapping_mul(31) ^ u32::from(*byte)), ENCODING_HASH);
}

#[test]
fn low_bits_round_trip_for_every_length() {
    with_each_subset(|_| {
        for len in (0..=70).chain([511, 512, 513]) {
            let symbols = drawn(len, 256, 0, 0, len as u64);
            for bits in 0..=LOW_BITS_MAX {
                let (mut highs, mut lows) = (vec![0; len], vec![0; low_bits_len(len, bits)]);
                split_low_bits(&symbols, bits, &mut highs, &mut lows);
                assert!(highs.iter().zip(&symbols).all(|(high, symbol)| *high == symbol >> bits));
                let scalar =
                    |at: usize| symbols.get(at / bits as usize).map_or(0, |symbol| symbol >> (at % bits as usize) & 1);
                for (number, byte) in lows.iter().enumerate() {
                    assert_eq!(*byte, (0..8).map(|at| scalar(8 * number + at) << at).sum::<u8>(), "{len} {bits}");
                }
                join_low_bits(&mut highs, bits, &lows);
                assert_eq!(highs, symbols);
            }
            let mut highs = vec![1; len];
            split_low_bits(&symbols, LOW_BITS_MAX + 1, &mut highs, &mut []);
            join_low_bits(&mut highs, 3, &vec![0xff; low_bits_len(len, 3) + 1]);
            assert!(highs.iter().all(|high| *high == 1));
        }
    });
}

/// A code with random lengths that fill the code space, made by splitting codes.
fn any_code(seed: u64) -> PrefixCode {
    let mut state = seed;
    let splits = random(&mut state) % 255;
    let mut lengths = vec![1u8, 1];
    for _ in 0..splits {
        let at = (random(&mut state) % lengths.len() as u64) as usize;
        if u32::from(lengths[at]) < LENGTH_MAX {
            lengths[at] += 1;
            lengths.push(lengths[at]);
        }
    }
    // Counts for which these are the best lengths.
    let mut counts = [0; 256];
    for length in lengths {
        let slot = (random(&mut state) % 256) as usize;
        let free = (0..256).map(|more| (slot + more) % 256).find(|symbol| counts[*symbol] == 0).unwrap();
        counts[free] = 1 << (LENGTH_MAX - u32::from(length));
    }
    PrefixCode::of_counts(&counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes_round_trip(symbols in prop::collection::vec(any::<u8>(), 0..900)) {
        let code = code_of(&symbols);
        prop_assert_eq!(round_trip(&symbols, &code), encode_scalar(&symbols, &code));
    }

    #[test]
    fn hostile_payloads_are_decoded_like_the_scalar_reference(
        streams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), STREAMS..=STREAMS),
        lie in prop::option::of((0..LENGTHS_BYTES, any::<u8>())), seed: u64, len in 0usize..1500
    ) {
        let lengths = streams[..STREAMS - 1].iter().flat_map(|stream| (stream.len() as u32).to_le_bytes());
        let mut payload: Vec<u8> = lengths.chain(streams.iter().flatten().copied()).collect();
        if let Some((at, byte)) = lie {
            payload[at] = byte;
        }
        let code = any_code(seed);
        prop_assert_eq!(decoded(&payload, &code, len), decode_scalar(&payload, &code, len));
    }

    #[test]
    fn a_changed_encoding_is_decoded_like_the_scalar_reference(
        seed: u64, at: prop::sample::Index, bit in 0u8..8, len in 1usize..1500
    ) {
        let symbols = drawn(len, 1 + seed % 256, (seed >> 60) as u32, seed as u8, seed);
        let code = code_of(&symbols);
        let mut payload = round_trip(&symbols, &code);
        let at = at.index(payload.len());
        payload[at] ^= 1 << bit;
        prop_assert_eq!(decoded(&payload, &code, len), decode_scalar(&payload, &code, len));
        payload.truncate(at);
        prop_assert_eq!(decoded(&payload, &code, len), decode_scalar(&payload, &code, len));
    }
}
