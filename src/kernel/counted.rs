//! Works whose instructions are counted: each runs one kernel on the same input, as often as asked.
//!
//! `benches/instructions/count.sh` runs them under an emulator, with the CPU features of its environment.

use std::io::Write;

use super::byte_classes::{classes_of, join_nibbles, split_nibbles};
use super::codebook::{Codebook, multiply, nearest_codes};
use super::counts::{count, value_range};
use super::deinterleave::StoredPlanes;
use super::elements::{fp32_to_bf16, fp32_to_fp16, xor};
use super::entropy::EntropyProfile;
use super::float_format::FloatFormat;
use super::quantise::{BlockType, ScaleSource, quantise};
use super::rans::FrequencyTable;
use super::scaled::{QuotientRounding, ScaledCode, scaled_codes};
use super::{bits, deinterleave, delta, interleave, peaks, planes, prefix, rans, sieve, zeros};

/// Bytes or symbols that each work takes.
const LEN: usize = 64 << 10;
/// The work to run: its name.
const NAME: &str = "FHRD_TEST_KERNEL";
/// How often it runs.
const RUNS: &str = "FHRD_TEST_KERNEL_RUNS";

/// A work: its name, and what it does each time.
type Work = (&'static str, Box<dyn FnMut()>);

/// A work that fills `len` bytes.
fn fills(name: &'static str, len: usize, mut fill: impl FnMut(&mut [u8]) + 'static) -> Work {
    let mut out = vec![0; len];
    (name, Box::new(move || fill(&mut out)))
}

/// A work that appends to an empty vector with enough capacity.
fn appends(name: &'static str, mut append: impl FnMut(&mut Vec<u8>) + 'static) -> Work {
    let mut out = Vec::with_capacity(2 * LEN);
    let append = move || {
        out.clear();
        append(&mut out);
        assert!(!out.is_empty());
    };
    (name, Box::new(append))
}

/// A work whose result must be true.
fn holds(name: &'static str, mut holds: impl FnMut() -> bool + 'static) -> Work {
    (name, Box::new(move || assert!(holds())))
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state >> 16
}

/// Symbols like exponents of weights: each is half as frequent as the next higher one.
fn exponents() -> &'static [u8] {
    let mut state = 1;
    Vec::leak((0..LEN).map(|_| 124 - (next(&mut state).trailing_zeros() as u8).min(40)).collect())
}

/// Float elements of this width, and others near them.
fn weights(width: usize) -> [&'static [u8]; 2] {
    let mut state = 2;
    let mut draw = || (next(&mut state) & 0xffff) as f32 / 65_536.0 - 0.5;
    let (mut raw, mut base) = (Vec::new(), Vec::new());
    while raw.len() < LEN {
        let (own, change) = (draw() * draw(), draw() * draw() * draw());
        base.extend_from_slice(&own.to_le_bytes()[4 - width..]);
        raw.extend_from_slice(&(own * (1.0 + change / 8.0)).to_le_bytes()[4 - width..]);
    }
    [raw.leak(), base.leak()]
}

fn rans_codes() -> Vec<Work> {
    let symbols = exponents();
    let contexts: &[u8] = Vec::leak(symbols.iter().rev().map(|symbol| (124 - symbol).min(15)).collect());
    let table = &*Box::leak(Box::new([FrequencyTable::of_counts(&count(symbols), 12)]));
    let of_context = |context: u8| {
        let pairs = symbols.iter().zip(contexts).filter(|(_, other)| **other == context);
        FrequencyTable::of_counts(&count(&pairs.map(|(symbol, _)| *symbol).collect::<Vec<u8>>()), 10)
    };
    let tables: &[FrequencyTable] = Vec::leak((0..16).map(of_context).collect());
    let (mut one, mut several) = (Vec::new(), Vec::new());
    rans::encode(symbols, &[], table, &mut one);
    rans::encode(symbols, contexts, tables, &mut several);
    vec![
        appends("rANS, encode", |out| rans::encode(symbols, &[], table, out)),
        appends("rANS with contexts, encode", |out| rans::encode(symbols, contexts, tables, out)),
        fills("rANS, decode", LEN, move |out| assert!(rans::decode(&one, &[], table, out))),
        fills("rANS with contexts, decode", LEN, move |out| assert!(rans::decode(&several, contexts, tables, out))),
    ]
}

