//! Speed of the float codecs and their loops on generated weights: `cargo bench --bench codecs`.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::codec::delta::{self, Cast, Derivation};
use fhrd::codec::floats;
use fhrd::codec::{CODECS, Codec, ElementType, Floats, Planes, Scratch, Zstandard};
use fhrd::kernel::{elements, planes};

const CHUNK_BYTES: usize = 512 << 10;
const TYPES: [ElementType; 3] = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32];
/// Standard deviation of an update. Weights have 0.03.
const SIGMA: f32 = 0.0005;

fn main() {
    divan::main();
}

fn normal(state: &mut u64) -> f32 {
    let sum = (0..6).fold(0.0, |sum, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sum + (*state >> 40) as f32 / 16_777_216.0 - 0.5
    });
    sum * std::f32::consts::SQRT_2
}

fn narrowed(element_type: ElementType, wide: &[u8]) -> Vec<u8> {
    let mut out = vec![0; wide.len() / 2];
    match element_type {
        ElementType::Bf16 => elements::fp32_to_bf16(wide, &mut out),
        ElementType::Fp16 => elements::fp32_to_fp16(wide, &mut out),
        _ => out = wide[..CHUNK_BYTES].to_vec(),
    }
    out
}

/// Weights, and the same weights after an update.
fn weights(element_type: ElementType) -> [Vec<u8>; 2] {
    let mut state = 7u64;
    let base: Vec<f32> = (0..CHUNK_BYTES / 2).map(|_| normal(&mut state) * 0.03).collect();
    let tuned: Vec<f32> = base.iter().map(|weight| weight + normal(&mut state) * SIGMA).collect();
    [base, tuned]
        .map(|all| narrowed(element_type, &all.iter().flat_map(|weight| weight.to_le_bytes()).collect::<Vec<_>>()))
}

#[divan::bench(args = TYPES)]
fn floats_encode(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([raw, _], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        floats::encode(element_type, 0, &raw, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench(args = TYPES)]
fn floats_decode(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([raw, _], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    let mut payload = Vec::new();
    floats::encode(element_type, 0, &raw, &mut scratch, &mut payload).expect("encodes");
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        Floats.decode(&payload, raw.len(), &mut scratch, &mut out).expect("decodes");
        out.len()
    });
}

/// The `planes` codec on the same bytes, for comparison.
#[divan::bench(args = TYPES)]
fn planes_encode(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([raw, _], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        Planes.encode(&raw, 1, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench(args = TYPES)]
fn zstd_encode(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([raw, _], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        Zstandard.encode(&raw, 1, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

/// Codecs of other tools, and the codecs of fhrd to compare, on FP32 weights.
const NAMES: [&str; 5] = ["zstd", "planes", "lz4", "bg4-lz4", "bit-planes"];

fn codec_named(name: &str) -> &'static dyn Codec {
    *CODECS.iter().find(|codec| codec.name() == name).expect("a codec")
}

#[divan::bench(args = NAMES)]
fn named_encode(bencher: Bencher<'_, '_>, name: &str) {
    let ([raw, _], mut scratch, mut out) = (weights(ElementType::Fp32), Scratch::default(), Vec::new());
    let codec = codec_named(name);
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        codec.encode(&raw, 1, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench(args = NAMES)]
fn named_decode(bencher: Bencher<'_, '_>, name: &str) {
    let ([raw, _], mut scratch, mut out) = (weights(ElementType::Fp32), Scratch::default(), Vec::new());
    let (codec, mut payload) = (codec_named(name), Vec::new());
    codec.encode(&raw, 1, &mut scratch, &mut payload).expect("encodes");
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        codec.decode(&payload, raw.len(), &mut scratch, &mut out).expect("decodes");
        out.len()
    });
}

fn derivations(element_type: ElementType) -> [Derivation; 2] {
    [Derivation::Context(element_type), Derivation::Xor]
}

#[divan::bench(args = TYPES, consts = [0, 1])]
fn delta_encode<const XOR: usize>(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([base, raw], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        delta::encode(derivations(element_type)[XOR], &raw, &base, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench(args = TYPES, consts = [0, 1])]
fn delta_decode<const XOR: usize>(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([base, raw], mut scratch, mut out) = (weights(element_type), Scratch::default(), Vec::new());
    let (derivation, mut payload) = (derivations(element_type)[XOR], Vec::new());
    delta::encode(derivation, &raw, &base, &mut scratch, &mut payload).expect("encodes");
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        delta::decode(derivation.id(), &payload, &base, raw.len(), &mut scratch, &mut out).expect("decodes");
        out.len()
    });
}

#[divan::bench(args = [ElementType::Bf16, ElementType::Fp16])]
fn cast_encode(bencher: Bencher<'_, '_>, element_type: ElementType) {
    let ([base, _], mut scratch, mut out) = (weights(ElementType::Fp32), Scratch::default(), Vec::new());
    let raw = narrowed(element_type, &base);
    let cast = Cast::between(ElementType::Fp32, element_type).expect("a cast");
    bencher.counter(BytesCount::of_slice(&raw)).bench_local(|| {
        out.clear();
        delta::encode(Derivation::Cast(cast), &raw, &base, &mut scratch, &mut out).expect("encodes");
        out.len()
    });
}

#[divan::bench(args = [2, 4, 8])]
fn planes_deinterleave_rotated(bencher: Bencher<'_, '_>, width: usize) {
    let ([raw, _], mut out) = (weights(ElementType::Fp32), vec![0; CHUNK_BYTES]);
    bencher
        .counter(BytesCount::of_slice(&raw))
        .bench_local(|| planes::deinterleave_rotated(&raw, width, true, &mut out));
}
