//! Models: what is listed of them, what they descend from, how far apart they are, and one tensor of them.

use serde_json::{Value, json};

use super::fixture::{Home, code, json as parsed, stderr, stdout};
use super::model_fixture::{EMBED, LAYER, LAYER_VALUES, Weights, stored};
use crate::normal::Normal;
use crate::weights::{Tensor, bfloat16, float32, gguf, safetensors, with_header};

/// Differing bits of two lists of 16-bit values, computed the slow way.
fn differing(one: &[u8], other: &[u8]) -> u64 {
    one.iter().zip(other).map(|(one, other)| u64::from((one ^ other).count_ones())).sum()
}

/// The header and the values of a safetensors file.
fn opened(file: &[u8]) -> (Value, &[u8]) {
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&file[8..8 + len]).unwrap(), &file[8 + len..])
}

#[test]
fn models_are_listed_with_their_bases() {
    let home = stored();
    let models = parsed(&home.run(&["models", "--json"]));
    let models = models.as_array().unwrap();
    let paths: Vec<&str> = models.iter().map(|model| model["path"].as_str().unwrap()).collect();
    let expected = ["m/a-base/model.safetensors", "m/b-tune/model.safetensors", "m/c-tune-again/model.safetensors"];
    assert_eq!(paths, expected);
    let [base, tune, again] = models.as_slice() else { panic!("{models:?}") };
    assert_eq!((&base["name"], &base["family"], &base["base"]), (&"a-base".into(), &"a-base".into(), &Value::Null));
    assert_eq!((&base["format"], &base["dtype"], &base["shards"]), (&"safetensors".into(), &"BF16".into(), &1.into()));
    assert_eq!(base["parameters"], 512 * 256 + LAYER_VALUES + 16);
    assert_eq!(base["size"], home.read("m/a-base/model.safetensors").len());
    assert_eq!((&tune["base"]["name"], &tune["base"]["kind"]), (&"a-base".into(), &"delta".into()));
    assert_eq!((&tune["family"], &again["family"]), (&"a-base".into(), &"a-base".into()));
    assert!(again["base"]["name"] == "b-tune", "{again}");
    let distance = tune["base"]["bit_distance"].as_f64().unwrap();
    assert!(distance > 0.5 && distance < 4.0, "{distance}");
    let stored = |model: &Value| model["stored"].as_u64().unwrap();
    assert!(stored(base) > 300_000 && stored(base) < base["size"].as_u64().unwrap(), "{base}");
    assert!(stored(tune) < stored(base), "{tune}");

    let table = stdout(&home.run(&["models", "latest"]));
    let line = table.lines().find(|line| line.contains("b-tune/model")).unwrap();
    assert!(["BF16", "327.7K", "a-base", "delta"].iter().all(|word| line.contains(word)), "{table}");
    assert_eq!(table.lines().count(), 6, "a head, three models, and the sum below an empty line");
    assert_eq!(code(&home.run(&["models", "latest", "--all"])), 2);
    assert_eq!(code(&home.run(&["models", "ffffffffffff"])), 1);
}

#[test]
fn without_models_nothing_is_listed() {
    let home = Home::new();
    home.write("file", b"x");
    home.backup(&["file"]);
    assert_eq!(parsed(&home.run(&["models", "--json"])), json!([]));
    assert_eq!(parsed(&home.run(&["models", "--all", "--json"])), json!([]));
    assert_eq!(parsed(&home.run(&["lineage", "--json"])), json!([]));
}

