//! Copies of a model in other float formats cost next to nothing: in one file, in one backup, and in a later one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fhrd::codec::delta::{Converted, Derivation, decode_tagged, encode_tagged};
use fhrd::codec::{ElementType, Scratch};
use fhrd::kernel::float_format::FloatFormat;
use fhrd::repo::container::{Operation, OperationList};
use fhrd::repo::recipe::ContentReference;

use crate::compatibility::copy_directory;
use crate::golden::unhex;
use crate::hostile::assert_bad_is_lost;
use crate::hostile_repository::HostileRepository;
use crate::independent;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{assert_same, describe};
use crate::weights::*;

/// Formats by their names in safetensors.
const FORMATS: [(FloatFormat, &str); 5] = [
    (FloatFormat::Fp32, "F32"),
    (FloatFormat::Bf16, "BF16"),
    (FloatFormat::Fp16, "F16"),
    (FloatFormat::E4m3, "F8_E4M3"),
    (FloatFormat::E5m2, "F8_E5M2"),
];
const VALUES: usize = 256 << 10;
/// What a backup of a model writes besides its tensors, at most.
const BESIDE: u64 = 9000;

/// FP32 weights, and what no other format holds.
fn wide(seed: u64) -> Vec<u8> {
    let odd = [f32::NAN, f32::INFINITY, -0.0, 1e-42, -1e-8, 65_504.0, 70_000.0, 460.0, 3e38, 1.003_906_3];
    let mut values = weights(seed, VALUES);
    values[1000..1010].copy_from_slice(&odd);
    float32(&values)
}

fn converted(bytes: &[u8], from: FloatFormat, to: FloatFormat) -> Vec<u8> {
    let values = bytes.len() / from.width();
    let (mut wide, mut out) = (vec![0; 4 * values], vec![0; to.width() * values]);
    from.widen(bytes, &mut wide);
    to.narrow(&wide, &mut out);
    out
}

/// A file of the tensors of some copies: two tensors in each, named by the format.
fn file(copies: &[(&'static str, Vec<u8>)]) -> Vec<u8> {
    let tensors = copies.iter().flat_map(|(dtype, bytes)| {
        let (first, second) = bytes.split_at(bytes.len() / 4);
        let tensor = |name: &str, bytes: &[u8], rows: usize| {
            Tensor::new(&format!("{dtype}.{name}"), dtype, &[rows as u64, 512], bytes.to_vec())
        };
        [tensor("a", first, VALUES / 2048), tensor("b", second, VALUES / 2048 * 3)]
    });
    safetensors(&tensors.collect::<Vec<_>>())
}

/// Backs up a file in a directory of its own, and restores it with both programs. The bytes that it takes.
fn stored(place: &Place, name: &str, file: &[u8]) -> u64 {
    write(place.path(name).join("model.safetensors"), file);
    let report = place.run(&["backup", place.path(name).to_str().unwrap()]);
    assert_restores(place, name);
    number(&report, "bytes_stored")
}

fn assert_restores(place: &Place, name: &str) {
    let (source, target) = (place.path(name), tempfile::tempdir().unwrap());
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), name);
    independent::assert_restores_latest(place, &source);
}

#[test]
fn copies_in_one_file_cost_what_the_widest_costs() {
    let wide = wide(1);
    let copies = FORMATS.map(|(format, dtype)| (dtype, converted(&wide, FloatFormat::Fp32, format)));
    let alone = stored(&Place::with_repository(), "alone", &file(&copies[..1]));
    for (at, extra) in [(0, 102), (1, 107), (2, 106), (3, 109)] {
        let mut copies = copies[..4].to_vec();
        copies.rotate_left(at);
        let place = Place::with_repository();
        let all = stored(&place, "all", &file(&copies));
        // What follows a shorter format costs the bits that it lacks, a little more than together.
        assert!(all * 100 <= alone * extra + 100 * BESIDE, "{} first: {all}, alone {alone}", copies[0].0);
        assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    }
}

