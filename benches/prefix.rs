//! Speed of prefix codes on generated symbols, beside rANS: `cargo bench --bench prefix`. Items are symbols.

use divan::Bencher;
use divan::counter::ItemsCount;
use fhrd::kernel::counts::count;
use fhrd::kernel::prefix::{self, PrefixCode};
use fhrd::kernel::rans::{self, FrequencyTable};

const SYMBOLS: usize = 256 << 10;

fn main() {
    divan::main();
}

/// Symbols like exponents of weights: each is half as frequent as the next higher one. The `low_bits` below are noise.
fn exponents(low_bits: u32) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 16
    };
    let mut symbol = || {
        let drawn = next();
        let exponent = 28 - (drawn.trailing_zeros() as u8).min(20) + (drawn >> 46) as u8;
        exponent << low_bits | (next() >> 20) as u8 & ((1 << low_bits) - 1)
    };
    (0..SYMBOLS).map(|_| symbol()).collect()
}

/// Bits of noise: exponents alone, and the high bytes of FP16.
const LOW_BITS: [u32; 2] = [0, 3];

#[divan::bench(args = LOW_BITS)]
fn encode(bencher: Bencher<'_, '_>, low_bits: u32) {
    let symbols = exponents(low_bits);
    let code = PrefixCode::of_counts(&count(&symbols));
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| {
        out.clear();
        prefix::encode(&symbols, &code, &mut out);
    });
}

#[divan::bench(args = LOW_BITS)]
fn decode(bencher: Bencher<'_, '_>, low_bits: u32) {
    let symbols = exponents(low_bits);
    let code = PrefixCode::of_counts(&count(&symbols));
    let (mut payload, mut out) = (Vec::new(), vec![0; SYMBOLS]);
    prefix::encode(&symbols, &code, &mut payload);
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| {
        assert!(prefix::decode(&payload, &code, &mut out), "an encoding");
    });
}

#[divan::bench(args = LOW_BITS)]
fn rans_decode(bencher: Bencher<'_, '_>, low_bits: u32) {
    let symbols = exponents(low_bits);
    let models = [FrequencyTable::of_counts(&count(&symbols), 12)];
    let (mut payload, mut out) = (Vec::new(), vec![0; SYMBOLS]);
    rans::encode(&symbols, &[], &models, &mut payload);
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| {
        assert!(rans::decode(&payload, &[], &models, &mut out), "an encoding");
    });
}

#[divan::bench(args = LOW_BITS)]
fn code(bencher: Bencher<'_, '_>, low_bits: u32) {
    let counts = count(&exponents(low_bits));
    bencher.bench(|| PrefixCode::of_counts(&counts));
}

#[divan::bench(args = LOW_BITS)]
fn counts(bencher: Bencher<'_, '_>, low_bits: u32) {
    let symbols = exponents(low_bits);
    bencher.counter(ItemsCount::new(SYMBOLS)).bench(|| count(&symbols));
}

#[divan::bench]
fn split_low_bits(bencher: Bencher<'_, '_>) {
    let symbols = exponents(3);
    let (mut highs, mut lows) = (vec![0; SYMBOLS], vec![0; prefix::low_bits_len(SYMBOLS, 3)]);
    bencher
        .counter(ItemsCount::new(SYMBOLS))
        .bench_local(|| prefix::split_low_bits(&symbols, 3, &mut highs, &mut lows));
}

#[divan::bench]
fn join_low_bits(bencher: Bencher<'_, '_>) {
    let mut symbols = exponents(0);
    let lows = vec![0x5a; prefix::low_bits_len(SYMBOLS, 3)];
    bencher.counter(ItemsCount::new(SYMBOLS)).bench_local(|| prefix::join_low_bits(&mut symbols, 3, &lows));
}
