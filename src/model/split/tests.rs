//! Splits of made listings.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

pub(super) const MODEL: u64 = 1 << 20;

/// A split of models of this length: a directory, the base that its card names, and the names of its files.
pub(super) fn split(models: &[(&str, &str, &[&str])], count: u32) -> WorkSplit {
    let (mut builder, mut cards) = (SplitBuilder::new(vec!["/m".into()]), BTreeMap::new());
    for (directory, bases, files) in models {
        let directory = Path::new("/m").join(directory);
        files.iter().for_each(|file| builder.add(&directory.join(file), MODEL, b""));
        if !bases.is_empty() {
            let card = directory.join("README.md");
            builder.add(&card, 50, b"");
            cards.insert(card, format!("---\nbase_model: {bases}\n---\n").into_bytes());
        }
    }
    builder.finish(count, &|path| cards.get(path).cloned())
}

pub(super) fn family(split: &WorkSplit, directory: &str) -> String {
    split.family_of(&Path::new("/m").join(directory))
}

pub(super) const ONE: &[&str] = &["model.safetensors"];

#[test]
fn a_chain_of_bases_is_one_family_by_names_in_the_listing() {
    let models = [("a/stem", "", ONE), ("b/tune", "a/stem", ONE), ("c/tuned", "tune", ONE), ("d/other", "", ONE)];
    let split = split(&models, 8);
    let root = family(&split, "a/stem");
    assert_eq!(root, "directory /m/a/stem");
    assert_eq!([family(&split, "b/tune"), family(&split, "c/tuned")], [root.clone(), root.clone()]);
    assert_ne!(family(&split, "d/other"), root);
    assert_eq!(
        split.share_of(Path::new("/m/c/tuned/x.json")),
        split.share_of(Path::new("/m/a/stem/model.safetensors"))
    );
}

#[test]
fn a_list_of_bases_a_missing_one_a_circle_and_a_local_path_are_defined() {
    let models = [
        ("x/merge", "[far/away, x/second, x/first]", ONE),
        ("x/first", "", ONE),
        ("x/second", "", ONE),
        ("y/one", "org/absent", ONE),
        ("y/two", "org/absent", ONE),
        ("z/a", "z/b", ONE),
        ("z/b", "z/c", ONE),
        ("z/c", "z/a", ONE),
        ("z/tail", "z/c", ONE),
        ("l/path", "/home/me/out/first", ONE),
        ("l/nowhere", "./runs/gone", ONE),
        ("l/self", "l/self", ONE),
        ("l/both", "[l/both, x/first]", ONE),
        ("l/here", ".", ONE),
        ("l/there", "[.., ./]", ONE),
        ("q/sft/checkpoint-9", "", ONE),
        ("p/sft/checkpoint-9", "", ONE),
        ("l/of_step", "/m/q/sft/checkpoint-9", ONE),
        ("l/of_far_step", "/home/me/sft-2/checkpoint-9/", ONE),
    ];
    let split = split(&models, 8);
    let of = |directory: &str| family(&split, directory);
    assert_eq!(of("x/merge"), of("x/second"), "the first that is there");
    assert_ne!(of("x/merge"), of("x/first"));
    assert_eq!((of("y/one"), of("y/two")), ("base org/absent".into(), "base org/absent".into()));
    assert!(["z/a", "z/b", "z/c", "z/tail"].iter().all(|member| of(member) == "directory /m/z/a"));
    assert_eq!(of("l/path"), of("x/first"), "by its last name");
    assert_eq!(of("l/both"), of("x/first"), "its own name says nothing");
    assert_eq!((of("l/here"), of("l/there")), ("directory /m/l/here".into(), "directory /m/l/there".into()));
    assert_eq!(of("l/of_step"), of("q/sft/checkpoint-900"), "by its whole path");
    assert_ne!(of("q/sft/checkpoint-9"), of("p/sft/checkpoint-9"));
    assert_eq!(of("l/of_far_step"), "base sft-2");
    assert_eq!((of("l/nowhere"), of("l/self")), ("base gone".into(), "directory /m/l/self".into()));
}

