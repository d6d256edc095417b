//! Quarantine and repair as a user sees them.

use fhrd::repo::Repository;
use fhrd::repo::bundle;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::marks::{Mark, MarkKind};
use fhrd::store::{Durable, LocalStore, Store};
use fhrd::types::ContainerId;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::noise;

const REPOSITORY: &str = "data/fhrd/repository";

/// The largest container of a home, by its name below the repository.
fn container(home: &Home) -> String {
    home.containers(REPOSITORY).pop().unwrap()
}

/// A home with one snapshot and a flipped byte in a frame.
fn damaged() -> (Home, String) {
    let home = Home::new();
    (0..4).for_each(|number| home.write(&format!("directory/{number}"), &noise(number, 300_000)));
    let snapshot = home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string();
    let name = container(&home);
    let mut bytes = home.read(&name);
    bytes[100_000] ^= 4;
    home.write(&name, &bytes);
    (home, snapshot)
}

#[test]
fn a_check_quarantines_a_backup_heals_and_a_later_check_says_so() {
    let (home, snapshot) = damaged();
    let output = home.run(&["check", "--read-data", "--report-only"]);
    assert_eq!(code(&output), 20);
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")), [""; 0], "a report changes nothing");
    let output = home.run(&["check", "--read-data", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &report["bad_frames"], &report["quarantine"]["containers"]), (20, &1.into(), &1.into()));
    // The damage stays a defect as long as the snapshot needs it, and a quick check knows it now.
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    assert_eq!(code(&home.run(&["check"])), 20);
    assert_eq!(code(&home.run(&["restore", &snapshot, "--target", "before"])), 20);

    // The files are unchanged, but what is bad is read and stored again.
    let report = home.backup(&["directory"]);
    assert!(report["bytes_new"].as_u64().is_some_and(|bytes| (1..800_000).contains(&bytes)), "{report}");
    assert_eq!(home.backup(&["directory"])["bytes_new"].as_u64(), Some(0), "stored once");
    json(&home.run(&["restore", &snapshot, "--target", "after", "--json"]));
    (0..4).for_each(|number| assert!(home.read(&format!("after/directory/{number}")) == noise(number, 300_000)));
    for arguments in [&["check", "--read-data"][..], &["check"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
    let output = home.run(&["check", "--read-data"]);
    assert!(stderr(&output).contains("no longer needed"), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("which no snapshot needs"), "{}", stdout(&output));
}

#[test]
fn a_quarantine_ends_when_the_bytes_are_sound_again() {
    let (home, _) = damaged();
    let name = container(&home);
    let mut bytes = home.read(&name);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    bytes[100_000] ^= 4;
    home.write(&name, &bytes);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")), [""; 0]);
}

#[test]
fn a_read_only_repository_takes_no_backup_and_can_be_checked() {
    let (home, _) = damaged();
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    Mark::new(MarkKind::ReadOnly, "moved to the archive").save(repository.store.as_ref()).unwrap();
    let output = home.run(&["backup", "directory"]);
    assert_eq!(code(&output), 11, "{}", stderr(&output));
    assert!(stderr(&output).contains("moved to the archive"), "{}", stderr(&output));
    let before = home.names(&format!("{REPOSITORY}/snapshots"));
    for words in [&["forget", "latest"][..], &["tag", "latest", "--add", "x"], &["prune"], &["repair", "index"]] {
        assert_eq!(code(&home.run(words)), 11, "{words:?}");
    }
    assert_eq!(home.names(&format!("{REPOSITORY}/snapshots")), before);
    assert_ne!(code(&home.run(&["prune", "--dry-run"])), 11, "which only looks");
    let output = home.run(&["check", "--read-data"]);
    assert_eq!(code(&output), 20);
    assert!(stderr(&output).contains("nothing is quarantined"), "{}", stderr(&output));
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")), [""; 0]);
}

#[test]
fn a_damaged_bundle_is_no_defect_and_goes_with_whoever_writes_next() {
    let home = Home::new();
    home.write("directory/file", &noise(1, 3000));
    let ids: Vec<String> =
        (0..3).map(|_| home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string()).collect();
    let store = LocalStore::open(&home.path(REPOSITORY)).unwrap();
    let writers: [&[&str]; 6] = [
        &["backup", "directory"],
        &["forget", &ids[0]],
        &["check", "--read-data"],
        &["repair", "index"],
        &["repair", "snapshots"],
        &["backup", "--force", "directory"],
    ];
    for writer in writers {
        bundle::maintain(&store, 1).unwrap();
        let [name] = home.names(&format!("{REPOSITORY}/bundles")).try_into().unwrap();
        let path = format!("{REPOSITORY}/bundles/{name}");
        let mut bytes = home.read(&path);
        bytes[100] ^= 4;
        home.write(&path, &bytes);
        let output = home.run(&["check"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains(&name), "{}", stderr(&output));
        assert_eq!(code(&home.run(&["check", "--read-data", "--report-only"])), 0);
        assert!(home.path(&path).exists(), "a report changes nothing");
        let output = home.run(writer);
        assert_eq!(code(&output), 0, "{writer:?}: {}", stderr(&output));
        assert!(!home.path(&path).exists(), "{writer:?}");
        assert!(!stderr(&home.run(&["check"])).contains("bundles/"), "{writer:?}");
        home.run(&["snapshots"]);
        for name in home.names(&format!("{REPOSITORY}/bundles")) {
            std::fs::remove_file(home.path(&format!("{REPOSITORY}/bundles/{name}"))).unwrap();
        }
    }
}

#[test]
fn a_backup_beside_a_lost_container_heals_and_says_so() {
    let home = Home::new();
    let old = noise(1, 400_000);
    home.write("directory/file", &old);
    home.backup(&["directory"]);
    let base = container(&home);
    // The second version copies from the first one.
    let edited = [&old[..200_000], b"edit", &old[200_000..]].concat();
    home.write("directory/file", &edited);
    home.backup(&["directory"]);
    std::fs::remove_file(home.path(&base)).unwrap();
    for arguments in [&["directory"][..], &["directory", "--force"]] {
        let output = home.run(&[&["backup", "--json"], arguments].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((code(&output), &report["containers_unread"]), (3, &1.into()), "{}", stderr(&output));
        let snapshot = report["snapshot"].as_str().unwrap();
        json(&home.run(&["restore", snapshot, "--target", snapshot, "--json"]));
        assert!(home.read(&format!("{snapshot}/directory/file")) == edited);
    }
    // A rewrite and a copy say the same.
    home.write("source/new", &noise(2, 1000));
    json(&home.run(&["init", "--repo", "other", "--json"]));
    json(&home.run(&["backup", "source", "--repo", "other", "--json"]));
    for words in [&["rewrite", "latest", "--exclude", "file"][..], &["copy", "--from-repo", "other"]] {
        for dry_run in [&["--dry-run"][..], &[]] {
            let output = home.run(&[words, dry_run, &["--json"]].concat());
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let report = document.get("snapshots").unwrap_or(&document)[0].clone();
            assert_eq!((code(&output), &report["containers_unread"]), (3, &1.into()), "{report} {}", stderr(&output));
            assert_eq!(report["problems"], 0, "{report}");
        }
    }
    let output = home.run(&["rewrite", "latest", "--exclude", "directory"]);
    assert!(code(&output) == 3 && stdout(&output).contains("repair index"), "{}", stdout(&output));
    // A mark says what is lost, and a snapshot that nothing is lost of is whole.
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    home.backup(&["directory"]);
}

#[test]
fn a_lost_container_is_missing_for_every_repair_until_it_is_there_again() {
    let home = Home::new();
    (0..4).for_each(|number| home.write(&format!("directory/{number}"), &noise(number, 300_000)));
    home.backup(&["directory"]);
    let name = container(&home);
    let bytes = home.read(&name);
    std::fs::remove_file(home.path(&name)).unwrap();
    let repair = |what: &str, expected: i32| -> serde_json::Value {
        let output = home.run(&["repair", what, "--json"]);
        assert_eq!(code(&output), expected, "{what}: {}{}", stdout(&output), stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let blob = name.strip_prefix(&format!("{REPOSITORY}/")).unwrap();
    for what in ["index", "index", "containers"] {
        assert_eq!(repair(what, 20)["missing"], serde_json::json!([blob]), "{what}");
    }
    assert!(stdout(&home.run(&["repair", "containers"])).contains("1 containers, with all their chunks"));
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")).len(), 1);
    // What comes back with other bytes has not returned.
    let mut wrong = bytes.clone();
    wrong[100_000] ^= 4;
    home.write(&name, &wrong);
    for what in ["index", "containers"] {
        let report = repair(what, 20);
        assert_eq!((&report["damaged"], &report["missing"]), (&serde_json::json!([blob]), &serde_json::json!([])));
    }
    assert!(stderr(&home.run(&["repair", "index"])).contains(&format!("error: {blob} is damaged")));
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")).len(), 1);
    home.write(&name, &bytes);
    let report = repair("index", 0);
    assert_eq!((&report["returned"], &report["missing"]), (&1.into(), &serde_json::json!([])), "{report}");
    assert_eq!(home.names(&format!("{REPOSITORY}/marks/optional")), [""; 0]);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(home.backup(&["directory", "--force"])["bytes_new"], 0, "it counts as stored again");
}

/// As where the disk with the containers is not mounted, and an empty directory is at its mount point.
#[test]
fn without_any_container_no_snapshot_is_written_again_unless_that_is_allowed() {
    let home = Home::new();
    let ids: Vec<String> = (0..2)
        .map(|number| {
            home.write("directory/file", &noise(number, 300_000));
            home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string()
        })
        .collect();
    let containers = home.path(&format!("{REPOSITORY}/containers"));
    std::fs::rename(&containers, home.path("away")).unwrap();
    std::fs::create_dir(&containers).unwrap();
    let before = home.names(&format!("{REPOSITORY}/snapshots"));
    let refuse = |prune: i32| {
        for words in [&["repair", "snapshots", "--forget"][..], &["repair", "snapshots"]] {
            let output = home.run(words);
            let text = stderr(&output);
            assert!(code(&output) == 1 && text.contains("--allow-no-containers"), "{words:?}: {text}");
        }
        assert_eq!(code(&home.run(&["prune", "--grace", "0s"])), prune);
        assert_eq!(home.names(&format!("{REPOSITORY}/snapshots")), before);
    };
    refuse(1);
    assert_eq!(code(&home.run(&["repair", "snapshots", "--forget", "--dry-run"])), 20);
    // No segment names them from then on.
    assert_eq!(code(&home.run(&["repair", "index"])), 20);
    refuse(20);
    std::fs::remove_dir_all(&containers).unwrap();
    std::fs::rename(home.path("away"), &containers).unwrap();
    assert_eq!(code(&home.run(&["repair", "index"])), 0);
    for (number, id) in (0..).zip(&ids) {
        json(&home.run(&["restore", id, "--target", id, "--json"]));
        assert!(home.read(&format!("{id}/directory/file")) == noise(number, 300_000));
    }

    std::fs::remove_dir_all(&containers).unwrap();
    std::fs::create_dir(&containers).unwrap();
    let output = home.run(&["repair", "snapshots", "--forget", "--allow-no-containers", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), report["forgotten"].as_array().unwrap().len()), (20, 2), "{report}");
}

/// Two backups of a changed file, whose containers are then `away`: an empty directory is at their mount point. The ids.
fn with_containers_away(home: &Home) -> Vec<String> {
    let ids = (0..2).map(|number| {
        (0..4).for_each(|file| home.write(&format!("directory/{file}"), &noise(10 * number + file, 100_000)));
        home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string()
    });
    let ids = ids.collect();
    let containers = home.path(&format!("{REPOSITORY}/containers"));
    std::fs::rename(&containers, home.path("away")).unwrap();
    std::fs::create_dir(&containers).unwrap();
    ids
}

/// Moves what is `away` back, beside what is there now.
fn bring_back(home: &Home) {
    for directory in home.names("away") {
        let target = home.path(&format!("{REPOSITORY}/containers/{directory}"));
        std::fs::create_dir_all(&target).unwrap();
        for name in home.names(&format!("away/{directory}")) {
            std::fs::rename(home.path(&format!("away/{directory}/{name}")), target.join(name)).unwrap();
        }
    }
}

#[test]
fn a_backup_into_an_empty_mount_point_makes_no_loss_final() {
    let home = Home::new();
    let ids = with_containers_away(&home);
    home.write("new/file", &noise(99, 1000));
    assert_eq!(code(&home.run(&["backup", "new"])), 3);
    let state = || ["snapshots", "index"].map(|kind| home.names(&format!("{REPOSITORY}/{kind}")));
    let (before, count) = (state(), container_count(&home));
    assert!(count > 0);
    for words in [
        &["repair", "snapshots", "--forget"][..],
        &["repair", "snapshots"],
        &["prune", "--grace", "0s"],
        &["forget", "--keep-last", "1", "--group-by", "", "--prune", "--grace", "0s", "--dry-run"],
    ] {
        let output = home.run(words);
        let text = stderr(&output);
        assert!(code(&output) == 1 && text.contains("--allow-no-containers"), "{words:?}: {text}");
        assert!(text.contains("containers are missing") && text.contains("mounted"), "{words:?}: {text}");
        assert_eq!((state(), container_count(&home)), (before.clone(), count), "{words:?}");
    }
    // Marks say it from then on, and no segment does.
    assert_eq!(code(&home.run(&["repair", "index"])), 20);
    let output = home.run(&["repair", "snapshots", "--forget"]);
    assert!(code(&output) == 1 && stderr(&output).contains("--allow-no-containers"), "{}", stderr(&output));
    bring_back(&home);
    assert_eq!(code(&home.run(&["repair", "index"])), 0);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    for (number, id) in (0..).zip(&ids) {
        json(&home.run(&["restore", id, "--target", id, "--json"]));
        assert!(home.read(&format!("{id}/directory/3")) == noise(10 * number + 3, 100_000));
    }
}

#[test]
fn a_prune_without_snapshots_and_containers_forgets_no_container() {
    let home = Home::new();
    let ids = with_containers_away(&home);
    let snapshots = home.path(&format!("{REPOSITORY}/snapshots"));
    std::fs::rename(&snapshots, home.path("snapshots-away")).unwrap();
    std::fs::create_dir(&snapshots).unwrap();
    let state = || ["marks/optional", "index"].map(|kind| home.names(&format!("{REPOSITORY}/{kind}")));
    let before = state();
    let prune = ["prune", "--grace", "0s", "--allow-no-snapshots"];
    for more in [&["--dry-run"][..], &[]] {
        let output = home.run(&[&prune[..], more].concat());
        assert!(code(&output) == 1 && stderr(&output).contains("--allow-no-containers"), "{}", stderr(&output));
        assert_eq!(state(), before);
    }
    bring_back(&home);
    std::fs::remove_dir(&snapshots).unwrap();
    std::fs::rename(home.path("snapshots-away"), &snapshots).unwrap();
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(home.backup(&["directory", "--force"])["bytes_new"], 0, "it counts as stored");
    ids.iter().for_each(|id| drop(json(&home.run(&["restore", id, "--target", id, "--json"]))));
    // If they are lost for good, somebody says so.
    std::fs::remove_dir_all(home.path(&format!("{REPOSITORY}/containers"))).unwrap();
    std::fs::create_dir(home.path(&format!("{REPOSITORY}/containers"))).unwrap();
    std::fs::remove_dir_all(&snapshots).unwrap();
    std::fs::create_dir(&snapshots).unwrap();
    assert_eq!(code(&home.run(&[&prune[..], &["--allow-no-containers"]].concat())), 0);
    assert_eq!(home.names(&format!("{REPOSITORY}/index")), [""; 0]);
}

/// What backups have stored again since may be more than what is missing.
#[test]
fn snapshots_of_which_nothing_is_there_are_not_written_again() {
    let home = Home::new();
    with_containers_away(&home);
    for number in 0..4 {
        home.write("other/file", &noise(1000 + number, 10_000));
        assert_eq!(code(&home.run(&["backup", "other"])), 3);
        assert!(number == 0 || code(&home.run(&["forget", "latest~1"])) == 0);
    }
    let before = home.names(&format!("{REPOSITORY}/snapshots"));
    assert_eq!(before.len(), 3);
    let output = home.run(&["repair", "snapshots", "--forget"]);
    assert!(code(&output) == 1 && stderr(&output).contains("nothing is there of 2 of 3"), "{}", stderr(&output));
    assert_eq!(home.names(&format!("{REPOSITORY}/snapshots")), before);
}

/// Number of containers that are there.
fn container_count(home: &Home) -> usize {
    let directories = home.names(&format!("{REPOSITORY}/containers"));
    directories.iter().map(|one| home.names(&format!("{REPOSITORY}/containers/{one}")).len()).sum()
}

/// Puts a link that leads nowhere in place of a directory of containers, which is moved away if it is there.
fn unlist(home: &Home, directory: &str) {
    let _ = std::fs::rename(home.path(directory), home.path("away"));
    std::os::unix::fs::symlink(home.path("nowhere"), home.path(directory)).unwrap();
}

/// What a repair reports, which ends with 20 because it cannot list `directory`.
fn repairs_without(home: &Home, directory: &str) {
    let blob = directory.strip_prefix(&format!("{REPOSITORY}/")).unwrap();
    for what in ["index", "containers"] {
        let output = home.run(&["repair", what, "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let listed = report["unlistable"].as_array().unwrap_or_else(|| panic!("{what}: {}", stderr(&output)));
        assert_eq!((code(&output), listed.len()), (20, 1), "{report}");
        assert!(listed[0].as_str().unwrap().starts_with(blob), "{report}");
        assert!(stderr(&home.run(&["repair", what])).contains(&format!("error: cannot list {blob}")), "{what}");
    }
    let check = home.run(&["check"]);
    assert!(code(&check) == 20 && stderr(&check).contains(blob), "{}", stderr(&check));
}

#[test]
fn a_directory_of_containers_that_cannot_be_listed_is_said_and_nothing_is_deleted() {
    let home = Home::new();
    home.write("directory/file", &noise(1, 300_000));
    let snapshot = home.backup(&["directory"])["snapshot"].as_str().unwrap().to_string();
    let segment = format!("{REPOSITORY}/index/{}", home.names(&format!("{REPOSITORY}/index"))[0]);
    let mut bytes = home.read(&segment);
    bytes[10] ^= 4;
    home.write(&segment, &bytes);
    // All that is known is there, but nobody can say what else is.
    let used = home.names(&format!("{REPOSITORY}/containers"));
    let unused = (0..=u8::MAX).map(|number| format!("{number:02x}")).find(|name| !used.contains(name)).unwrap();
    let directory = format!("{REPOSITORY}/containers/{unused}");
    unlist(&home, &directory);
    let backup = home.run(&["backup", "--json", "directory"]);
    let report: serde_json::Value = serde_json::from_slice(&backup.stdout).unwrap_or_default();
    assert_eq!((code(&backup), &report["containers_unread"]), (3, &1.into()), "{report} {}", stderr(&backup));
    for verb in [&["backup", "directory"][..], &["rewrite", "latest", "--exclude", "nothing"]] {
        let output = home.run(verb);
        assert!(code(&output) == 3 && stdout(&output).contains("directories of them"), "{}", stdout(&output));
    }
    repairs_without(&home, &directory);
    assert_eq!(home.read(&segment), bytes, "the damaged segment is still there");
    std::fs::remove_file(home.path(&directory)).unwrap();
    assert_eq!(code(&home.run(&["repair", "index"])), 0);
    assert!(!home.path(&segment).exists());

    let directory = container(&home).rsplit_once('/').unwrap().0.to_string();
    unlist(&home, &directory);
    repairs_without(&home, &directory);
    std::fs::remove_file(home.path(&directory)).unwrap();
    std::fs::rename(home.path("away"), home.path(&directory)).unwrap();
    assert_eq!(code(&home.run(&["repair", "index"])), 0);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(code(&home.run(&["restore", &snapshot, "--target", "restored"])), 0);
}

#[test]
fn what_cannot_be_written_back_is_no_success() {
    let home = Home::new();
    home.write("directory/noise", &noise(1, 300_000));
    home.backup(&["directory"]);
    assert_eq!(code(&home.run(&["parity", "set", "3%"])), 0);
    // What is stored already has no parity until somebody adds it.
    let lacking = || stderr(&home.run(&["check", "--read-data"])).contains("`fhrd parity add`");
    assert!(lacking());
    assert_eq!(code(&home.run(&["parity", "add"])), 0);
    assert!(!lacking());

    let name = container(&home);
    let whole = home.read(&name);
    let mut bytes = whole.clone();
    bytes[100_000] ^= 4;
    home.write(&name, &bytes);
    let store = LocalStore::open(&home.path(REPOSITORY)).unwrap();
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    let id = name.rsplit('/').next().unwrap();
    let id = [ContainerId::parse(id).unwrap()].into();
    let pending = ContainerClaim::put(&store, ClaimKind::Pending, &repository.salts.draw().unwrap(), &id).unwrap();
    let output = home.run(&["check", "--read-data", "--heal"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("a prune may be deleting it"), "{}", stderr(&output));
    store.delete(&pending.name, Durable::OnReturn).unwrap();
    assert_eq!(code(&home.run(&["check", "--read-data", "--heal"])), 0);
    assert!(home.read(&name) == whole);
}

#[test]
fn healing_ends_well_where_two_containers_were_mixed_up_beside_a_strange_file() {
    let home = Home::new();
    for (number, len) in [(1, 300_000), (2, 500_000)] {
        home.write(&format!("directory/{number}"), &noise(number, len));
        home.backup(&["directory"]);
    }
    let names = home.containers(REPOSITORY);
    let [.., short, long] = names.as_slice() else { panic!("{names:?}") };
    let bytes = [short, long].map(|name| home.read(name));
    home.write(&format!("{short}.bak"), &bytes[0]);
    // All sectors of both are bad: less would give back neither.
    assert_eq!(code(&home.run(&["parity", "set", "100%"])), 0);
    assert_eq!(code(&home.run(&["parity", "add"])), 0);
    home.write(short, &bytes[1]);
    home.write(long, &bytes[0]);
    let output = home.run(&["check", "--read-data", "--heal"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!([short, long].map(|name| home.read(name)) == bytes);
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "restored"])), 0);
}
