//! What a damaged repository costs: the entries in the damaged place, each named, and nothing else.

use std::path::PathBuf;

use super::fixture::{Home, code, json, stderr};
use super::tree::noise;

const FILES: u64 = 8;
const FILE_BYTES: usize = 1 << 20;

/// Six bits of noise in every byte: unlike pure noise, it is stored in frames of the size asked for.
fn content(number: u64) -> Vec<u8> {
    noise(number, FILE_BYTES).into_iter().map(|byte| b' ' + byte % 64).collect()
}

/// A home with a backup of eight files in containers of their own size.
fn stored() -> Home {
    let home = Home::new();
    home.write("small.toml", b"[container]\nbytes_target = \"1 MiB\"\n[compress]\nframe_bytes = \"64 KiB\"\n");
    for number in 0..FILES {
        home.write(&format!("directory/file-{number}"), &content(number));
    }
    let report = home.backup(&["directory", "--config", "small.toml"]);
    assert!(report["containers"].as_u64().is_some_and(|containers| containers >= 4));
    home
}

/// The largest container.
fn container(home: &Home) -> PathBuf {
    let directories = std::fs::read_dir(home.path("data/fhrd/repository/containers")).unwrap();
    let files = directories.flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Restores and demands that every file is either whole or named and absent. Returns how many are lost.
fn lost(home: &Home) -> u64 {
    let output = home.run(&["restore", "latest", "--target", "back", "--json"]);
    assert_eq!(code(&output), 20, "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut lost = 0;
    for number in 0..FILES {
        let name = format!("back/directory/file-{number}");
        if home.path(&name).exists() {
            assert!(home.read(&name) == content(number), "{name} is not what was stored");
        } else {
            let named =
                stderr(&output).lines().any(|l| l.starts_with("error: ") && l.contains(&format!("file-{number}")));
            assert!(named, "{name} is not named in\n{}", stderr(&output));
            lost += 1;
        }
    }
    assert_eq!((&report["damaged"], &report["files"]), (&lost.into(), &(FILES - lost).into()));
    lost
}

#[test]
fn a_flipped_bit_costs_the_files_in_its_frame() {
    let home = stored();
    assert_eq!(json(&home.run(&["check", "--read-data", "--json"]))["defect_count"], 0);
    let path = container(&home);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    assert!((1..=2).contains(&lost(&home)));
    let check = home.run(&["check", "--read-data", "--json"]);
    assert_eq!(code(&check), 20);
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert!(report["defect_count"].as_u64().is_some_and(|count| count > 0));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(report["defects"].to_string().contains(name), "{report}");
}

#[test]
fn a_truncated_container_costs_the_files_in_it() {
    let home = stored();
    let path = container(&home);
    let len = path.metadata().unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len / 2).unwrap();
    assert!((1..=3).contains(&lost(&home)));
    let check = home.run(&["check"]);
    assert_eq!(code(&check), 20);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(stderr(&check).lines().all(|line| line.starts_with("error: ")), "{}", stderr(&check));
    assert!(stderr(&check).contains(name), "{}", stderr(&check));
}

#[test]
fn a_lost_snapshot_does_not_hide_the_others() {
    let home = stored();
    let first = json(&home.run(&["snapshots", "--json"]));
    let id = first[0]["id"].as_str().unwrap().to_string();
    home.write("directory/more", b"more");
    home.backup(&["directory"]);
    home.write(&format!("data/fhrd/repository/snapshots/{id}"), b"not a snapshot");
    let output = home.run(&["snapshots", "--json"]);
    assert_eq!(code(&output), 20);
    assert!(stderr(&output).contains(&id), "{}", stderr(&output));
    let rest: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rest.as_array().map(Vec::len), Some(1));
    assert_eq!(code(&home.run(&["restore", &id])), 20);
    assert_eq!(code(&home.run(&["restore", "latest"])), 0);
}

#[test]
fn a_container_cut_short_is_stored_anew_by_the_next_backup() {
    let home = stored();
    let path = container(&home);
    let len = path.metadata().unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 100).unwrap();
    // The same chunks make a container of the same name, which must not count as stored because a file is there.
    home.backup(&["directory", "--config", "small.toml", "--force"]);
    let output = home.run(&["restore", "latest", "--target", "back", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for number in 0..FILES {
        assert_eq!(home.read(&format!("back/directory/file-{number}")), content(number));
    }
}
