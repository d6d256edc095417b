//! What a damaged repository costs: the entries in the damaged place, each named, and nothing else.

use std::path::PathBuf;

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
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
        std::fs::hard_link(
            home.path(&format!("directory/file-{number}")),
            home.path(&format!("directory/link-{number}")),
        )
        .unwrap();
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

/// Restores and demands that every file is either whole, or named and kept as far as it is good. Returns how many are
/// not whole.
fn lost(home: &Home) -> u64 {
    let output = home.run(&["restore", "latest", "--target", "back", "--json"]);
    assert_eq!(code(&output), 20, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut lost = 0;
    for number in 0..FILES {
        let name = format!("back/directory/file-{number}");
        let link = format!("back/directory/link-{number}");
        assert_eq!(home.path(&name).exists(), home.path(&link).exists());
        if home.path(&name).exists() {
            assert!(home.read(&name) == content(number), "{name} is not what was stored");
            assert_eq!(home.inode(&name), home.inode(&link));
            continue;
        }
        let named = |line: &str| line.starts_with("error: ") && line.contains(&format!("file-{number}"));
        assert!(stderr(&output).lines().any(named), "{name} is not named in\n{}", stderr(&output));
        lost += 1;
        let [file, link] = ["file", "link"].map(|kind| damaged(&report, &format!("directory/{kind}-{number}")));
        if let Some(saved_as) = file["saved_as"].as_str() {
            assert_eq!((saved_as, file["lost_more"].as_u64()), (&*format!("directory/file-{number}.damaged"), Some(0)));
            assert!(home.read(&format!("back/{saved_as}")) == without(&content(number), file), "{saved_as}");
            let link = format!("back/{}", link["saved_as"].as_str().unwrap());
            assert_eq!(home.inode(&link), home.inode(&format!("back/{saved_as}")));
        }
    }
    let names = home.names("back/directory");
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    assert_eq!((&report["damaged"], &report["files"]), (&(2 * lost).into(), &(2 * (FILES - lost)).into()));
    lost
}

/// The report's line of the damaged file at `path`.
fn damaged<'a>(report: &'a Value, path: &str) -> &'a Value {
    let files = report["damaged_files"].as_array().unwrap();
    files.iter().find(|file| file["path"] == path).unwrap_or_else(|| panic!("{path} is not in {files:?}"))
}

/// Content with zeros in the lost ranges of a report's line.
fn without(content: &[u8], file: &Value) -> Vec<u8> {
    let mut bytes = content.to_vec();
    for range in file["lost"].as_array().unwrap() {
        let [offset, len] = [0, 1].map(|number| range[number].as_u64().unwrap() as usize);
        assert!(len > 0);
        bytes[offset..offset + len].fill(0);
    }
    assert!(bytes != content, "nothing is lost");
    bytes
}

