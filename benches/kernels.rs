//! Speed of the loops over bytes that are neither chunkers nor codecs: `cargo bench --bench kernels`.

mod data;

use data::generated;
use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::config::Config;
use fhrd::kernel::{bits, compare, entropy, planes};
use fhrd::types::RepositoryKey;

const BYTES: usize = 128 << 10;

fn main() {
    divan::main();
}

/// The fingerprint of a chunk.
#[divan::bench(args = [8 << 10, 128 << 10, 512 << 10])]
fn keyed_blake3(bencher: Bencher<'_, '_>, chunk_bytes: usize) {
    let (key, bytes) = (RepositoryKey([7; 32]), generated("noise", chunk_bytes));
    bencher.counter(BytesCount::of_slice(&bytes)).bench(|| key.fingerprint(&bytes));
}

/// Counts all bytes of the chunk, although only a sample is read.
#[divan::bench(args = ["text", "floats"])]
fn entropy_sample(bencher: Bencher<'_, '_>, kind: &str) {
    let (bytes, windows_max) = (generated(kind, BYTES), Config::default().identify.samples);
    let mut groups = [[0; 256]; entropy::GROUPS];
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| entropy::sample(&bytes, windows_max, &mut groups));
}

/// The sample and the entropies of all byte groups.
#[divan::bench(args = ["text", "floats"])]
fn entropy_profile(bencher: Bencher<'_, '_>, kind: &str) {
    let (bytes, windows_max) = (generated(kind, BYTES), Config::default().identify.samples);
    bencher.counter(BytesCount::of_slice(&bytes)).bench(|| entropy::EntropyProfile::of(&bytes, windows_max));
}

#[divan::bench(args = [2, 4, 8])]
fn planes_split(bencher: Bencher<'_, '_>, width: usize) {
    let (bytes, mut out) = (generated("floats", BYTES), vec![0; BYTES]);
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| planes::deinterleave(&bytes, width, &mut out));
}

#[divan::bench(args = [2, 4, 8])]
fn planes_join(bencher: Bencher<'_, '_>, width: usize) {
    let (bytes, mut out) = (generated("floats", BYTES), vec![0; BYTES]);
    let planes: Vec<&[u8]> = bytes.chunks(BYTES / width).collect();
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| planes::interleave(&planes, &mut out));
}

#[divan::bench(args = [2, 4, 8])]
fn planes_join_turned(bencher: Bencher<'_, '_>, width: usize) {
    let (bytes, mut out) = (generated("floats", BYTES), vec![0; BYTES]);
    let planes: Vec<&[u8]> = bytes.chunks(BYTES / width).collect();
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| planes::interleave_rotated(&planes, true, &mut out));
}

#[divan::bench]
fn bit_planes_split(bencher: Bencher<'_, '_>) {
    let (bytes, mut out) = (generated("floats", BYTES), vec![0; BYTES]);
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| bits::deinterleave(&bytes, &mut out));
}

#[divan::bench]
fn bit_planes_join(bencher: Bencher<'_, '_>) {
    let (bytes, mut out) = (generated("floats", BYTES), vec![0; BYTES]);
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| bits::interleave(&bytes, &mut out));
}

#[divan::bench]
fn common_suffix(bencher: Bencher<'_, '_>) {
    let (a, b) = (generated("text", BYTES), generated("text", BYTES));
    bencher.counter(BytesCount::of_slice(&a)).bench(|| compare::common_suffix_len(&a, &b));
}
