//! Pruned models: a mask of the zeros and the other weights, alone and as a delta to the model before.

use std::path::Path;

use crate::compatibility::copy_directory;
use crate::independent;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{assert_same, describe};
use crate::weights::*;

/// Values of the tensor.
const VALUES: usize = 256 << 10;

/// The values, of which all but one in `one_in` are zero: those of the least magnitude.
pub fn by_magnitude(values: &[f32], one_in: usize) -> Vec<f32> {
    let mut magnitudes: Vec<f32> = values.iter().map(|value| value.abs()).collect();
    magnitudes.sort_by(f32::total_cmp);
    let least = magnitudes[values.len() - values.len() / one_in];
    values.iter().map(|value| if value.abs() < least { 0.0 } else { *value }).collect()
}

/// The values with the two of greatest magnitude in each four.
fn two_of_four(values: &[f32]) -> Vec<f32> {
    let mut out = values.to_vec();
    for four in out.chunks_mut(4) {
        let mut order = [0, 1, 2, 3];
        order.sort_by(|one, other| four[*other].abs().total_cmp(&four[*one].abs()));
        order[2..].iter().for_each(|at| four[*at] = 0.0);
    }
    out
}

/// The values that a magnitude says nothing about.
fn at_random(values: &[f32], share: f32) -> Vec<f32> {
    let choices = weights(9, values.len());
    // These are between -0.08 and 0.08, and symmetrical.
    let mut sorted = choices.clone();
    sorted.sort_by(f32::total_cmp);
    let most = sorted[(values.len() as f32 * share) as usize];
    values.iter().zip(choices).map(|(value, choice)| if choice < most { 0.0 } else { *value }).collect()
}

fn model_of(values: &[f32], dtype: &'static str) -> Vec<u8> {
    let bytes = if dtype == "BF16" { bfloat16(values) } else { float32(values) };
    safetensors(&[Tensor::new("layer.weight", dtype, &[values.len() as u64 / 512, 512], bytes)])
}

/// Backs up a model in a directory of its own. The bytes that it takes.
fn stored(place: &Place, name: &str, values: &[f32], dtype: &'static str) -> u64 {
    let source = place.path(&format!("{name}-{dtype}"));
    write(source.join("model.safetensors"), &model_of(values, dtype));
    let report = place.run(&["backup", source.to_str().unwrap()]);
    let target = place.path("restored").join(format!("{name}-{dtype}"));
    place.run(&["restore", "latest", "--target", target.to_str().unwrap(), "--verify"]);
    let restored = target.join(source.strip_prefix("/").unwrap());
    assert_same(&describe(&source), &describe(&restored), name);
    if dtype == "BF16" {
        independent::assert_restores_latest(place, &source);
    }
    number(&report, "bytes_stored")
}

/// What a backup writes besides the tensor, at most: recipe, listing, record, indexes.
const BESIDE: u64 = 6000;

#[test]
fn weights_that_became_zero_cost_a_mask() {
    let place = Place::with_repository();
    let base = weights(71, VALUES);
    let mask = VALUES as u64 / 8;
    for dtype in ["BF16", "F32"] {
        stored(&place, "base", &base, dtype);
        let half = stored(&place, "half", &by_magnitude(&base, 2), dtype);
        assert!(half < BESIDE, "{dtype}: {half}");
        let two = stored(&place, "two-of-four", &two_of_four(&base), dtype);
        assert!(two < BESIDE + 6000, "{dtype}: {two}");
        let random = stored(&place, "random", &at_random(&base, 0.5), dtype);
        assert!(random < mask + BESIDE, "{dtype}: {random}");
        let most = stored(&place, "most", &by_magnitude(&base, 10), dtype);
        assert!(most < BESIDE, "{dtype}: {most}");
    }
}

#[test]
fn zeros_of_a_model_alone_cost_a_mask_once() {
    let values = weights(72, VALUES);
    for (dtype, share, bits) in [("BF16", 0.5, 6.7), ("F32", 0.9, 3.3)] {
        let place = Place::with_repository();
        let bytes = stored(&place, "alone", &at_random(&values, share), dtype);
        let most = (VALUES as f64 * bits / 8.0) as u64 + BESIDE;
        assert!(bytes < most, "{dtype}: {bytes}, at most {most}");
    }
}

#[test]
fn a_repository_of_an_earlier_version_has_masks_after_an_upgrade_only() {
    let place = Place::new();
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    let (one, other) = (weights(73, VALUES), weights(74, VALUES));
    stored(&place, "one", &one, "BF16");
    let before = stored(&place, "one-pruned", &by_magnitude(&one, 2), "BF16");
    assert!(before > VALUES as u64 / 4, "{before}");
    place.run(&["upgrade"]);
    stored(&place, "other", &other, "BF16");
    let after = stored(&place, "other-pruned", &by_magnitude(&other, 2), "BF16");
    assert!(after < BESIDE, "{after}");
}
