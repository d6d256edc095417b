//! `forget` and its siblings: spans of time, groups that must not become empty, wrong clocks, lists of tags, and runs.

use fhrd::repo::Repository;
use fhrd::repo::snapshot;
use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

/// A backup of `file` with the options, whose id is returned.
fn stored(home: &Home, options: &[&str]) -> String {
    let report = home.backup(&[options, &["file"]].concat());
    report["snapshot"].as_str().unwrap().to_string()
}

fn home() -> Home {
    let home = Home::new();
    home.write("file", b"letter");
    home
}

/// Ids of the snapshots that the options choose, oldest first.
fn listed(home: &Home, options: &[&str]) -> Vec<String> {
    let listed = json(&home.run(&[&["snapshots", "--json"], options].concat()));
    listed.as_array().unwrap().iter().map(|named| named["id"].as_str().unwrap().to_string()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Runs a command that must fail with this code and say this.
fn refused(home: &Home, arguments: &[&str], expected: i32, hint: &str) {
    let output = home.run(arguments);
    assert_eq!(code(&output), expected, "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains(hint), "{arguments:?}: {}", stderr(&output));
}

#[test]
fn rules_that_would_empty_a_group_delete_nothing_unless_that_is_said() {
    let home = home();
    for _ in 0..3 {
        stored(&home, &["--tag", "release"]);
    }
    stored(&home, &["--host", "other"]);
    let all = listed(&home, &[]);
    for rules in [&["--keep-tag", "relaese"][..], &["--keep-tag", "release,none"], &["--keep-tag", "release"]] {
        for more in [&[][..], &["--dry-run"], &["--prune", "--grace", "0"]] {
            refused(&home, &[&["forget"], rules, more].concat(), 1, "--allow-empty-group");
        }
    }
    refused(&home, &["forget", "--keep-tag", "release"], 1, "host other");
    home.write(
        "config/fhrd/p.toml",
        b"[backup]\nhost = 'other'\n[forget]\nkeep_tag = ['x']\nprune = true\ngrace = '0'\n",
    );
    refused(&home, &["forget", "--profile", "p"], 1, "--allow-empty-group");
    assert_eq!(listed(&home, &[]), all);
    let report = json(&home.run(&["forget", "--keep-tag", "release", "--allow-empty-group", "--json"]));
    assert_eq!((texts(&report["deleted"]), listed(&home, &[])), (vec![all[3].as_str()], all[..3].to_vec()));
    home.write(
        "config/fhrd/p.toml",
        format!(
            "repo = {:?}\n[backup]\nhost = {:?}\n[forget]\nkeep_tag = ['x']\nallow_empty_group = true\n",
            home.path("data/fhrd/repository"),
            json(&home.run(&["snapshots", "--json"]))[0]["host"].as_str().unwrap()
        )
        .as_bytes(),
    );
    assert_eq!(json(&home.run(&["forget", "--profile", "p", "--json"]))["deleted"].as_array().unwrap().len(), 3);
}

#[test]
fn spans_that_are_negative_zero_or_ambiguous_are_refused_everywhere() {
    let home = home();
    for time in ["2020-01-31", "2020-05-20", "2020-11-01", "2020-11-23"] {
        stored(&home, &["--time", &format!("{time} 12:00:00")]);
    }
    let all = listed(&home, &[]);
    for (span, hint) in [
        ("-30d", "negative"),
        ("30d ago", "negative"),
        ("0d", "no time"),
        ("6m", "6mo or 6min"),
        ("2h30m", "months or minutes"),
        ("soon", "soon"),
        ("99999999999y", "9999"),
    ] {
        for option in ["--keep-within", "--extend-locks"] {
            let verb = if option == "--keep-within" { "forget" } else { "prune" };
            refused(&home, &[verb, &format!("{option}={span}")], 2, hint);
        }
        for key in ["keep_within", "extend_locks"] {
            let profile = format!("repo = 'r'\n[forget]\nkeep_last = 1\nprune = true\n{key} = '{span}'\n");
            home.write("config/fhrd/p.toml", profile.as_bytes());
            let repository = home.path("data/fhrd/repository");
            let arguments = ["forget", "--profile", "p", "--repo", repository.to_str().unwrap()];
            refused(&home, &arguments, 1, &format!("forget.{key}"));
        }
    }
    // The value may be a word of its own, though it looks like an option.
    for words in [["forget", "--keep-within", "-30d"], ["prune", "--extend-locks", "-30d"], ["prune", "--grace", "-1h"]]
    {
        refused(&home, &words, 2, "negative");
    }
    refused(&home, &["find", "*", "--newer", "-3d"], 2, "2h30min");
    refused(&home, &["forget", "--keep-last", "-1"], 2, "-1");
    refused(&home, &["prune", "--grace", "6m"], 2, "write 6min in");
    for grace in ["-1h", "6m", "1mo", "1h30m"] {
        refused(&home, &["prune", &format!("--grace={grace}")], 2, "36h");
        refused(&home, &["forget", "--keep-last=1", "--prune", &format!("--grace={grace}")], 2, "36h");
        let profile = format!("[forget]\nkeep_last = 1\nprune = true\ngrace = '{grace}'\n");
        home.write("config/fhrd/p.toml", profile.as_bytes());
        refused(&home, &["forget", "--profile", "p"], 1, "forget.grace");
    }
    for age in ["-3d", "6m"] {
        refused(&home, &["find", "*", &format!("--newer={age}")], 2, "2h30min");
    }
    assert_eq!(listed(&home, &[]), all);
    let within = |span: &str| {
        let report = json(&home.run(&["forget", "--keep-within", span, "--dry-run", "--json"]));
        all.len() - report["deleted"].as_array().unwrap().len()
    };
    let spans = ["30d", "2 weeks", "5mo", "6mo 4d", "6m4d", "5m7d3h", "0y6m3d", "2y5m7d3h", "1y", "P6M", "90min"];
    assert_eq!(spans.map(within), [2, 1, 2, 3, 3, 2, 3, 4, 4, 2, 1]);
}

#[test]
fn a_rule_with_0_is_no_rule_and_nothing_without_another() {
    let home = home();
    (0..3).for_each(|_| drop(stored(&home, &[])));
    let repository = home.path("data/fhrd/repository");
    home.write("config/fhrd/p.toml", format!("repo = {repository:?}\n[forget]\nkeep_last = 1\n").as_bytes());
    for rules in [&["--keep-last", "0"][..], &["--keep-hourly=0", "--keep-daily=0"], &["--keep-last=0", "--dry-run"]] {
        for profile in [&[][..], &["--profile", "p"]] {
            refused(&home, &[&["forget"], rules, profile].concat(), 1, "a rule with 0 keeps nothing");
        }
    }
    assert_eq!(listed(&home, &[]).len(), 3);
    let report = json(&home.run(&["forget", "--keep-hourly", "0", "--keep-last", "2", "--json"]));
    assert_eq!((texts(&report["deleted"]).len(), listed(&home, &[]).len()), (1, 2));
}

#[test]
fn a_snapshot_from_the_future_is_named_and_neither_latest_nor_deleted_nor_counted() {
    let home = home();
    home.write("file", b"future");
    let backup = home.run(&["backup", "file", "--time", "2099-01-01T00:00:00Z"]);
    assert!(code(&backup) == 0 && stderr(&backup).contains("from the future"), "{}", stderr(&backup));
    let future = listed(&home, &[])[0].clone();
    let of_latest = |file: &str| home.run(&["cat", &format!("latest:{file}")]).stdout;
    assert_eq!(of_latest("file"), b"future", "there is no other");
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        home.write("file", text.as_bytes());
        let report = home.backup(&["file"]);
        let parent = ids.last().unwrap_or(&future);
        assert_eq!(report["parent"].as_str(), Some(parent.as_str()), "{text}");
        ids.push(report["snapshot"].as_str().unwrap().to_string());
    }
    assert_eq!(of_latest("file"), b"three");
    assert_eq!(json(&home.run(&["restore", "latest", "--target", "out", "--json"]))["damaged"], 0);
    assert_eq!(home.read("out/file"), b"three");
    for arguments in [&["snapshots"][..], &["backup", "file"], &["ls", "latest"], &["forget", "--keep-last", "9"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 0);
        assert!(
            stderr(&output).contains(&future[..8]) && stderr(&output).contains("2099-01-01"),
            "{}",
            stderr(&output)
        );
    }
    ids = listed(&home, &[]);
    assert_eq!(ids.pop().as_ref(), Some(&future), "backup above stored one more");
    assert_eq!(listed(&home, &["--latest", "1"]), ids[3..]);
    let would = |rules: &[&str]| {
        let report = json(&home.run(&[&["forget", "--dry-run", "--json"], rules].concat()));
        texts(&report["deleted"]).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut oldest_last = ids.clone();
    oldest_last.reverse();
    assert_eq!(would(&["--keep-last", "1"]), oldest_last[1..]);
    assert_eq!(would(&["--keep-within", "30d"]), Vec::<String>::new());
    assert_eq!(would(&["--keep-yearly", "1"]), oldest_last[1..]);
    let report = json(&home.run(&["forget", "--keep-last", "1", "--dry-run", "--json"]));
    assert_eq!(
        (&report["groups"][0]["snapshots"][0]["reasons"][0], &report["groups"][0]["snapshots"][0]["keep"]),
        (&"future".into(), &true.into())
    );
    // Several accuse the clock, whoever made them and whichever are chosen.
    stored(&home, &["--time", "2098-01-01T00:00:00Z", "--host", "other"]);
    for more in [&[][..], &["--dry-run"], &["--host", "other"], &["--prune", "--grace", "0"]] {
        refused(&home, &[&["forget", "--keep-last", "1"], more].concat(), 1, "--trust-clock");
    }
    assert_eq!(listed(&home, &[]).len(), 6);
    json(&home.run(&["forget", "--keep-last", "1", "--trust-clock", "--prune", "--grace", "0", "--json"]));
    assert_eq!(listed(&home, &[]).len(), 3, "two of the future, and the last one");
    json(&home.run(&["forget", &future, "--json"]));
    assert_eq!(json(&home.run(&["forget", "--keep-last", "1", "--json"]))["deleted"], serde_json::json!([]));
}

#[test]
fn a_comma_separates_tags_in_every_verb() {
    let home = home();
    let both = stored(&home, &["--tag", "a,b", "--tag", "b, c"]);
    let one = stored(&home, &["--tag", "a"]);
    let none = stored(&home, &[]);
    let tags = |id: &str| {
        let listed = json(&home.run(&["snapshots", "--json"]));
        let found = listed.as_array().unwrap().iter().find(|named| named["id"] == id).unwrap();
        texts(&found["tags"]).join("|")
    };
    assert_eq!((tags(&both), tags(&one), tags(&none)), ("a|b|c".into(), "a".into(), String::new()));
    assert_eq!(listed(&home, &["--tag", "b"]), [both.as_str()]);
    assert_eq!(listed(&home, &["--tag", "c,a"]), [both.as_str()]);
    assert_eq!(listed(&home, &["--tag", "a,none", "--tag", "a"]), [both.as_str(), &one]);
    assert_eq!(listed(&home, &["--tag", "", "--tag", "b"]), [both.as_str(), &none]);
    for arguments in [
        &["backup", "file", "--tag", "a,,b"][..],
        &["backup", "file", "--tag", ""],
        &["snapshots", "--tag", "a,"],
        &["forget", "--tag", ",", "--keep-last=1"],
        &["forget", "--keep-tag", "a,,b"],
        &["tag", "latest", "--add", ""],
        &["tag", "latest", "--remove", "a,"],
        &["tag", "latest", "--set", ",a"],
        &["restore", "latest", "--tag", "a,,b"],
    ] {
        refused(&home, arguments, 2, "empty tag");
    }
    home.write("config/fhrd/p.toml", b"[backup]\npaths = ['file']\ntag = ['x,']\n[forget]\nkeep_tag = ['x,']\n");
    refused(&home, &["backup", "--profile", "p"], 1, "empty tag");
    refused(&home, &["forget", "--profile", "p"], 1, "forget.keep_tag");
    let would = |rules: &[&str]| {
        let report = json(&home.run(&[&["forget", "--group-by=", "--dry-run", "--json"], rules].concat()));
        texts(&report["deleted"]).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(would(&["--keep-tag", "a,b"]), [none.as_str(), &one]);
    assert_eq!(would(&["--keep-tag", "a,b", "--keep-tag", ""]), [one.as_str()]);
    assert_eq!(would(&["--keep-last", "1", "--tag", "a"]), [both.as_str()]);
    assert_eq!(would(&["--keep-last", "1", "--tag", "a,b", "--tag", ""]), [both.as_str()]);

    let change = |options: &[&str], id: &str| {
        let changed = json(&home.run(&[&["tag", id, "--json"], options].concat()));
        changed[0]["new"].as_str().unwrap().to_string()
    };
    let both = change(&["--add", "d,e", "--remove", "a,c"], &both);
    assert_eq!(tags(&both), "b|d|e");
    let both = change(&["--set", "x,y"], &both);
    assert_eq!(tags(&both), "x|y");
    // A tag with a comma, from before, is found and removed as it is called.
    let repository = Repository::open_at(home.path("data/fhrd/repository")).unwrap();
    let named = snapshot::find(repository.store.as_ref(), &one).unwrap();
    let old = snapshot::Snapshot { tags: vec!["p,q".into()], ..named.snapshot };
    let old = old.save(repository.store.as_ref()).unwrap().to_string();
    assert_eq!(listed(&home, &["--tag", "p,q"]), [old.as_str()]);
    assert_eq!(listed(&home, &["--tag", "p"]), Vec::<String>::new());
    assert!(!would(&["--keep-tag", "p,q"]).contains(&old));
    assert_eq!(tags(&change(&["--remove", "p,q"], &old)), "");
}

#[test]
fn snapshots_of_runs_stay_unless_a_rule_names_runs() {
    let home = home();
    let step = |run: &str, step: &str, loss: &str| {
        stored(&home, &["--run", run, "--step", step, "--metric", &format!("loss={loss}")])
    };
    let steps =
        [step("tune", "1", "0.3"), step("tune", "2", "0.1"), step("tune", "3", "NaN"), step("tune", "4", "0.2")];
    let other = step("base", "1", "0.9");
    let nightly = [stored(&home, &[]), stored(&home, &[])];
    let report = |options: &[&str]| json(&home.run(&[&["forget", "--json"], options].concat()));
    let would = |options: &[&str]| {
        let report = report(&[options, &["--dry-run"]].concat());
        let mut deleted: Vec<String> = texts(&report["deleted"]).iter().map(ToString::to_string).collect();
        deleted.sort();
        (deleted, report["runs_left"].as_u64().unwrap())
    };
    let sorted = |ids: &[&String]| {
        let mut ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        ids.sort();
        ids
    };
    assert_eq!(would(&["--keep-daily", "7"]), (sorted(&[&nightly[0]]), 5));
    assert_eq!(would(&["--keep-tag", "", "--keep-within", "1d"]), (vec![], 5));
    assert_eq!(would(&["--keep-best", "loss:min"]), (sorted(&[&steps[0], &steps[2], &steps[3]]), 0));
    assert_eq!(
        would(&["--keep-best", "loss:max:2", "--keep-last=1"]),
        (sorted(&[&steps[1], &steps[2], &nightly[0]]), 0)
    );
    assert_eq!(would(&["--keep-last", "1", "--runs"]), (sorted(&[&steps[0], &steps[1], &steps[2]]), 0));
    assert_eq!(would(&["--runs", "b*", "--keep-last", "1"]), (vec![], 4));
    assert_eq!(would(&["--runs=tune", "--keep-best", "loss:min:2"]), (sorted(&[&steps[0], &steps[2]]), 1));
    assert_eq!(would(&["--keep-best", "lsos:min"]), (vec![], 0), "a run without the metric stays whole");
    let text = stdout(&home.run(&["forget", "--keep-daily", "7", "--dry-run"]));
    assert!(text.contains("5 snapshots of runs left alone") && text.contains("--keep-best"), "{text}");
    let text = stdout(&home.run(&["forget", "--keep-best", "loss:min", "--dry-run"]));
    assert!(text.contains("run tune\n") && text.contains("stays (best)") && !text.contains("left alone"), "{text}");
    assert_eq!(report(&["--keep-best", "loss:min", "--dry-run"])["groups"][1]["run"], "tune");
    for rule in ["loss", "loss:mean", "loss:min:0", ":min"] {
        refused(&home, &["forget", "--keep-best", rule], 2, "METRIC:min");
    }
    refused(&home, &["forget", &other, "--runs"], 2, "cannot be used");

    let profile = |rules: &str| {
        home.write("config/fhrd/p.toml", format!("[forget]\n{rules}\n").as_bytes());
        would(&["--profile", "p"])
    };
    assert_eq!(profile("keep_daily = 7"), (sorted(&[&nightly[0]]), 5));
    assert_eq!(profile("keep_daily = 7\nkeep_best = ['loss:min:3']"), (sorted(&[&nightly[0], &steps[2]]), 0));
    assert_eq!(profile("keep_last = 1\nruns = 'tune'"), (sorted(&[&steps[0], &steps[1], &steps[2]]), 1));
    home.write("config/fhrd/p.toml", b"[forget]\nkeep_best = ['loss']\n");
    refused(&home, &["forget", "--profile", "p"], 1, "forget.keep_best");

    let done = report(&["--keep-best", "loss:min:1", "--keep-last", "1", "--prune", "--grace", "0"]);
    assert_eq!((done["deleted"].as_array().unwrap().len(), done["prune"]["snapshots"].as_u64()), (3, Some(4)));
    let left = json(&home.run(&["steps", "tune", "--json"]));
    assert_eq!(left.as_array().unwrap().iter().map(|step| &step["step"]).collect::<Vec<_>>(), [&2, &4]);
    assert_eq!(report(&[&steps[1]])["deleted"], serde_json::json!([steps[1]]), "who names it may delete it");
}
