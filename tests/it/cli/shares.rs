//! `--shard`: shares of paths of a file system, and of what is stored.

use super::fixture::{Home, code, json, stderr, stdout};
use super::model_fixture::Weights;

const COUNT: usize = 4;

/// A home with files of many directories.
fn files() -> Home {
    let home = Home::new();
    for number in 0..60 {
        home.write(&format!("src/d{}/{number}", number % 12), format!("file {number}").repeat(50).as_bytes());
    }
    home
}

fn share(home: &Home, at: usize, group: &str, more: &[&str]) -> serde_json::Value {
    let share = format!("{at}/{COUNT}");
    home.backup(&[&["src", "--shard", &share, "--group", group], more].concat())
}

#[test]
fn shares_of_paths_are_together_the_whole_from_any_host() {
    let home = files();
    home.write("src/m/model.safetensors", &Weights::base().bf16());
    for group in ["first", "second"] {
        let reports: Vec<_> =
            (1..=COUNT).map(|at| share(&home, at, group, &["--host", &format!("{group}-{at}")])).collect();
        let count = |name: &str| reports.iter().map(|report| report[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!((count("files"), count("excluded"), count("files_removed")), (61, 0, 0));
        assert!(reports.iter().filter(|report| report["files"] != 0).count() > 2);
        for named in json(&home.run(&["snapshots", "--group", group, "--json"])).as_array().unwrap() {
            json(&home.run(&["restore", named["id"].as_str().unwrap(), "--json", "--target", group]));
        }
        for number in 0..60 {
            let name = format!("src/d{}/{number}", number % 12);
            assert!(home.read(&name) == home.read(&format!("{group}/{name}")), "{name}");
        }
    }
    let second = json(&home.run(&["snapshots", "--group", "second", "--json"]));
    assert!(second.as_array().unwrap().iter().all(|named| named["parent"].is_string()), "each has a parent");
}

#[test]
fn rules_keep_each_share() {
    let home = files();
    for group in ["first", "second"] {
        (1..=COUNT).for_each(|at| drop(share(&home, at, group, &[])));
    }
    json(&home.run(&["forget", "--keep-last", "1", "--json"]));
    assert_eq!(json(&home.run(&["snapshots", "--group", "second", "--json"])).as_array().unwrap().len(), COUNT);
    assert_eq!(json(&home.run(&["snapshots", "--json"])).as_array().unwrap().len(), COUNT);
    // A share that was stored twice takes no place from a job that is kept.
    (1..=COUNT).for_each(|at| drop(share(&home, at, "third", &[])));
    share(&home, 1, "third", &[]);
    json(&home.run(&["forget", "--keep-last", "2", "--json"]));
    for group in ["second", "third"] {
        let listed = home.run(&["snapshots", "--group", group, "--json"]);
        assert_eq!((code(&listed), json(&listed).as_array().unwrap().len()), (0, COUNT), "{group}");
    }
    assert!(stderr(&home.run(&["ls", "latest"])).contains("latest is share 1/4 of the group third"));
}

#[test]
fn shares_do_not_depend_on_how_a_path_is_spelled() {
    let home = Home::new();
    for number in 0..12 {
        home.write(&format!("src/m{number}/model.safetensors"), &Weights::base().tuned(number).bf16());
    }
    let spelled = ["src", "./src", "src//", "src/m1/.."];
    let files = (1..=COUNT).zip(spelled).map(|(at, path)| {
        let share = format!("{at}/{COUNT}");
        home.backup(&[path, "--shard", &share, "--group", "job"])["files"].as_u64().unwrap()
    });
    assert_eq!(files.sum::<u64>(), 12);
}

#[test]
fn a_group_is_not_whole_while_a_share_could_not_read_a_file() {
    let home = files();
    for at in 1..=COUNT {
        home.run(&["backup", "src", "missing", "--shard", &format!("{at}/{COUNT}"), "--group", "job", "--json"]);
    }
    let listed = home.run(&["snapshots", "--group", "job"]);
    assert_eq!(code(&listed), 3, "{}", stderr(&listed));
    assert!(stderr(&listed).contains("could not be read by share"), "{}", stderr(&listed));
}

#[test]
fn a_split_is_shown_without_a_repository() {
    let home = files();
    home.write("src/large/one", &vec![7; 400_000]);
    let output = home.run(&["backup", "src", "--shard", "2/4", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let shown = stdout(&output);
    assert!(shown.contains("2/4*") && shown.contains("3/4 ") && shown.lines().count() == 5, "{shown}");
    assert!(stderr(&output).contains("large has") && stderr(&output).contains("an even share"), "{}", stderr(&output));
    assert!(!home.path("data").exists(), "nothing is created");
    // What belongs to a repository that cannot be opened is not known, so nobody can leave it out.
    let damaged = Home::new();
    damaged.write("repository/config", b"this is no configuration");
    let repository = damaged.path("repository");
    let output = home.run(&["backup", "src", "--shard", "2/4", "--dry-run", "--repo", repository.to_str().unwrap()]);
    assert!(code(&output) != 0 && stdout(&output).is_empty(), "{}", stdout(&output));
    for (words, reason) in [
        (vec!["backup", "src", "--shard", "1/4"], "--group"),
        (vec!["backup", "src", "--group", "g"], "--shard"),
        (vec!["backup", "src", "--shard", "5/4", "--group", "g"], "I from 1 to N"),
        (vec!["backup", "--stdin", "--shard", "1/4", "--group", "g"], "a stream is one"),
        (vec!["check", "--shard", "1/4"], "--read-data"),
    ] {
        let output = home.run(&words);
        assert!(code(&output) != 0 && stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn checks_and_verifications_of_all_shares_read_all_containers_once() {
    let home = files();
    for number in 0..6 {
        home.write("src/d0/0", &crate::trees::Random(number).bytes(50_000));
        home.backup(&["src"]);
    }
    let containers = json(&home.run(&["stats", "--json"]))["containers"].as_u64().unwrap();
    let shown = json(&home.run(&["check", "--read-data", "--shard", "1/4", "-n", "--json"]));
    assert_eq!(shown["files"], containers);
    for words in [&["check", "--read-data"][..], &["verify", "--within", "1d"]] {
        let mut read = 0;
        for at in 1..=COUNT {
            let share = format!("{at}/{COUNT}");
            let report = json(&home.run(&[words, &["--shard", &share, "--json"]].concat()));
            let report = if report.is_array() { report[0].clone() } else { report };
            read += report["containers_read"].as_u64().unwrap();
        }
        assert_eq!(read, containers, "{words:?}");
    }
    let (mut files, mut sampled) = (0, 0);
    for at in 1..=COUNT {
        let share = format!("{at}/{COUNT}");
        let report = json(&home.run(&["verify", "--sample", "100%", "--shard", &share, "--json"]));
        files += report[0]["files_read"].as_u64().unwrap();
        sampled += report[0]["files"].as_u64().unwrap();
    }
    let whole = json(&home.run(&["verify", "--sample", "100%", "--json"]));
    assert_eq!((&whole[0]["files_read"], &whole[0]["files"]), (&files.into(), &sampled.into()));
    // Damage is found by the share that it falls to.
    let path = json(&home.run(&["check", "--json"]));
    assert_eq!(path["defect_count"], 0);
}

#[test]
fn copies_of_all_shares_have_every_snapshot_once() {
    let home = files();
    for name in ["d0", "d1", "d2", "d3", "d4", "d5"] {
        home.backup(&[&format!("src/{name}")]);
        home.backup(&[&format!("src/{name}")]);
    }
    json(&home.run(&["init", "--repo", "copy", "--json"]));
    let source = home.path("data/fhrd/repository");
    let source = source.to_str().unwrap();
    let copy = |share: &str, more: &[&str]| {
        let words = ["copy", "--repo", "copy", "--from-repo", source, "--shard", share, "--json"];
        json(&home.run(&[&words, more].concat()))
    };
    let shown = copy("1/3", &["--dry-run"]);
    assert_eq!(shown["files"], 12);
    let counts: Vec<usize> =
        (1..=3).map(|at| copy(&format!("{at}/3"), &[])["snapshots"].as_array().unwrap().len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 12);
    assert!(counts.iter().all(|count| count.is_multiple_of(2)), "versions of a path stay together: {counts:?}");
    assert_eq!(json(&home.run(&["snapshots", "--repo", "copy", "--json"])).as_array().unwrap().len(), 12);
}
