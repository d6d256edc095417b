//! `status`: what it says of snapshots, damage and reads, and its exit codes.

use fhrd::inspect::status::status;
use fhrd::repo::naming::SnapshotFilter;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot::{self, Snapshot};
use fhrd::repo::{Repository, bundle};

use super::fixture::{Home, code, json, stderr, stdout};
use super::look::{damage_data, damage_data_at};

const REPOSITORY: &str = "data/fhrd/repository";

#[test]
fn a_late_or_missing_backup_has_an_exit_code_of_its_own() {
    let home = Home::new();
    home.write("a/file", b"content");
    home.write("b/file", b"content");
    assert_eq!(code(&home.run(&["status"])), 10);
    home.backup(&["a", "--host", "one", "--time", "2020-01-31T12:00:00Z"]);
    home.backup(&["a", "--host", "one"]);
    home.backup(&["b", "--host", "two", "--time", "2020-01-31T12:00:00Z"]);
    let status = json(&home.run(&["status", "--json"]));
    let sources = status["sources"].as_array().unwrap();
    assert_eq!((sources.len(), &sources[0]["snapshots"], &status["late"]), (2, &2.into(), &0.into()));
    assert!(sources[0]["age_seconds"].as_i64().unwrap() < 600 && sources[1]["age_seconds"].as_i64().unwrap() > 1 << 27);

    let late = home.run(&["status", "--expect", "26h", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&late.stdout).unwrap();
    assert_eq!((code(&late), &document["late"], &document["sources"][1]["late"]), (4, &1.into(), &true.into()));
    assert!(stderr(&late).lines().last().unwrap().contains("\"exit_code\":4"));
    let text = stdout(&home.run(&["status", "--expect", "26h"]));
    assert!(text.lines().any(|line| line.starts_with("two") && line.ends_with("late")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("one") && line.ends_with("ok")), "{text}");
    assert_eq!(code(&home.run(&["status", "--expect", "26h", "--host", "one"])), 0);
    assert_eq!(code(&home.run(&["status", "--expect", "26h", "--host", "three"])), 4);
    assert_eq!(code(&home.run(&["status", "--expect", "30y"])), 2);
}

#[test]
fn names_cannot_control_the_terminal() {
    let home = Home::new();
    home.write("a\u{1b}[31m/file", b"content");
    home.backup(&["a\u{1b}[31m", "--host", "h\u{1b}]0;t\u{7}\u{202e}", "--time", "2020-01-31T12:00:00Z"]);
    let output = home.run(&["status", "--expect", "1d"]);
    let text = stdout(&output) + &stderr(&output);
    assert!(code(&output) == 4 && text.contains("a?[31m") && text.contains("h?]0;t"), "{text}");
    assert!(text.chars().all(|c| !c.is_control() || c == '\n') && !text.contains('\u{202e}'), "{text:?}");
}

#[test]
fn what_a_check_has_read_is_known_on_every_machine() {
    let home = Home::new();
    home.write(
        "src/a",
        // One chunk: all of its container is garbage once it is stored again.
        &(0..2000u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<_>>(),
    );
    home.backup(&["src"]);
    let status = |home: &Home, expected: i32| {
        let output =
            home.command(&["status", "--json"]).env("XDG_CACHE_HOME", home.path("other-cache")).output().unwrap();
        assert_eq!(code(&output), expected, "{} {}", stderr(&output), stdout(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let before = status(&home, 0);
    assert!(before["last_check"].is_null() && before["proof"]["bytes"] == 0 && before["proof"]["oldest"].is_null());
    assert_eq!(before["proof"]["bytes_never"], before["space"]["bytes_containers"]);

    assert_eq!(json(&home.run(&["check", "--json"]))["recorded"], false);
    assert_eq!(json(&home.run(&["check", "--read-data", "--report-only", "--json"]))["recorded"], false);
    assert!(status(&home, 0)["last_check"].is_null());
    assert_eq!(json(&home.run(&["check", "--read-data", "--json"]))["recorded"], true);
    let after = status(&home, 0);
    assert_eq!((&after["last_check"]["damaged"], &after["proof"]["bytes_never"]), (&0.into(), &0.into()));
    assert_eq!(after["proof"]["bytes"], after["space"]["bytes_containers"]);
    assert_eq!(after["last_check"]["bytes"], after["space"]["bytes_containers"]);

    damage_data(&home);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    let damaged = status(&home, 20);
    assert!(damaged["damage"]["containers"].as_u64() >= Some(1), "{damaged}");
    assert_eq!(damaged["last_check"]["damaged"], damaged["proof"]["containers_damaged"]);
    // It is healed by the next backup, and by the deletion of what was damaged.
    home.backup(&["src", "--force"]);
    assert_eq!(code(&home.run(&["prune", "--grace", "0"])), 0);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(status(&home, 0)["damage"]["containers"], 0);
}

#[test]
fn damage_that_a_backup_has_healed_ends_with_the_next_check() {
    let home = Home::new();
    for seed in [3u32, 5] {
        let numbers = (0..100_000u32).flat_map(|at| at.wrapping_mul(2_654_435_761).rotate_left(seed).to_le_bytes());
        home.write(&format!("src/{seed}"), &numbers.collect::<Vec<_>>());
    }
    home.backup(&["src"]);
    damage_data(&home);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    home.backup(&["src", "--force"]);
    assert_eq!(code(&home.run(&["status"])), 20, "nobody has looked since");
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    let status = home.run(&["status", "--json"]);
    let document = json(&status);
    assert!(document["damage"]["containers"].as_u64() >= Some(1), "{document}");
    assert_eq!((code(&status), &document["damage"]["is_unneeded"]), (0, &true.into()));
    let text = stdout(&home.run(&["status"]));
    assert!(text.contains("which no snapshot needs any more"), "{text}");
    // A check of a part says no other thing, and new damage is one.
    assert_eq!(code(&home.run(&["check", "--read-data-subset", "100%"])), 0);
    assert_eq!(code(&home.run(&["check"])), 0);
    assert_eq!(code(&home.run(&["status"])), 0);
    damage_data_at(&home, 300);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    assert_eq!(code(&home.run(&["status"])), 20);
}

#[test]
fn a_read_only_repository_says_that_nothing_is_recorded() {
    use fhrd::repo::Repository;
    use fhrd::repo::marks::{Mark, MarkKind};
    let home = Home::new();
    home.write("src/a", b"content");
    home.backup(&["src"]);
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    Mark::new(MarkKind::ReadOnly, "the archive is full").save(repository.store.as_ref()).unwrap();
    let output = home.run(&["check", "--read-data", "--json"]);
    assert_eq!(json(&output)["recorded"], false);
    assert!(stderr(&output).contains("what was read is not recorded"), "{}", stderr(&output));
}

/// With bundles or with a local cache: `status` of 10,000 snapshots must not take 10,000 reads.
#[test]
fn status_of_many_snapshots_takes_few_reads() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.backup(&["src"]);
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    let store = repository.store.as_ref();
    let first = snapshot::list(store).unwrap().0.remove(0).snapshot;
    for number in 1..=300 {
        let (time_ns, host) = (first.time_ns - number * 1_000_000_000, format!("host-{}", number % 20));
        Snapshot { time_ns, host, intent: None, ..first.clone() }.save(store).unwrap();
    }
    let reads = |is_cold: bool| {
        let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
        if is_cold {
            let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
        }
        let status = status(&repository, &SnapshotFilter::default()).unwrap();
        assert_eq!(status.sources.len(), 21);
        let counts = repository.requests.counts();
        assert!(counts.lists < 40, "{} listings", counts.lists);
        counts.gets + counts.ranges + counts.heads
    };
    assert!(reads(true) > 300, "nothing has bundled them");
    let few = reads(false);
    assert!(few < 60, "{few} reads of 301 snapshots that the local cache has");
    bundle::maintain(store, 32).unwrap();
    let few = reads(true);
    assert!(few < 60, "{few} reads of 301 snapshots in bundles");
}

/// As where the share with the snapshots is away, and an empty directory is at its mount point.
#[test]
fn snapshots_without_any_container_are_damaged() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.backup(&["src"]);
    assert_eq!(code(&home.run(&["status"])), 0);
    std::fs::rename(home.path(&format!("{REPOSITORY}/containers")), home.path("away")).unwrap();
    std::fs::create_dir(home.path(&format!("{REPOSITORY}/containers"))).unwrap();
    let output = home.run(&["status"]);
    assert!(code(&output) == 20 && stdout(&output).contains("there is no container"), "{}", stdout(&output));
    assert!(stdout(&home.run(&["status", "--json"])).contains("\"lacks_containers\":true"));
    // A link to a disk that is away, and to one that is there.
    std::fs::remove_dir(home.path(&format!("{REPOSITORY}/containers"))).unwrap();
    std::os::unix::fs::symlink(home.path("away"), home.path(&format!("{REPOSITORY}/containers"))).unwrap();
    assert_eq!(code(&home.run(&["status"])), 0);
    assert!(json(&home.run(&["status", "--json"]))["space"]["containers"].as_u64().unwrap() > 0);
    for directory in ["containers", "index", "marks"] {
        let (path, hidden) = (home.path(&format!("{REPOSITORY}/{directory}")), home.path("hidden"));
        std::fs::rename(&path, &hidden).unwrap();
        std::os::unix::fs::symlink(home.path("nowhere"), &path).unwrap();
        assert_eq!(code(&home.run(&["status"])), 20, "{directory} is a link that leads nowhere");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&hidden, &path).unwrap();
    }
    assert_eq!(code(&home.run(&["status"])), 0);
}

#[test]
fn data_without_any_snapshot_never_looks_healthy() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.backup(&["src"]);
    let verbs: [&[&str]; 7] = [
        &["check"],
        &["check", "--without-key"],
        &["verify"],
        &["verify", "--within", "30d"],
        &["status"],
        &["status", "--expect", "26h"],
        &["report", "--out", "page.html"],
    ];
    for verb in verbs {
        let output = home.run(verb);
        assert_eq!((code(&output), stderr(&output)), (0, String::new()), "{verb:?}");
        let output = home.run(&[verb, &["--json"]].concat());
        assert!(code(&output) == 0 && stdout(&output).contains("\"bytes_without_snapshots\":0"), "{verb:?}");
    }
    std::fs::rename(home.path(&format!("{REPOSITORY}/snapshots")), home.path("away")).unwrap();
    std::fs::create_dir(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    for verb in verbs {
        for more in [&[][..], &["--quiet"], &["--json"]] {
            let output = home.run(&[verb, more].concat());
            let (text, out) = (stderr(&output), stdout(&output));
            assert_eq!(code(&output), 3, "{verb:?} {text}");
            assert!(
                text.contains("warning: there is no snapshot, but ") && text.contains("before any prune"),
                "{text}"
            );
            let is_said =
                out.contains("\"bytes_without_snapshots\":") && !out.contains("\"bytes_without_snapshots\":0");
            assert_eq!(is_said, more == ["--json"], "{verb:?} {out}");
        }
    }
    assert!(String::from_utf8(home.read("page.html")).unwrap().contains("there is no snapshot, but"));
    let listed = home.run(&["snapshots", "--quiet"]);
    assert!(code(&listed) == 0 && stderr(&listed).contains("there is no snapshot, but"), "{}", stderr(&listed));
    let rehearsed = home.run(&["prune", "-n"]);
    assert!(code(&rehearsed) == 1 && stderr(&rehearsed).contains("--allow-no-snapshots"), "{}", stderr(&rehearsed));
    // It is no success for whoever reads metrics.
    assert_eq!(code(&home.run(&["verify", "--metrics-file", "v.prom"])), 3);
    let metrics = String::from_utf8(home.read("v.prom")).unwrap();
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("fhrd_last_run_{name}"))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!((value("success"), value("exit_code")), (0.0, 3.0), "{metrics}");
    assert!(value("without_snapshots_bytes") > 0.0, "{metrics}");

    std::fs::remove_dir(home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    std::fs::rename(home.path("away"), home.path(&format!("{REPOSITORY}/snapshots"))).unwrap();
    assert_eq!(code(&home.run(&["check"])), 0);
    // An empty repository has nothing to lose.
    assert_eq!(code(&home.run(&["init", "--repo", "new", "--quiet"])), 0);
    assert_eq!(code(&home.run(&["status", "--repo", "new"])), 0);
}

/// The file of the only snapshot of a repository.
fn snapshot_file(home: &Home) -> std::path::PathBuf {
    let directory = format!("{REPOSITORY}/snapshots");
    let names = home.names(&directory);
    assert_eq!(names.len(), 1);
    home.path(&directory).join(&names[0])
}

/// The exit code, the line of damage and the number of unreadable snapshots of the document.
fn damage_said(home: &Home) -> (i32, String, u64) {
    let output = home.run(&["status"]);
    let text = stdout(&output);
    let line = text.lines().find_map(|line| line.strip_prefix("damage")).unwrap().trim().to_string();
    let as_json = home.run(&["status", "--json"]);
    assert_eq!(code(&as_json), code(&output));
    let document: serde_json::Value = serde_json::from_slice(&as_json.stdout).unwrap();
    (code(&output), line, document["snapshots_unreadable"].as_u64().unwrap())
}

#[test]
fn text_document_and_exit_code_agree_about_a_damaged_snapshot() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.backup(&["src"]);
    assert_eq!(damage_said(&home), (0, "none is known".into(), 0));
    let file = snapshot_file(&home);
    let sound = std::fs::read(&file).unwrap();
    let unreadable = (20, "1 snapshots cannot be read: run `fhrd check`".to_string(), 1);
    // Also where a local copy of the snapshot is known: the listing has the length.
    assert!(sound.len() > 20 && code(&home.run(&["snapshots"])) == 0);
    std::fs::write(&file, &sound[..20]).unwrap();
    assert_eq!(damage_said(&home), unreadable);
    std::fs::write(&file, [&sound[..], b"more"].concat()).unwrap();
    assert_eq!(damage_said(&home), unreadable);
    assert!(code(&home.run(&["report", "--out", "page.html"])) == 20);
    assert!(String::from_utf8(home.read("page.html")).unwrap().contains("1 snapshots cannot be read"));
    // Where none is known, it is read.
    std::fs::remove_dir_all(home.path("data/fhrd/cache")).unwrap();
    let mut flipped = sound.clone();
    flipped[30] ^= 1;
    std::fs::write(&file, &flipped).unwrap();
    assert_eq!(damage_said(&home), unreadable);
    std::fs::write(&file, &sound).unwrap();
    assert_eq!(damage_said(&home), (0, "none is known".into(), 0));
    // What a verify found and no mark lists is damage, too.
    std::fs::write(&file, &flipped).unwrap();
    assert_eq!(code(&home.run(&["verify"])), 20);
    let (exit, line, _) = damage_said(&home);
    assert!(exit == 20 && line == "1 when `fhrd verify` read data last: run it again", "{exit} {line}");
    std::fs::write(&file, &sound).unwrap();
    assert_eq!(code(&home.run(&["verify"])), 0);
    assert_eq!(damage_said(&home), (0, "none is known".into(), 0));
}

#[test]
fn an_encrypted_snapshot_has_the_length_that_status_expects() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.write("key", &[b'k'; 40]);
    let with_key = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        code(&home.run(&[&words[..], &["--repo", "sealed", "--key-file", "key", "--quiet"]].concat()))
    };
    assert_eq!(with_key("init --encrypt"), 0);
    assert_eq!([with_key("backup src"), with_key("status"), with_key("status")], [0, 0, 0]);
    let name = home.names("sealed/snapshots").remove(0);
    let file = home.path("sealed/snapshots").join(name);
    let sound = std::fs::read(&file).unwrap();
    std::fs::write(&file, &sound[..sound.len() - 1]).unwrap();
    assert_eq!(with_key("status"), 20);
}
