//! Slices of stored tensors cost next to nothing, whatever file, name, shape and order they come back in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::{HEADER_BYTES, Operation};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::salts::Salts;
use proptest::prelude::*;

use crate::input::{TestRepository, files, write};
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::*;

/// Values of a row.
const ROW: usize = 512;

/// A tensor: its name and its values, rows one after another.
type Rows = (String, Vec<f32>);

/// Backs up `source`, restores and checks it. Bytes that the containers have grown by.
pub fn stored(place: &Place, source: &Path) -> u64 {
    let containers = place.repository().join("containers");
    let bytes = || -> u64 {
        let names = if containers.exists() { files(&containers) } else { Vec::new() };
        names.iter().map(|name| fs::metadata(containers.join(name)).unwrap().len()).sum()
    };
    let before = bytes();
    place.run(&["backup", source.to_str().unwrap()]);
    assert_restores(place, source);
    let check = place.run(&["check", "--read-data"]);
    assert_eq!(number(&check, "defect_count"), 0, "{check}");
    bytes() - before
}

fn assert_restores(place: &Place, source: &Path) {
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), "restored");
}

fn file(tensors: &[Rows]) -> Vec<u8> {
    let of =
        |(name, values): &Rows| Tensor::new(name, "BF16", &[(values.len() / ROW) as u64, ROW as u64], bfloat16(values));
    safetensors(&tensors.iter().map(of).collect::<Vec<_>>())
}

/// An embedding of more than two blocks and the matrices of two layers.
fn base() -> Vec<Rows> {
    let mut tensors = vec![("embed".to_owned(), weights(1, 1100 * ROW))];
    for layer in 0..2 {
        for (number, (name, rows)) in [("q", 160), ("k", 160), ("v", 160), ("up", 640)].into_iter().enumerate() {
            tensors.push((format!("{layer}.{name}"), weights(10 * layer + 2 + number as u64, rows * ROW)));
        }
    }
    tensors
}

fn tuned_model(seed: u64) -> Vec<Rows> {
    base().into_iter().zip(seed..).map(|((name, values), seed)| (name, tuned(&values, seed, 0.0004))).collect()
}

fn values<'a>(model: &'a [Rows], name: &str) -> &'a [f32] {
    &model.iter().find(|tensor| tensor.0 == name).unwrap().1
}

fn rows(values: &[f32], range: std::ops::Range<usize>) -> Vec<f32> {
    values[range.start * ROW..range.end * ROW].to_vec()
}

/// The files that training and serving make of a model.
fn slices(model: &[Rows]) -> Vec<(&'static str, Vec<u8>)> {
    let flat: Vec<f32> = model.iter().flat_map(|tensor| tensor.1.iter().copied()).collect();
    let half = |tensor: &Rows, number: usize| {
        let count = tensor.1.len() / ROW / 2;
        (tensor.0.clone(), rows(&tensor.1, number * count..(number + 1) * count))
    };
    let shard = |number| file(&model.iter().map(|tensor| half(tensor, number)).collect::<Vec<_>>());
    let joined = |names: &[&str]| names.iter().flat_map(|name| values(model, name).to_vec()).collect::<Vec<f32>>();
    let embed = values(model, "embed");
    let kept: Vec<f32> =
        embed.chunks(ROW).enumerate().filter(|(at, _)| at % 11 != 5).flat_map(|row| row.1.to_vec()).collect();
    vec![
        ("flat buffer", file(&[("flat_param".into(), flat)])),
        ("row shard 0", shard(0)),
        ("row shard 1", shard(1)),
        ("stacked experts", file(&[("experts.up".into(), joined(&["0.up", "1.up"]))])),
        ("fused QKV", file(&[("qkv".into(), joined(&["0.q", "0.k", "0.v"]))])),
        ("rows removed", file(&[("embed".into(), kept)])),
        ("rows in front", file(&[("embed".into(), [weights(90, 4 * ROW), embed.to_vec()].concat())])),
        ("rows in the middle", rows_inserted(embed, 550)),
        ("rows near the end", rows_inserted(embed, 1040)),
        (
            "a row moved",
            file(&[("embed".into(), [rows(embed, 0..200), rows(embed, 201..1100), rows(embed, 200..201)].concat())]),
        ),
    ]
}

/// An embedding with 4 new rows before row `at`.
fn rows_inserted(embed: &[f32], at: usize) -> Vec<u8> {
    file(&[("embed".into(), [rows(embed, 0..at), weights(91, 4 * ROW), rows(embed, at..1100)].concat())])
}

/// The kinds of operations of all entries: copies, and deltas.
fn operations(place: &Place) -> [usize; 2] {
    let repository = Repository::open_at(place.repository()).unwrap();
    let mut counts = [0; 2];
    let listing = ContainerListing::take(&repository.store).unwrap();
    for id in &listing.containers {
        let container_index = read_container_index(repository.store.as_ref(), id).unwrap();
        for operation in container_index.entries.iter().flat_map(|entry| container_index.operations(entry)) {
            counts[0] += usize::from(matches!(operation, Operation::Copy { .. }));
            counts[1] += usize::from(matches!(operation, Operation::Delta { .. }));
        }
    }
    counts
}

