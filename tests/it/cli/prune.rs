//! `prune` as a user sees it, and beside other processes that are stopped and killed.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::store::LocalStore;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
use crate::double::names_in;
use crate::input::edit;
use crate::trees::Random;

const REPOSITORY: &str = "data/fhrd/repository";

/// Names of the blobs with a prefix.
fn blobs(home: &Home, prefix: &str) -> Vec<String> {
    let store = LocalStore::open(&home.path(REPOSITORY)).unwrap();
    names_in(&store, prefix)
}

/// Versions of a text, each little different from the one before.
fn versions(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(5);
    let mut texts = vec![random.text(120_000)];
    while texts.len() < count {
        let next = edit(&mut random, texts.last().unwrap(), 12);
        texts.push(next);
    }
    texts
}

/// Backs up a version as the only file of `data`. The id of the snapshot.
fn back_up(home: &Home, text: &[u8]) -> String {
    home.write("tree/text", text);
    home.write("tree/noise", &text[..3000]);
    home.backup(&["tree"])["snapshot"].as_str().unwrap().to_string()
}

/// Backs up all versions. The ids of the snapshots, and the containers: in the order of the backups, data first.
fn back_up_all(home: &Home, texts: &[Vec<u8>]) -> (Vec<String>, Vec<String>) {
    let (mut ids, mut containers) = (Vec::new(), Vec::new());
    for text in texts {
        ids.push(back_up(home, text));
        let mut new = blobs(home, "containers");
        new.retain(|name| !containers.contains(name));
        new.sort_by_key(|name| home.read(&format!("{REPOSITORY}/{name}"))[10]);
        containers.extend(new);
    }
    (ids, containers)
}

fn damage(home: &Home, container: &str) {
    let path = format!("{REPOSITORY}/{container}");
    let mut bytes = home.read(&path);
    bytes[100] ^= 4;
    home.write(&path, &bytes);
}

fn assert_restores(home: &Home, snapshot: &str, text: &[u8]) {
    let target = format!("out-{snapshot}");
    json(&home.run(&["restore", snapshot, "--target", &target, "--json"]));
    assert!(home.read(&format!("{target}/tree/text")) == text, "{snapshot}");
    std::fs::remove_dir_all(home.path(&target)).unwrap();
}

#[test]
fn forget_with_prune_gives_space_back_and_keeps_what_stays() {
    let (home, texts) = (Home::new(), versions(4));
    let ids: Vec<String> = texts.iter().map(|text| back_up(&home, text)).collect();
    let before = blobs(&home, "containers");
    // Everything is younger than the grace period.
    json(&home.run(&["prune", "--json"]));
    assert_eq!(blobs(&home, "containers"), before);
    let report = json(&home.run(&["forget", "--keep-last", "1", "--prune", "--json"]));
    assert_eq!(
        (report["deleted"].as_array().unwrap().len(), report["prune"]["containers_deleted"].as_u64()),
        (3, Some(0))
    );
    let planned = json(&home.run(&["prune", "--grace", "0s", "--dry-run", "--json"]));
    assert_eq!(blobs(&home, "containers"), before);
    let report = json(&home.run(&["prune", "--grace", "0s", "--json"]));
    assert_eq!(report["containers_deleted"], planned["containers_deleted"]);
    assert!(report["bytes_deleted"].as_u64() > report["bytes_written"].as_u64(), "{report}");
    assert!(blobs(&home, "containers").len() < before.len(), "{report}");
    assert_restores(&home, &ids[3], &texts[3]);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
}

/// Dates all files of the repository to a time from now.
fn date(home: &Home, ahead: Duration) {
    for name in blobs(home, "") {
        let file = std::fs::File::options().write(true).open(home.path(&format!("{REPOSITORY}/{name}"))).unwrap();
        file.set_modified(SystemTime::now() + ahead).unwrap();
    }
}

