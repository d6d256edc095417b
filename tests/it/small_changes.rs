//! What a backup of a small change costs beside its data, and index segments with short last pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::independent;
use crate::input::{copy_directory, files, write};
use crate::program::{Place, finished, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::{Tensor, bfloat16, safetensors, tuned, weights};

/// Bytes of the file that changes.
const FILE_BYTES: usize = 1500;
/// What a backup of one changed file, or of a model of 32 tensors, writes besides their bytes, at most.
const BESIDE: u64 = 2500;
/// Where the header of a segment has the number of its records, and its reader-required bits.
const RECORDS_AT: usize = 24;
const FEATURES_AT: usize = 32;

/// Bytes of the blobs of a repository, by name.
fn blobs(place: &Place) -> BTreeMap<String, u64> {
    let root = place.repository();
    let names = files(&root).into_iter().filter(|name| !name.starts_with("tmp/"));
    names.map(|name| (name.clone(), fs::metadata(root.join(&name)).unwrap().len())).collect()
}

/// The blobs that `change` adds, by directory and length. Says what they are.
fn added(place: &Place, what: &str, change: impl FnOnce()) -> Vec<(String, u64)> {
    let before = blobs(place);
    change();
    let new = blobs(place).into_iter().filter(|(name, _)| !before.contains_key(name));
    let new: Vec<(String, u64)> = new.map(|(name, len)| (name.split('/').next().unwrap().to_string(), len)).collect();
    println!("{what}: {} bytes: {new:?}", sum(&new));
    new
}

fn sum(blobs: &[(String, u64)]) -> u64 {
    blobs.iter().map(|(_, len)| len).sum()
}

/// Bytes of the segments among `blobs`.
fn segment_bytes(blobs: &[(String, u64)]) -> Vec<u64> {
    blobs.iter().filter(|(directory, _)| directory == "index").map(|(_, len)| *len).collect()
}

/// Number of records, reader-required bits and bytes of each segment.
fn segments(place: &Place) -> Vec<(u64, u64, u64)> {
    let root = place.repository();
    let blobs = files(&root).into_iter().filter(|name| name.starts_with("index/"));
    let fields = blobs.map(|name| {
        let blob = fs::read(root.join(name)).unwrap();
        let field = |at: usize| u64::from_le_bytes(blob[at..at + 8].try_into().unwrap());
        (field(RECORDS_AT), field(FEATURES_AT), blob.len() as u64)
    });
    fields.collect()
}

/// A directory of ten small files.
fn source(place: &Place) -> std::path::PathBuf {
    let mut random = Random(11);
    for number in 0..10 {
        write(place.path(&format!("source/{}/file-{number}", number % 3)), &random.bytes(FILE_BYTES));
    }
    place.path("source")
}

fn change(place: &Place, seed: u64) {
    write(place.path("source/1/file-4"), &Random(seed).bytes(FILE_BYTES));
}

fn back_up(place: &Place, source: &Path) -> Value {
    place.run(&["backup", source.to_str().unwrap()])
}

fn assert_restores(place: &Place, source: &Path, name: &str) {
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap(), "--verify"]);
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), name);
    independent::assert_restores_latest(place, source);
}

#[test]
fn a_changed_file_costs_little_beside_its_data() {
    let place = Place::new();
    place.run(&["init"]);
    let source = source(&place);
    back_up(&place, &source);
    // With the fourth segment all are merged into a new one.
    for seed in 20..22 {
        change(&place, seed);
        let new = added(&place, "one file", || {
            let report = back_up(&place, &source);
            assert_eq!(number(&report, "files_changed"), 1, "{report}");
        });
        let beside = sum(&new) - FILE_BYTES as u64;
        assert!(beside < BESIDE, "{beside} bytes beside the data: {new:?}");
    }
    assert_restores(&place, &source, "two changes");
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
}