#[test]
fn slices_of_stored_tensors_cost_next_to_nothing() {
    let place = Place::with_repository();
    write(place.path("base/model.safetensors"), &file(&base()));
    stored(&place, &place.path("base"));
    for (name, bytes) in slices(&base()) {
        let source = place.path("slices").join(name.replace(' ', "-"));
        write(source.join("model.safetensors"), &bytes);
        let taken = stored(&place, &source);
        assert!(taken * 50 <= bytes.len() as u64, "{name}: {taken} of {}", bytes.len());
    }
    assert!(operations(&place)[0] > 20);
}

#[test]
fn slices_of_a_fine_tune_cost_what_nested_reading_costs() {
    let place = Place::with_repository();
    write(place.path("base/model.safetensors"), &file(&base()));
    stored(&place, &place.path("base"));
    let tune = tuned_model(50);
    // Before the fine-tune itself: a flat buffer of it is a delta to ranges of the base.
    let alone = Place::with_repository();
    let first = |place: &Place| {
        write(place.path("flat/model.safetensors"), &slices(&tune)[0].1);
        stored(place, &place.path("flat"))
    };
    let (delta, whole) = (first(&place), first(&alone));
    assert!(delta * 100 < whole * 60, "{delta} of {whole}");
    let place = Place::with_repository();
    for (name, model) in [("base", base()), ("tune", tune.clone())] {
        write(place.path(name).join("model.safetensors"), &file(&model));
        stored(&place, &place.path(name));
    }
    for (name, bytes) in slices(&tune) {
        let source = place.path("slices").join(name.replace(' ', "-"));
        write(source.join("model.safetensors"), &bytes);
        let taken = stored(&place, &source);
        assert!(taken * 50 <= bytes.len() as u64, "{name}: {taken} of {}", bytes.len());
    }
}

/// Heads of a projection, each of `rows` rows, `times` times one after another, as for each query head of a group.
fn repeated_heads(heads: usize, times: usize, rows: usize) -> Vec<f32> {
    let head = |head| weights(70 + head as u64, rows * ROW).repeat(times);
    (0..heads).flat_map(head).collect()
}

#[test]
fn rows_that_repeat_in_a_tensor_are_stored_once() {
    for (heads, rows, times) in [(2, 128, 7), (3, 66, 4), (3, 66, 4), (5, 50, 6)] {
        let taken = [1, times].map(|times| {
            let place = Place::with_repository();
            let tensor = ("kv".to_owned(), repeated_heads(heads, times, rows));
            write(place.path("model/model.safetensors"), &file(&[tensor]));
            stored(&place, &place.path("model"))
        });
        // zstd, which finds the repeats, takes about 1.17 of what the codec of floats does.
        assert!(taken[1] * 100 < taken[0] * 124, "{heads} heads of {rows} rows, {times} times: {taken:?}");
    }
}

#[test]
fn weights_in_an_opaque_file_and_in_a_tensor_file_are_stored_once() {
    let base = base();
    let opaque: Vec<u8> = base.iter().flat_map(|tensor| bfloat16(&tensor.1)).collect();
    for is_opaque_first in [false, true] {
        let place = Place::with_repository();
        let mut sources = [("model", file(&base)), ("opaque", [b"an opaque header".to_vec(), opaque.clone()].concat())];
        if is_opaque_first {
            sources.reverse();
        }
        let mut taken = Vec::new();
        for (name, bytes) in &sources {
            let file = if *name == "model" { "model.safetensors" } else { "weights.bin" };
            write(place.path(name).join(file), bytes);
            taken.push(stored(&place, &place.path(name)));
        }
        assert!(taken[1] * 20 <= taken[0], "{taken:?}, opaque first: {is_opaque_first}");
    }
}

/// The containers and index segments.
fn blobs(repository: &TestRepository) -> BTreeMap<String, Vec<u8>> {
    let names =
        repository.names().into_iter().filter(|name| name.starts_with("containers") || name.starts_with("index"));
    names.map(|name| (name.clone(), repository.read(&name))).collect()
}

