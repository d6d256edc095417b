//! `recompress`, and backups at the level of archives.

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
use crate::trees::Random;

/// Writes many small files of lines from one list, as sources of a project share them, and weights.
fn write_tree(home: &Home, seed: u64) {
    let mut random = Random(7);
    let lines: Vec<Vec<u8>> = (0..3000).map(|_| random.text(40)).collect();
    let mut random = Random(seed);
    for number in 0..250 {
        let text: Vec<u8> = (0..400).flat_map(|_| lines[random.below(3000) as usize].clone()).collect();
        home.write(&format!("tree/{}/{number}.txt", number % 9), &text);
    }
    home.write("tree/weights.bin", &random.floats(50_000));
}

fn container_bytes(home: &Home) -> u64 {
    let directories = home.names("data/fhrd/repository/containers");
    let files = directories.iter().flat_map(|directory| {
        let directory = format!("data/fhrd/repository/containers/{directory}");
        home.names(&directory).into_iter().map(move |name| format!("{directory}/{name}"))
    });
    files.map(|file| std::fs::metadata(home.path(&file)).unwrap().len()).sum()
}

fn assert_restores(home: &Home, snapshot: &str, tree: &str) {
    json(&home.run(&["restore", snapshot, "--target", "out", "--json"]));
    let difference =
        std::process::Command::new("diff").args(["-r", tree, "out/tree"]).current_dir(home.path("")).output();
    assert_eq!(stdout(&difference.unwrap()), "", "{snapshot}");
    std::fs::remove_dir_all(home.path("out")).unwrap();
}

fn recompress(home: &Home, arguments: &[&str]) -> Value {
    json(&home.run(&[&["recompress", "--grace", "0", "--json"], arguments].concat()))
}

/// A repository with two snapshots. Their ids.
fn two_snapshots(home: &Home) -> Vec<String> {
    let mut ids = Vec::new();
    for seed in [1, 2] {
        write_tree(home, seed);
        ids.push(home.backup(&["tree"])["snapshot"].as_str().unwrap().to_string());
        std::fs::rename(home.path("tree"), home.path(&format!("tree{seed}"))).unwrap();
    }
    ids
}

#[test]
fn small_files_become_smaller_and_all_snapshots_restore() {
    let home = Home::new();
    let ids = two_snapshots(&home);
    let before = container_bytes(&home);
    let shown = recompress(&home, &["--dry-run"]);
    assert_eq!((container_bytes(&home), &shown["dry_run"]), (before, &true.into()));
    let report = recompress(&home, &[]);
    let after = container_bytes(&home);
    assert!(
        shown["bytes_loose"].as_u64() > Some(0) && shown["bytes_loose"] == report["bytes_loose"],
        "{shown} {report}"
    );
    assert!(
        report["bytes_moved"].as_u64() > Some(0) && after * 10 < before * 9,
        "{before} bytes became {after}: {report}"
    );
    for (id, tree) in ids.iter().zip(["tree1", "tree2"]) {
        assert_restores(&home, id, tree);
    }
    let checked = home.run(&["check", "--read-data"]);
    assert_eq!(code(&checked), 0, "{}", stderr(&checked));
    // Nothing is left to do.
    let again = recompress(&home, &[]);
    assert_eq!((&again["bytes_moved"], &again["bytes_loose"], container_bytes(&home)), (&0.into(), &0.into(), after));
    // What a later backup finds there is not stored again.
    std::fs::rename(home.path("tree2"), home.path("tree")).unwrap();
    let equal = home.backup(&["tree", "--force"]);
    assert_eq!(equal["bytes_new"], 0, "{equal}");
}

#[test]
fn a_bounded_run_leaves_the_rest_to_the_next_one() {
    let home = Home::new();
    home.write("c.toml", b"[container]\nbytes_target = '1 MiB'\n");
    let run = |arguments: &[&str]| json(&home.run(&[&["--config", "c.toml", "--json"], arguments].concat()));
    for seed in 1..4 {
        write_tree(&home, seed);
        run(&["backup", "tree"]);
    }
    let whole = run(&["recompress", "--grace", "0", "--dry-run"])["bytes_loose"].as_u64().unwrap();
    let first = run(&["recompress", "--grace", "0", "--repack", "1300KiB"]);
    let moved = first["bytes_moved"].as_u64().unwrap();
    assert!(moved > 0 && moved <= 1300 << 10, "{first}");
    let left = run(&["recompress", "--grace", "0", "--dry-run"])["bytes_loose"].as_u64().unwrap();
    assert!(left > 0 && left < whole, "{left} of {whole}");
    assert_restores(&home, "latest", "tree");
    // Containers that are younger than the grace period stay.
    assert_eq!(run(&["recompress"])["bytes_moved"], 0);
}

#[test]
fn backup_at_the_level_of_archives_leaves_nothing_to_recompress() {
    let (home, archive) = (Home::new(), Home::new());
    for (home, level) in [(&home, "default"), (&archive, "archive")] {
        write_tree(home, 1);
        home.backup(&["--level", level, "tree"]);
        assert_restores(home, "latest", "tree");
    }
    let (bytes, less) = (container_bytes(&home), container_bytes(&archive));
    assert!(less * 10 < bytes * 9, "{bytes} and {less} bytes");
    assert_eq!(recompress(&archive, &[])["bytes_moved"], 0);
    assert_eq!(code(&home.run(&["backup", "--level", "best", "tree"])), 2);
}
