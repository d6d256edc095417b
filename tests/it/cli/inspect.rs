//! Looking into a repository: `ls`, `stats`, `check`.

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::{describe, plant};

#[test]
fn ls_prints_paths_or_details_or_json() {
    let home = Home::new();
    plant(&home.path("tree"));
    home.backup(&["tree"]);
    let expected = describe(&home.path("tree"));
    let entries = json(&home.run(&["ls", "latest", "--json"]));
    let entries = entries.as_array().unwrap();
    assert_eq!(entries.len(), expected.len());
    let by_path = |path: &str| entries.iter().find(|entry| entry["path"] == path).unwrap();
    let text = by_path("tree/text");
    assert_eq!((&text["type"], &text["mode"], &text["size"]), (&"file".into(), &0o600.into(), &448_890.into()));
    assert_eq!(text["mtime"], "2009-02-13T23:31:30.123456789Z");
    assert!(text["uid"].is_u64() && text["gid"].is_u64() && text.get("path_hex").is_none());
    let link = by_path("tree/link");
    assert_eq!((&link["type"], &link["link_target"]), (&"symlink".into(), &"deep/er".into()));
    assert_eq!(by_path("tree/another name")["hard_link"], by_path("tree/deep/er/noise")["hard_link"]);
    assert_eq!(by_path("tree/sparse")["sparse"], true);
    #[cfg(not(target_vendor = "apple"))]
    {
        let odd = entries.iter().find(|entry| entry.get("path_hex").is_some()).unwrap();
        assert_eq!(odd["path"], "tree/not utf-8 \u{fffd}\u{fffd}");
        assert!(odd["path_hex"].as_str().is_some_and(|hex| hex.ends_with("20fffe")));
        assert_eq!(by_path("tree/pipe")["type"], "fifo");
    }

    let below = stdout(&home.run(&["ls", "latest", "tree/deep/er", "--recursive"]));
    let lines: Vec<&str> = below.lines().collect();
    assert!(lines.contains(&"tree/deep/er/noise") && lines.contains(&"tree/deep/er/est/one byte"), "{below}");
    assert!(!lines.contains(&"tree/text"), "{below}");
    let long = stdout(&home.run(&["ls", "-l", "latest", "tree/deep"]));
    assert!(long.lines().any(|line| line.starts_with("lrwx") && line.ends_with("tree/deep/dangling -> nowhere")));
    assert!(long.lines().any(|line| line.starts_with("drwxrwxrwt") && line.ends_with("tree/deep/er")), "{long}");
    let absent = home.run(&["ls", "latest", "tree/absent", "--json"]);
    assert_eq!((code(&absent), stdout(&absent)), (1, String::new()));
    assert!(stderr(&absent).contains("tree/absent"), "{}", stderr(&absent));
}

#[test]
fn a_sound_repository_has_figures_and_no_defects() {
    let home = Home::new();
    plant(&home.path("tree"));
    let snapshot = home.backup(&["tree"])["snapshot"].as_str().unwrap().to_string();
    for arguments in [&["check", "--json"][..], &["check", "--read-data", "--json"]] {
        let report = json(&home.run(arguments));
        assert_eq!((&report["snapshots"], &report["defect_count"]), (&1.into(), &0.into()));
        assert_eq!(report["defects"], serde_json::json!([]));
        assert!(["containers", "chunks", "frames", "bytes_stored"].iter().all(|key| report[key].as_u64() > Some(0)));
    }
    assert!(stdout(&home.run(&["check"])).contains("defects"));
    assert!(json(&home.run(&["stats", "--json"])).is_object());
    assert!(json(&home.run(&["stats", &snapshot, "--json"])).is_object());
    assert!(stdout(&home.run(&["stats"])).lines().count() > 3);
    assert_eq!(code(&home.run(&["stats", "ffffffffffff"])), 1);
}

#[test]
fn a_chunk_that_is_all_copied_has_figures() {
    let home = Home::new();
    let lines = |left_out: std::ops::Range<u32>| -> String {
        (1..200_000).filter(|line| !left_out.contains(line)).map(|line| format!("{line}\n")).collect()
    };
    for left_out in [0..0, 5_000..9_000] {
        home.write("src/log.txt", lines(left_out).as_bytes());
        home.backup(&["src"]);
    }
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    let stats = json(&home.run(&["stats", "--json"]));
    let distinct = stats["usage"]["distinct_bytes"].as_u64().unwrap();
    let by_snapshot = json(&home.run(&["stats", "--by-snapshot", "--json"]));
    let all = [&by_snapshot["shared"], &by_snapshot["snapshots"][0]["alone"], &by_snapshot["snapshots"][1]["alone"]];
    let raw: u64 = all.iter().map(|bytes| bytes["raw_bytes"].as_u64().unwrap()).sum();
    assert!(raw >= distinct, "{raw} of {distinct}: {by_snapshot}");
    assert_eq!(code(&home.run(&["stats", "latest"])), 0);
}

#[test]
fn stats_of_no_snapshots_say_so() {
    let home = Home::new();
    home.write("src/a", b"a");
    home.backup(&["src"]);
    let output = home.run(&["stats", "--host", "none"]);
    assert!(code(&output) == 0 && stdout(&output).is_empty(), "{}", stdout(&output));
    assert!(stderr(&output).contains("there are no such snapshots"), "{}", stderr(&output));
    assert_eq!(json(&home.run(&["stats", "--host", "none", "--json"]))["usage"]["files"], 0);
}