#[test]
fn slices_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    let (base, tune) = (base(), tuned_model(50));
    write(source.path().join("base/model.safetensors"), &file(&base));
    write(source.path().join("tune/model.safetensors"), &file(&tune));
    for (number, model) in [&base, &tune].into_iter().enumerate() {
        for (name, bytes) in slices(model) {
            write(source.path().join(format!("{name} {number}/model.safetensors")), &bytes);
        }
        let opaque: Vec<u8> = model.iter().flat_map(|tensor| bfloat16(&tensor.1)).collect();
        write(source.path().join(format!("opaque-{number}.bin")), &opaque);
        let codes: Vec<u8> = values(model, "embed").iter().map(|value| (value * 1500.0).round() as i8 as u8).collect();
        write(source.path().join(format!("codes-{number}.bin")), &codes);
        let columns = values(model, "embed").chunks(ROW).flat_map(|row| row[100..228].to_vec());
        let columns = bfloat16(&columns.collect::<Vec<f32>>());
        let shard = safetensors(&[Tensor::new("embed", "BF16", &[1100, 128], columns)]);
        write(source.path().join(format!("columns {number}/model.safetensors")), &shard);
    }
    let one = TestRepository::new();
    let (two, eight) = (one.copy(), one.copy());
    for (repository, workers) in [(&one, 1), (&two, 2), (&eight, 8)] {
        let mut config = TestRepository::config();
        config.pipeline.workers = workers;
        let tree = TreeSource { bare: true, ..TreeSource::new(vec![source.path().into()], "test") };
        let request = BackupRequest::new(tree);
        let opened = Repository { salts: Salts::fixed(5), ..repository.open() };
        backup(&opened, &config, &request, &Progress::default(), &Arc::default()).unwrap();
    }
    for (many, workers) in [(&two, 2), (&eight, 8)] {
        assert!(blobs(&one) == blobs(many), "the containers of 1 and {workers} workers differ");
    }
    let bytes: usize = blobs(&one).values().map(Vec::len).sum();
    assert!(bytes < 2 * file(&base).len(), "{bytes}");
}

#[test]
fn a_damaged_base_heals_and_a_prune_keeps_bases() {
    let place = Place::with_repository();
    let base = base();
    write(place.path("base/model.safetensors"), &file(&base));
    let source = place.path("flat");
    write(source.join("model.safetensors"), &slices(&base)[0].1);
    let back_up = |source: &Path| {
        let report = place.run(&["backup", "--force", source.to_str().unwrap()]);
        report["snapshot"].as_str().unwrap().to_owned()
    };
    let restores = |snapshot: &str| {
        let target = tempfile::tempdir().unwrap();
        let target = target.path().join("restored");
        place.run(&["restore", snapshot, "--target", target.to_str().unwrap()]);
        assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), "restored");
    };
    let first = back_up(&place.path("base"));
    let flat = back_up(&source);
    // The snapshot of the base goes, its blocks stay.
    place.run(&["forget", &first]);
    place.run(&["prune", "--grace", "0s"]);
    restores(&flat);
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    // The first frame of the containers with weights, which is a block of the base.
    let containers = place.repository().join("containers");
    let len = |name: &String| fs::metadata(containers.join(name)).unwrap().len();
    for name in files(&containers).into_iter().filter(|name| len(name) > 1 << 20) {
        let mut bytes = fs::read(containers.join(&name)).unwrap();
        bytes[HEADER_BYTES + 40] ^= 1;
        fs::remove_file(containers.join(&name)).unwrap();
        fs::write(containers.join(&name), bytes).unwrap();
    }
    let output = place.command(Path::new("/"), &["check", "--read-data"]).output().unwrap();
    assert!(!output.status.success());
    // The base again: what was damaged is stored again, and serves all snapshots.
    back_up(&place.path("base"));
    restores(&flat);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Cuts of two models, one of them a fine-tune, and new weights in any order.
    #[test]
    fn random_cuts_come_back(
        cuts in prop::collection::vec((0usize..3, 0usize..200_000, 1usize..150_000), 1..7),
        skipped in 0usize..3,
    ) {
        let place = Place::with_repository();
        let parts = [weights(1, 1 << 18), tuned(&weights(1, 1 << 18), 5, 0.0004), weights(2, 1 << 18)];
        for (name, part) in ["base", "tune"].into_iter().zip(&parts) {
            write(place.path(name).join("model.safetensors"), &file(&[("w".into(), part.clone())]));
            stored(&place, &place.path(name));
        }
        let mut cut: Vec<f32> = Vec::new();
        for (part, from, len) in cuts {
            cut.extend_from_slice(&parts[part][from..(from + len).min(1 << 18)]);
        }
        let mut bytes = bfloat16(&cut);
        bytes.drain(..skipped.min(bytes.len()));
        let mut random = Random(3);
        let name = if skipped == 0 { "cut.safetensors" } else { "cut.bin" };
        let bytes = match skipped {
            0 => safetensors(&[Tensor::new("cut", "BF16", &[cut.len() as u64], bytes)]),
            _ => [random.text(100), bytes].concat(),
        };
        write(place.path("cut").join(name), &bytes);
        // Whether a short cut is found is a matter of chance: it may have no feature that its base has.
        let taken = stored(&place, &place.path("cut"));
        prop_assert!(taken <= bytes.len() as u64 + 16_384, "{} of {}", taken, bytes.len());
    }
}