#[test]
fn the_steps_of_a_training_run_are_one_family() {
    let models = [
        ("r/step_1000", "", ONE),
        ("r/step_2000", "", ONE),
        ("h/one/checkpoint-5", "", ONE),
        ("h/one/checkpoint-5/global_step5", "", ONE),
        ("h/one/checkpoint-10", "", ONE),
        ("h/one/checkpoint-10/global_step10", "", ONE),
        ("h/two/checkpoint-5", "", ONE),
        ("h/two/checkpoint-10", "", ONE),
        ("m/iter_0001/mp_rank_00", "", ONE),
        ("m/iter_0001/mp_rank_01", "", ONE),
        ("m/iter_0002/mp_rank_00", "", ONE),
        ("m/iter_0002/mp_rank_01", "", ONE),
        ("e/epoch_1/rank_1", "", ONE),
        ("e/epoch_1/rank_2", "", ONE),
        ("e/epoch_2/rank_1", "", ONE),
        ("w/writer1", "", ONE),
        ("w/writer2", "", ONE),
        ("w/llama-7b-step5", "", ONE),
        ("w/llama-7b-Step-6", "", ONE),
        ("w/llama-7b-step-7", "", ONE),
        ("w/llama-13b-step-7", "", ONE),
        ("user1/a", "", ONE),
        ("user1/b", "", ONE),
        ("user2/a", "", ONE),
        ("alone/v2", "", ONE),
        ("t/tune", "r/step_2000", ONE),
        ("t/far", "p2/checkpoint-700", ONE),
    ];
    let split = split(&models, 8);
    let of = |directory: &str| family(&split, directory);
    assert_eq!(of("r/step_1000"), of("r/step_2000"));
    assert_eq!(of("h/one/checkpoint-5"), of("h/one/checkpoint-10"));
    assert_eq!(of("h/one/checkpoint-5/global_step5"), of("h/one/checkpoint-10/global_step10"));
    assert_ne!(of("h/one/checkpoint-5"), of("h/two/checkpoint-5"), "another run");
    assert_eq!(of("m/iter_0001/mp_rank_00"), of("m/iter_0002/mp_rank_00"));
    assert_ne!(of("m/iter_0001/mp_rank_00"), of("m/iter_0001/mp_rank_01"), "the ranks are no steps");
    assert_eq!(of("e/epoch_1/rank_1"), of("e/epoch_2/rank_1"));
    assert_ne!(of("e/epoch_1/rank_1"), of("e/epoch_1/rank_2"), "the number of an epoch is no rank");
    assert_ne!(of("w/writer1"), of("w/writer2"));
    assert_eq!(of("w/llama-7b-step5"), "directory /m/w/llama-7b-step#");
    assert_ne!(of("w/llama-7b-step-7"), of("w/llama-13b-step-7"));
    assert_eq!(of("o/checkpoints/1000/state"), of("o/checkpoints/90/state"));
    assert_ne!(of("o/images/1000"), of("o/images/90"));
    assert_eq!(of("r/step_3/optimizer"), of("r/step_4/optimizer"), "without a model, too");
    assert_eq!(of("t/far"), "base p2/checkpoint-#", "each run has a name like its last one");
    let plain = |name: &str| super::steps::name_of_all_steps(name).into_owned();
    assert_eq!(plain("epoch=3-loss=0.25.ckpt"), plain("epoch=04-loss=0.2.ckpt"));
    assert_eq!(plain("model--val_loss=0.25-step=1000.ckpt"), plain("model--val_loss=1.5-step=90.ckpt"));
    assert_eq!(plain("size=7-step=1000.ckpt"), "size=7-step=#.ckpt");
    assert_eq!(plain("loss=0.25.ckpt"), "loss=0.25.ckpt", "this says no step");
    assert_eq!((plain("ba1000-rank0.pt"), plain("mamba2-8b.pt")), ("ba#-rank0.pt".into(), "mamba2-8b.pt".into()));
    assert_eq!(plain("model.ckpt-1000.data-00003-of-00032"), "model.ckpt-#.data-00003-of-00032");
    assert_eq!(plain("checkpoint-00001-of-00030.bin"), "checkpoint-00001-of-00030.bin");
    assert_eq!(plain("step_500-rank_3.pt"), "step_#-rank_3.pt");
    assert_eq!(plain("step-500-of-1000"), "step-#-of-#");
    assert_eq!(plain("iter_500-1-of-8.pt"), "iter_#-1-of-8.pt");
    assert_eq!(plain("iter_500_tp_0_pp_1.pt"), "iter_#_tp_0_pp_1.pt");
    assert!(of("user1/a") != of("user1/b") && of("user1/a") != of("user2/a"));
    assert_eq!(of("alone/v2"), "directory /m/alone/v2");
    assert_eq!(of("t/tune"), of("r/step_1000"), "what descends from a step is with its run");
}

