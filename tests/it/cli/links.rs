//! Links and special files that a backup is given.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use super::fixture::{Home, code, json, stderr};

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// A home with the layout of a Hugging Face cache and of a directory of checkpoints.
fn home() -> Home {
    let home = Home::new();
    home.write("hub/blobs/one", b"weights");
    home.write("hub/blobs/two", b"words");
    std::fs::create_dir_all(home.path("hub/snapshots/rev")).unwrap();
    symlink("../../blobs/one", home.path("hub/snapshots/rev/model.bin")).unwrap();
    symlink("../../blobs/two", home.path("hub/snapshots/rev/card.md")).unwrap();
    home.write("runs/step-4.ckpt", b"checkpoint");
    symlink("step-4.ckpt", home.path("runs/last.ckpt")).unwrap();
    home
}

#[test]
fn a_given_link_is_warned_of_and_followed_on_request() {
    let home = home();
    for (path, warnings) in [
        ("runs/last.ckpt", &["last.ckpt is a link, and only the link is stored", "no file is stored"][..]),
        ("hub/snapshots/rev", &["no file is stored, only links and special files"]),
    ] {
        let output = home.run(&["backup", path]);
        assert_eq!(code(&output), 0);
        let text = stderr(&output);
        assert!(warnings.iter().all(|words| text.contains(words)) && text.contains("--dereference"), "{text}");
    }
    let report = home.backup(&["runs/last.ckpt", "hub/snapshots/rev", "--dereference"]);
    assert_eq!((number(&report, "files"), number(&report, "others"), number(&report, "problems")), (3, 0, 0));
    json(&home.run(&["restore", "latest", "--target", "out", "--json"]));
    assert_eq!(home.read("out/runs/last.ckpt"), b"checkpoint");
    assert_eq!(home.read("out/hub/snapshots/rev/model.bin"), b"weights");
    assert!(home.path("out/runs/last.ckpt").symlink_metadata().unwrap().is_file());
    let quiet = home.run(&["backup", "runs", "hub"]);
    assert!(!stderr(&quiet).contains("link"), "{}", stderr(&quiet));
}

#[test]
fn directories_behind_links_are_stored_and_links_in_a_circle_stay_links() {
    let home = home();
    symlink("../hub/blobs", home.path("runs/blobs")).unwrap();
    symlink("..", home.path("runs/up")).unwrap();
    symlink(".", home.path("runs/self")).unwrap();
    symlink("nowhere", home.path("runs/dangling")).unwrap();
    let output = home.run(&["backup", "runs", "--dereference", "--json"]);
    let report = json(&output);
    // `up` leads to the home, which is not among the directories of the walk: in it, `runs` is met again.
    for words in ["runs/self: the link leads to a directory above", "runs/dangling: the link leads nowhere"] {
        assert!(stderr(&output).contains(words), "{words}: {}", stderr(&output));
    }
    assert_eq!(number(&report, "problems"), 0, "{}", stderr(&output));
    json(&home.run(&["restore", "latest", "--target", "out", "--json"]));
    assert_eq!(home.read("out/runs/blobs/one"), b"weights");
    assert_eq!(std::fs::read_link(home.path("out/runs/self")).unwrap().to_str(), Some("."));
    assert_eq!(std::fs::read_link(home.path("out/runs/dangling")).unwrap().to_str(), Some("nowhere"));
    assert_eq!(home.read("out/runs/up/hub/blobs/two"), b"words");
}

#[test]
fn a_named_pipe_and_a_device_are_warned_of_and_read_on_request() {
    let home = Home::new();
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    let output = home.run(&["backup", "pipe", "/dev/null"]);
    let text = stderr(&output);
    assert!(
        code(&output) == 0 && text.contains("pipe is a named pipe") && text.contains("/dev/null is a device"),
        "{text}"
    );
    assert!(text.contains("--read-special"), "{text}");
    symlink("pipe", home.path("to-pipe")).unwrap();
    let content: Vec<u8> = (0..2_000_000u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
    for given in ["pipe", "to-pipe"] {
        let (path, bytes) = (home.path("pipe"), content.clone());
        let writer = std::thread::spawn(move || {
            std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&bytes).unwrap();
        });
        let report = home.backup(&[given, "/dev/null", "--read-special"]);
        writer.join().unwrap();
        assert_eq!((number(&report, "files"), number(&report, "problems")), (2, 0), "{given}");
        assert_eq!(number(&report, "bytes"), content.len() as u64);
        json(&home.run(&["restore", "latest", "--target", given.strip_prefix("to-").map_or("a", |_| "b"), "--json"]));
    }
    assert!(home.read("a/pipe") == content && home.read("b/to-pipe") == content);
    assert_eq!(home.read("a/dev/null"), b"");
}