/// Flips a bit in the middle of the largest container.
fn flip(home: &Home) -> PathBuf {
    let path = container(home);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_flipped_bit_costs_the_files_in_its_frame() {
    let home = stored();
    assert_eq!(json(&home.run(&["check", "--read-data", "--json"]))["defect_count"], 0);
    let path = flip(&home);
    assert!((1..=2).contains(&lost(&home)));
    let check = home.run(&["check", "--read-data", "--json"]);
    assert_eq!(code(&check), 20);
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert!(report["defect_count"].as_u64().is_some_and(|count| count > 0));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(report["defects"].to_string().contains(name), "{report}");
}

#[test]
fn a_check_of_a_part_reads_that_part() {
    let home = stored();
    flip(&home);
    // A check that quarantines makes the damage known to every later one.
    let check = |subset: &str| {
        let output = home.run(&["check", "--read-data-subset", subset, "--report-only", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let read = |key: &str| report[key].as_u64().unwrap();
        assert_eq!(code(&output), if read("defect_count") > 0 { 20 } else { 0 });
        (read("defect_count") > 0, read("containers_read"), read("bytes_read"), read("containers"))
    };
    let (found, read, bytes_read, containers) = check("100%");
    assert!(found && read == containers && bytes_read > FILES << 19);
    let parts = ["1/3", "2/3", "3/3"].map(&check);
    assert_eq!(parts.iter().filter(|part| part.0).count(), 1, "one part has the damage: {parts:?}");
    assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), containers);
    let (_, read, bytes_read, _) = check("1 KiB");
    assert!(read == 1 && bytes_read > 1024);
    assert_eq!(code(&home.run(&["check", "--read-data-subset", "4/3"])), 2);
    assert_eq!(json_without_reading(&home), (0, 0));
}

/// Defects and containers read of a check of the structure alone.
fn json_without_reading(home: &Home) -> (u64, u64) {
    let report = json(&home.run(&["check", "--json"]));
    (report["defect_count"].as_u64().unwrap(), report["containers_read"].as_u64().unwrap())
}

#[test]
fn a_damaged_file_never_replaces_one_and_can_be_left_out() {
    let home = stored();
    flip(&home);
    let output = home.run(&["restore", "latest", "--target", "none", "--json", "--no-damaged"]);
    assert_eq!(code(&output), 20, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = report["damaged_files"].as_array().unwrap();
    assert!(!lost.is_empty() && lost.iter().all(|file| file["saved_as"].is_null()), "{report}");
    assert!(home.names("none/directory").iter().all(|name| !name.contains("damaged") && !name.starts_with('.')));
    let path = lost[0]["path"].as_str().unwrap();
    home.write(&format!("back/{path}.damaged"), b"the user's");
    home.write(&format!("back/{path}.damaged-2"), b"the user's");
    let output = home.run(&["restore", "latest", "--target", "back", "--json"]);
    assert_eq!(code(&output), 20, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(damaged(&report, path)["saved_as"], format!("{path}.damaged-3"));
    for suffix in ["", "-2"] {
        assert_eq!(home.read(&format!("back/{path}.damaged{suffix}")), b"the user's");
    }
    let saved = format!("warning: {path}.damaged-3: bytes ");
    assert!(stderr(&output).lines().any(|line| line.starts_with(&saved)), "{}", stderr(&output));
}

#[test]
fn a_target_that_cannot_take_a_file_keeps_the_others() {
    let home = stored();
    home.write("directory/small", b"small");
    home.backup(&["directory", "--config", "small.toml"]);
    let program = env!("CARGO_BIN_EXE_fhrd");
    // Writes beyond 512 KiB fail with an error of the file, because the signal is ignored.
    let script = format!("trap '' XFSZ; ulimit -f 512; '{program}' restore latest --target back --json");
    let plain = home.command(&[]);
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &script]).current_dir(home.path(""));
    plain.get_envs().for_each(|(name, value)| match value {
        Some(value) => drop(shell.env(name, value)),
        None => drop(shell.env_remove(name)),
    });
    let output = shell.output().unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["files"], &report["damaged"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(home.read("back/directory/small"), b"small");
    assert!(stderr(&output).contains("cannot restore directory/file-0"), "{}", stderr(&output));
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
    // What the local cache knows is not read again.
    std::fs::remove_dir_all(home.path("data/fhrd/cache")).unwrap();
    let output = home.run(&["snapshots", "--json"]);
    assert_eq!(code(&output), 20);
    assert!(stderr(&output).contains(&id), "{}", stderr(&output));
    let rest: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rest.as_array().map(Vec::len), Some(1));
    for words in [&["restore", &id][..], &["forget", &id], &["prune"]] {
        let output = home.run(words);
        let text = stderr(&output);
        assert!(code(&output) == 20 && text.contains("`fhrd repair snapshots`"), "{words:?}: {text}");
        assert!(text.contains(&id) && !text.contains("snapshot snapshot"), "{words:?}: {text}");
    }
    assert_eq!(code(&home.run(&["restore", "latest"])), 0);
    assert_eq!(code(&home.run(&["repair", "snapshots", "--forget"])), 20);
    assert_eq!((code(&home.run(&["snapshots"])), code(&home.run(&["prune"]))), (0, 0));
}

#[test]
fn a_snapshot_that_only_a_copy_knows_is_not_called_whole() {
    let home = stored();
    let first = json(&home.run(&["snapshots", "--json"]));
    let name = format!("data/fhrd/repository/snapshots/{}", first[0]["id"].as_str().unwrap());
    home.write(&name, b"");
    let output = home.run(&["snapshots", "--json"]);
    assert!(code(&output) == 20 && stderr(&output).contains("as a copy has"), "{}", stderr(&output));
    // It is listed nevertheless.
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), first);
    let dry = stdout(&home.run(&["repair", "snapshots", "-n"]));
    assert!(dry.contains("would be 1") && home.read(&name).is_empty(), "{dry}");
    let repaired = stdout(&home.run(&["repair", "snapshots"]));
    assert!(repaired.contains("blobs written again  1\n"), "{repaired}");
    assert_eq!((json(&home.run(&["snapshots", "--json"])), home.read(&name).is_empty()), (first, false));
}

#[test]
fn a_container_cut_short_is_stored_anew_by_the_next_backup() {
    let home = stored();
    let path = container(&home);
    let len = path.metadata().unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 100).unwrap();
    // The same chunks make a container of the same name, which must not count as stored because a file is there.
    let output = home.run(&["backup", "directory", "--config", "small.toml", "--force"]);
    assert_eq!(code(&output), 3, "it could not read a container: {}", stderr(&output));
    assert!(stdout(&output).contains("1 containers of the repository"), "{}", stdout(&output));
    let output = home.run(&["restore", "latest", "--target", "back", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for number in 0..FILES {
        assert_eq!(home.read(&format!("back/directory/file-{number}")), content(number));
    }
}

#[test]
fn a_directory_in_the_place_of_a_configuration_is_a_damaged_copy() {
    for name in ["config", "config-copy"] {
        for content in [None, Some("full")] {
            let home = Home::new();
            home.write("directory/file", &noise(1, 3000));
            home.backup(&["directory"]);
            let path = home.path(&format!("data/fhrd/repository/{name}"));
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            content.iter().for_each(|inner| std::fs::write(path.join(inner), "x").unwrap());
            assert_eq!(code(&home.run(&["check"])), 20, "{name}");
            let id = home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string();
            json(&home.run(&["restore", &id, "--target", "out", "--json"]));
            // Only an empty directory makes way.
            assert_eq!(path.is_file(), content.is_none(), "{name}");
            assert_eq!(code(&home.run(&["check"])), if content.is_none() { 0 } else { 20 }, "{name}");
        }
    }
}