fn prefix_codes() -> Vec<Work> {
    let symbols = exponents();
    let code = &*Box::leak(Box::new(prefix::PrefixCode::of_counts(&count(symbols))));
    let mut streams = Vec::new();
    prefix::encode(symbols, code, &mut streams);
    let (low_bits, mut highs) = (prefix::low_bits_len(LEN, 3), vec![0; LEN]);
    let lows = vec![0x5a; low_bits];
    vec![
        appends("prefix code, encode", |out| prefix::encode(symbols, code, out)),
        appends("prefix code, encode 8 KiB each", |out| {
            symbols.chunks(8 << 10).for_each(|few| prefix::encode(few, code, out));
        }),
        fills("prefix code, decode", LEN, move |out| assert!(prefix::decode(&streams, code, out))),
        fills("low bits, split", low_bits, move |lows| prefix::split_low_bits(symbols, 3, &mut highs, lows)),
        fills("low bits, join", LEN, move |symbols| prefix::join_low_bits(symbols, 3, &lows)),
    ]
}

fn samples() -> Vec<Work> {
    let ([bytes, _], symbols, sieve) = (weights(2), exponents(), sieve::Sieve::new(1));
    let mut maxima = vec![0; peaks::segments(LEN / 2)];
    vec![
        holds("sieve", move || !sieve.anchors(bytes).is_empty()),
        holds("counts of any bytes", || count(bytes)[0] < 1 << 20),
        holds("counts of a narrow range", || count(symbols)[124] > 0),
        holds("entropies of 2048 windows", || EntropyProfile::of(bytes, 2048).bits(2)[0] > 0.0),
        holds("range of values", || value_range(bytes).most > 0),
        ("peaks of elements of 2", Box::new(move || peaks::peaks(bytes, 2, &mut maxima, |at| assert!(at < LEN)))),
    ]
}

/// Appends the lowest plane, and fills `rest` with the others, as codecs do.
fn append_planes(raw: &[u8], width: usize, out: &mut Vec<u8>, rest: &mut [u8]) {
    if !deinterleave::append(raw, width, true, StoredPlanes { count: 1, mark: 0 }, out, rest) {
        let mut all = vec![0; raw.len()];
        planes::deinterleave_rotated(raw, width, true, &mut all);
        let (stored, others) = all.split_at(raw.len() / width);
        out.push(0);
        out.extend_from_slice(stored);
        rest.copy_from_slice(others);
    }
}

fn of_planes() -> Vec<Work> {
    let [raw, _] = weights(4);
    let [mut two, mut four] = [vec![0; LEN / 2], vec![0; LEN / 4 * 3]];
    let planes = |count: usize| -> Vec<&[u8]> { raw.chunks(LEN / count).collect() };
    vec![
        appends("byte planes of 2, appended", move |out| append_planes(raw, 2, out, &mut two)),
        appends("byte planes of 4, appended", move |out| append_planes(raw, 4, out, &mut four)),
        fills("byte planes of 2", LEN, |out| planes::deinterleave_rotated(raw, 2, true, out)),
        fills("byte planes of 4", LEN, |out| planes::deinterleave_rotated(raw, 4, true, out)),
        fills("byte planes of 8", LEN, |out| planes::deinterleave_rotated(raw, 8, true, out)),
        appends("byte planes of 2, interleave", move |out| interleave::append(&planes(2), true, out)),
        appends("byte planes of 4, interleave", move |out| interleave::append(&planes(4), true, out)),
        fills("byte planes of 8, interleave", LEN, move |out| planes::interleave_rotated(&planes(8), true, out)),
        fills("bit planes", LEN, |out| bits::deinterleave(raw, out)),
        fills("bit planes, interleave", LEN, |out| bits::interleave(raw, out)),
    ]
}

