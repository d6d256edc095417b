//! The same input gives the same containers, whatever the number of workers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::input::{copy_directory, edit, files, write, write_sparse};
use crate::program::{Place, finished};
use crate::trees::Random;
use crate::weights::{model, tuned, weights};

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
    write(directory.join(format!("media/noise-{version}.bin")), &Random(3 + version).bytes(3_000_000));
    for number in 0..300 {
        let len = 50 + random.below(5000) as usize;
        write(directory.join(format!("small/{}/{number}.txt", number % 7)), &random.text(len));
    }
    write_sparse(directory.join("media/disk.img"), 6 << 20, &mut Random(10 + version));
}

fn containers(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let directory = place.repository().join("containers");
    files(&directory).into_iter().map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect()
}

#[test]
fn containers_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    let (one, many) = (Place::new(), Place::new());
    one.run(&["init"]);
    copy_directory(&one.repository(), &many.repository());
    let mut last = 0;
    for version in 0..2 {
        write_input(source.path(), version);
        for (place, workers) in [(&one, 1), (&many, 8)] {
            let config = place.path("config.toml");
            write(
                config.clone(),
                format!("pipeline.workers = {workers}\ncontainer.bytes_target = 1048576\n").as_bytes(),
            );
            // In the source itself, because the directories above it change meanwhile.
            let words = ["backup", ".", "--force", "--config", config.to_str().unwrap()];
            let report = finished(place.command(source.path(), &words).output().unwrap(), "backup");
            let hash = report["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == "hash").unwrap();
            assert_eq!(hash["workers"], workers);
        }
        let (expected, got) = (containers(&one), containers(&many));
        let names = |containers: &BTreeMap<String, Vec<u8>>| containers.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&expected), names(&got), "version {version}");
        assert!(expected == got, "version {version}: containers of the same name differ");
        assert!(expected.len() >= last + 3, "version {version}: {} containers, {last} before", expected.len());
        last = expected.len();
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
    assert_eq!(names, ["read", "chunk", "hash", "dedup", "identify", "subdedup", "compress", "save"]);
    place.run(&["check", "--read-data"]);
}