#[test]
fn a_damaged_catalogue_is_no_missing_one() {
    let home = stored();
    let directory = home.path("data/fhrd/repository/models");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    for arguments in [&["models", "--json"][..], &["models", "--all", "--json"], &["lineage", "--json"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 20, "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).trim() == "[]" && stderr(&output).contains("models/"), "{arguments:?}");
    }
    let report = home.run(&["report", "--json"]);
    assert_eq!(code(&report), 20, "{}", stderr(&report));
}

#[test]
fn all_snapshots_have_each_model_once_and_a_base_that_is_gone_is_still_named() {
    let home = stored();
    std::fs::remove_dir_all(home.path("m/a-base")).unwrap();
    std::fs::rename(home.path("m/c-tune-again"), home.path("m/c-renamed")).unwrap();
    home.backup(&["m"]);
    assert_eq!(parsed(&home.run(&["models", "--json"])).as_array().map(Vec::len), Some(2));
    let all = parsed(&home.run(&["models", "--all", "--json"]));
    let paths: Vec<&str> = all.as_array().unwrap().iter().map(|model| model["path"].as_str().unwrap()).collect();
    let expected = ["m/a-base/model.safetensors", "m/b-tune/model.safetensors", "m/c-renamed/model.safetensors"];
    assert_eq!(paths, expected);

    let members = parsed(&home.run(&["lineage", "--json"]));
    let shown = |at: usize| (members[at]["name"].as_str().unwrap(), members[at]["parent"].as_u64());
    assert_eq!([shown(0), shown(1), shown(2)], [("a-base", None), ("b-tune", Some(0)), ("c-renamed", Some(1))]);
    assert_eq!((&members[0]["in_snapshot"], &members[1]["in_snapshot"]), (&false.into(), &true.into()));
    let tree = stdout(&home.run(&["lineage"]));
    assert!(tree.lines().any(|line| line.starts_with("a-base ") && line.ends_with("(not in this snapshot)")), "{tree}");
    assert!(tree.lines().any(|line| line.starts_with("└── b-tune ")), "{tree}");
    assert!(tree.lines().any(|line| line.starts_with("    └── c-renamed ")), "{tree}");
    let dot = stdout(&home.run(&["lineage", "--dot"]));
    assert!(dot.starts_with("digraph lineage {") && dot.contains("m0 -> m1 [label=\"delta "), "{dot}");
    assert!(dot.contains("style=dashed"), "{dot}");
    assert_eq!(code(&home.run(&["lineage", "--dot", "--json"])), 2);
}

#[test]
fn the_base_of_several_new_models_is_the_root_whatever_the_directories_are_called() {
    let home = Home::new();
    let base = Weights::base();
    for (directory, weights) in [("a", base.tuned(2)), ("b", base.tuned(3)), ("c", base.tuned(4)), ("z", base)] {
        home.write(&format!("m/{directory}/model.safetensors"), &weights.bf16());
    }
    home.backup(&["m"]);
    let members = parsed(&home.run(&["lineage", "--json"]));
    let members: Vec<(&str, Option<u64>)> = members
        .as_array()
        .unwrap()
        .iter()
        .map(|member| (member["name"].as_str().unwrap(), member["parent"].as_u64()))
        .collect();
    assert_eq!(members, [("z", None), ("a", Some(0)), ("b", Some(0)), ("c", Some(0))]);
}

#[test]
fn a_copy_is_the_same_model_at_two_paths() {
    let home = Home::new();
    let base = Weights::base();
    home.write("m/one/model.safetensors", &base.bf16());
    home.backup(&["m"]);
    home.write("m/two/model.safetensors", &base.bf16());
    home.write("m/tune/model.safetensors", &base.tuned(2).bf16());
    home.backup(&["m"]);
    let models = parsed(&home.run(&["models", "--json"]));
    let [one, tune, two] = models.as_array().unwrap().as_slice() else { panic!("{models}") };
    assert_eq!((&one["same_as"], &two["same_as"]), (&Value::Null, &"m/one/model.safetensors".into()));
    assert_eq!([&one["family"], &two["family"], &tune["family"]], ["one"; 3]);
    assert_eq!(tune["base"]["name"], "one");
    let table = stdout(&home.run(&["models"]));
    let line = table.lines().find(|line| line.starts_with("m/two/")).unwrap();
    assert!(["m/one/model.safetensors", "0.00", "same"].iter().all(|word| line.contains(word)), "{table}");
    let tree = stdout(&home.run(&["lineage"]));
    let lines: Vec<&str> = tree.lines().collect();
    assert!(
        lines.len() == 4
            && lines[3].starts_with("= 2 models ")
            && lines[1].starts_with("one ")
            && lines[2].starts_with("└── tune "),
        "{tree}"
    );
    assert!(lines[1].ends_with("m/one/model.safetensors, m/two/model.safetensors"), "{tree}");
    let members = parsed(&home.run(&["lineage", "--json"]));
    assert_eq!(members[0]["copies"], json!(["m/two/model.safetensors"]));
}

#[test]
fn names_that_collide_are_told_apart() {
    let home = Home::new();
    let base = Weights::base();
    home.write("m/base/model.safetensors", &base.bf16());
    home.backup(&["m"]);
    home.write("m/a/tune.safetensors", &base.tuned(2).bf16());
    home.backup(&["m"]);
    home.write("m/b/tune.safetensors", &base.tuned(2).tuned(3).bf16());
    home.backup(&["m"]);
    let tree = stdout(&home.run(&["lineage"]));
    assert!(tree.lines().any(|line| line.starts_with("base ")), "{tree}");
    assert!(tree.lines().any(|line| line.starts_with("└── a/tune.safetensors ")), "{tree}");
    assert!(tree.lines().any(|line| line.starts_with("    └── b/tune.safetensors ")), "{tree}");
    let members = parsed(&home.run(&["lineage", "--json"]));
    assert_eq!((&members[1]["name"], &members[1]["label"]), (&"tune".into(), &"a/tune.safetensors".into()));
    let table = stdout(&home.run(&["models"]));
    let line = table.lines().find(|line| line.starts_with("m/b/tune")).unwrap();
    assert!(line.contains(" a/tune.safetensors "), "{table}");
}

#[test]
fn the_lineage_of_all_snapshots_has_models_that_are_gone() {
    let home = stored();
    std::fs::remove_dir_all(home.path("m/a-base")).unwrap();
    std::fs::remove_dir_all(home.path("m/b-tune")).unwrap();
    home.backup(&["m"]);
    let members = parsed(&home.run(&["lineage", "--all", "--json"]));
    let in_snapshot: Vec<&Value> = members.as_array().unwrap().iter().map(|member| &member["in_snapshot"]).collect();
    assert_eq!(in_snapshot, [true; 3]);
    let tree = stdout(&home.run(&["lineage", "--all"]));
    assert!(tree.lines().any(|line| line.starts_with("a-base ")) && !tree.contains("in no snapshot"), "{tree}");
    assert!(stdout(&home.run(&["lineage"])).contains("(not in this snapshot)"));
    assert_eq!(code(&home.run(&["lineage", "--all", "latest"])), 2);
}

/// A prune deletes the record of a model that no snapshot has, and the catalogue still names it.
#[test]
fn a_record_that_a_prune_has_deleted_is_no_damage_and_one_that_is_lost_is() {
    let home = stored();
    std::fs::remove_dir_all(home.path("m/a-base")).unwrap();
    std::fs::remove_dir_all(home.path("m/b-tune")).unwrap();
    home.backup(&["m"]);
    parsed(&home.run(&["forget", "--keep-last", "1", "--prune", "--grace", "0s", "--json"]));
    for verb in ["models", "lineage"] {
        let output = home.run(&[verb]);
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{verb}");
    }
    // A lost container may have had it.
    let containers = "data/fhrd/repository/containers";
    let directories = home.names(containers).into_iter().map(|name| format!("{containers}/{name}"));
    let paths = directories
        .flat_map(|directory| home.names(&directory).into_iter().map(move |name| format!("{directory}/{name}")));
    let says_so = |path: String| {
        let bytes = home.read(&path);
        std::fs::remove_file(home.path(&path)).unwrap();
        let output = home.run(&["models"]);
        home.write(&path, &bytes);
        stderr(&output).contains("skipping a model record")
    };
    assert!(paths.collect::<Vec<_>>().into_iter().any(says_so));
}

#[test]
fn shards_of_a_directory_are_one_model() {
    let home = Home::new();
    let base = Weights::base();
    for (directory, weights) in [("a", &base), ("b", &base.tuned(7))] {
        let embed = safetensors(&[Tensor::new("embed", "BF16", EMBED, bfloat16(&weights.embed))]);
        let layer = safetensors(&[Tensor::new("layer.weight", "BF16", LAYER, bfloat16(&weights.layer))]);
        home.write(&format!("m/{directory}/model-00001-of-00002.safetensors"), &embed);
        home.write(&format!("m/{directory}/model-00002-of-00002.safetensors"), &layer);
        home.backup(&["m"]);
    }
    let models = parsed(&home.run(&["models", "--json"]));
    assert_eq!(models.as_array().map(Vec::len), Some(2), "{models}");
    assert_eq!(models[0]["path"], "m/a/model-*-of-00002.safetensors");
    assert_eq!((&models[0]["shards"], &models[0]["parameters"]), (&2.into(), &(512 * 256 + LAYER_VALUES).into()));
    assert_eq!((&models[1]["base"]["name"], &models[1]["family"]), (&"a".into(), &"a".into()));
    let tree = stdout(&home.run(&["lineage"]));
    assert!(tree.lines().any(|line| line.starts_with("└── b ")), "{tree}");
}

#[test]
fn distances_are_exact_wherever_the_models_are() {
    let home = stored();
    let (one, other) = ("m/a-base/model.safetensors", "m/b-tune/model.safetensors");
    let expected = differing(opened(&home.read(one)).1, opened(&home.read(other)).1);
    let on_disk = parsed(&home.run(&["distance", one, other, "--json"]));
    let compared = &on_disk["types"][0]["compared"];
    assert_eq!((&compared["type"], &compared["differing_bits"]), (&"BF16".into(), &expected.into()));
    let values = 512 * 256 + LAYER_VALUES as u64 + 16;
    assert_eq!((&compared["values"], &on_disk["types"][0]["tensors"]), (&values.into(), &3.into()));
    assert_eq!(on_disk["bit_distance"].as_f64(), Some(expected as f64 / values as f64));
    assert_eq!((&on_disk["same_family"], &on_disk["left_out"]), (&true.into(), &json!([])));
    let bits = compared["bits"].as_array().unwrap();
    assert_eq!(bits.iter().map(|bit| bit["differing"].as_u64().unwrap()).sum::<u64>(), expected);
    assert_eq!(
        (&bits[0]["bit"], &bits[0]["field"], &bits[15]["field"]),
        (&15.into(), &"sign".into(), &"mantissa".into())
    );

    let of = |path: &str| format!("latest:{path}");
    let stored = parsed(&home.run(&["distance", &of(one), &of(other), "--json"]));
    assert_eq!(stored["types"], on_disk["types"]);
    let mixed = parsed(&home.run(&["distance", one, &of(one), "--json"]));
    assert_eq!((&mixed["bit_distance"], &mixed["types"][0]["compared"]["identical_share"]), (&0.0.into(), &1.0.into()));
    let text = stdout(&home.run(&["distance", one, other]));
    assert!(
        text.contains("the same family (below 4)") && text.lines().any(|line| line.starts_with("  15  sign ")),
        "{text}"
    );
}

#[test]
fn casts_are_compared_after_rounding_and_other_names_by_shape() {
    let home = Home::new();
    let base = Weights::base();
    home.write("wide", &base.f32());
    home.write("narrow", &base.bf16());
    home.write(
        "unrelated",
        &Weights { embed: base.embed.clone(), layer: Normal::new(77).weights(LAYER_VALUES, 0.03) }.f32(),
    );
    let embed = Tensor::new("token_embd", "BF16", EMBED, bfloat16(&base.embed));
    home.write("renamed", &safetensors(&[embed, Tensor::new("blk.0", "BF16", LAYER, bfloat16(&base.layer))]));
    let cast = parsed(&home.run(&["distance", "wide", "narrow", "--json"]));
    assert_eq!((&cast["types"][0]["first"], &cast["types"][0]["second"]), (&"F32".into(), &"BF16".into()));
    assert_eq!(cast["bit_distance"], 0.0);
    assert_eq!(cast["left_out"], json!([{"tensor": "bias", "model": "second", "reason": "no counterpart"}]));
    let renamed = parsed(&home.run(&["distance", "renamed", "wide", "--json"]));
    assert_eq!((&renamed["bit_distance"], &renamed["types"][0]["tensors"]), (&0.0.into(), &2.into()));
    let far = parsed(&home.run(&["distance", "wide", "unrelated", "--json"]));
    let rounded = &far["types"][0]["as_bf16"];
    assert!(far["types"][0]["compared"]["bit_distance"].as_f64() > rounded["bit_distance"].as_f64(), "{far}");
    assert_eq!(rounded["type"], "BF16");
}

#[test]
fn what_is_no_model_is_named() {
    let home = stored();
    home.write("cut.safetensors", &Weights::base().bf16()[..5000]);
    let model = "m/a-base/model.safetensors";
    for (other, words) in [
        ("m/letter.txt", "m/letter.txt is not a model: expected a file of tensors (safetensors, gguf"),
        ("cut.safetensors", "found a defective safetensors"),
        ("latest:m/letter.txt", "latest:m/letter.txt is not a model"),
        ("latest:m", "not a regular file"),
        ("m", "not a regular file"),
        ("absent", "absent"),
        ("latest:absent", "holds no `absent`"),
        ("ffff:absent", "no snapshot matches"),
    ] {
        for pair in [[model, other], [other, model]] {
            let output = home.run(&["distance", pair[0], pair[1]]);
            assert_eq!((code(&output), stdout(&output)), (1, String::new()), "{other}");
            assert!(stderr(&output).contains(words), "{other}: {}", stderr(&output));
        }
    }
}

#[test]
fn one_tensor_comes_out_alone() {
    let home = stored();
    let model = "m/b-tune/model.safetensors";
    let report = parsed(&home.run(&["restore", "latest", "--tensor", "layer.weight", "--path", model, "--json"]));
    assert_eq!((&report["output"], &report["dtype"]), (&"layer.weight.safetensors".into(), &"BF16".into()));
    assert_eq!((&report["path"], &report["shape"]), (&model.into(), &json!(LAYER)));
    assert!(report["chunks_read"].as_u64() < report["chunks"].as_u64(), "{report}");
    let file = home.read("layer.weight.safetensors");
    let (header, values) = opened(&file);
    let range = json!([0, 2 * LAYER_VALUES]);
    assert_eq!(header, json!({"layer.weight": {"dtype": "BF16", "shape": LAYER, "data_offsets": range}}));
    assert_eq!(values, bfloat16(&Weights::base().tuned(2).layer));

    let again = home.run(&["restore", "latest", "--tensor", "layer.weight", "--path", model]);
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("layer.weight.safetensors already holds something"), "{}", stderr(&again));
    assert_eq!(home.read("layer.weight.safetensors"), file);
    for (arguments, words) in [
        (
            &["--tensor", "layer.weight", "--output", "x.npy"][..],
            "3 files have a tensor `layer.weight`: m/a-base/model.safetensors",
        ),
        (&["--tensor", "layer.weigth", "--path", "m/a-base"], "similar names: `layer.weight`"),
        (&["--tensor", "x", "--path", "m/letter.txt"], "no model file was found"),
        (&["--tensor", "embed", "--path", "m/absent"], "m/absent"),
        (&["--tensor", "embed", "--path", "m/a-base", "--output", "x.npy"], "numpy has no type for the BF16 values"),
        (&["--tensor", "embed", "--path", "m/a-base", "--output", "x.bin"], ".npy or .safetensors"),
    ] {
        let output = home.run(&[&["restore", "latest"], arguments].concat());
        assert_eq!((code(&output), stdout(&output)), (1, String::new()), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
    let rest: Vec<String> = home.names("").into_iter().filter(|name| name != "cache").collect();
    assert_eq!(rest, ["data", "layer.weight.safetensors", "m"]);
}

#[test]
fn types_are_kept_and_hostile_names_stay_here() {
    let home = Home::new();
    let counts: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).collect();
    let parts = [
        Tensor::new("../../x", "U32", &[200, 200], counts.clone()),
        Tensor::new("__metadata", "F8_E5M2", &[70_000], vec![7; 70_000]),
        Tensor::new("flags", "BOOL", &[4], vec![0, 1, 1, 0]),
    ];
    home.write("in/directory/m/model.safetensors", &safetensors(&parts));
    home.write("in/small.safetensors", &safetensors(&[Tensor::new("tiny", "F32", &[2], float32(&[1.0, -2.0]))]));
    // Two blocks of Q8_0 in two rows.
    home.write("in/x.gguf", &gguf(&[("quantised", 8, &[32, 2], &[5; 68])]));
    home.backup(&["in"]);
    home.write("deep/down/here", b"");
    let run = |arguments: &[&str]| {
        let mut command = home.command(&[&["restore", "latest", "--tensor"], arguments].concat());
        parsed(&command.current_dir(home.path("deep/down")).output().unwrap())
    };
    assert_eq!(run(&["../../x", "--json"])["output"], ".._.._x.safetensors");
    assert_eq!(home.names("deep/down"), [".._.._x.safetensors", "here"]);
    let file = home.read("deep/down/.._.._x.safetensors");
    assert_eq!((&opened(&file).0["../../x"]["dtype"], opened(&file).1), (&"U32".into(), counts.as_slice()));
    run(&["__metadata", "--output", "e5m2.safetensors", "--json"]);
    assert_eq!(opened(&home.read("deep/down/e5m2.safetensors")).0["__metadata"]["dtype"], "F8_E5M2");
    run(&["flags", "--output", "flags.npy", "--json"]);
    let flags = home.read("deep/down/flags.npy");
    assert!(flags.starts_with(b"\x93NUMPY\x01\x00") && flags.ends_with(&[0, 1, 1, 0]));
    assert!(flags.len() == 128 + 4 && flags.windows(5).any(|window| window == b"'|b1'"));
    // Too small for the catalogue, it is found by its beginning.
    let report = run(&["tiny", "--output", "tiny.npy", "--json"]);
    assert_eq!((&report["path"], &report["written_as"]), (&"in/small.safetensors".into(), &"<f4".into()));
    assert!(home.read("deep/down/tiny.npy").ends_with(&float32(&[1.0, -2.0])));
    run(&["quantised", "--output", "quantised.safetensors", "--json"]);
    let quantised = home.read("deep/down/quantised.safetensors");
    assert_eq!(opened(&quantised).0["__metadata__"], json!({"dtype": "Q8_0", "shape": "[2,32]"}));
    assert_eq!((&opened(&quantised).0["quantised"]["dtype"], opened(&quantised).1), (&"U8".into(), &[5; 68][..]));
    assert_eq!(home.names("deep"), ["down"]);
}

#[test]
fn damage_is_told_and_leaves_no_half_of_a_tensor() {
    let home = stored();
    let directories = std::fs::read_dir(home.path("data/fhrd/repository/containers")).unwrap();
    let files = directories.flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap());
    let largest = files.map(|file| file.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let end = bytes.len() - 4096;
    bytes[1024..end].iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    std::fs::write(&largest, bytes).unwrap();
    let base = "m/a-base/model.safetensors";
    let output = home.run(&["restore", "latest", "--tensor", "layer.weight", "--path", base]);
    assert_eq!(code(&output), 20, "{}", stderr(&output));
    assert!(stderr(&output).contains(largest.file_name().unwrap().to_str().unwrap()), "{}", stderr(&output));
    let rest: Vec<String> = home.names("").into_iter().filter(|name| name != "cache").collect();
    assert_eq!(rest, ["data", "m"]);
    assert_eq!(code(&home.run(&["distance", base, &format!("latest:{base}")])), 20);
    assert_eq!(parsed(&home.run(&["models", "--json"])).as_array().map(Vec::len), Some(3));
}

#[test]
fn a_defect_is_told_once() {
    let home = Home::new();
    let overlap = r#"{"a":{"dtype":"U8","shape":[80000],"data_offsets":[0,80000]},
        "b":{"dtype":"U8","shape":[80000],"data_offsets":[40000,120000]}}"#;
    home.write("m/overlap.safetensors", &with_header(overlap, &[1; 120_000]));
    home.write("m/good.safetensors", &safetensors(&[Tensor::new("w", "U8", &[80_000], vec![2; 80_000])]));
    for paths in [&["m"][..], &["m/overlap.safetensors"]] {
        let output = home.run(&[&["backup", "--force"], paths].concat());
        assert_eq!(stderr(&output).matches("stored as it is, not as safetensors").count(), 1, "{}", stderr(&output));
    }
}

