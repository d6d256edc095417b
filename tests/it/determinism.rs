//! The same input gives the same containers, whatever the number of workers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::{Config, ModelDelta, StrategyKind};
use fhrd::kernel::quantise::BlockType;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::salts::Salts;

use crate::input::{TestRepository, edit, write, write_sparse};
use crate::program::{Place, finished};
use crate::pruned;
use crate::quantised;
use crate::trees::Random;
use crate::weights::{model, tuned, weights, with_header};

/// A few megabytes of every sort; `version` changes some of it.
fn write_input(directory: &Path, version: u64) {
    let mut random = Random(1);
    let mut text = random.text(600_000);
    for copy in 0..4 + version {
        write(directory.join(format!("text/copy-{copy}.txt")), &text);
        text = edit(&mut random, &text, 40);
    }
    let mut floats = random.floats(400_000);
    floats[1000] ^= version as u8;
    write(directory.join("model/weights.f32"), &floats);
    let base = weights(30, 1 << 18);
    write(directory.join("model/base/model.safetensors"), &model(&base, &base[..1 << 17]));
    for tune in 0..2 + version {
        let file = model(&tuned(&base, 31 + tune, 0.0003), &base[..1 << 17]);
        write(directory.join(format!("model/tune-{tune}/model.safetensors")), &file);
    }
    // Plain arrays: one with insertions, and one that is a delta and a base of the next.
    let mut array = Random(40).text(700_000);
    for number in 0..4 {
        let header = format!(r#"{{"t":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, array.len());
        write(directory.join(format!("model/array-{number}/a.safetensors")), &with_header(&header, &array));
        match number {
            1 => array.iter_mut().step_by(30 + version as usize).for_each(|byte| *byte ^= 1),
            _ => array = edit(&mut Random(41 + version), &array, 30),
        }
    }
    // A quantised model, which follows from another one.
    let floats = quantised::values();
    write(directory.join("model/floats/model.gguf"), &quantised::gguf_f16(&floats));
    let block_type = if version == 0 { BlockType::Q4K } else { BlockType::Q8_0 };
    // The same pruned, after it and alone.
    let pruned: Vec<Vec<f32>> = floats.iter().map(|values| pruned::by_magnitude(values, 2)).collect();
    write(directory.join("model/pruned/model.gguf"), &quantised::gguf_f16(&pruned));
    let blocks = quantised::gguf_quantised(block_type, block_type.sources()[0], &floats);
    write(directory.join(format!("model/blocks-{version}/model.gguf")), &blocks);
    // Small integers of no known format, and nearly the same ones.
    let integers: Vec<u8> = weights(50, 1_500_000).iter().map(|value| (value * 800.0) as i8 as u8).collect();
    write(directory.join("integers/a.bin"), &integers);
    let mut near = integers;
    near.iter_mut().step_by(40_000).for_each(|byte| *byte ^= 1 + version as u8);
    write(directory.join("integers/b.bin"), &near);
    write(directory.join(format!("media/noise-{version}.bin")), &Random(3 + version).bytes(3_000_000));
    for number in 0..300 {
        let len = 50 + random.below(5000) as usize;
        write(directory.join(format!("small/{}/{number}.txt", number % 7)), &random.text(len));
    }
    write_sparse(directory.join("media/disk.img"), 6 << 20, &mut Random(10 + version));
}

/// The containers and index segments.
fn stored(repository: &TestRepository) -> BTreeMap<String, Vec<u8>> {
    let names =
        repository.names().into_iter().filter(|name| name.starts_with("containers") || name.starts_with("index"));
    names.map(|name| (name.clone(), repository.read(&name))).collect()
}

/// Backs up with this number of workers. Equal seeds give equal salts.
fn back_up(repository: &TestRepository, source: &Path, workers: usize, seed: u64) -> BackupReport {
    back_up_with(TestRepository::config(), repository, source, workers, seed)
}

fn back_up_with(
    mut config: Config,
    repository: &TestRepository,
    source: &Path,
    workers: usize,
    seed: u64,
) -> BackupReport {
    config.pipeline.workers = workers;
    // Bare, because the directories above the source change meanwhile.
    let paths = vec![source.into()];
    let request =
        BackupRequest::new(TreeSource { bare: true, parents: ParentChoice::Nothing, ..TreeSource::new(paths, "test") });
    let opened = Repository { salts: Salts::fixed(seed), ..repository.open() };
    backup(&opened, &config, &request, &Progress::default(), &Arc::default()).unwrap()
}

#[test]
fn containers_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    let one = TestRepository::new();
    let (many, salted) = (one.copy(), one.copy());
    let mut last = 0;
    for version in 0..2 {
        write_input(source.path(), version);
        for (repository, workers, seed) in [(&one, 1, version), (&many, 8, version), (&salted, 2, version + 100)] {
            let report = back_up(repository, source.path(), workers, seed);
            let hash = report.stages.iter().find(|stage| stage.name == "hash").unwrap();
            assert_eq!(hash.workers, workers);
        }
        let (expected, got) = (stored(&one), stored(&many));
        let names = |stored: &BTreeMap<String, Vec<u8>>| stored.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&expected), names(&got), "version {version}");
        assert!(expected == got, "version {version}: blobs of the same name differ");
        assert!(expected.len() >= last + 3, "version {version}: {} blobs, {last} before", expected.len());
        last = expected.len();
        let other = stored(&salted);
        assert!(expected.keys().all(|name| !other.contains_key(name)), "version {version}: a salt has no effect");
        let lens = |stored: &BTreeMap<String, Vec<u8>>| stored.values().map(Vec::len).sum::<usize>();
        assert_eq!(lens(&expected), lens(&other), "version {version}: salts change more than names");
    }
}