#[test]
fn a_copy_in_another_format_costs_next_to_nothing_in_the_same_backup_and_in_a_later_one() {
    for (seed, (from, from_name)) in (10..).zip(FORMATS) {
        let base = converted(&wide(seed), FloatFormat::Fp32, from);
        for (to, to_name) in FORMATS.into_iter().filter(|(to, _)| *to != from) {
            // Both are the same type in a record.
            if from.width() == 1 && to.width() == 1 {
                continue;
            }
            let copy = file(&[(to_name, converted(&base, from, to))]);
            let place = Place::with_repository();
            let alone = stored(&place, "base", &file(&[(from_name, base.clone())]));
            let later = stored(&place, "copy", &copy);
            assert!(later < copy.len() as u64 / 100 + BESIDE, "{from_name} to {to_name}: {later}");
            // Names say nothing of the order.
            for names in [["a", "b"], ["b", "a"]] {
                let place = Place::with_repository();
                for (name, bytes) in names.iter().zip([&file(&[(from_name, base.clone())]), &copy]) {
                    write(place.path("m").join(name).join("model.safetensors"), bytes);
                }
                let both = number(&place.run(&["backup", place.path("m").to_str().unwrap()]), "bytes_stored");
                assert_restores(&place, "m");
                assert!(both < alone * 4 / 3 + BESIDE, "{from_name} to {to_name} as {names:?}: {both}, alone {alone}");
            }
        }
    }
}

