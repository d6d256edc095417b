//! A directory of the repository that is away, as on a share that is not mounted: what is in it is unread, not absent.

use std::fs;
use std::path::Path;

use fhrd::Error;
use fhrd::store::{BlobKind, BlobName, Durable, PutOptions, StoreExt};

use crate::cli::fixture::{Home, code, stderr, stdout};
use crate::input::{TestRepository, copy_directory, files};

/// The directories of a repository.
const DIRECTORIES: [&str; 10] = [
    "containers",
    "index",
    "snapshots",
    "bundles",
    "models",
    "marks",
    "marks/required",
    "marks/optional",
    "intents",
    "pending",
];

/// A home with a repository at `repo` that has two snapshots of `src`, and another one at `other`.
fn prepared() -> Home {
    let home = Home::new();
    (0..4).for_each(|number| home.write(&format!("src/{number}"), &vec![number; 100_000]));
    for (repository, count) in [("repo", 2), ("other", 1)] {
        assert_eq!(code(&home.run(&["init", "--repo", repository, "--quiet"])), 0);
        for number in 0..count {
            home.write("src/last", &[number; 50_000]);
            home.backup(&["src", "--repo", repository]);
        }
    }
    home
}

/// All verbs that read or write a repository.
const VERBS: [&str; 27] = [
    "backup src",
    "backup src --dry-run",
    "restore latest --target back",
    "snapshots",
    "ls latest",
    "find last",
    "diff latest latest",
    "dump latest --output archive.tar",
    "models",
    "lineage",
    "runs",
    "stats",
    "stats latest",
    "forget --keep-last 1",
    "forget --keep-last 1 --prune --grace 0s",
    "copy --from-repo other",
    "rewrite --exclude 1 --forget",
    "tag latest --add more",
    "prune --grace 0s",
    "prune --dry-run",
    "check",
    "check --read-data",
    "repair index",
    "repair containers",
    "repair snapshots --dry-run",
    "repair snapshots --forget",
    "upgrade",
];

/// Whether a verb has to say that it cannot do its work without a directory. One that only looks does not, if it gives
/// the right answer without what is in there.
fn needs(verb: &str, directory: &str) -> bool {
    let words: Vec<&str> = verb.split(' ').collect();
    let looks = ["restore", "snapshots", "ls", "find", "diff", "dump", "models", "lineage", "runs", "stats"];
    if !looks.contains(&words[0]) {
        return true;
    }
    match directory {
        "models" => ["models", "lineage"].contains(&words[0]),
        // Without containers, only snapshots themselves can be read.
        "containers" => !["snapshots", "runs", "diff latest latest"].contains(&verb),
        "snapshots" | "intents" => true,
        _ => false,
    }
}