/// The card of a model that was made from `base`.
fn card(base: &str) -> Vec<u8> {
    format!("---\nbase_model: {base}\n---\n").into_bytes()
}

#[test]
fn a_card_decides_where_the_estimate_cannot() {
    // The sibling differs little from the base, so a noisy fine-tune is about as far from both.
    let home = Home::new();
    let base = Weights::base();
    let noisy = |seed: u64, step: f64| {
        let mut normal = Normal::new(seed);
        Weights { embed: normal.tuned(&base.embed, step), layer: normal.tuned(&base.layer, step) }
    };
    let mut models = vec![("base-0".to_string(), base.bf16(), b"a base".to_vec())];
    for seed in 2..14 {
        let step = if seed % 2 == 0 { 0.0002 } else { 0.001 };
        models.push((format!("ft-{seed}"), noisy(seed, step).bf16(), card("org0/base-0")));
    }
    for (name, bytes, card) in models {
        home.write(&format!("hub/{name}/model.safetensors"), &bytes);
        home.write(&format!("hub/{name}/README.md"), &card);
    }
    home.backup(&["hub"]);
    let members = parsed(&home.run(&["lineage", "--json"]));
    let members = members.as_array().unwrap();
    let root = members.iter().position(|member| member["name"] == "base-0").unwrap();
    for member in members.iter().filter(|member| member["name"] != "base-0") {
        assert_eq!(member["parent"].as_u64(), Some(root as u64), "{}", member["name"]);
    }
    let tree = stdout(&home.run(&["lineage"]));
    assert!(tree.lines().last().is_some_and(|line| line.starts_with("= 13 models ")), "{tree}");
}

