//! Checkpoints of training runs: `backup --run`, `runs`, `steps`, `best` and the names of steps.

use std::collections::BTreeMap;

use serde_json::{Value, json as value};

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::noise;

/// A safetensors file with these tensors of bytes.
fn safetensors(tensors: &[(&str, &[u8])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name.to_string(), value!({"dtype": "U8", "shape": [bytes.len()], "data_offsets": offsets}));
        data.extend_from_slice(bytes);
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

/// Three steps of a run: the backbone is frozen, the head changes each time, one tensor is added.
fn trained() -> (Home, Vec<Vec<u8>>) {
    let home = Home::new();
    let backbone = noise(1, 300_000);
    let mut files = Vec::new();
    for (step, loss) in [(10, "0.9"), (20, "0.25"), (30, "0.31")] {
        let (head, bias) = (noise(step, 70_000), noise(100, 40));
        let added = noise(7, 1000);
        let mut tensors: Vec<(&str, &[u8])> = vec![("backbone", &backbone), ("head", &head), ("head.bias", &bias)];
        if step == 30 {
            tensors.push(("new", &added));
        }
        let file = safetensors(&tensors);
        home.write("model.safetensors", &file);
        files.push(file);
        let (step, metric) = (step.to_string(), format!("val_loss={loss}"));
        home.backup(&[
            "--run",
            "tune",
            "--step",
            &step,
            "--metric",
            &metric,
            "--metric",
            "lr=1e-4",
            "model.safetensors",
        ]);
    }
    (home, files)
}

#[test]
fn steps_have_metrics_and_no_op_rates() {
    let (home, _) = trained();
    let runs = json(&home.run(&["runs", "--json"]));
    assert_eq!((&runs[0]["run"], &runs[0]["steps"], &runs[0]["last"]["step"]), (&"tune".into(), &3.into(), &30.into()));
    assert_eq!(runs[0]["last"]["metrics"], value!({"lr": 1e-4, "val_loss": 0.31}));
    let steps = json(&home.run(&["steps", "tune", "--json"]));
    let counts: Vec<[u64; 4]> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let of = |key: &str| step["no_op"][key].as_u64().unwrap();
            [step["step"].as_u64().unwrap(), of("tensors"), of("compared"), of("identical")]
        })
        .collect();
    assert_eq!(counts, [[10, 3, 0, 0], [20, 3, 3, 2], [30, 4, 3, 2]]);
    assert_eq!((&steps[0]["no_op"]["rate"], steps[2]["no_op"]["rate"].as_f64()), (&Value::Null, Some(2.0 / 3.0)));

    let tensors = json(&home.run(&["steps", "tune", "--tensors", "--json"]));
    let by_name: BTreeMap<&str, (u64, u64)> = tensors["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tensor| {
            let of = |key: &str| tensor["steps"][key].as_u64().unwrap();
            (tensor["tensor"].as_str().unwrap(), (of("identical"), of("changed")))
        })
        .collect();
    assert_eq!(by_name, BTreeMap::from([("backbone", (2, 0)), ("head", (0, 2)), ("head.bias", (2, 0))]));
    let text = stdout(&home.run(&["steps", "tune"]));
    assert!(text.contains("66.7 %") && text.contains("val_loss") && text.lines().count() == 4, "{text}");
    assert!(stdout(&home.run(&["runs"])).contains("tune"));
    assert!(stdout(&home.run(&["steps", "tune", "--tensors"])).contains("100.0 %"));
}

