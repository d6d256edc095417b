//! Choosing what a backup stores, as a user meets it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

/// Paths of the latest snapshot below `src`, without it.
fn stored(home: &Home) -> Vec<String> {
    let listed = stdout(&home.run(&["ls", "latest"]));
    listed.lines().filter_map(|line| line.trim().strip_prefix("src/").map(str::to_string)).collect()
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

fn planted() -> Home {
    let home = Home::new();
    for (name, content) in [
        ("a.o", "object"),
        ("b.c", "code"),
        ("PHOTO.JPG", "picture"),
        ("build/deep/x.c", "made"),
        ("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55"),
        ("cache/data", "cached"),
        ("private/.nobackup", ""),
        ("private/secret", "secret"),
        ("git/.gitignore", "*.tmp\n"),
        ("git/x.tmp", "temporary"),
        ("large", &"l".repeat(3000)),
    ] {
        home.write(&format!("src/{name}"), content.as_bytes());
    }
    home
}

#[test]
fn what_is_left_out_is_counted_and_named() {
    let home = planted();
    home.write("patterns", b"# comment\n\nbuild/\n!nothing\n");
    let arguments = [
        &["--exclude", "*.o", "--iexclude", "*.jpg", "--exclude-file", "patterns", "--exclude-caches"][..],
        &["--exclude-if-present", ".nobackup", "--ignore-file", ".gitignore", "--exclude-larger-than", "2KB"],
    ]
    .concat();
    let report = home.backup(&[&["src"], &arguments[..]].concat());
    let expected = ["b.c", "cache", "cache/CACHEDIR.TAG", "git", "git/.gitignore", "private", "private/.nobackup"];
    assert_eq!(stored(&home), expected);
    assert_eq!((number(&report, "excluded"), number(&report, "problems")), (7, 0));
    let recorded = json(&home.run(&["snapshots", "--json"]));
    let excludes = &recorded[0]["excludes"];
    assert!(excludes.as_array().is_some_and(|list| list.len() == 7), "{recorded}");
    assert_eq!(excludes[0], "exclude=*.o");
    let loud = home.run(&[&["backup", "-vv", "src"], &arguments[..]].concat());
    for (path, reason) in [("src/a.o", "pattern"), ("src/large", "too large"), ("src/git/x.tmp", "ignore file")] {
        let line = stderr(&loud).lines().any(|line| line.contains(path) && line.contains(reason));
        assert!(line, "{path}: {}", stderr(&loud));
    }
    assert!(!stderr(&loud).contains("deep"), "an excluded directory is not entered");
}

#[test]
fn a_pattern_that_is_wrong_stops_the_backup_before_it_begins() {
    let home = planted();
    home.write("patterns", b"fine\nwrong[\n");
    home.write("bytes", b"fine\n\xff\n");
    for (arguments, part) in [
        (["--exclude", "a{"], "--exclude"),
        (["--exclude-file", "patterns"], "patterns, line 2"),
        (["--exclude-file", "bytes"], "at byte 5"),
        (["--exclude-file", "none"], "none"),
        (["--exclude-if-present", "a/b"], "a/b"),
        (["--ignore-file", "a/b"], "a/b"),
    ] {
        let output = home.run(&[&["backup", "src"], &arguments[..]].concat());
        assert!(code(&output) == 1 && stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    assert!(!home.path("data").exists());
}

#[test]
fn names_that_are_not_utf8_and_files_that_vanish_do_no_harm() {
    let home = planted();
    let name = OsStr::from_bytes(b"odd\xff\xfe.o");
    std::fs::write(home.path("src").join(name), "odd").unwrap();
    let mut list = home.path("src").join(name).into_os_string().into_encoded_bytes();
    list.extend(b"\0/nowhere/at all\0");
    home.write("list", &list);
    let report = home.run(&["backup", "--files-from0", "list", "--json"]);
    assert_eq!(code(&report), 3, "{}", stderr(&report));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((number(&report, "files"), number(&report, "problems")), (1, 1));
    let report = home.backup(&["src", "--exclude", "*.o"]);
    assert_eq!(number(&report, "excluded"), 2);
}

#[test]
fn paths_come_from_lists() {
    let home = planted();
    std::os::unix::fs::symlink("src", home.path("link")).unwrap();
    home.write("list", b"src/build\n\nsrc/build/deep/x.c\nsrc/b.c\n");
    home.backup(&["--files-from", "list"]);
    assert_eq!(stored(&home), ["b.c", "build", "build/deep", "build/deep/x.c"]);
    let mut piped = home.command(&["backup", "--files-from0", "-", "link/b.c", "--json"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"src/a.o\0src/large\0").unwrap();
    let report = json(&child.wait_with_output().unwrap());
    assert_eq!(number(&report, "files"), 3, "a link in a parent is followed");
    assert_eq!(stored(&home), ["a.o", "large"]);
    home.write("empty", b"\n\n");
    assert_eq!(code(&home.run(&["backup", "--files-from", "empty"])), 1);
    home.write("nul", b"a\0b\n");
    let output = home.run(&["backup", "--files-from", "nul"]);
    assert!(code(&output) == 1 && stderr(&output).contains("files-from0"), "{}", stderr(&output));
    assert_eq!(code(&home.run(&["backup"])), 2);
}

fn pipe(home: &Home, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = home.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(std::io::Write::write_all(&mut stdin, &input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[test]
fn standard_input_becomes_a_file() {
    let home = Home::new();
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    let report = json(&pipe(&home, &["backup", "--stdin", "--stdin-filename", "db.sql", "--json"], &content));
    assert_eq!((number(&report, "files"), number(&report, "bytes")), (1, content.len() as u64));
    let restored = home.run(&["restore", "latest", "--target", "out"]);
    assert_eq!(code(&restored), 0, "{}", stderr(&restored));
    assert!(home.read("out/db.sql") == content);
    let again = json(&pipe(&home, &["backup", "--stdin", "--stdin-filename", "db.sql", "--json"], &content));
    assert_eq!(number(&again, "chunks_new"), 0);
    for name in ["", "..", "a/b"] {
        assert_eq!(code(&pipe(&home, &["backup", "--stdin", "--stdin-filename", name], b"x")), 1, "{name}");
    }
    assert_eq!(code(&home.run(&["backup", "--stdin", "src"])), 2);
}

fn snapshots(home: &Home) -> usize {
    json(&home.run(&["snapshots", "--json"])).as_array().unwrap().len()
}

#[test]
fn a_command_that_fails_makes_no_snapshot() {
    let home = Home::new();
    let of = |script: &str| {
        home.run(&["backup", "--json", "--stdin-filename", "dump", "--stdin-from-command", "--", "sh", "-c", script])
    };
    assert_eq!(number(&json(&of("echo content")), "bytes"), 8);
    assert_eq!(number(&json(&of("true")), "bytes"), 0, "no output is an empty file");
    assert_eq!(snapshots(&home), 2);
    for (script, part) in
        [("echo content; exit 7", "7"), ("echo content; kill -9 $$", "signal"), ("exec 1>&-; exit 3", "3")]
    {
        let output = of(script);
        assert!(code(&output) == 1 && stderr(&output).contains(part), "{script}: {}", stderr(&output));
    }
    let missing = home.run(&["backup", "--stdin-from-command", "--", "/no/such/program"]);
    assert!(code(&missing) == 1 && stderr(&missing).contains("/no/such/program"), "{}", stderr(&missing));
    let none = home.run(&["backup", "--stdin-from-command"]);
    assert!(code(&none) == 1 && stderr(&none).contains("expected a command"), "{}", stderr(&none));
    assert_eq!(snapshots(&home), 2);
}

#[test]
fn a_stream_records_no_choice_because_nothing_is_left_out_of_it() {
    let home = Home::new();
    let of = |pattern: &str| home.run(&["backup", "--exclude", pattern, "--stdin-from-command", "--", "echo", "a"]);
    assert_eq!(code(&of("*.o")), 0);
    let recorded = json(&home.run(&["snapshots", "--json"]));
    assert_eq!(recorded[0]["excludes"], serde_json::json!([]), "{recorded}");
    assert_ne!(code(&of("[")), 0, "a wrong pattern is an error all the same");
}

#[test]
fn a_command_that_hangs_is_stopped_within_a_second() {
    let home = Home::new();
    home.backup(&["--stdin-from-command", "--", "true"]);
    let script = "echo $$ > pid; echo content; exec sleep 1000";
    let mut command = home.command(&["backup", "--stdin-from-command", "--", "sh", "-c", script]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while !std::fs::read(home.path("pid")).is_ok_and(|pid| pid.ends_with(b"\n")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let started = std::time::Instant::now();
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let pid = String::from_utf8(home.read("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the command is gone");
    assert_eq!(snapshots(&home), 1);
}

/// Every file below a directory, with its time and content.
fn state(path: &Path) -> Vec<(String, std::time::SystemTime, Vec<u8>)> {
    let mut files = Vec::new();
    let mut waiting = vec![path.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let modified = path.metadata().unwrap().modified().unwrap();
        if path.is_dir() {
            files.push((path.display().to_string(), modified, Vec::new()));
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files.push((path.display().to_string(), modified, std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_dry_run_says_what_is_new_and_writes_nothing() {
    let home = planted();
    let nothing = home.run(&["backup", "src", "--dry-run"]);
    assert_eq!(code(&nothing), 10, "{}", stderr(&nothing));
    assert!(!home.path("data/fhrd/repository").exists());
    home.backup(&["src"]);
    home.write("src/novel", &vec![7; 100_000]);
    // An interrupted backup has left a container without a segment.
    std::fs::rename(home.path("data/fhrd/repository/index"), home.path("index")).unwrap();
    std::fs::create_dir(home.path("data/fhrd/repository/index")).unwrap();
    let before = state(&home.path("data/fhrd/repository"));
    let report = home.backup(&["src", "--dry-run"]);
    assert!(state(&home.path("data/fhrd/repository")) == before);
    assert_eq!((report["snapshot"].clone(), report["dry_run"].clone()), (Value::Null, Value::Bool(true)));
    assert!(number(&report, "bytes_new") >= 100_000, "{report}");
    std::fs::remove_dir(home.path("data/fhrd/repository/index")).unwrap();
    std::fs::rename(home.path("index"), home.path("data/fhrd/repository/index")).unwrap();
    let dry = home.backup(&["src", "--dry-run"]);
    let real = home.backup(&["src"]);
    for key in ["files", "bytes", "chunks", "chunks_new", "bytes_new", "bytes_stored", "directories", "others"] {
        assert_eq!(dry[key], real[key], "{key}");
    }
    assert_eq!(number(&dry, "bytes_new"), 100_000);
    assert_eq!(snapshots(&home), 2);
    let text = stdout(&home.run(&["backup", "src", "-n"]));
    assert!(text.contains("nothing"), "{text}");
}

#[test]
fn a_backup_of_the_repository_itself_is_an_error_and_one_around_it_says_what_it_leaves_out() {
    let home = Home::new();
    home.write("around/file", b"content");
    for repository in ["r2", "around/repository"] {
        assert_eq!(code(&home.run(&["init", "--repo", repository, "--quiet"])), 0);
    }
    for paths in [&["r2"][..], &["./r2/"], &["r2/."]] {
        for more in [&[][..], &["--dry-run"]] {
            let output = home.run(&[&["backup", "--repo", "r2"], paths, more].concat());
            let text = stderr(&output);
            assert!(code(&output) == 1 && text.contains("nothing to back up"), "{paths:?} {more:?}: {text}");
        }
    }
    assert_eq!(home.names("r2/snapshots"), [""; 0]);
    let output = home.run(&["backup", "--repo", "r2", "r2", "around"]);
    assert!(code(&output) == 0 && !stdout(&output).contains("left out"), "{}", stderr(&output));
    let output = home.run(&["backup", "--repo", "around/repository", "around"]);
    assert_eq!(code(&output), 0);
    assert_eq!(stdout(&output).matches("the repository itself").count(), 1, "{}", stdout(&output));
}

#[test]
fn a_hostile_header_is_quoted_in_part() {
    let home = Home::new();
    let header = [b"\x93NUMPY\x02\x00".as_slice(), &60_000u32.to_le_bytes(), &b"\x1b[2J".repeat(15_000)].concat();
    home.write("m/x.npy", &[header, vec![7; 1 << 20]].concat());
    let output = home.run(&["backup", "m"]);
    let text = stderr(&output);
    assert!(code(&output) == 0 && text.contains("x.npy") && text.contains("npy header"), "{} bytes", text.len());
    assert!(text.len() < 2000 && !text.contains('\x1b'), "{} bytes", text.len());
}
