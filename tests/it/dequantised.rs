//! Dequantised weights take what their codes and scales do, and codes of a fine-tune what those of the base leave open.

use std::fs;
use std::path::Path;

use crate::compatibility::copy_directory;
use crate::independent;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{assert_same, describe};
use crate::weights::*;

/// Values of a tensor, of a row, and of a group with a scale.
const VALUES: usize = 256 << 10;
const ROW: usize = 512;
const GROUP: usize = 128;
/// What a backup writes besides the tensor, at most: recipe, listing, record, indexes.
const BESIDE: u64 = 6000;

/// Numbers from -7 to 7 for each value, and the scale of each group.
fn quantised(values: &[f32]) -> (Vec<i8>, Vec<f32>) {
    let scale = |group: &[f32]| group.iter().fold(0f32, |most, value| most.max(value.abs())) / 7.0;
    let scales: Vec<f32> = values.chunks(GROUP).map(scale).collect();
    let code = |(at, value): (usize, &f32)| (value / scales[at / GROUP]).round() as i8;
    (values.iter().enumerate().map(code).collect(), scales)
}

fn dequantised(values: &[f32]) -> Vec<f32> {
    let (codes, scales) = quantised(values);
    codes.iter().enumerate().map(|(at, code)| f32::from(*code) * scales[at / GROUP]).collect()
}

/// Two codes a byte, as tools pack them.
fn packed(values: &[f32]) -> Vec<u8> {
    let nibbles = |pair: &[i8]| (pair[0] + 8) as u8 | ((pair[1] + 8) as u8) << 4;
    quantised(values).0.chunks(2).map(nibbles).collect()
}

/// Backs up a tensor in a directory of its own, restores it by fhrd and by the independent program. The bytes it takes.
fn stored(place: &Place, name: &str, dtype: &'static str, row: usize, bytes: Vec<u8>) -> u64 {
    let source = place.path(name);
    let width = match dtype {
        "BF16" => 2,
        "F32" => 4,
        _ => 1,
    };
    let shape = [(bytes.len() / width / row) as u64, row as u64];
    write(source.join("model.safetensors"), &safetensors(&[Tensor::new("layer.weight", dtype, &shape, bytes)]));
    let report = place.run(&["backup", source.to_str().unwrap()]);
    let target = place.path("restored").join(name);
    place.run(&["restore", "latest", "--target", target.to_str().unwrap(), "--verify"]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), name);
    independent::assert_restores_latest(place, &source);
    number(&report, "bytes_stored")
}

#[test]
fn dequantised_weights_take_their_codes_and_scales() {
    let values = dequantised(&weights(81, VALUES));
    // Fifteen codes of nearly equal frequency, and a scale of up to four bytes in each group.
    let most = VALUES as u64 / 2 + (VALUES / GROUP * 4) as u64 + BESIDE;
    for (dtype, bytes) in [("BF16", bfloat16(&values)), ("F32", float32(&values))] {
        let place = Place::with_repository();
        let taken = stored(&place, "alone", dtype, ROW, bytes);
        assert!(taken < most, "{dtype}: {taken}, at most {most}");
    }
}

#[test]
fn codes_of_a_fine_tune_take_what_changed() {
    let place = Place::with_repository();
    let base = weights(82, VALUES);
    let tune = tuned(&base, 83, 0.001);
    let (before, after) = (packed(&base), packed(&tune));
    let changed = before.iter().zip(&after).filter(|(one, other)| one != other).count() as u64;
    stored(&place, "base", "U8", ROW / 2, before);
    let taken = stored(&place, "tune", "U8", ROW / 2, after);
    assert!(changed > 1000 && taken < changed + BESIDE, "{taken} for {changed} changed bytes");
}

#[test]
fn a_repository_of_an_earlier_version_has_codes_after_an_upgrade_only() {
    let place = Place::new();
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    let bytes = |seed| bfloat16(&dequantised(&weights(seed, VALUES)));
    let before = stored(&place, "one", "BF16", ROW, bytes(84));
    assert!(before > VALUES as u64 * 9 / 10, "{before}");
    place.run(&["upgrade"]);
    let after = stored(&place, "other", "BF16", ROW, bytes(85));
    assert!(after < before * 2 / 3, "{after} after {before}");
}

#[test]
fn any_number_of_workers_stores_the_same_bytes() {
    let first = Place::with_repository();
    let sizes = ["1", "2", "8", "64"].map(|workers| {
        let place = Place::new();
        // The same key.
        copy_directory(&first.repository(), &place.repository());
        fs::write(place.path("own.toml"), format!("[pipeline]\nworkers = {workers}\n")).unwrap();
        let values = weights(86, VALUES);
        for (name, bytes) in [
            ("a", bfloat16(&dequantised(&values))),
            ("b", float32(&dequantised(&values))),
            ("c", bfloat16(&tuned(&dequantised(&values), 87, 0.0001))),
        ] {
            let shape = [(VALUES / ROW) as u64, ROW as u64];
            let dtype = if name == "b" { "F32" } else { "BF16" };
            write(
                place.path(&format!("all/{name}.safetensors")),
                &safetensors(&[Tensor::new("w", dtype, &shape, bytes)]),
            );
        }
        let config = place.path("own.toml");
        place.run(&["--config", config.to_str().unwrap(), "backup", "all"]);
        // The largest container has the tensors; times make others a byte longer or shorter.
        let containers = independent::containers(&place.repository());
        containers.iter().map(|container| fs::metadata(container).unwrap().len()).max().unwrap()
    });
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
}