fn try_each(home: &Home, directories: &[&str], verbs: &[&str], options: &[&str]) {
    let repository = home.path("repo");
    let (whole, away) = (home.path("whole"), home.path("away"));
    copy_directory(&repository, &whole);
    let mut wrong = Vec::new();
    for directory in directories {
        for verb in verbs {
            let what = format!("`{verb}` without {directory}");
            let _ = (fs::remove_dir_all(home.path("back")), fs::remove_file(home.path("archive.tar")));
            fs::rename(repository.join(directory), &away).unwrap();
            let words: Vec<&str> = verb.split(' ').chain(["--repo", "repo"]).chain(options.iter().copied()).collect();
            let output = home.run(&words);
            if repository.join(directory).exists() {
                wrong.push(format!("{what}: it was created again"));
                fs::remove_dir_all(repository.join(directory)).unwrap();
            }
            fs::rename(&away, repository.join(directory)).unwrap();
            let names = files(&repository);
            let gone: Vec<String> = files(&whole).into_iter().filter(|name| !names.contains(name)).collect();
            if !gone.is_empty() {
                wrong.push(format!("{what}: deleted {gone:?}"));
                gone.iter().for_each(|name| drop(fs::copy(whole.join(name), repository.join(name))));
            }
            for name in names.iter().filter(|name| !whole.join(name).exists()) {
                wrong.push(format!("{what}: wrote {name}"));
                fs::remove_file(repository.join(name)).unwrap();
            }
            let said = format!("{}{}", stderr(&output), stdout(&output));
            let is_named = said.contains(&format!("the directory {directory} "));
            let is_right = code(&output) == 0 && !needs(verb, directory);
            if !(is_right || code(&output) == 20 && is_named) {
                wrong.push(format!("{what}: {} {said}", code(&output)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_directory_that_is_away_is_never_taken_for_empty() {
    try_each(&prepared(), &DIRECTORIES, &VERBS, &[]);
}

#[test]
fn a_directory_of_keys_that_is_away_is_never_taken_for_empty() {
    let home = Home::new();
    home.write("key", &[b'k'; 40]);
    home.write("key-2", &[b'l'; 40]);
    let options = ["--key-file", "key"];
    let run = |words: &[&str]| home.run(&[words, &["--repo", "repo"], &options].concat());
    assert_eq!(code(&run(&["init", "--encrypt", "--quiet"])), 0);
    let verbs = ["key add --new-key-file key-2", "key rotate", "key passwd --new-key-file key-2", "prune", "upgrade"];
    try_each(&home, &["key-copies", "key-changes"], &verbs, &options);
    fs::rename(home.path("repo/keys"), home.path("away")).unwrap();
    for verb in verbs {
        let output = run(&verb.split(' ').collect::<Vec<_>>());
        assert!([12, 20].contains(&code(&output)), "{verb}: {} {}", code(&output), stderr(&output));
        assert!(!home.path("repo/keys").exists(), "{verb}");
    }
}

/// Removes empty directories, as programs do that copy none.
fn remove_empty(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_empty(&path);
            let _ = fs::remove_dir(path);
        }
    }
}

#[test]
fn a_repository_without_its_empty_directories_is_whole() {
    let home = prepared();
    let repository = home.path("repo");
    let run = |verb: &str| home.run(&verb.split(' ').chain(["--repo", "repo"]).collect::<Vec<_>>());
    for verb in VERBS {
        remove_empty(&repository);
        assert!(!repository.join("pending").exists() && !repository.join(".directories").exists());
        let output = run(verb);
        assert_eq!(code(&output), 0, "{verb}: {}", stderr(&output));
        let _ = (fs::remove_dir_all(home.path("back")), fs::remove_file(home.path("archive.tar")));
    }
    // What has something in another directory is missed.
    remove_empty(&repository);
    for directory in ["containers", "index"] {
        fs::rename(repository.join(directory), home.path("away")).unwrap();
        for verb in ["backup src", "prune --grace 0s", "repair snapshots --forget"] {
            let output = run(verb);
            assert_eq!(code(&output), 20, "{verb} without {directory}: {}", stderr(&output));
            assert!(!repository.join(directory).exists());
        }
        fs::rename(home.path("away"), repository.join(directory)).unwrap();
    }
    // The next backup makes all.
    assert_eq!(code(&run("backup src")), 0);
    assert!(repository.join(".directories").is_dir());
    assert!(DIRECTORIES.iter().all(|directory| repository.join(directory).is_dir()));
}

#[test]
fn a_root_that_is_away_in_the_middle_of_a_run_is_not_empty() {
    let (place, away) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let repository = place.open();
    fs::rename(place.path(), away.path().join("repository")).unwrap();
    fs::create_dir(place.path()).unwrap();
    for kind in [BlobKind::Container, BlobKind::Segment, BlobKind::Snapshot, BlobKind::Intent, BlobKind::Pending] {
        let error = repository.store.list(kind.into()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{kind}: {error}");
        let name = BlobName::hashed(kind, &[7; 32]);
        assert!(repository.store.head(&name).is_err() && repository.store.delete(&name, Durable::OnReturn).is_err());
        assert!(!repository.store.get(&name, 10).unwrap_err().is_proven_damage());
        assert!(repository.store.put_if_absent(&name, &[b"x"]).is_err());
        assert!(repository.store.overwrite(&name, &[b"x"], PutOptions::default()).is_err());
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    fs::remove_dir(place.path()).unwrap();
    fs::rename(away.path().join("repository"), place.path()).unwrap();
}
