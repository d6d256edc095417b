//! Marks of lost and damaged containers: what they say is said until it is true no longer.

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::noise;

const REPOSITORY: &str = "data/fhrd/repository";

/// A home with one snapshot, whose id is returned.
fn stored() -> (Home, String) {
    let home = Home::new();
    (0..4).for_each(|number| home.write(&format!("directory/{number}"), &noise(number, 300_000)));
    let snapshot = home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string();
    (home, snapshot)
}

fn flip(home: &Home, name: &str) {
    let mut bytes = home.read(name);
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    home.write(name, &bytes);
}

fn marks(home: &Home) -> Vec<String> {
    home.names(&format!("{REPOSITORY}/marks/optional"))
}

fn assert_restores(home: &Home, snapshot: &str, target: &str) {
    json(&home.run(&["restore", snapshot, "--target", target, "--json"]));
    for number in 0..4 {
        assert!(home.read(&format!("{target}/directory/{number}")) == noise(number, 300_000), "{target} {number}");
    }
}

#[test]
fn a_lost_container_that_only_a_mark_names_is_reported_until_nothing_needs_it() {
    let (home, snapshot) = stored();
    let name = home.containers(REPOSITORY).pop().unwrap();
    std::fs::remove_file(home.path(&name)).unwrap();
    let blob = name.strip_prefix(&format!("{REPOSITORY}/")).unwrap();
    // No mark lists it, but a segment names it.
    let output = home.run(&["repair", "containers", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &report["missing"]), (20, &serde_json::json!([blob])), "{report}");
    assert_eq!(code(&home.run(&["repair", "index"])), 20);
    for round in 0..2 {
        let output = home.run(&["check", "--read-data"]);
        assert!(code(&output) == 20 && stderr(&output).contains(blob), "{}", stderr(&output));
        assert_eq!(marks(&home).len(), 1, "round {round}");
        let output = home.run(&["status"]);
        let text = stdout(&output);
        assert!(code(&output) == 20 && !text.contains("100.0 %"), "round {round}: {text}");
        assert!(text.contains("1 damaged") && text.contains("1 lost containers"), "round {round}: {text}");
        let status: Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
        assert_eq!(status["proof"]["containers_lost"], 1, "{status}");
        let verbs = [
            &["repair", "containers"][..],
            &["repair", "index"],
            &["verify", "--within", "1d"],
            &["verify", "--sample", "0.0001%"],
            &["check"],
        ];
        for words in verbs {
            let output = home.run(words);
            assert_eq!(code(&output), 20, "round {round}, {words:?}: {}{}", stdout(&output), stderr(&output));
        }
    }

    // The files are unchanged, but what is lost of them is stored again.
    home.backup(&["directory"]);
    assert_restores(&home, &snapshot, "restored");
    assert_eq!(code(&home.run(&["verify", "--within", "1d"])), 0);
    // Without snapshots nobody knows what they need.
    let snapshots = home.path(&format!("{REPOSITORY}/snapshots"));
    std::fs::rename(&snapshots, home.path("away")).unwrap();
    std::fs::create_dir(&snapshots).unwrap();
    assert_eq!(code(&home.run(&["check", "--read-data"])), 3);
    assert_eq!(marks(&home).len(), 1);
    std::fs::remove_dir(&snapshots).unwrap();
    std::fs::rename(home.path("away"), &snapshots).unwrap();
    let output = home.run(&["check", "--read-data"]);
    assert!(code(&output) == 0 && stderr(&output).contains("no snapshot needs it"), "{}", stderr(&output));
    assert_eq!(marks(&home), [""; 0]);
    let output = home.run(&["status"]);
    assert_eq!(code(&output), 0, "{}", stdout(&output));
}

#[test]
fn a_damaged_mark_stays_until_all_data_was_read() {
    let (home, _) = stored();
    let names = home.containers(REPOSITORY);
    let [.., other, lost] = names.as_slice() else { panic!("{names:?}") };
    std::fs::remove_file(home.path(lost)).unwrap();
    assert_eq!(code(&home.run(&["repair", "index"])), 20);
    let mark = format!("{REPOSITORY}/marks/optional/{}", marks(&home)[0]);
    flip(&home, &mark);
    flip(&home, other);
    assert_eq!(code(&home.run(&["verify", "--within", "1d"])), 20);
    assert!(home.path(&mark).exists() && marks(&home).len() == 2);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    assert!(!home.path(&mark).exists());
    assert_eq!(code(&home.run(&["status"])), 20);
}

#[test]
fn a_prune_doubts_what_was_damaged_when_it_was_read_although_the_mark_is_lost() {
    let (home, snapshot) = stored();
    flip(&home, &home.containers(REPOSITORY).pop().unwrap());
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    home.backup(&["directory"]);
    for name in marks(&home) {
        std::fs::remove_file(home.path(&format!("{REPOSITORY}/marks/optional/{name}"))).unwrap();
    }
    let output = home.run(&["prune", "--grace", "0s"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    home.backup(&["directory", "--force"]);
    assert_restores(&home, &snapshot, "restored");
}