#[test]
fn of_two_directories_of_one_name_the_owner_decides() {
    let models = [("a/base", "", ONE), ("b/base", "", ONE), ("c/tune", "b/base", ONE), ("d/tune", "base", ONE)];
    let split = split(&models, 8);
    assert_eq!(family(&split, "c/tune"), family(&split, "b/base"));
    assert_eq!(family(&split, "d/tune"), family(&split, "a/base"));
}

#[test]
fn what_is_below_a_model_with_a_card_or_in_a_hubs_cache_stays_with_it() {
    let models = [("a/tune", "a/stem", ONE), ("a/stem", "", ONE), ("a/tune/onnx", "", ONE), ("a/plain/deep", "", ONE)];
    let split = split(&models, 8);
    assert_eq!(family(&split, "a/tune/tokens/deep"), family(&split, "a/stem"));
    assert_eq!(family(&split, "a/tune/onnx"), family(&split, "a/stem"), "its models have no card of their own");
    assert_eq!(family(&split, "a/stem/tokens"), "directory /m/a/stem/tokens", "there is no card");
    assert_eq!(family(&split, "a/plain/other"), "directory /m/a/plain/other");
    let hub = Path::new("/m/hub/models--org--name/blobs/12ab");
    assert_eq!(split.unit_of(hub), split.unit_of(Path::new("/m/hub/models--org--name/snapshots/1/config.json")));
}

#[test]
fn a_family_with_most_of_the_bytes_is_split_by_file_and_keeps_bases_beside_their_descendants() {
    const PARTS: &[&str] = &["1.safetensors", "2.safetensors", "3.safetensors", "4.safetensors"];
    let large = [("a/stem", "", PARTS), ("a/t1", "a/stem", PARTS), ("a/t2", "a/stem", PARTS), ("a/t3", "a/t1", PARTS)];
    let small: Vec<String> = (0..8).map(|number| format!("s/{number}")).collect();
    let mut models = large.to_vec();
    models.extend(small.iter().map(|directory| (directory.as_str(), "", ONE)));
    let split = split(&models, 8);
    for file in PARTS {
        let of = |directory: &str| split.unit_of(&Path::new("/m").join(directory).join(file));
        assert!(["a/t1", "a/t2", "a/t3"].iter().all(|directory| of(directory) == of("a/stem")), "{file}");
    }
    let units = split.units.iter().filter(|(unit, _)| unit.contains("a/stem"));
    assert_eq!(units.filter(|(_, tally)| tally.bytes == 4 * MODEL && tally.files == 4).count(), 4);
    assert_eq!(split.units.values().map(|tally| tally.bytes).sum::<u64>(), split.total.bytes);
    assert_eq!(split.shares().iter().map(|share| share.tally.files).sum::<u64>(), split.total.files);
    // With other names in each directory nothing says which descends from which, and a few shares need no split.
    let others = [("a/stem", "", &["r.gguf"] as &[&str]), ("a/t1", "a/stem", &["t.gguf"] as &[&str])];
    assert!(super::tests::split(&others, 8).by_file.is_empty());
    assert!(super::tests::split(&models, 2).by_file.is_empty());
}

