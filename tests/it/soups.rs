//! Models that were blended of two stored ones, as averages, interpolations and steps beyond are, cost next to nothing.

use std::path::Path;

use crate::compatibility::copy_directory;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::*;
use crate::{independent, weights};

const VALUES: usize = 256 << 10;
/// What a backup of a model writes besides its tensors, at most.
const BESIDE: u64 = 9000;

/// A file of two tensors of these values.
fn file(dtype: &'static str, values: &[f32]) -> Vec<u8> {
    let (first, second) = values.split_at(values.len() / 4);
    let tensor = |name: &str, values: &[f32]| {
        let bytes = if dtype == "F32" { float32(values) } else { bfloat16(values) };
        Tensor::new(name, dtype, &[values.len() as u64 / 512, 512], bytes)
    };
    safetensors(&[tensor("a", first), tensor("b", second)])
}

/// Values as a file of this type has them.
fn rounded(dtype: &str, values: &[f32]) -> Vec<f32> {
    let narrow =
        |value: &f32| f32::from_bits(u32::from(u16::from_le_bytes(bfloat16(&[*value]).try_into().unwrap())) << 16);
    if dtype == "F32" { values.to_vec() } else { values.iter().map(narrow).collect() }
}

fn stored(place: &Place, name: &str, file: &[u8]) -> u64 {
    write(place.path(name).join("model.safetensors"), file);
    let report = place.run(&["backup", place.path(name).to_str().unwrap()]);
    let (source, target) = (place.path(name), tempfile::tempdir().unwrap());
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), name);
    independent::assert_restores_latest(place, &source);
    number(&report, "bytes_stored")
}

#[test]
fn a_blend_of_two_stored_models_costs_next_to_nothing() {
    for dtype in ["F32", "BF16"] {
        let place = Place::with_repository();
        let base = rounded(dtype, &weights::weights(1, VALUES));
        let tune = |seed: u64| {
            let step = weights::weights(seed, VALUES);
            rounded(dtype, &std::iter::zip(&base, &step).map(|(base, step)| base + step * 0.05).collect::<Vec<_>>())
        };
        let (one, two) = (tune(2), tune(3));
        stored(&place, "base", &file(dtype, &base));
        let alone = stored(&place, "one", &file(dtype, &one));
        stored(&place, "two", &file(dtype, &two));
        let blend = |a: &[f32], b: &[f32], of: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
            std::iter::zip(a, b).map(|(a, b)| of(*a, *b)).collect()
        };
        let soups = [
            ("average", blend(&base, &one, &|a, b| (a + b) / 2.0)),
            ("of-two-tunes", blend(&one, &two, &|a, b| a * 0.3 + b * 0.7)),
            ("part-of-the-way", blend(&base, &two, &|a, b| a + (b - a) * 0.35)),
            ("beyond", blend(&base, &one, &|a, b| a + (b - a) * 1.25)),
        ];
        for (name, values) in &soups {
            let soup = stored(&place, name, &file(dtype, values));
            assert!(soup < BESIDE && soup * 5 < alone, "{dtype}, {name}: {soup} of {alone}");
        }
        // What comes after a blend may be a delta to it, and what has only a few values of one is stored, too.
        let mut changed = soups[1].1.clone();
        changed.iter_mut().step_by(3).for_each(|value| *value *= 1.003);
        let next = stored(&place, "next", &file(dtype, &changed));
        assert!(next < alone, "{dtype}: {next} of {alone}");
        assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    }
}

#[test]
fn a_repository_of_an_earlier_version_has_blends_after_an_upgrade_only() {
    let place = Place::new();
    copy_directory(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1/repository")),
        &place.repository(),
    );
    let base = weights::weights(1, VALUES);
    let step = weights::weights(2, VALUES);
    let tuned: Vec<f32> = std::iter::zip(&base, &step).map(|(base, step)| base + step * 0.05).collect();
    let soup = |share: f32| -> Vec<f32> { std::iter::zip(&base, &tuned).map(|(a, b)| a + (b - a) * share).collect() };
    stored(&place, "base", &file("F32", &base));
    stored(&place, "tuned", &file("F32", &tuned));
    assert!(stored(&place, "before", &file("F32", &soup(0.5))) > 4 * BESIDE);
    place.run(&["upgrade"]);
    assert!(stored(&place, "after", &file("F32", &soup(0.25))) < 2 * BESIDE);
}