#[test]
fn a_step_of_a_model_of_small_tensors_costs_little_beside_its_data() {
    let place = Place::with_repository();
    place.run(&["upgrade"]);
    let source = place.path("model");
    let tensors: Vec<Vec<f32>> = (0..32).map(|seed| weights(seed, 2048)).collect();
    let file = |step: f32| {
        let tensor = |(number, values): (usize, &Vec<f32>)| {
            let name = format!("model.layers.{}.weight-{number}", number / 4);
            Tensor::new(&name, "BF16", &[32, 64], bfloat16(&tuned(values, number as u64, step)))
        };
        safetensors(&tensors.iter().enumerate().map(tensor).collect::<Vec<_>>())
    };
    write(source.join("model.safetensors"), &file(0.0));
    back_up(&place, &source);
    for number in 1..3 {
        write(source.join("model.safetensors"), &file(1e-3 * number as f32));
        let new = added(&place, "a step", || drop(back_up(&place, &source)));
        let data: u64 =
            new.iter().filter(|(directory, _)| directory == "containers").map(|(_, len)| *len).max().unwrap();
        let beside = sum(&new) - data;
        assert!(beside < BESIDE, "{beside} bytes beside the container of data: {new:?}");
    }
    assert_restores(&place, &source, "two steps");
}

#[test]
fn the_record_of_a_step_copies_that_of_the_step_before_and_outlives_it() {
    let place = Place::with_repository();
    place.run(&["upgrade"]);
    let source = place.path("model");
    let tensors: Vec<Vec<f32>> = (0..10).map(|seed| weights(seed, 40_000)).collect();
    let file = |step: usize| {
        let tensor = |(number, values): (usize, &Vec<f32>)| {
            let mut values = values.clone();
            values.iter_mut().skip(step).step_by(100).for_each(|value| *value += 1e-3 * step as f32);
            Tensor::new(&format!("layers.{number}.weight"), "BF16", &[200, 200], bfloat16(&values))
        };
        safetensors(&tensors.iter().enumerate().map(tensor).collect::<Vec<_>>())
    };
    let metadata = |step: usize| {
        write(source.join("model.safetensors"), &file(step));
        let new = added(&place, "a step", || drop(back_up(&place, &source)));
        new.into_iter().filter(|(directory, _)| directory == "containers").map(|(_, len)| len).min().unwrap()
    };
    let whole = metadata(0);
    let copied = metadata(1).max(metadata(2));
    assert!(copied * 4 < whole * 3, "{copied} bytes of metadata after {whole}");
    place.run(&["forget", "--keep-last", "1", "--prune", "--grace", "0s"]);
    assert_restores(&place, &source, "the last step");
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    // What it copies is still there for the next one.
    let next = metadata(3);
    assert!(next * 4 < whole * 3, "{next} bytes of metadata after {whole}");
}

#[test]
fn segments_are_padded_until_an_upgrade_and_merged_afterwards() {
    let place = Place::new();
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    let source = source(&place);
    back_up(&place, &source);
    let padded = segments(&place);
    assert!(padded.iter().all(|(_, features, _)| *features == 0), "{padded:?}");
    place.run(&["upgrade"]);
    let mut short = 0;
    for seed in 30..36 {
        change(&place, seed);
        back_up(&place, &source);
        let now = segments(&place);
        short += now.iter().filter(|(_, features, _)| *features == 1).count();
        assert!(now.len() < 5, "{now:?}");
    }
    // Merges read both kinds, and write what is small with a short page, unless the records fill their pages.
    let are_short = |segments: &[(u64, u64, u64)]| {
        segments.iter().all(|(records, features, _)| *features == u64::from(records % 102 > 0))
    };
    assert!(short > 0);
    assert!(are_short(&segments(&place)), "{:?}", segments(&place));
    assert_restores(&place, &source, "after merges");
    place.run(&["repair", "index"]);
    assert!(are_short(&segments(&place)), "{:?}", segments(&place));
    place.run(&["prune", "--grace", "0s"]);
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    assert_restores(&place, &source, "after a repair");
}

#[test]
fn repositories_that_hide_lengths_keep_padded_segments() {
    for pads in [false, true] {
        let place = Place::new();
        let run = |words: &[&str]| {
            let mut command = place.command(&place.path("."), words);
            command.env("FHRD_PASSWORD", "correct horse").env("XDG_STATE_HOME", place.path("state"));
            finished(command.output().unwrap(), &words.join(" "))
        };
        run(if pads { &["init", "--encrypt", "--pad-containers"] } else { &["init", "--encrypt"] });
        let source = source(&place);
        let words = ["backup", source.to_str().unwrap()];
        let new = added(&place, if pads { "padded" } else { "encrypted" }, || drop(run(&words)));
        let lens = segment_bytes(&new);
        assert!(lens.len() == 1 && (lens[0] > 4096) == pads, "{lens:?}");
        run(&["check", "--read-data"]);
    }
}