#[test]
fn models_are_filtered_sorted_summed_and_fit_the_terminal() {
    let home = stored();
    home.write("n/a-directory-with-a-long-name/and-another-one-below-it/z.safetensors", &Weights::base().f32());
    home.backup(&["m", "n"]);
    let paths = |arguments: &[&str]| -> Vec<String> {
        let models = parsed(&home.run(&[&["models", "--json"], arguments].concat()));
        models.as_array().unwrap().iter().map(|model| model["path"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(paths(&["latest:m"]).len(), 3);
    assert_eq!(paths(&["latest:n"]).len(), 1);
    assert_eq!(paths(&["latest:m/b-tune/model.safetensors"]), ["m/b-tune/model.safetensors"]);
    assert!(paths(&["--sort", "size", "--top", "1"])[0].ends_with("z.safetensors"));
    assert_eq!(paths(&["latest:m", "--sort", "bits", "--top", "1"]).len(), 1);
    let family = paths(&["--family", "a-base"]);
    assert!(family.len() >= 3 && paths(&["--family", "nobody"]).is_empty());
    let absent = home.run(&["models", "latest:absent"]);
    assert!(code(&absent) == 1 && stderr(&absent).contains("holds no `absent`"), "{}", stderr(&absent));
    let families = parsed(&home.run(&["models", "--families", "--json"]));
    let sum: u64 = families.as_array().unwrap().iter().map(|family| family["models"].as_u64().unwrap()).sum();
    assert_eq!(sum, 4, "{families}");
    let text = stdout(&home.run(&["models", "latest:m"]));
    assert!(
        text.lines().last().is_some_and(|line| line.starts_with("3 models, ") && line.contains("(ratio ")),
        "{text}"
    );
    let mut narrow = home.command(&["models"]);
    let text = stdout(&narrow.env("COLUMNS", "80").output().unwrap());
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.contains('…'), "{text}");
    let tree = stdout(&home.run(&["lineage", "latest:m/b-tune"]));
    assert!(tree.contains("a-base") && tree.contains("b-tune"), "{tree}");
}
