//! What has the name of a directory, of a blob or of a file of the cache, and is something else: what belongs there is
//! unread, not absent, and nobody waits for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::cli::fixture::{Home, code, stderr, stdout};
use crate::input::files;

/// What can be in the place of something else.
const KINDS: [&str; 5] = ["file", "directory", "pipe", "socket", "link"];

fn plant(path: &Path, kind: &str) {
    match kind {
        "file" => fs::write(path, b"").unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "pipe" => make_pipe(path),
        "socket" => drop(UnixListener::bind(path).unwrap()),
        _ => symlink("/dev/zero", path).unwrap(),
    }
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Copies a directory, also the empty ones in it.
fn copy_all(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

fn prepared() -> Home {
    let home = Home::new();
    (0..4).for_each(|number| home.write(&format!("src/{number}"), &vec![number; 100_000]));
    assert_eq!(code(&home.run(&["init", "--repo", "repo", "--quiet"])), 0);
    for number in 0..2 {
        home.write("src/last", &[number; 50_000]);
        home.backup(&["src", "--repo", "repo"]);
    }
    home
}

/// The first entry of a directory.
fn first(home: &Home, directory: &str) -> String {
    let names = home.names(&format!("repo/{directory}"));
    format!("{directory}/{}", names.first().unwrap())
}

/// Runs verbs while something else is in the place of `name`. None may delete anything, and each must end with one of
/// the `codes` of the table.
fn try_verbs(home: &Home, name: &str, kinds: &[&str], verbs: &[(&str, &[i32])]) -> Vec<String> {
    let (repository, away) = (home.path("repo"), home.path("away"));
    let (whole, mut wrong) = (home.path("whole"), Vec::new());
    let _ = fs::remove_dir_all(&whole);
    copy_all(&repository, &whole);
    for kind in kinds {
        for (verb, codes) in verbs {
            fs::rename(repository.join(name), &away).unwrap();
            plant(&repository.join(name), kind);
            let output = home.run(&verb.split(' ').chain(["--repo", "repo"]).collect::<Vec<_>>());
            remove(&repository.join(name));
            fs::rename(&away, repository.join(name)).unwrap();
            let said = format!("{}{}", stderr(&output), stdout(&output));
            let what = format!("`{verb}` with a {kind} at {name}");
            if !codes.contains(&code(&output)) || !said.contains(name) {
                wrong.push(format!("{what}: {} {said}", code(&output)));
            }
            let names = files(&repository);
            for gone in files(&whole).into_iter().filter(|name| !names.contains(name)) {
                wrong.push(format!("{what}: deleted {gone}"));
            }
            fs::remove_dir_all(&repository).unwrap();
            copy_all(&whole, &repository);
        }
    }
    wrong
}

#[test]
fn what_is_no_directory_is_never_taken_for_an_empty_one() {
    let home = prepared();
    let directories = ["containers", "index", "snapshots", "models", "marks", "marks/optional", "intents", "pending"];
    let verbs: [(&str, &[i32]); 4] =
        [("check", &[20]), ("prune --grace 0s", &[20]), ("backup src", &[20]), ("repair snapshots --forget", &[20])];
    let mut wrong: Vec<String> = Vec::new();
    for directory in directories {
        let kinds: &[&str] = if directory == "snapshots" { &["file", "pipe", "link"] } else { &["file", "link"] };
        wrong.extend(try_verbs(&home, directory, kinds, &verbs));
    }
    // Segments name the containers in one of the 256.
    let verbs: [(&str, &[i32]); 3] =
        [("check", &[20]), ("prune --grace 0s", &[20]), ("repair snapshots --forget", &[20])];
    let directory = first(&home, "containers");
    wrong.extend(try_verbs(&home, &directory, &["file", "pipe", "link"], &verbs));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_has_the_name_of_a_blob_and_is_no_file_is_never_taken_for_absent() {
    let home = prepared();
    let verbs: [(&str, &[i32]); 3] =
        [("check", &[20]), ("prune --grace 0s", &[20]), ("repair snapshots --forget", &[20])];
    let mut wrong: Vec<String> = Vec::new();
    let container = first(&home, &first(&home, "containers"));
    for name in [first(&home, "snapshots"), container, first(&home, "index")] {
        let kinds = if name.starts_with("snapshots") { &KINDS[1..] } else { &KINDS[1..3] };
        // The containers have all that a segment has.
        let is_segment = name.starts_with("index");
        let codes = verbs.map(|(verb, codes)| (verb, if is_segment && verb != "check" { &[0][..] } else { codes }));
        wrong.extend(try_verbs(&home, &name, kinds, &codes));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_in_the_cache_is_built_again_and_nobody_waits_for_it() {
    let home = prepared();
    copy_all(&home.path("cache"), &home.path("whole-cache"));
    let names = files(&home.path("cache"));
    assert!(names.iter().any(|name| name.ends_with("snapshots.cache")), "{names:?}");
    let verbs = ["snapshots", "backup src", "restore latest --target back", "prune --grace 0s", "check", "stats"];
    for kind in ["pipe", "link", "directory"] {
        fs::remove_dir_all(home.path("cache")).unwrap();
        copy_all(&home.path("whole-cache"), &home.path("cache"));
        for name in &names {
            let path = home.path("cache").join(name);
            remove(&path);
            plant(&path, kind);
        }
        for verb in verbs {
            remove(&home.path("back"));
            home.write("src/last", kind.as_bytes());
            let words = verb.split(' ').chain(["--repo", "repo"]).collect::<Vec<_>>();
            let output = std::process::Command::new("timeout")
                .arg("60")
                .arg(home.command(&[]).get_program())
                .args(&words)
                .current_dir(home.path(""))
                .envs(home.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))))
                .output()
                .unwrap();
            assert_eq!(code(&output), 0, "`{verb}` with a {kind} in the cache: {}", stderr(&output));
        }
        let snapshots = names.iter().find(|name| name.ends_with("snapshots.cache")).unwrap();
        let is_file = home.path("cache").join(snapshots).symlink_metadata().unwrap().is_file();
        assert!(is_file || kind == "directory", "a {kind} is replaced");
    }
}