#[test]
fn what_a_clock_dated_ahead_is_freed_once_the_grace_period_has_passed_here() {
    let (home, texts) = (Home::new(), versions(2));
    let ids: Vec<String> = texts.iter().map(|text| back_up(&home, text)).collect();
    json(&home.run(&["forget", &ids[0], "--json"]));
    let dead = LocalStore::open(&home.path(REPOSITORY)).unwrap();
    ContainerClaim::put(&dead, ClaimKind::Intent, &[1; 16], &HashSet::new()).unwrap();
    date(&home, Duration::from_secs(10 * 365 * 86_400));
    let before = blobs(&home, "");
    for _ in 0..2 {
        let output = home.run(&["prune"]);
        assert_eq!((code(&output), blobs(&home, "")), (0, before.clone()));
        assert!(stderr(&output).contains("dated later than now"), "{}", stderr(&output));
    }
    // This machine has seen them two days ago.
    let seen = "data/fhrd/cache/dated-ahead";
    let text = String::from_utf8(home.read(seen)).unwrap();
    let earlier = |line: &str| {
        let (seconds, name) = line.split_once(' ').unwrap();
        format!("{} {name}\n", seconds.parse::<u64>().unwrap() - 2 * 86_400)
    };
    home.write(seen, text.lines().map(earlier).collect::<String>().as_bytes());
    json(&home.run(&["prune", "--json"]));
    assert!(blobs(&home, "containers").len() < before.iter().filter(|name| name.starts_with("containers")).count());
    assert!(blobs(&home, "intents").iter().any(|name| name.ends_with(".broken")));
    assert_restores(&home, &ids[1], &texts[1]);
    json(&home.run(&["prune", "--json"]));
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
}

#[test]
fn forget_shows_what_its_prune_would_do() {
    let (home, texts) = (Home::new(), versions(4));
    let ids: Vec<String> = texts.iter().map(|text| back_up(&home, text)).collect();
    let before = blobs(&home, "");
    let words = ["forget", "--keep-last", "1", "--prune", "--grace", "0s", "--json"];
    let planned = json(&home.run(&[&words[..], &["--dry-run"]].concat()));
    assert_eq!(blobs(&home, ""), before);
    let done = json(&home.run(&words));
    let of = |report: &Value, key: &str| report["prune"][key].as_u64().unwrap();
    for key in ["snapshots", "containers_deleted", "bytes_deleted", "bytes_needed"] {
        assert_eq!(of(&planned, key), of(&done, key), "{key}");
    }
    assert!(of(&planned, "snapshots") == 1 && of(&planned, "containers_deleted") > 0, "{planned}");
    assert_eq!((&planned["prune"]["dry_run"], &done["prune"]["dry_run"]), (&true.into(), &false.into()));
    assert_restores(&home, &ids[3], &texts[3]);
    assert!(stdout(&home.run(&["forget", &ids[3], "--prune", "--dry-run"])).contains("(not done)"));
}

#[test]
fn prune_goes_on_after_a_backup_has_healed_what_a_check_found_bad() {
    let texts = versions(3);
    // Whether the others need the first version's own encoding depends on the key of the repository.
    let healed = (0..8).map(|_| prune_after_each_damage(&texts)).find(|healed| *healed > 0);
    assert!(healed.is_some());
}

/// Damages each container of a new repository in turn, and backs up the first version again. Returns how often that
/// healed all snapshots.
fn prune_after_each_damage(texts: &[Vec<u8>]) -> u32 {
    let mut healed = 0;
    for damaged in 0.. {
        let home = Home::new();
        let (ids, containers) = back_up_all(&home, texts);
        let Some(name) = containers.get(damaged) else { break };
        damage(&home, name);
        assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
        // The first version again. The others are copies from it, and stay as they are.
        back_up(&home, &texts[0]);
        let sound: Vec<bool> =
            ids.iter().map(|id| code(&home.run(&["restore", id, "--target", &format!("sound-{id}")])) == 0).collect();
        let output = home.run(&["prune", "--grace", "0s"]);
        if sound.contains(&false) {
            assert_eq!(code(&output), 20, "{}", stderr(&output));
            continue;
        }
        healed += 1;
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        ids.iter().zip(texts).for_each(|(id, text)| assert_restores(&home, id, text));
        assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    }
    healed
}

#[test]
fn what_cannot_be_read_stops_a_prune_before_the_first_deletion() {
    let texts = versions(3);
    // Whether a later version needs what the first one stored depends on the key of the repository.
    let refused = (0..8).map(|_| refusals_after_each_damage(&texts)).find(|refused| *refused > 0);
    assert!(refused.is_some());
}