#[test]
fn a_run_of_many_ranks_and_one_beside_a_hubs_cache_are_split_by_file() {
    // More names than are counted, in two steps.
    let ranks: Vec<String> =
        (0..super::builder::MODEL_NAMES_MAX + 500).map(|rank| format!("mp_rank_{rank:05}_model_states.pt")).collect();
    let ranks: Vec<&str> = ranks.iter().map(String::as_str).collect();
    let one = split(&[("run/step_1", "", &ranks), ("run/step_2", "", &ranks)], 8);
    assert_eq!(one.by_file.len(), 1);
    assert_eq!(one.shares().iter().map(|share| share.tally.files).sum::<u64>(), 2 * ranks.len() as u64);
    assert!(ranks.iter().all(|rank| {
        let of = |step: &str| one.share_of(&Path::new("/m/run").join(step).join(rank));
        of("step_1") == of("step_2")
    }));
    // Of names that are not counted nothing is known, and those of models count first.
    let many: Vec<String> = (0..1100).map(|number| format!("{number:04}.json")).collect();
    let with = |last: &'static str| many.iter().map(String::as_str).chain([last]).collect::<Vec<&str>>();
    let (stem, tune) = (with("stem.gguf"), with("tune.gguf"));
    let mut builder = SplitBuilder::new(Vec::new());
    for (directory, names) in [("/m/a/stem", &stem), ("/m/a/tune", &tune)] {
        let bytes = |name: &str| if name.ends_with("gguf") { 10_000 * MODEL } else { 1 };
        names.iter().for_each(|name| builder.add(&Path::new(directory).join(name), bytes(name), b""));
    }
    builder.add(Path::new("/m/a/tune/README.md"), 1, b"");
    let apart = builder.finish(4, &|_| Some(b"---\nbase_model: a/stem\n---\n".to_vec()));
    assert_eq!(family(&apart, "a/stem"), family(&apart, "a/tune"));
    assert!(apart.by_file.is_empty());
    const PARTS: &[&str] = &["1.safetensors", "2.safetensors", "3.safetensors", "4.safetensors"];
    let tunes: Vec<String> = (0..8).map(|number| format!("t/{number}")).collect();
    let mut models: Vec<_> = tunes.iter().map(|tune| (tune.as_str(), "org/stem", PARTS)).collect();
    models.push(("hub/models--org--stem", "", &["blobs/12ab", "blobs/34cd", "blobs/56ef", "blobs/78aa"]));
    let both = split(&models, 8);
    assert_eq!(family(&both, "hub/models--org--stem"), family(&both, "t/0"));
    assert_eq!(both.by_file.len(), 1);
    // Alone, nothing says which of its blobs descend from each other.
    assert!(split(&models[8..], 8).by_file.is_empty());
}

#[test]
fn a_model_beside_the_card_of_a_program_is_no_head_and_the_steps_of_a_training_are_part_of_its_result() {
    let (mut builder, config) = (SplitBuilder::new(Vec::new()), "config.json");
    for path in ["yolo/yolo.pt", "yolo/data/images/1.pt", "out/m.bin", "out/checkpoint-5/m.bin", "out/x/m.bin"] {
        builder.add(&Path::new("/m").join(path), MODEL, b"");
    }
    builder.add(Path::new("/m/yolo/README.md"), 50, b"");
    ["out", "out/checkpoint-5", "out/x"]
        .iter()
        .for_each(|above| builder.add(&Path::new("/m").join(above).join(config), 9, b""));
    let split = builder.finish(2, &|path| path.ends_with("README.md").then(|| b"# A program\n".to_vec()));
    assert_eq!(family(&split, "yolo/data/images"), "directory /m/yolo/data/images");
    assert_eq!(family(&split, "out/checkpoint-5"), family(&split, "out"));
    assert_eq!(family(&split, "out/checkpoint-7/global_step7"), family(&split, "out"), "the states of optimizers, too");
    assert_ne!(family(&split, "out/x"), family(&split, "out"), "it has its own description");
}

#[test]
fn bases_that_are_steps_are_found_and_names_that_say_nothing_join_no_runs() {
    let models = [
        ("out", "far/stem", ONE),
        ("out/checkpoint-500", "", ONE),
        ("dpo", "/m/out/checkpoint-500", ONE),
        ("a/checkpoints/1000", "", ONE),
        ("b/checkpoints/1000", "", ONE),
        ("of_b", "/m/b/checkpoints/1000", ONE),
        ("of_far_b", "/scratch/b/checkpoints/2000", ONE),
        ("of_neither", "/scratch/c/checkpoints/1000", ONE),
        ("of_nothing", "[./checkpoint-500, ../checkpoint-3, ~/checkpoint-3, checkpoint-9]", ONE),
        ("of_result", "/home/me/out/checkpoint-700", ONE),
        ("of_none", "/home/me/gone/checkpoint-700", ONE),
        (".", "", ONE),
        ("runA-step-100", "", ONE),
        ("alone/step_7/0", "", ONE),
        ("alone/step_7/1", "", ONE),
    ];
    let split = split(&models, 8);
    let of = |directory: &str| family(&split, directory);
    assert_eq!((of("out/checkpoint-500"), of("dpo")), ("base far/stem".into(), "base far/stem".into()));
    assert_eq!((of("of_result"), of("of_none")), ("base far/stem".into(), "base gone".into()));
    assert_ne!(of("runA-step-100"), of("."), "the run has a name of its own");
    assert_ne!(of("a/checkpoints/1000"), of("b/checkpoints/1000"));
    assert_eq!((of("of_b"), of("of_far_b")), (of("b/checkpoints/1000"), of("b/checkpoints/1000")));
    assert_eq!((of("of_neither"), of("of_nothing")), ("base c".into(), "directory /m/of_nothing".into()));
    assert_ne!(of("alone/step_7/0"), of("alone/step_7/1"));
    for (directory, _, _) in models {
        let plain = super::steps::of_all_steps(Path::new(directory)).into_owned();
        assert_eq!(super::steps::of_all_steps(&plain), plain);
        let unit = split.unit_of(&Path::new("/m").join(directory).join(ONE[0]));
        assert!(split.units.contains_key(&unit), "{unit} is in {:?}", split.units);
    }
}