#[test]
fn a_running_mean_of_a_run_is_stored_alone_now_and_then() {
    let (dtype, values) = ("F32", VALUES / 4);
    let place = Place::with_repository();
    let size = |name: &str, values: &[f32]| {
        write(place.path(name).join("model.safetensors"), &file(dtype, values));
        number(&place.run(&["backup", place.path(name).to_str().unwrap()]), "bytes_stored")
    };
    let mut run = rounded(dtype, &weights::weights(1, values));
    let (mut mean, mut sizes) = (run.clone(), Vec::new());
    size("run", &run);
    for step in 0..15 {
        run = rounded(dtype, &weights::tuned(&run, 2 + step, 0.02));
        size("run", &run);
        let next: Vec<f32> = std::iter::zip(&mean, &run).map(|(mean, run)| mean + (run - mean) * 0.125).collect();
        mean = rounded(dtype, &next);
        sizes.push(size("mean", &mean));
    }
    let long = sizes.iter().filter(|size| **size > 2 * BESIDE).count();
    assert!(long <= 2, "{sizes:?}");
    stored(&place, "mean", &file(dtype, &mean));
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
}

#[test]
fn a_pruned_fine_tune_is_a_mask_over_it_also_beside_its_base() {
    for dtype in ["F32", "BF16"] {
        let place = Place::with_repository();
        let base = rounded(dtype, &weights::weights(1, VALUES));
        let tuned = rounded(dtype, &weights::tuned(&base, 2, 0.0015));
        stored(&place, "base", &file(dtype, &base));
        let tune = stored(&place, "tuned", &file(dtype, &tuned));
        let pruned: Vec<f32> =
            tuned.iter().enumerate().map(|(at, value)| if at % 7 % 2 == 0 { 0.0 } else { *value }).collect();
        let mask = VALUES as u64 / 8;
        let size = stored(&place, "pruned", &file(dtype, &pruned));
        assert!(size < mask + BESIDE && size * 3 < tune, "{dtype}: {size} of {tune}");
    }
}

#[test]
fn small_steps_after_a_long_fine_tune_stay_small() {
    const TENSORS: usize = 24;
    let place = Place::with_repository();
    let size = |values: &[f32]| {
        let parts = values.chunks(VALUES / 8).enumerate();
        let tensor = |(at, part): (usize, &[f32])| Tensor::new(&format!("w{at}"), "BF16", &[64, 512], bfloat16(part));
        write(place.path("run").join("model.safetensors"), &safetensors(&parts.map(tensor).collect::<Vec<_>>()));
        number(&place.run(&["backup", place.path("run").to_str().unwrap()]), "bytes_stored")
    };
    let base = weights::weights(1, TENSORS * VALUES / 8);
    // Its delta takes about half of the base's bytes.
    let mut values = weights::tuned(&base, 2, 0.0015);
    let (alone, tune) = (size(&base), size(&values));
    assert!(tune * 3 > alone && tune * 3 < alone * 2, "{tune} of {alone}");
    let (mut random, mut steps) = (Random(3), 0);
    for _ in 0..12 {
        // Of one tensor in five, no sampled value changes.
        for _ in 0..values.len() / 100 {
            let at = random.next() as usize % values.len();
            values[at] *= 1.01;
        }
        steps += size(&values);
    }
    // A step takes a fortieth of the model. Each tensor is stored alone once, for a read would fetch too much.
    assert!(steps * 10 < alone * 17, "{steps} of {tune}, {alone} alone");
}