fn deltas(width: usize, [encode, decode]: [&'static str; 2]) -> Vec<Work> {
    let [raw, base] = weights(width);
    let exponent = delta::Exponent { shift: if width == 2 { 7 } else { 23 }, mask: 255, top: 125 };
    let [mut tokens, mut contexts] = [(); 2].map(|()| vec![0; LEN / width]);
    let mut counts = Box::new([[0; delta::CONTEXTS * delta::SLOTS]; delta::TABLES]);
    let mut extra = vec![0; LEN + delta::SLACK_BYTES];
    let len = delta::encode(width, [raw, base], exponent, &mut tokens, &mut contexts, &mut counts, &mut extra);
    extra.truncate(len);
    let known = tokens.clone();
    let run = move |extra: &mut [u8]| {
        let own = delta::encode(width, [raw, base], exponent, &mut tokens, &mut contexts, &mut counts, extra);
        assert_eq!(own, len);
    };
    vec![
        fills(encode, LEN + delta::SLACK_BYTES, run),
        fills(decode, LEN, move |out| {
            out.copy_from_slice(base);
            assert!(delta::decode(width, &known, &extra, out));
        }),
    ]
}

fn of_bytes() -> Vec<Work> {
    let [raw, base] = weights(2);
    let classes: [u8; 256] = std::array::from_fn(|byte| (byte / 17) as u8);
    let (mut contexts, known) = (vec![0; 2 * LEN], vec![7; 2 * LEN]);
    let mask = &base[..LEN / 16];
    vec![
        fills("classes", LEN, move |out| classes_of(&classes, base, out)),
        fills("xor", LEN, |out| xor(raw, base, out)),
        fills("nibbles, split", 2 * LEN, move |out| split_nibbles(raw, base, out, &mut contexts)),
        fills("nibbles, join", LEN, move |out| join_nibbles(&known, base, out)),
        fills("zeros of 2, mark", LEN / 16, |mask| zeros::mark(2, raw, base, true, mask)),
        fills("zeros of 2, keep", LEN, |out| assert!(zeros::keep(2, raw, mask, out) > 0)),
        fills("zeros of 4, keep", LEN, |out| assert!(zeros::keep(4, raw, &mask[..LEN / 32], out) > 0)),
        fills("zeros of 2, spread", LEN, |out| zeros::spread(2, raw, mask, out)),
        fills("zeros of 4, spread", LEN, |out| zeros::spread(4, raw, &mask[..LEN / 32], out)),
        fills("zeros of 2, two of four", LEN / 16, |mask| zeros::mark_two_of_four(2, base, mask)),
    ]
}

fn of_floats() -> Vec<Work> {
    let [values, _] = weights(4);
    let codes = Vec::leak(values.iter().take(LEN / 4).map(|byte| byte & 15).collect());
    let book = Codebook::NormalFloat;
    let block_type = BlockType::Q8_0;
    vec![
        fills("FP32 to BF16", LEN / 2, |out| fp32_to_bf16(values, out)),
        fills("FP32 to FP16", LEN / 2, |out| fp32_to_fp16(values, out)),
        fills("FP32 to E4M3", LEN / 4, |out| FloatFormat::E4m3.narrow(values, out)),
        fills("values to Q8_0", LEN / 128 * block_type.bytes(), move |out| {
            quantise(block_type, ScaleSource::Computed, values, out);
        }),
        fills("values to INT8 by a scale", LEN / 4, |out| {
            scaled_codes(ScaledCode::Int8, QuotientRounding::Fp32, values, 0.01, out);
        }),
        fills("codebook, nearest", LEN / 4, move |out| nearest_codes(book, values, 4.0, out)),
        fills("codebook, multiply", LEN, move |out| multiply(book, book.numbers(), codes, 0.3, out)),
    ]
}

/// Every work.
fn works() -> Vec<Work> {
    [
        samples(),
        of_planes(),
        rans_codes(),
        prefix_codes(),
        deltas(2, ["deltas of 2, encode", "deltas of 2, decode"]),
        deltas(4, ["deltas of 4, encode", "deltas of 4, decode"]),
        of_bytes(),
        of_floats(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn every_work_does_its_work() {
    works().into_iter().for_each(|(_, mut work)| work());
}

#[test]
#[ignore = "runs the work that the environment names, for `benches/instructions/count.sh`"]
fn work() {
    let name = std::env::var(NAME).unwrap_or_default();
    let runs = std::env::var(RUNS).map_or(0, |runs| runs.parse().unwrap());
    for (known, mut work) in works() {
        if name.is_empty() {
            writeln!(std::io::stdout(), "work: {known}").unwrap();
        } else if name == known {
            (0..runs).for_each(|_| work());
        }
    }
}