#[test]
fn a_base_is_split_by_file_beside_its_adapter() {
    let parts: Vec<String> = (1..=8).map(|part| format!("{part}.safetensors")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let models = [("base", "", parts.as_slice()), ("lora", "m/base", &["adapter_model.safetensors"])];
    let split = split(&models, 4);
    assert_eq!(family(&split, "lora"), family(&split, "base"));
    assert_eq!(split.by_file.len(), 1);
}

#[test]
fn a_large_directory_of_plain_files_is_split_by_file() {
    let mut builder = SplitBuilder::new(Vec::new());
    (0..1000).for_each(|number| builder.add(Path::new(&format!("/m/data/{number}")), 1000, b""));
    let split = builder.finish(4, &|_| None);
    let shares = [1, 2, 3, 4].map(|share| {
        (0..1000).filter(|number| split.share_of(Path::new(&format!("/m/data/{number}"))) == share).count()
    });
    assert!(shares.iter().all(|files| (150..350).contains(files)), "{shares:?}");
}

#[test]
fn units_are_placed_by_bytes_the_largest_first() {
    let models: Vec<(String, Vec<String>)> = (1..=12)
        .map(|number| (format!("f{number}"), (0..number).map(|at| format!("{number}-{at}.gguf")).collect()))
        .collect();
    let files: Vec<Vec<&str>> = models.iter().map(|(_, files)| files.iter().map(String::as_str).collect()).collect();
    let models: Vec<_> =
        models.iter().zip(&files).map(|((name, _), files)| (name.as_str(), "", files.as_slice())).collect();
    let mut split = split(&models, 4);
    let before = split.digest;
    split.assign_by_bytes();
    let bytes: Vec<u64> = split.shares().iter().map(|share| share.tally.bytes / MODEL).collect();
    assert_eq!(bytes.iter().sum::<u64>(), 78);
    assert!(bytes.iter().all(|bytes| (18..=21).contains(bytes)), "{bytes:?}");
    assert_ne!(split.digest, before);
}

#[test]
fn the_digest_says_whether_files_that_both_know_fall_to_the_same_shares() {
    let models = [("a/stem", "", ONE), ("b/tune", "a/stem", ONE)];
    let one = split(&models, 8);
    let more = split(&[models[0], models[1], ("c/new", "", ONE)], 8);
    assert_eq!(one.digest, more.digest, "another directory changes nothing of these");
    assert_ne!(one.listing, more.listing);
    let with_configuration = ("c/new", "", &["model.safetensors", "config.json"] as &[&str]);
    assert_eq!(split(&models, 2).digest, split(&[models[0], models[1], with_configuration], 2).digest);
    assert_ne!(one.digest, split(&models, 9).digest);
    assert_ne!(one.digest, split(&[models[0], ("b/tune", "x/y", ONE)], 8).digest);
    // A run that goes on, with cards and without them, and cards that come after their models.
    let run = [("r/iter_1", "", ONE), ("r/iter_2", "", ONE), ("h/checkpoint-9", "org/x", ONE)];
    let later = [("r/iter_3", "", ONE), ("r/iter_3/optimizer", "", &["x.bin"]), ("h/checkpoint-10", "", ONE)];
    let later: Vec<_> = run.into_iter().chain(later).collect();
    assert_eq!(split(&run, 8).digest, split(&later, 8).digest, "a step that comes later");
    let changed = |state: &[u8]| {
        let mut builder = SplitBuilder::default();
        builder.add(Path::new("/m/a"), 1, b"x");
        builder.add(Path::new("/m/b"), 1, state);
        builder.finish(2, &|_| None).listing
    };
    assert_ne!(changed(b"1"), changed(b"2"));
}

#[test]
fn plain_files_are_split_whatever_they_are_called_and_an_object_falls_with_its_former_name() {
    let mut builder = SplitBuilder::new(Vec::new());
    (0..1000).for_each(|number| builder.add(Path::new(&format!("/m/data/step_{number:04}.png")), 1000, b""));
    let split = builder.finish(4, &|_| None);
    let of = |name: &str| split.unit_of(&Path::new("/m/data").join(name));
    assert_ne!(of("step_0001.png"), of("step_0002.png"));
    assert_eq!(of("step_0001.png"), of("step_0001.png%2F"));
    assert_eq!(of("step_0001.png"), of("step_0001.png%2F%2F"));
}

#[test]
fn a_directory_that_is_part_of_a_model_without_its_own_is_in_the_digest() {
    let split = |has_model: bool| {
        let mut builder = SplitBuilder::new(vec!["/m".into(), "/m/x/y".into()]);
        for path in ["/m/x/model.safetensors", "/m/x/README.md", "/m/x/y/README.md"] {
            builder.add(Path::new(path), MODEL, b"");
        }
        if has_model {
            builder.add(Path::new("/m/x/y/model.safetensors"), MODEL, b"");
        }
        // None is so large that it is split by file.
        builder.finish(2, &|_| Some(b"---\n---\n".to_vec()))
    };
    let unit = |split: &WorkSplit| split.unit_of(Path::new("/m/x/y/README.md"));
    let (one, other) = (split(false), split(true));
    assert!(one.by_file.is_empty() && other.by_file.is_empty());
    assert!(unit(&one) != unit(&other) && one.digest != other.digest);
}

#[test]
fn a_cache_of_the_hub_has_the_card_of_its_model() {
    let hub = Path::new("/m/hub/models--org--tune");
    let card = hub.join("snapshots/1/README.md");
    let mut builder = SplitBuilder::new(vec!["/m".into()]);
    let markers = [".no_exist/1/adapter_config.json", "snapshots/1/1_Pooling/config.json"];
    markers.iter().for_each(|marker| builder.add(&hub.join(marker), 0, b""));
    builder.add(&card, 50, b"");
    builder.add(&hub.join("snapshots/1/model.safetensors"), MODEL, b"");
    // In a bucket, a blob is a file, too.
    builder.add(&hub.join("blobs/0123.bin"), MODEL, b"");
    builder.add(Path::new("/m/org/stem/model.safetensors"), MODEL, b"");
    let text = b"---\nbase_model: org/stem\n---\n".to_vec();
    let split = builder.finish(8, &|path| (path == card).then(|| text.clone()));
    assert_eq!(split.family_of(hub), "directory /m/org/stem");
}

#[test]
fn a_run_of_many_steps_in_one_directory_is_split_by_its_parts() {
    let mut builder = SplitBuilder::new(Vec::new());
    let path = |step: u32, rank: u32| format!("/m/run/step_{step}-rank_{rank}.pt");
    (0..400).flat_map(|step| (0..8).map(move |rank| (step, rank))).for_each(|(step, rank)| {
        builder.add(Path::new(&path(step, rank)), MODEL, b"");
    });
    let split = builder.finish(4, &|_| None);
    let of = |step: u32, rank: u32| split.unit_of(Path::new(&path(step, rank)));
    assert!(of(1, 2) == of(399, 2) && of(1, 2) != of(1, 3));
}

#[test]
fn a_model_of_many_parts_is_split_whatever_lies_below_it() {
    let mut builder = SplitBuilder::new(vec!["/m".into()]);
    let path = |part: u32| format!("/m/large/model-{part:05}-of-00100.safetensors");
    (0..100).for_each(|part| builder.add(Path::new(&path(part)), MODEL, b""));
    ["README.md", "figures/one.png", ".cache/huggingface/download/x.metadata"].iter().for_each(|name| {
        builder.add(&Path::new("/m/large").join(name), 100, b"");
    });
    let split = builder.finish(8, &|_| None);
    assert_ne!(split.unit_of(Path::new(&path(1))), split.unit_of(Path::new(&path(2))));
}
