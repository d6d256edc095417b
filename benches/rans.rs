//! Speed of the entropy coder on generated symbols: `cargo bench --bench rans`. Items are symbols.

use divan::Bencher;
use divan::counter::ItemsCount;
use fhrd::kernel::counts::count;
use fhrd::kernel::cpu_features::CpuFeatures;
use fhrd::kernel::rans::{FrequencyTable, decode_with, encode_with};

const SYMBOLS: usize = 256 << 10;
const CONTEXTS: u8 = 16;

fn main() {
    divan::main();
}

/// Symbols and their frequency tables.
struct Case {
    symbols: Vec<u8>,
    contexts: Vec<u8>,
    models: Vec<FrequencyTable>,
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state >> 16
}

/// Symbols like exponents of weights: each is half as frequent as the next higher one.
fn exponents() -> Case {
    let mut state = 1;
    let symbols: Vec<u8> = (0..SYMBOLS)
        .map(|_| {
            let drawn = next(&mut state);
            124 - (drawn.trailing_zeros() as u8).min(40) + (drawn >> 46) as u8
        })
        .collect();
    let models = vec![FrequencyTable::of_counts(&count(&symbols), 12)];
    Case { symbols, contexts: Vec::new(), models }
}

/// Symbols like tokens of differences: a lower context has greater ones.
fn tokens() -> Case {
    let mut state = 2;
    let contexts: Vec<u8> = (0..SYMBOLS).map(|_| (next(&mut state).trailing_zeros() as u8).min(CONTEXTS - 1)).collect();
    let draw = |context: &u8| {
        let product = (next(&mut state) & 0x7f) * (next(&mut state) & 0x7f);
        (product >> (7 + context.min(&6))) as u8
    };
    let symbols: Vec<u8> = contexts.iter().map(draw).collect();
    let of_context = |context: u8| {
        let pairs = symbols.iter().zip(&contexts);
        let own: Vec<u8> = pairs.filter(|(_, other)| **other == context).map(|(symbol, _)| *symbol).collect();
        FrequencyTable::of_counts(&count(&own), 10)
    };
    let models = (0..CONTEXTS).map(of_context).collect();
    Case { symbols, contexts, models }
}

fn run_encode(bencher: Bencher<'_, '_>, features: CpuFeatures, case: &Case) {
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| {
        out.clear();
        encode_with(features, &case.symbols, &case.contexts, &case.models, &mut out);
    });
}

fn run_decode(bencher: Bencher<'_, '_>, features: CpuFeatures, case: &Case) {
    let (mut payload, mut out) = (Vec::new(), vec![0; SYMBOLS]);
    encode_with(features, &case.symbols, &case.contexts, &case.models, &mut payload);
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| {
        assert!(decode_with(features, &payload, &case.contexts, &case.models, &mut out), "an encoding");
    });
}

#[divan::bench(args = CpuFeatures::subsets())]
fn encode(bencher: Bencher<'_, '_>, features: CpuFeatures) {
    run_encode(bencher, features, &exponents());
}

#[divan::bench(args = CpuFeatures::subsets())]
fn encode_with_contexts(bencher: Bencher<'_, '_>, features: CpuFeatures) {
    run_encode(bencher, features, &tokens());
}

#[divan::bench(args = CpuFeatures::subsets())]
fn decode(bencher: Bencher<'_, '_>, features: CpuFeatures) {
    run_decode(bencher, features, &exponents());
}

#[divan::bench(args = CpuFeatures::subsets())]
fn decode_with_contexts(bencher: Bencher<'_, '_>, features: CpuFeatures) {
    run_decode(bencher, features, &tokens());
}

#[divan::bench]
fn counts(bencher: Bencher<'_, '_>) {
    let case = exponents();
    bencher.counter(ItemsCount::new(SYMBOLS)).bench(|| count(&case.symbols));
}

#[divan::bench(args = [10, 12])]
fn model(bencher: Bencher<'_, '_>, bits: u32) {
    let counts = count(&exponents().symbols);
    bencher.bench(|| FrequencyTable::of_counts(&counts, bits));
}