#[test]
fn a_fine_tune_of_a_copy_is_a_delta_to_the_copy() {
    let place = Place::with_repository();
    let values = weights(30, VALUES);
    let halves = |values: &[f32]| converted(&float32(values), FloatFormat::Fp32, FloatFormat::Fp16);
    let brains = bfloat16(&values);
    stored(&place, "base", &file(&[("BF16", brains.clone())]));
    stored(&place, "copy", &file(&[("F16", converted(&brains, FloatFormat::Bf16, FloatFormat::Fp16))]));
    let widened: Vec<f32> = {
        let wide = converted(&brains, FloatFormat::Bf16, FloatFormat::Fp32);
        wide.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let mut few = widened.clone();
    few.iter_mut().step_by(97).for_each(|value| *value *= 1.01);
    let taken = stored(&place, "tune", &file(&[("F16", halves(&few))]));
    assert!(taken < 2 * VALUES as u64 / 20 + BESIDE, "{taken}");
}

#[test]
fn a_repository_of_an_earlier_version_has_conversions_after_an_upgrade_only() {
    let place = Place::new();
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    let brains = |seed| converted(&wide(seed), FloatFormat::Fp32, FloatFormat::Bf16);
    let both = |brains: Vec<u8>| {
        let halves = converted(&brains, FloatFormat::Bf16, FloatFormat::Fp16);
        file(&[("BF16", brains), ("F16", halves)])
    };
    let before = stored(&place, "before", &both(brains(40)));
    place.run(&["upgrade"]);
    let after = stored(&place, "after", &both(brains(41)));
    assert!(after * 10 < before * 7, "{after} after {before}");
}

#[test]
fn any_number_of_workers_stores_the_same_bytes() {
    let first = Place::with_repository();
    let wide = wide(50);
    let copies = FORMATS.map(|(format, dtype)| (dtype, converted(&wide, FloatFormat::Fp32, format)));
    let blobs = ["1", "2", "8"].map(|workers| {
        let place = Place::new();
        // The same key.
        copy_directory(&first.repository(), &place.repository());
        fs::write(place.path("own.toml"), format!("[pipeline]\nworkers = {workers}\n")).unwrap();
        let source = place.path("source");
        write(source.join("all/model.safetensors"), &file(&copies));
        for (dtype, bytes) in &copies {
            write(source.join(dtype).join("model.safetensors"), &file(&[(*dtype, bytes.clone())]));
        }
        let config = place.path("own.toml");
        place.run(&["backup", source.to_str().unwrap(), "--config", config.to_str().unwrap()]);
        let containers = independent::containers(&place.repository());
        containers.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>()
    });
    assert!(blobs.iter().all(|bytes| *bytes == blobs[0]), "{blobs:?}");
}

#[test]
fn hostile_conversions_end_as_damage() {
    let payloads: [&[u8]; 6] = [
        // Less base than the chunk needs, no mode, modes without what they require, no formats.
        &[0x0c, 0x21, 0],
        &[0x0c, 0x21],
        &[0x0c, 0x13, 3, 0xff, 0xff, 0xff],
        &[0x0c, 0x41, 8, 0, 0, 0xff],
        &[0x0c, 0x14, 7, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x0c],
    ];
    for payload in payloads {
        let mut hostile = HostileRepository::new();
        let base = hostile.whole(&[0x7f; 8192]);
        let operations = vec![Operation::Delta { base: 0, offset: 0, len: 8192 }];
        let content = vec![0; 1 << 20];
        let entry = hostile.entry(&content, payload, 2, OperationList { operations, bases: vec![base] });
        let reference = ContentReference::Chunk { fingerprint: entry.fingerprint, len: content.len() as u64 };
        let (repository, container) = hostile.finish(Some(reference), content.len() as u64);
        assert_bad_is_lost(&repository, &container);
    }
}

/// FP32 bits around the bounds of other formats: subnormal numbers, ties, what becomes infinite, what is no number.
const BOUNDS: [u32; 33] = [
    0,
    1,
    0x0040_0000,
    0x007f_ffff,
    0x0080_0000,
    0x3300_0000,
    0x3300_0001,
    0x3380_0000,
    0x387f_f000,
    0x3a80_0000,
    0x3a80_0001,
    0x3b00_0000,
    0x3c7f_ffff,
    0x3c80_0000,
    0x3f80_8000,
    0x3f80_8001,
    0x3f81_8000,
    0x3f88_0000,
    0x3f88_0001,
    0x3f98_0000,
    0x3f90_0000,
    0x3fb0_0000,
    0x43e0_0000,
    0x43e8_0000,
    0x43e8_0001,
    0x476f_ffff,
    0x4770_0000,
    0x477f_efff,
    0x477f_f000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc1_2345,
];

/// What conversions give, frozen: all numbers of eight bits, and those of `BOUNDS`. The independent program made them.
#[test]
fn conversions_and_their_payloads_are_frozen() {
    let text = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/converted.json")).unwrap();
    let frozen: BTreeMap<String, String> = serde_json::from_slice(&text).unwrap();
    assert_eq!(frozen.len(), 18 * 2);
    let both = BOUNDS.iter().flat_map(|bits| [*bits, *bits | 0x8000_0000]);
    let wide: Vec<u8> = both.flat_map(u32::to_le_bytes).collect();
    let scratch = &mut Scratch::of_writer(true);
    for (from, from_name) in FORMATS {
        let mut base = converted(&wide, FloatFormat::Fp32, from);
        if from.width() == 1 {
            base.extend(0..=u8::MAX);
        }
        for (to, to_name) in FORMATS {
            let Some(types) = Converted::between(element_type(from), element_type(to)) else { continue };
            let [want, payload] =
                ["values", "same"].map(|part| unhex(&frozen[&format!("{from_name} to {to_name}: {part}")]));
            assert!(converted(&base, from, to) == want, "{from_name} to {to_name}");
            let (mut tagged, mut back) = (Vec::new(), Vec::new());
            encode_tagged(Derivation::Converted(types), 0, &want, &base, scratch, &mut tagged).unwrap();
            decode_tagged(&payload, &base, want.len(), scratch, &mut back).unwrap();
            assert!(tagged == payload && back == want, "{from_name} to {to_name}");
        }
    }
    assert_eq!(frozen["BF16 to F16: same"], "0c2100");
}

/// The type of the codecs that elements of a format have.
fn element_type(format: FloatFormat) -> ElementType {
    match format {
        FloatFormat::Bf16 => ElementType::Bf16,
        FloatFormat::Fp16 => ElementType::Fp16,
        FloatFormat::Fp32 => ElementType::Fp32,
        FloatFormat::E4m3 | FloatFormat::E5m2 => ElementType::Byte,
    }
}
