//! `estimate` and `backup --dry-run`: what they say is what a backup stores.

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

fn noise(seed: u64, len: usize) -> Vec<u8> {
    crate::trees::Random(seed).bytes(len)
}

/// Text that zstd makes smaller.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let noise = noise(seed, len / 8 + 1);
    noise.iter().flat_map(|byte| format!("line {byte:03}").into_bytes()).take(len).collect()
}

fn planted() -> Home {
    let home = Home::new();
    for number in 0..40u64 {
        home.write(&format!("src/code/{number}.rs"), &text(number, 20_000));
        home.write(&format!("src/images/{number}.jpg"), &noise(1000 + number, 50_000));
    }
    home.write("src/copy.jpg", &noise(1000, 50_000));
    // A version of a large file.
    let mut version = noise(5, 2_000_000);
    home.write("src/disk-1.img", &version);
    version[1_000_000..1_001_000].fill(7);
    home.write("src/disk-2.img", &version);
    home
}

#[test]
fn a_small_source_is_read_whole_and_leaves_nothing() {
    let home = planted();
    let estimate = json(&home.run(&["estimate", "src", "--json"]));
    assert!(!home.path("data/fhrd").exists(), "there is no repository");
    assert!(home.names("cache/fhrd/estimates").is_empty());
    let real = home.backup(&["src"]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!((&estimate["whole"], &estimate["files"]), (&true.into(), &real["files"]));
    let (said, stored) = (number(&estimate["stored"]["bytes"]), number(&real["bytes_stored"]));
    // Each of the two has a key of its own, so chunks end at other bytes.
    assert!((said / stored - 1.0).abs() < 0.02, "{said} {stored}");
    assert_eq!(estimate["stored"]["error"], 0);
    // Exact chunks find the copy, but not the version.
    assert!(number(&estimate["exact_chunks"]["bytes"]) > said + 500_000.0, "{estimate}");
    let shares = ["duplicate", "near_duplicate", "incompressible"].map(|key| number(&estimate[key]));
    assert!(shares[0] > 0.005 && shares[1] > 0.004 && shares[2] > 0.4, "{estimate}");
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{estimate}");
    assert!(estimate["next_backup_bytes"].is_null());

    home.write("src/novel", &noise(77, 30_000));
    let second = home.backup(&["src"]);
    let estimate = json(&home.run(&["estimate", "src", "--json"]));
    assert_eq!(
        (&estimate["next_backup_bytes"], &estimate["next_backup_snapshots"]),
        (&second["bytes_stored"], &1.into())
    );
    let text = stdout(&home.run(&["estimate", "src", "--exclude", "*.jpg"]));
    assert!(text.contains("43 files") && text.contains("next backup"), "{text}");
    assert_eq!(code(&home.run(&["estimate", "nowhere"])), 1);
}

#[test]
fn a_dry_run_names_the_stored_bytes_of_the_backup_and_changes_nothing() {
    let home = planted();
    home.backup(&["src"]);
    home.write("src/code/new.rs", &text(99, 100_000));
    let mut version = noise(5, 2_000_000);
    version[500_000..500_100].fill(9);
    home.write("src/disk-3.img", &version);
    let blobs = || json(&home.run(&["stats", "--json"]))["stored_bytes"].clone();
    let before = blobs();
    let dry = home.backup(&["src", "--dry-run"]);
    assert_eq!((blobs(), &dry["snapshot"], &dry["dry_run"]), (before, &Value::Null, &true.into()));
    assert!(!home.names("data/fhrd/cache").iter().any(|name| name.starts_with("rehearsal")));
    let shown = home.run(&["backup", "src", "-n"]);
    assert!(stdout(&shown).contains("nothing; a backup would store"), "{}{}", stdout(&shown), stderr(&shown));
    let real = home.backup(&["src"]);
    for key in ["bytes_stored", "bytes_new", "chunks_new", "containers", "files", "files_unchanged"] {
        assert_eq!(dry[key], real[key], "{key}");
    }
    assert!(real["bytes_stored"].as_u64().unwrap() < 100_000, "the version is stored as copies: {real}");
}

/// A file that takes no space and hours to read.
fn write_endless(home: &Home, name: &str) {
    home.write(name, b"");
    std::fs::OpenOptions::new().write(true).open(home.path(name)).unwrap().set_len(1 << 42).unwrap();
}

#[test]
fn a_source_that_is_not_read_in_the_time_is_an_error_that_names_the_time() {
    let home = Home::new();
    write_endless(&home, "src/endless");
    let started = std::time::Instant::now();
    let ended = home.run(&["estimate", "src", "--read-holes", "--time", "1s"]);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    assert!(code(&ended) == 1 && stderr(&ended).contains("--time"), "{} {}", code(&ended), stderr(&ended));
    assert!(home.names("cache/fhrd/estimates").is_empty());
}

#[test]
fn what_cannot_be_read_is_named_and_counted_and_the_repository_is_left_out() {
    let home = planted();
    let real = home.backup(&["src"]);
    let whole = home.backup(&["."]);
    let estimate = json(&home.run(&["estimate", ".", "--json"]));
    assert_eq!((&estimate["files"], &estimate["files_read"]), (&whole["files"], &whole["files"]));
    let output = home.run(&["estimate", "src", "nowhere", "--json"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let estimate: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&estimate["files"], &estimate["problems"]), (&real["files"], &1.into()));
    assert_eq!(stderr(&output).matches("nowhere").count(), 1, "{}", stderr(&output));
    let shown = stdout(&home.run(&["estimate", "src", "nowhere"]));
    assert!(shown.contains("problems"), "{shown}");
}
