//! Surroundings in which a backup runs seldom.

use std::os::unix::fs::FileExt;
use std::process::Stdio;

use super::fixture::{Home, code, json, stderr};

#[test]
fn a_time_zone_that_does_not_exist_is_warned_of() {
    let home = Home::new();
    home.write("src/a", b"a");
    for (zone, is_warned) in [("Foo/Bar", true), ("UTC", false), ("", false)] {
        let output = home.command(&["backup", "src"]).env("TZ", zone).output().unwrap();
        assert_eq!(code(&output), 0);
        assert_eq!(stderr(&output).contains("TZ names no time zone"), is_warned, "{zone}: {}", stderr(&output));
    }
}

#[test]
fn a_closed_standard_input_is_no_empty_file() {
    let home = Home::new();
    let output = home.command(&["backup", "--stdin"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("the standard input is closed"), "{}", stderr(&output));
}

#[test]
fn a_backup_goes_on_without_a_cache_directory() {
    let home = Home::new();
    home.write("src/a", &vec![7; 300_000]);
    // A file where the directory would be: also root cannot make it.
    home.write("cache", b"");
    let run = |arguments: &[&str]| {
        let output = home.run(&[arguments, &["--repo", "r", "--json"]].concat());
        json(&output);
        stderr(&output)
    };
    run(&["init"]);
    let said = run(&["backup", "src"]);
    assert!(said.contains("nothing is cached"), "{said}");
    run(&["backup", "src"]);
    run(&["restore", "latest", "--target", "out"]);
    assert_eq!(home.read("out/src/a"), home.read("src/a"));
    run(&["check", "--read-data"]);
    run(&["prune"]);
}

#[test]
fn holes_are_read_on_request() {
    let home = Home::new();
    home.write("src/sparse", b"");
    let file = std::fs::File::options().write(true).open(home.path("src/sparse")).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(b"end", (4 << 20) - 3).unwrap();
    let read = |arguments: &[&str]| home.backup(&[&["src"], arguments].concat())["bytes_read"].as_u64().unwrap();
    assert!(read(&[]) < 1 << 20);
    assert!(read(&["--read-holes", "--force"]) >= 4 << 20);
    json(&home.run(&["restore", "latest", "--target", "out", "--json"]));
    assert!(home.read("out/src/sparse") == home.read("src/sparse"));
}