/// Sub-blocks are hashed, looked up and compared by stages of their own, also where floats are no separate class and
/// blocks may become deltas. A second version finds what the first has stored.
#[test]
fn sub_blocks_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    for is_as_in_the_paper in [true, false] {
        let mut config = TestRepository::config();
        config.subdedup.strategy = StrategyKind::Bidirectional;
        config.subdedup.chunk_bytes_min = bytesize::ByteSize::kib(1);
        config.index.similar_lru_entries = 64;
        if is_as_in_the_paper {
            config.identify.separate = true;
            config.model.detect_formats = false;
            config.model.delta = ModelDelta::None;
            config.compress.frame_bytes = bytesize::ByteSize(0);
        }
        let first = TestRepository::new();
        let repositories: Vec<TestRepository> = (0..4).map(|_| first.copy()).collect();
        for version in 0..2 {
            write_input(source.path(), version);
            let mut expected = None;
            for (repository, workers) in repositories.iter().zip([1, 2, 8, 8]) {
                let report = back_up_with(config.clone(), repository, source.path(), workers, version);
                let names: Vec<&str> = report.stages.iter().map(|stage| stage.name).collect();
                assert!(
                    names.windows(4).any(|names| names == ["fine-hash", "fine-dedup", "diff", "subdedup"]),
                    "{names:?}"
                );
                let hits = report.similar_hits;
                assert!(hits.lru > 0 && hits.pages > 0 && hits.misses > 0, "{hits:?}");
                assert!(report.bytes_stored * 10 < report.bytes * 9, "{} of {}", report.bytes_stored, report.bytes);
                let got = stored(repository);
                assert!(expected.get_or_insert_with(|| got.clone()) == &got, "version {version}, {workers} workers");
            }
        }
    }
}

#[test]
fn model_encode_is_left_out_if_no_frame_can_need_it() {
    let source = tempfile::tempdir().unwrap();
    write_input(source.path(), 0);
    let place = Place::new();
    let config = place.path("config.toml");
    write(config.clone(), b"identify.enabled = false\nmodel.detect_formats = false\n");
    place.run(&["init"]);
    let arguments = ["backup", ".", "--config", config.to_str().unwrap()];
    let report = finished(place.command(source.path(), &arguments).output().unwrap(), "backup");
    let names: Vec<&str> =
        report["stages"].as_array().unwrap().iter().filter_map(|stage| stage["name"].as_str()).collect();
    assert_eq!(
        names,
        ["walk", "read", "chunk", "hash", "dedup", "identify", "choose", "match", "subdedup", "compress", "save",]
    );
    place.run(&["check", "--read-data"]);
}

/// Twenty versions of a file in one backup: chains of copies longer than the bound, and bases that the smallest base
/// cache has lost and reads again from the session's own frames.
#[test]
fn long_chains_of_copies_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let mut text = random.text(2_500_000);
    for version in 0..20 {
        write(source.path().join(format!("{version:02}.txt")), &text);
        text = edit(&mut random, &text, 200);
    }
    let one = TestRepository::new();
    let mut config = TestRepository::config();
    config.subdedup.base_cache_bytes = bytesize::ByteSize::mib(4);
    let mut expected = None;
    for workers in [1, 2, 8, 64, 64] {
        let repository = one.copy();
        let report = back_up_with(config.clone(), &repository, source.path(), workers, 1);
        assert!(report.bytes_stored < 5_000_000, "{}", report.bytes_stored);
        let got = stored(&repository);
        assert!(expected.get_or_insert_with(|| got.clone()) == &got, "{workers} workers");
    }
}