#[test]
fn a_step_is_named_by_number_place_or_metric_and_the_best_is_restored() {
    let (home, files) = trained();
    let cat = |name: &str| home.run(&["cat", &format!("run:tune@{name}:model.safetensors")]).stdout;
    assert_eq!((cat("10"), cat("latest")), (files[0].clone(), files[2].clone()));
    assert_eq!((cat("best:val_loss:min"), cat("best:val_loss:max")), (files[1].clone(), files[0].clone()));
    let best = json(&home.run(&["best", "tune", "--metric", "val_loss", "--json"]));
    assert_eq!((&best["step"], &best["metrics"]["val_loss"]), (&20.into(), &0.25.into()));
    assert!(stdout(&home.run(&["best", "tune", "--metric", "val_loss", "--mode", "max"])).contains("val_loss=0.9"));
    assert_eq!(code(&home.run(&["best", "tune", "--metric", "val_loss", "--restore", "back"])), 0);
    assert_eq!(home.read("back/model.safetensors"), files[1]);
    assert_eq!(code(&home.run(&["stats", "run:tune@20"])), 0);
    assert_eq!(json(&home.run(&["models", "run:tune@20", "--json"])).as_array().map(Vec::len), Some(1));
    for (arguments, hint) in [
        (["best", "tune", "--metric=accuracy"], "no step"),
        (["best", "other", "--metric=val_loss"], "no run `other`"),
        (["cat", "run:tune@11:model.safetensors", "-q"], "no step 11"),
        (["steps", "other", "--tensors"], "no run `other`"),
    ] {
        let output = home.run(&arguments);
        assert_eq!(code(&output), 1, "{arguments:?}");
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
}

#[test]
fn forget_shows_steps_and_metrics_of_what_it_decides_about() {
    let (home, _) = trained();
    home.backup(&["model.safetensors"]);
    let forget = ["forget", "--runs", "--keep-last", "1", "--dry-run"];
    let text = stdout(&home.run(&forget));
    assert!(text.contains("tune@30 lr=0.0001 val_loss=0.31  stays (last)\n"), "{text}");
    assert!(text.contains("tune@20 lr=0.0001 val_loss=0.25  would be deleted\n"), "{text}");
    let report = json(&home.run(&[&forget[..], &["--json"]].concat()));
    let first = &report["groups"][0]["snapshots"][0];
    assert_eq!(
        (&first["run"], &first["step"], &first["metrics"]["val_loss"]),
        (&"tune".into(), &30.into(), &0.31.into())
    );
    // Other snapshots have none of these keys.
    let report = json(&home.run(&["forget", "latest", "--dry-run", "--json"]));
    assert_eq!(report["groups"][0]["snapshots"][0].get("metrics"), None, "{report}");
}

#[test]
fn every_verb_that_takes_snapshots_takes_steps() {
    let (home, files) = trained();
    let ids = || -> Vec<String> {
        let listed = json(&home.run(&["snapshots", "--json"]));
        listed.as_array().unwrap().iter().map(|named| named["id"].as_str().unwrap().to_string()).collect()
    };
    let before = ids();
    let tagged = json(&home.run(&["tag", "run:tune@20", "--add", "kept", "--json"]));
    assert_eq!(tagged[0]["old"], before[1].as_str());
    let again = home.backup(&["model.safetensors", "--parent", "run:tune@30"]);
    assert_eq!(again["parent"], before[2].as_str());
    let rewritten = json(&home.run(&["rewrite", "run:tune@best:val_loss:max", "--exclude", "nothing", "--json"]));
    assert_eq!(rewritten[0]["original"], before[0].as_str());
    assert_eq!(code(&home.run(&["init", "--repo", "other"])), 0);
    let arguments = ["copy", "--repo", "other", "--from-repo", "data/fhrd/repository", "run:tune@latest", "--json"];
    assert_eq!(json(&home.run(&arguments))["snapshots"][0]["original"], before[2].as_str());
    let copied = home.run(&["cat", "--repo", "other", "run:tune@30:model.safetensors"]);
    assert_eq!(copied.stdout, files[2]);
    assert_eq!(json(&home.run(&["forget", "run:tune@10", "--json"]))["deleted"][0], before[0].as_str());
    assert!(!ids().contains(&before[0]) && ids().len() == before.len(), "{:?}", ids());
    for verb in [&["forget"][..], &["tag", "--add", "x"], &["rewrite", "--exclude", "x"]] {
        let output = home.run(&[verb, &["run:tune@10"]].concat());
        assert!(code(&output) == 1 && stderr(&output).contains("no step 10"), "{verb:?}: {}", stderr(&output));
    }
}

#[test]
fn a_checkpoint_needs_a_run_a_step_and_numbers() {
    let home = Home::new();
    home.write("model", b"x");
    for arguments in [
        &["--run", "a"][..],
        &["--step", "1"],
        &["--metric", "loss=1"],
        &["--run", "a", "--step", "x"],
        &["--run", "a", "--step", "1", "--metric", "loss"],
        &["--run", "a", "--step", "1", "--metric", "loss=low"],
    ] {
        assert_eq!(code(&home.run(&[&["backup", "model"], arguments].concat())), 2, "{arguments:?}");
    }
    let refused = home.run(&["backup", "model", "--run", "a@1", "--step", "1"]);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("name of a run"), "{}", stderr(&refused));
    home.backup(&["model", "--run", "a", "--step", "1", "--metric", "loss=inf"]);
    // A file that is no model has no tensors and no rate.
    let steps = json(&home.run(&["steps", "a", "--json"]));
    assert_eq!((&steps[0]["metrics"]["loss"], &steps[0]["no_op"]["tensors"]), (&"inf".into(), &0.into()));
}
