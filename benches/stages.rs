//! Speed of the inner loops on generated data: `cargo bench`. Real data is measured by `fhrd bench`.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::chunk::classify::ChunkClassifier;
use fhrd::codec::{ByteGroupLayout, Codec, Planes, Scratch, Zstandard};
use fhrd::config::Config;
use fhrd::kernel::cpu_features::CpuFeatures;
use fhrd::kernel::sieve::Sieve;
use fhrd::kernel::{compare, planes};
use fhrd::repo::container::{ContainerNumber, EntryNumber};
use fhrd::similar::{DeltaMatcher, Superfeature};
use fhrd::types::RepositoryKey;

const CHUNK_BYTES: usize = 64 << 10;

fn main() {
    divan::main();
}

/// Text-like bytes: phrases drawn by a fixed generator.
fn text() -> Vec<u8> {
    let phrases = ["fingerprint ", "chunk ", "container ", "recipe\n", "snapshot ", "    let ", "return ", "0x7f "];
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(CHUNK_BYTES + 16);
    while bytes.len() < CHUNK_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(phrases[(state >> 61) as usize].as_bytes());
    }
    bytes.truncate(CHUNK_BYTES);
    bytes
}

/// FP32 values around zero.
fn floats() -> Vec<u8> {
    let mut state = 7u64;
    (0..CHUNK_BYTES / 4)
        .flat_map(|_| {
            let mut sum = 0.0f32;
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                sum += (state >> 40) as f32 / 16_777_216.0 - 0.5;
            }
            (sum * 0.05).to_le_bytes()
        })
        .collect()
}

#[divan::bench]
fn fingerprint(bencher: Bencher<'_, '_>) {
    let (key, bytes) = (RepositoryKey([7; 32]), text());
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench(|| key.fingerprint(&bytes));
}

#[divan::bench(args = ["text", "floats"])]
fn identify(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = if kind == "text" { text() } else { floats() };
    let config = Config::default();
    let mut classifier = ChunkClassifier::new(&config.identify, config.model.planes_zstd_level);
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench_local(|| classifier.classify(&bytes));
}

/// Random bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 3u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[divan::bench(args = CpuFeatures::subsets())]
fn sieve(bencher: Bencher<'_, '_>, features: CpuFeatures) {
    let bytes = noise(CHUNK_BYTES * 16);
    let sieve = Sieve::with_features(1, features);
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| {
        let mut total = 0;
        sieve.scan(&bytes, |anchor| {
            total ^= anchor.hash;
            true
        });
        total
    });
}

#[divan::bench]
fn planes_encode(bencher: Bencher<'_, '_>) {
    let (bytes, mut scratch) = (floats(), Scratch::default());
    let layout = ByteGroupLayout::new(4, 0b1000).expect("a layout");
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench_local(|| {
        let mut out = Vec::new();
        Planes.encode_layout(layout, &bytes, 1, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench]
fn planes_split(bencher: Bencher<'_, '_>) {
    let (bytes, mut out) = (floats(), vec![0; CHUNK_BYTES]);
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench_local(|| planes::deinterleave(&bytes, 4, &mut out));
}

#[divan::bench(args = [1, 3])]
fn zstd_encode(bencher: Bencher<'_, '_>, level: i32) {
    let (bytes, mut scratch) = (text(), Scratch::default());
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench_local(|| {
        let mut out = Vec::new();
        Zstandard.encode(&bytes, level, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench]
fn common_prefix(bencher: Bencher<'_, '_>) {
    let (a, b) = (text(), text());
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench(|| compare::common_prefix_len(&a, &b));
}

#[divan::bench(args = ["text", "floats"])]
fn super_features(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = if kind == "text" { text() } else { floats() };
    let strategy = Superfeature::new(&Config::default().subdedup, 7);
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench(|| strategy.super_features(&bytes));
}

/// Against a previous version, or against a base that shares nothing.
#[divan::bench(args = ["version", "other"])]
fn delta(bencher: Bencher<'_, '_>, base: &str) {
    let chunk = floats();
    let mut previous = chunk.clone();
    for at in (1000..CHUNK_BYTES - 1000).step_by(4000) {
        previous.splice(at..at + 20, [0; 33]);
    }
    let base = if base == "version" { previous } else { text() };
    let mut delta = DeltaMatcher::new(48);
    bencher
        .counter(BytesCount::new(CHUNK_BYTES))
        .bench_local(|| delta.find(&chunk, &base, EntryNumber::stored(ContainerNumber(0), 0)));
}
