//! Models: what is stored as a delta comes back, whatever the file says of itself, and costs what it should.

use std::fs;
use std::path::Path;

use fhrd::config::Config;
use fhrd::kernel::elements::fp16;
use fhrd::repo::container::Operation;
use fhrd::repo::index::{ContainerListing, read_container_index};

use crate::input::{TestRepository, files, write};
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::*;

/// Backs up `source`, restores the snapshot, compares, checks all data. The report of the backup.
fn round_trip(place: &Place, source: &Path, what: &str) -> serde_json::Value {
    let report = place.run(&["backup", source.to_str().unwrap()]);
    assert_restores(place, source, what);
    let check = place.run(&["check", "--read-data"]);
    assert_eq!(number(&check, "defect_count"), 0, "{what}: {check}");
    report
}

fn assert_restores(place: &Place, source: &Path, what: &str) {
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), what);
}

/// A base and two fine-tunes, in directories of these names.
fn write_family(directory: &Path, names: [&str; 3]) {
    let (embedding, layer) = (weights(1, 1 << 20), weights(2, 1 << 18));
    write(directory.join(names[0]).join("model.safetensors"), &model(&embedding, &layer));
    for (seed, name) in [(3, names[1]), (4, names[2])] {
        // The embedding is frozen.
        let file = model(&embedding, &tuned(&layer, seed, 0.0004));
        write(directory.join(name).join("model.safetensors"), &file);
        write(directory.join(name).join("README.md"), format!("---\nbase_model: {}\n---\n", names[0]).as_bytes());
    }
}

#[test]
fn fine_tunes_are_stored_as_deltas_whatever_comes_first() {
    let mut sizes = Vec::new();
    for names in [["base", "tune-1", "tune-2"], ["z-base", "a-tune", "b-tune"]] {
        let place = Place::with_repository();
        let source = place.path("models");
        write_family(&source, names);
        let report = round_trip(&place, &source, names[0]);
        let size = number(&report, "bytes_stored");
        // 2.5 MB of weights at 10.6 bits of 16, and for each tune what 512 KiB of a trained layer need.
        assert!(size < 2_100_000 && size > 1_000_000, "{names:?}: {size}");
        sizes.push(size);
    }
    let (less, more) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(more * 100 <= less * 101, "{sizes:?}");
}