/// Damages each container of a new repository in turn, and prunes. Returns how often the prune refused.
fn refusals_after_each_damage(texts: &[Vec<u8>]) -> u32 {
    let mut refused = 0;
    for damaged in 0.. {
        let home = Home::new();
        let (ids, before) = back_up_all(&home, texts);
        let Some(name) = before.get(damaged) else { break };
        damage(&home, name);
        json(&home.run(&["forget", &ids[0], "--json"]));
        let output = home.run(&["prune", "--grace", "0s"]);
        match code(&output) {
            // Nobody needs the damaged bytes, or they stay where they are.
            0 => {}
            20 => {
                refused += 1;
                let message = stderr(&output);
                let names_it =
                    ids[1..].iter().any(|id| message.contains(id.as_str())) || message.contains("containers/");
                assert!(names_it, "{message}");
                let after = blobs(&home, "containers");
                assert!(before.iter().all(|name| after.contains(name)), "{message}");
                assert_eq!(blobs(&home, "pending"), [""; 0], "{message}");
            }
            other => panic!("{other}: {}", stderr(&output)),
        }
    }
    refused
}

#[test]
fn a_damaged_claim_stops_nobody_for_ever() {
    let (home, texts) = (Home::new(), versions(2));
    let id = back_up(&home, &texts[0]);
    let claim = |kind: &str| format!("{REPOSITORY}/{kind}/{}", "ab".repeat(16));
    home.write(&claim("pending"), b"garbage");
    for arguments in [&["backup", "tree"][..], &["prune"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 20, "{}", stderr(&output));
        assert!(stderr(&output).contains("pending/abab") && stderr(&output).contains("grace"), "{}", stderr(&output));
    }
    let output = home.run(&["prune", "--grace", "0s"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("pending/abab"), "{}", stderr(&output));
    home.write(&claim("intents"), b"garbage");
    let second = back_up(&home, &texts[1]);
    json(&home.run(&["forget", &second, "--json"]));
    // Nothing is old enough, so nothing is decided by intents.
    assert_eq!(code(&home.run(&["prune"])), 0);
    let report = json(&home.run(&["prune", "--grace", "0s", "--json"]));
    assert_eq!(report["intents_broken"].as_u64(), Some(1), "{report}");
    assert!(report["containers_deleted"].as_u64() > Some(0), "{report}");
    // It stays for a while, and holds nothing.
    assert_eq!((blobs(&home, "intents").len(), blobs(&home, "pending").len()), (2, 0));
    assert_restores(&home, &id, &texts[0]);
}

/// A process beside others.
struct Running {
    child: Child,
    version: Option<usize>,
    is_forget: bool,
}

fn signal(child: &Child, signal: Signal) {
    // It may have ended.
    let _ = Pid::from_raw(child.id().cast_signed()).map(|pid| kill_process(pid, signal));
}

/// Starts a backup of a random version, a prune or a `forget`.
fn start(home: &Home, random: &mut Random, versions: usize) -> Running {
    let version = random.below(versions as u64) as usize;
    let source = format!("version-{version}");
    let (arguments, version, is_forget): (Vec<&str>, _, _) = match random.below(8) {
        0..=3 => (vec!["backup", &source, "--force"], Some(version), false),
        4 => (vec!["forget", "--keep-last", "1", "--group-by", ""], None, true),
        5 => (vec!["prune", "--grace", "100ms"], None, false),
        _ => (vec!["prune", "--grace", "0s"], None, false),
    };
    let mut command = home.command(&[&arguments[..], &["--json"]].concat());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Running { child, version, is_forget }
}

/// One random run of several processes. Afterwards every snapshot that is listed is whole, and every reported one is
/// listed or was deleted by a `forget`.
fn random_run(seed: u64, texts: &[Vec<u8>]) {
    let (home, mut random) = (Home::new(), Random(seed));
    for (number, text) in texts.iter().enumerate() {
        home.write(&format!("version-{number}/text"), text);
        home.write(&format!("version-{number}/noise"), &text[..3000]);
    }
    let mut reported: Vec<(String, usize)> = Vec::new();
    for version in 0..2 {
        let report = home.backup(&[&format!("version-{version}")]);
        reported.push((report["snapshot"].as_str().unwrap().into(), version));
    }
    let pause = |random: &mut Random, most: u64| std::thread::sleep(Duration::from_millis(random.below(most)));
    let (mut forgotten, mut is_forget_killed) = (BTreeSet::new(), false);
    let mut running: Vec<Running> = Vec::new();
    for _ in 0..5 {
        running.push(start(&home, &mut random, texts.len()));
        pause(&mut random, 80);
        let chosen = random.below(running.len() as u64) as usize;
        match random.below(6) {
            0 => {
                // Longer than every grace period.
                signal(&running[chosen].child, Signal::STOP);
                running.push(start(&home, &mut random, texts.len()));
                std::thread::sleep(Duration::from_millis(300));
                signal(&running[chosen].child, Signal::CONT);
            }
            1 => signal(&running[chosen].child, Signal::KILL),
            _ => {}
        }
    }
    for Running { child, version, is_forget } in running {
        let output = child.wait_with_output().unwrap();
        let document: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match (output.status.code(), document, version) {
            (None, ..) => is_forget_killed |= is_forget,
            (Some(0), Some(document), Some(version)) => {
                reported.push((document["snapshot"].as_str().unwrap().into(), version));
            }
            (Some(0), Some(document), None) if is_forget => {
                let deleted = document["deleted"].as_array().unwrap().iter();
                forgotten.extend(deleted.map(|id| id.as_str().unwrap().to_string()));
            }
            // Others were in the way too often.
            (Some(code), ..) => assert!([0, 1, 20].contains(&code), "run {seed}: {code}: {}", stderr(&output)),
        }
    }
    let assert_whole = |what: &str| {
        let listed = json(&home.run(&["snapshots", "--json"]));
        let listed: BTreeSet<String> =
            listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
        for (id, version) in &reported {
            if listed.contains(id) {
                let output = home.run(&["restore", id, "--target", "out", "--json"]);
                assert_eq!(code(&output), 0, "run {seed}, {what}: {id}: {}", stderr(&output));
                assert!(
                    home.read(&format!("out/version-{version}/text")) == texts[*version],
                    "run {seed}, {what}: {id}"
                );
                std::fs::remove_dir_all(home.path("out")).unwrap();
            } else {
                assert!(forgotten.contains(id) || is_forget_killed, "run {seed}, {what}: {id} is gone");
            }
        }
        let output = home.run(&["check", "--read-data"]);
        assert_eq!(code(&output), 0, "run {seed}, {what}: {}{}", stdout(&output), stderr(&output));
    };
    assert_whole("beside others");
    for _ in 0..2 {
        json(&home.run(&["prune", "--grace", "0s", "--json"]));
    }
    // Intents of those who were killed stay for a while, and hold nothing.
    let (left, is_note) = (blobs(&home, "intents"), |name: &&String| name.contains('.'));
    let is_broken = |intent: &String| left.contains(&format!("{intent}.broken"));
    assert!(left.iter().filter(|name| !is_note(name)).all(is_broken), "run {seed}: {left:?}");
    assert_eq!(blobs(&home, "pending"), [""; 0], "run {seed}");
    assert_whole("after a prune alone");
}

/// `FHRD_PROCESS_RUNS` sets the number of runs.
#[test]
fn processes_that_are_stopped_and_killed_lose_nothing() {
    let runs = std::env::var("FHRD_PROCESS_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let texts = versions(3);
    (0..runs).for_each(|seed| random_run(seed, &texts));
}

/// As where a share with the snapshots is away and an empty directory is at its mount point.
#[test]
fn a_backup_does_not_hide_that_all_snapshots_are_gone() {
    for backup in [&[][..], &["--force"]] {
        let home = Home::new();
        back_up_all(&home, &versions(2));
        assert_eq!(code(&home.run(&["status"])), 0);
        let snapshots = home.path(&format!("{REPOSITORY}/snapshots"));
        std::fs::rename(&snapshots, home.path("away")).unwrap();
        std::fs::create_dir(&snapshots).unwrap();
        home.write("other/file", b"other content");
        let backup = [&["backup", "other"], backup].concat();
        for verb in [&backup[..], &["status"], &["check"], &["verify"], &["report", "--out", "page.html"]] {
            let output = home.run(verb);
            assert!(code(&output) == 3 && stderr(&output).contains("all gone at once"), "{verb:?} {}", stderr(&output));
        }
        let before = blobs(&home, "containers");
        for verb in [&["prune", "--grace", "0s"][..], &["forget", "--keep-last", "1", "--prune", "--grace", "0s"]] {
            let output = home.run(verb);
            assert!(code(&output) == 1 && stderr(&output).contains("--allow-no-snapshots"), "{}", stderr(&output));
            assert_eq!(blobs(&home, "containers"), before, "{verb:?}");
        }
        // A note that cannot be read stops a prune, and nothing else.
        let found = Command::new("find").arg(home.path("data")).args(["-name", "vanished-snapshots"]).output().unwrap();
        let note = PathBuf::from(stdout(&found).trim());
        std::fs::rename(&note, home.path("note")).unwrap();
        std::fs::create_dir(&note).unwrap();
        let output = home.run(&["prune", "--grace", "0s"]);
        assert!(code(&output) == 1 && stderr(&output).contains("vanished-snapshots"), "{}", stderr(&output));
        let output = home.run(&["status"]);
        assert!(code(&output) == 0 && stderr(&output).contains("nobody knows whether"), "{}", stderr(&output));
        std::fs::remove_dir(&note).unwrap();
        std::fs::rename(home.path("note"), &note).unwrap();
        // One that comes back brings peace.
        let name = std::fs::read_dir(home.path("away")).unwrap().next().unwrap().unwrap().file_name();
        std::fs::rename(home.path("away").join(&name), snapshots.join(&name)).unwrap();
        assert_eq!(code(&home.run(&["status"])), 0);
        assert_eq!(code(&home.run(&["prune", "--grace", "0s"])), 0);
    }
    // Without one, who knows that they were forgotten says so, once.
    let home = Home::new();
    back_up_all(&home, &versions(2));
    std::fs::remove_dir_all(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    std::fs::create_dir(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    home.write("other/file", b"other content");
    assert_eq!(code(&home.run(&["backup", "other"])), 3);
    assert_eq!(code(&home.run(&["prune", "--grace", "0s", "--allow-no-snapshots"])), 0);
    assert_eq!(code(&home.run(&["backup", "other"])), 0);
    assert_eq!(code(&home.run(&["check"])), 0);
    // Nor does who forgets them here.
    assert_eq!(code(&home.run(&["forget", "latest", "latest~1"])), 0);
    assert_eq!(code(&home.run(&["backup", "other"])), 0);
}

#[test]
fn without_any_snapshot_nothing_is_pruned_unless_that_is_allowed() {
    let home = Home::new();
    let (ids, _) = back_up_all(&home, &versions(2));
    let before = blobs(&home, "containers");
    std::fs::rename(home.path(&format!("{REPOSITORY}/snapshots")), home.path("away")).unwrap();
    std::fs::create_dir(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    for command in [&["prune", "--grace", "0s"][..], &["forget", "--keep-last", "1", "--prune", "--grace", "0s"]] {
        let output = home.run(command);
        assert!(code(&output) == 1 && stderr(&output).contains("--allow-no-snapshots"), "{}", stderr(&output));
        assert_eq!(blobs(&home, "containers"), before, "{command:?}");
    }
    std::fs::remove_dir(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    std::fs::rename(home.path("away"), home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    assert_eq!(code(&home.run(&["restore", &ids[1], "--target", "back"])), 0);
    // Who forgets all snapshots in the same run has seen them.
    let output = home.run(
        &[&["forget", "--prune", "--grace", "0s"], &ids.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(),
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(blobs(&home, "containers").is_empty());
    back_up(&home, &versions(1)[0]);
    assert_eq!(code(&home.run(&["forget", "latest"])), 0);
    assert_eq!(code(&home.run(&["prune", "--grace", "0s"])), 1);
    assert_eq!(code(&home.run(&["prune", "--grace", "0s", "--allow-no-snapshots"])), 0);
    assert!(blobs(&home, "containers").is_empty());
}