#[test]
fn a_later_backup_finds_the_base_of_an_earlier_one_and_needs_no_catalogue() {
    for lost in [false, true] {
        let place = Place::with_repository();
        let (source, later) = (place.path("base"), place.path("tune"));
        let (embedding, layer) = (weights(1, 1 << 18), weights(2, 1 << 18));
        write(source.join("model.safetensors"), &model(&embedding, &layer));
        round_trip(&place, &source, "base");
        if lost {
            // The directory stays: one that is away is unreadable, not empty.
            for entry in fs::read_dir(place.repository().join("models")).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
        let tune = model(&tuned(&embedding, 5, 0.0002), &tuned(&layer, 6, 0.0002));
        write(later.join("model.safetensors"), &tune);
        let report = round_trip(&place, &later, "tune");
        let part = number(&report, "bytes_stored") as f64 / tune.len() as f64;
        // Without a catalogue, the blocks find each other by their content.
        assert!(part < 0.45, "lost {lost}: {part}");
    }
}

#[test]
fn a_base_is_found_behind_any_number_of_models_of_its_shape() {
    let place = Place::with_repository();
    let of = |seed: u64| (weights(100 + seed, 1 << 16), weights(200 + seed, 1 << 16));
    for seed in 0..30 {
        let (embedding, layer) = of(seed);
        let source = place.path(&format!("m{seed:02}"));
        write(source.join("model.safetensors"), &model(&embedding, &layer));
        round_trip(&place, &source, "crowd");
    }
    let (embedding, layer) = of(0);
    let tune = model(&tuned(&embedding, 5, 0.0002), &tuned(&layer, 6, 0.0002));
    write(place.path("tune").join("model.safetensors"), &tune);
    let report = round_trip(&place, &place.path("tune"), "tune");
    let part = number(&report, "bytes_stored") as f64 / tune.len() as f64;
    assert!(part < 0.5, "{part}");
}

#[test]
fn a_crowd_of_another_type_hides_no_original_from_its_cast() {
    let place = Place::with_repository();
    let source = place.path("models");
    let values = weights(7, 1 << 17);
    let file = |dtype, bytes| safetensors(&[Tensor::new("w", dtype, &[256, 512], bytes)]);
    write(source.join("original/model.safetensors"), &file("F32", float32(&values)));
    for seed in 0..15 {
        let tune = tuned(&values, 50 + seed, 0.0004);
        write(source.join(format!("tune-{seed}/model.safetensors")), &file("BF16", bfloat16(&tune)));
    }
    round_trip(&place, &source, "crowd");
    let half: Vec<u8> = values.iter().flat_map(|value| fp16(value.to_bits()).to_le_bytes()).collect();
    write(place.path("half").join("model.safetensors"), &file("F16", half.clone()));
    let report = round_trip(&place, &place.path("half"), "half");
    assert!(number(&report, "bytes_stored") < half.len() as u64 / 10, "{report}");
}

#[test]
fn casts_cost_next_to_nothing_whatever_the_directories_are_called() {
    let values: Vec<f32> = weights(7, 1 << 19).into_iter().chain([f32::NAN, -0.0, f32::INFINITY, 1e-42]).collect();
    let single = |bytes: Vec<u8>, dtype| {
        let len = values.len() as u64;
        safetensors(&[Tensor::new("w", dtype, &[len], bytes)])
    };
    let alone = Place::with_repository();
    write(alone.path("models/only/model.safetensors"), &single(float32(&values), "F32"));
    let alone = number(&round_trip(&alone, &alone.path("models"), "alone"), "bytes_stored");
    for names in [["wide", "narrow"], ["b", "a"]] {
        let place = Place::with_repository();
        let source = place.path("models");
        write(source.join(names[0]).join("model.safetensors"), &single(float32(&values), "F32"));
        write(source.join(names[1]).join("model.safetensors"), &single(bfloat16(&values), "BF16"));
        let both = number(&round_trip(&place, &source, names[1]), "bytes_stored");
        assert!(both * 100 <= alone * 103, "{names:?}: {both} against {alone}");
    }
}

#[test]
fn steps_that_begin_at_a_cast_stay_deltas() {
    let mut weights = weights(7, 1 << 19);
    let (place, alone) = (Place::with_repository(), Place::with_repository());
    let source = place.path("models");
    let write_step = |name: &str, dtype, bytes| {
        write(source.join(name).join("model.safetensors"), &safetensors(&[Tensor::new("w", dtype, &[1 << 19], bytes)]));
    };
    write_step("base", "F32", float32(&weights));
    let base = number(&alone.run(&["backup", source.to_str().unwrap()]), "bytes_stored");
    write_step("step-0", "BF16", bfloat16(&weights));
    for (step, change) in [(1, 0.002), (2, 0.001), (3, 0.0005), (4, 0.0002)] {
        weights = tuned(&weights, step, change);
        write_step(&format!("step-{step}"), "BF16", bfloat16(&weights));
    }
    let all = number(&round_trip(&place, &source, "steps"), "bytes_stored");
    // The last step alone takes 0.69 MB, after the one before 0.16.
    assert!(all < base + 1_250_000, "{all}, {base} of them for the base");
}

#[test]
fn a_tensor_is_stored_once_whatever_it_is_in() {
    let values = float32(&weights(8, 1 << 18));
    let place = Place::with_repository();
    let source = place.path("models");
    let only = safetensors(&[Tensor::new("w", "F32", &[512, 512], values.clone())]);
    write(source.join("a.safetensors"), &only);
    let first = number(&round_trip(&place, &source, "one"), "bytes_stored");
    let behind = [Tensor::new("odd", "U8", &[3], vec![1, 2, 3]), Tensor::new("w2", "F32", &[512, 512], values.clone())];
    write(source.join("b.safetensors"), &safetensors(&behind));
    let array = npy("<f4", "512, 512", &values);
    write(source.join("c.npy"), &array);
    write(source.join("d.npz"), &zip(&[("w.npy", &array), ("x.npy", &npy("<f4", "3,", &[0; 12]))]));
    write(source.join("e.bin"), &zip(&[("archive/data.pkl", b"\x80\x02}."), ("archive/data/0", &values)]));
    write(source.join("f.gguf"), &gguf(&[("blk.0.w", 0, &[512, 512], &values)]));
    let more = number(&round_trip(&place, &source, "all"), "bytes_stored");
    assert!(more < first / 10, "{more} after {first}");
}

#[test]
fn shards_of_other_numbers_of_ranks_are_stored_once() {
    // The shards of 2 and 3 ranks begin at blocks of the whole tensor. Those of 4 do not: copies are found in them.
    let values = float32(&weights(12, 3 << 18));
    let place = Place::with_repository();
    let archive = |bytes: &[u8]| zip(&[("archive/data.pkl", b"\x80\x02}."), ("archive/data/0", bytes)]);
    let mut first = 0;
    for ranks in 1..=4usize {
        let source = place.path(&format!("ranks-{ranks}"));
        for (rank, shard) in values.chunks(values.len() / ranks).enumerate() {
            let step = archive(&[rank as u8; 8]);
            write(source.join(format!("__{rank}_0.distcp")), &[step, archive(shard)].concat());
        }
        let stored = number(&round_trip(&place, &source, &format!("{ranks} ranks")), "bytes_stored");
        match ranks {
            1 => first = stored,
            4 => assert!(stored < first / 4, "{ranks} ranks: {stored} after {first}"),
            _ => assert!(stored < first / 100, "{ranks} ranks: {stored} after {first}"),
        }
    }
}

/// Files that are strange or lie, by name, in two versions.
fn strange(version: u64) -> Vec<(&'static str, Vec<u8>)> {
    let base = weights(20, 1 << 16);
    let now = if version == 0 { base.clone() } else { tuned(&base, 21, 0.0003) };
    let (words, single) = (bfloat16(&now), float32(&now));
    let mut payloads: Vec<u32> = now.iter().map(|value| value.to_bits()).collect();
    for (at, word) in payloads.iter_mut().enumerate() {
        *word = match at % 7 {
            0 => 0x7fc0_0000 | at as u32 & 0x3f_ffff,
            1 => 0xff80_0001 + (at as u32 & 0xff) + version as u32,
            2 => 0x8000_0000,
            3 => 0x7f80_0000,
            _ => *word,
        };
    }
    let payloads: Vec<u8> = payloads.into_iter().flat_map(u32::to_le_bytes).collect();
    let of = |dtype, bytes: &[u8]| {
        let width = if dtype == "F32" { 4 } else { 2 };
        vec![Tensor::new("w", dtype, &[(bytes.len() / width) as u64], bytes.to_vec())]
    };
    let odd = Random(30 + version).bytes(100_001);
    let header = |text: &str| with_header(text, &words);
    let whole = safetensors(&of("BF16", &words));
    let nested = zip(&[
        ("archive/data.pkl", b"\x80\x02}."),
        ("archive/data/0", &single),
        ("archive/inner.zip", &zip(&[("archive/data/0", &words)])),
    ]);
    let len = words.len();
    vec![
        ("odd-length", safetensors(&[Tensor::new("o", "U8", &[100_001], odd), of("F32", &single).remove(0)])),
        ("zero-size", safetensors(&[Tensor::new("z", "F32", &[0], vec![]), of("F32", &single).remove(0)])),
        ("shard-1", whole.clone()),
        ("shard-2", safetensors(&of("F32", &single))),
        (
            "overlapping",
            header(&format!(
                "{{\"a\":{{\"dtype\":\"BF16\",\"shape\":[{0}],\"data_offsets\":[0,{1}]}},\
                 \"b\":{{\"dtype\":\"BF16\",\"shape\":[{0}],\"data_offsets\":[0,{1}]}}}}",
                len / 2,
                len
            )),
        ),
        ("header-beyond", [&(1u64 << 40).to_le_bytes(), words.as_slice()].concat()),
        ("header-huge", [&100_000_000u64.to_le_bytes(), &b"{".repeat(200_000)[..], &words].concat()),
        ("truncated", whole[..whole.len() - 70_001].to_vec()),
        ("trailing", [&whole, &b"and more"[..]].concat()),
        ("nan", safetensors(&of("F32", &payloads))),
        ("nan-half", safetensors(&of("F16", &payloads))),
        (
            "unaligned",
            with_header(
                &format!(
                    "{{\"u\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}},\
             \"w\":{{\"dtype\":\"BF16\",\"shape\":[{}],\"data_offsets\":[1,{}]}}}}",
                    len / 2,
                    len + 1
                ),
                &[&[9], words.as_slice()].concat(),
            ),
        ),
        ("nested.bin", nested),
        ("unknown.gguf", gguf(&[("a", 0, &[1 << 16], &single), ("b", 999, &[1 << 16], &words)])),
        ("quantised.gguf", gguf(&[("q", 8, &[32, 4096], &Random(40).bytes(34 * 4096))])),
        ("no-tensors", with_header("{}", &[])),
        ("equal", safetensors(&of("BF16", &bfloat16(&base)))),
    ]
}

#[test]
fn strange_and_lying_files_come_back() {
    let place = Place::with_repository();
    let source = place.path("models");
    for version in 0..2 {
        for (name, bytes) in strange(version) {
            write(source.join(format!("version-{version}")).join(name), &bytes);
        }
        round_trip(&place, &source, &format!("version {version}"));
    }
    let again = tempfile::tempdir().unwrap();
    let all = Place::with_repository();
    for version in [1, 0] {
        for (name, bytes) in strange(version) {
            write(again.path().join(format!("{version}/{name}")), &bytes);
        }
    }
    round_trip(&all, again.path(), "at once");
}

#[test]
fn deltas_are_bounded_and_point_at_what_is_there() {
    let repository = TestRepository::new();
    let directory = tempfile::tempdir().unwrap();
    let (mut embedding, layer) = (weights(1, 1 << 18), weights(2, 1 << 17));
    let mut config = Config::default();
    config.model.delta_depth_max = 2;
    for step in 0..6 {
        write(directory.path().join(format!("step-{step}/model.safetensors")), &model(&embedding, &layer));
        repository.backup(directory.path(), &config);
        embedding = tuned(&embedding, 50 + step, 0.0002);
    }
    let opened = repository.open();
    let listing = ContainerListing::take(&opened.store).unwrap();
    let mut deltas = 0;
    for id in &listing.containers {
        let directory = read_container_index(opened.store.as_ref(), id).unwrap();
        for entry in &directory.entries {
            let is_delta = matches!(directory.operations(entry).first(), Some(Operation::Delta { .. }));
            deltas += u64::from(is_delta);
            assert!(!is_delta || (2..=3).contains(&entry.depth), "depth {}", entry.depth);
        }
    }
    assert!(deltas >= 5, "{deltas} deltas");
}

#[test]
fn a_damaged_base_costs_ratio_and_loses_nothing_more() {
    let place = Place::with_repository();
    let (source, later) = (place.path("base"), place.path("tune"));
    let (embedding, layer) = (weights(1, 1 << 18), weights(2, 1 << 18));
    write(source.join("model.safetensors"), &model(&embedding, &layer));
    place.run(&["backup", source.to_str().unwrap()]);
    // Of the container with the blocks every frame is damaged; its directory is not.
    let directory = place.repository().join("containers");
    let largest =
        files(&directory).into_iter().max_by_key(|name| fs::metadata(directory.join(name)).unwrap().len()).unwrap();
    let mut bytes = fs::read(directory.join(&largest)).unwrap();
    (100..bytes.len() - 20_000).step_by(20_000).for_each(|at| bytes[at] ^= 1);
    fs::write(directory.join(&largest), &bytes).unwrap();
    let tune = model(&tuned(&embedding, 5, 0.0002), &tuned(&layer, 6, 0.0002));
    write(later.join("model.safetensors"), &tune);
    place.run(&["backup", later.to_str().unwrap()]);
    assert_restores(&place, &later, "stored beside a damaged base");
}

#[test]
fn floats_of_an_unknown_format_are_deltas_to_the_last_version_of_their_file() {
    let place = Place::with_repository();
    let source = place.path("state");
    let before = weights(60, 1 << 19);
    write(source.join("weights.f32"), &[b"of no format".as_slice(), &float32(&before)].concat());
    write(source.join("other"), b"unchanged");
    round_trip(&place, &source, "first");
    let mut parts = Vec::new();
    for (seed, step) in [(61, 0.00002), (62, 0.00002), (63, 0.00002)] {
        let after = [b"of no format".as_slice(), &float32(&tuned(&before, seed, step))].concat();
        write(source.join("weights.f32"), &after);
        let report = round_trip(&place, &source, "changed");
        parts.push(number(&report, "bytes_stored") as f64 / after.len() as f64);
    }
    assert!(parts.iter().all(|part| *part < 0.6), "{parts:?}");
    // Another content altogether, and a shorter one.
    write(source.join("weights.f32"), &float32(&weights(64, 1 << 18)));
    round_trip(&place, &source, "replaced");
}

#[test]
fn a_damaged_catalogue_is_a_defect_and_no_more() {
    let place = Place::with_repository();
    let source = place.path("models");
    write_family(&source, ["base", "tune-1", "tune-2"]);
    round_trip(&place, &source, "whole");
    let directory = place.repository().join("models");
    let name = files(&directory).remove(0);
    let mut bytes = fs::read(directory.join(&name)).unwrap();
    bytes[60] ^= 1;
    fs::write(directory.join(&name), bytes).unwrap();
    let words = ["check"];
    let output = place.command(&source, &words).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), number(&report, "defect_count")), (Some(20), 1), "{report}");
    assert!(report["defects"][0].as_str().unwrap().contains(&name), "{report}");
    place.run(&["backup", source.to_str().unwrap(), "--force"]);
    assert_restores(&place, &source, "beside a damaged catalogue");
}

#[test]
fn a_grown_vocabulary_is_a_delta_as_far_as_its_rows_go() {
    let place = Place::with_repository();
    let (source, later) = (place.path("base"), place.path("grown"));
    let (embedding, layer) = (weights(1, 1100 * 512), weights(2, 1 << 17));
    write(source.join("model.safetensors"), &model(&embedding, &layer));
    round_trip(&place, &source, "base");
    // Rows at the end, and all rows trained on.
    let mut grown = tuned(&embedding, 5, 0.0002);
    grown.extend(weights(6, 30 * 512));
    let file = model(&grown, &layer);
    write(later.join("model.safetensors"), &file);
    let report = round_trip(&place, &later, "grown");
    let part = number(&report, "bytes_stored") as f64 / grown.len() as f64 / 2.0;
    assert!(part < 0.42, "{part}");
}
