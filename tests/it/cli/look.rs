//! Looking: `snapshots`, `ls`, `find`, `diff`, `cat`, `dump`, `stats`, and the names that all verbs take.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::{describe, noise, plant};

fn id(report: &Value) -> String {
    report["snapshot"].as_str().unwrap().to_string()
}

/// Three snapshots of two hosts and two paths.
fn three() -> (Home, [String; 3]) {
    let home = Home::new();
    home.write("a/file", b"one");
    home.write("b/file", b"two");
    let first = id(&home.backup(&["a", "--host", "x", "--tag", "daily", "--tag", "big"]));
    home.write("a/file", b"one more");
    let second = id(&home.backup(&["a", "--host", "x", "--tag", "daily"]));
    let third = id(&home.backup(&["b", "--host", "y"]));
    (home, [first, second, third])
}

#[test]
fn snapshots_are_chosen_by_host_path_and_tag() {
    let (home, [first, second, third]) = three();
    let listed = |arguments: &[&str]| -> Vec<String> {
        let all = json(&home.run(&[&["snapshots", "--json"], arguments].concat()));
        all.as_array().unwrap().iter().map(|named| named["id"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(listed(&[]), [first.clone(), second.clone(), third.clone()]);
    assert_eq!(listed(&["--host", "y", "--host", "z"]), [third.as_str()]);
    assert_eq!(listed(&["--path", "a"]), [first.clone(), second.clone()]);
    assert_eq!(listed(&["--path", home.path("b").to_str().unwrap()]), [third.as_str()]);
    assert_eq!(listed(&["--tag", "daily,big"]), [first.as_str()]);
    assert_eq!(listed(&["--tag", "daily", "--host", "y"]), [""; 0]);
    assert_eq!(listed(&["--tag", ""]), [third.as_str()]);
    assert_eq!(listed(&["--latest", "1"]), [second.clone(), third.clone()]);

    let groups = json(&home.run(&["snapshots", "--group-by", "host,tags", "--json"]));
    let groups: Vec<(&Value, usize)> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (&group["group"], group["snapshots"].as_array().unwrap().len()))
        .collect();
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert!(groups.iter().all(|(group, _)| group["paths"].is_null() && group["host"].is_string()));
    let one = json(&home.run(&["snapshots", "--group-by", "host", "--latest", "1", "--json"]));
    assert_eq!(one[0]["snapshots"].as_array().map(Vec::len), Some(1));
    assert_eq!(one[0]["snapshots"][0]["id"], second.as_str());
    let text = stdout(&home.run(&["snapshots", "--group-by", "host"]));
    assert!(text.contains("host x\n") && text.contains("host y\n"), "{text}");
    assert_eq!(code(&home.run(&["snapshots", "--group-by", "colour"])), 2);
}

#[test]
fn latest_can_be_narrowed_and_a_path_follows_any_id() {
    let (home, [first, ..]) = three();
    let path = |name: &str| format!("{}:{name}", &first[..12]);
    assert_eq!(stdout(&home.run(&["cat", "latest:b/file"])), "two");
    assert_eq!(stdout(&home.run(&["cat", "latest:a/file", "--host", "x"])), "one more");
    assert_eq!(stdout(&home.run(&["cat", "latest:/a/file", "--tag", "big"])), "one");
    assert_eq!(stdout(&home.run(&["cat", &path("a/file"), "--host", "y"])), "one");
    for (narrowed, text) in [(["--host", "x"], "one more"), (["--tag", "big"], "one")] {
        json(&home.run(
            &[&["restore", "latest:a", "--target", "out", "--overwrite", "always", "--json"][..], &narrowed].concat(),
        ));
        assert_eq!(home.read("out/file"), text.as_bytes());
    }
    let none = home.run(&["cat", "latest:a/file", "--host", "z"]);
    assert_eq!(code(&none), 1);
    assert!(stderr(&none).contains("no snapshot matches `latest`"), "{}", stderr(&none));
    for (arguments, hint) in [
        (["cat", "latest:a/absent", "--host=x"], "a/absent"),
        (["cat", "latest:a", "--host=x"], "not a regular file"),
        (["cat", "latest", "--host=x"], "not a regular file"),
    ] {
        let output = home.run(&arguments);
        assert_eq!((code(&output), stdout(&output)), (1, String::new()));
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
}

#[test]
fn ls_of_a_directory_shows_its_entries_and_more_on_request() {
    let home = Home::new();
    home.write("tree/deep/er/file", b"x");
    home.write("tree/top", &[0; 5000]);
    home.backup(&["tree"]);
    let lines = |arguments: &[&str]| -> Vec<String> {
        stdout(&home.run(&[&["ls"], arguments].concat())).lines().map(str::to_string).collect()
    };
    let all = ["tree", "tree/deep", "tree/deep/er", "tree/deep/er/file", "tree/top"];
    assert_eq!(lines(&["latest"]), all);
    assert_eq!(lines(&["latest:tree", "--recursive"]), all);
    assert_eq!(lines(&["latest:tree"]), ["tree", "tree/deep", "tree/top"]);
    assert_eq!(lines(&["latest", "tree/deep"]), ["tree/deep", "tree/deep/er"]);
    assert_eq!(lines(&["latest:tree/deep", "er"]), ["tree/deep/er", "tree/deep/er/file"]);
    let long = lines(&["latest:tree", "-l"]);
    assert!(long[2].contains("4.9 KiB"), "{long:?}");
    assert_eq!(json(&home.run(&["ls", "latest:tree/top", "--json"]))[0]["size"], 5000);
}

#[test]
fn cat_writes_a_file_or_a_range_of_it() {
    let home = Home::new();
    let bytes = noise(3, 3_000_000);
    home.write("noise", &bytes);
    home.backup(&["noise"]);
    let cat = |arguments: &[&str]| home.run(&[&["cat", "latest:noise"], arguments].concat()).stdout;
    assert_eq!(cat(&[]), bytes);
    assert_eq!(cat(&["--range", "1000000-1000007"]), bytes[1_000_000..1_000_007]);
    assert_eq!(cat(&["--range", "2MiB-"]), bytes[2 << 20..]);
    assert_eq!(cat(&["--range", "2999999-9999999"]), bytes[2_999_999..]);
    assert_eq!((cat(&["--range", "7-7"]), cat(&["--range", "4000000-"])), (Vec::new(), Vec::new()));
    assert_eq!(code(&home.run(&["cat", "latest:noise", "--range", "8-7"])), 2);
}

#[test]
fn find_names_the_first_and_the_last_snapshot_of_each_version() {
    let home = Home::new();
    home.write("tree/sub/notes.txt", b"first");
    home.write("tree/other.rs", &[7; 100]);
    let first = id(&home.backup(&["tree"]));
    let second = id(&home.backup(&["tree"]));
    home.write("tree/sub/notes.txt", b"the second version");
    let third = id(&home.backup(&["tree"]));
    std::fs::remove_file(home.path("tree/sub/notes.txt")).unwrap();
    let fourth = id(&home.backup(&["tree"]));

    let find = |arguments: &[&str]| json(&home.run(&[&["find", "--json"], arguments].concat()));
    let seen = |found: &Value| -> Vec<(String, u64, String, String)> {
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_string();
        let each = found.as_array().unwrap().iter();
        each.map(|entry| {
            let size = entry["size"].as_u64().unwrap();
            (text(entry, "path"), size, text(entry, "first_snapshot"), text(entry, "last_snapshot"))
        })
        .collect()
    };
    let notes = "tree/sub/notes.txt".to_string();
    let expected =
        [(notes.clone(), 5, first.clone(), second.clone()), (notes.clone(), 18, third.clone(), third.clone())];
    assert_eq!(seen(&find(&["*.txt"])), expected);
    assert_eq!(seen(&find(&["sub/NOTES.*", "-i", "--size-min", "10"])), expected[1..]);
    assert_eq!(seen(&find(&["/tree/sub/*", "--snapshot", &second])), [(notes, 5, second.clone(), second)]);
    assert_eq!(seen(&find(&["*", "--type", "d", "--path", "tree"])).len(), 3, "one directory changed");
    let other = ("tree/other.rs".to_string(), 100, first, fourth);
    assert_eq!(seen(&find(&["*.rs"])), [other]);
    assert_eq!(find(&["*.rs", "--newer", "1d"]).as_array().map(Vec::len), Some(1));
    assert_eq!(find(&["*.rs", "--older", "1d"]), serde_json::json!([]));
    let text = stdout(&home.run(&["find", "notes.txt"]));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(code(&home.run(&["find", "a["])), 1);
    assert_eq!(code(&home.run(&["find", "a", "--newer", "soon"])), 2);
}

#[test]
fn diff_tells_content_from_metadata_and_counts_bytes_by_chunk() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let mut large = noise(1, 4 << 20);
    home.write("tree/large", &large);
    home.write("tree/gone/file", &[1; 1000]);
    home.write("tree/mode", b"same");
    home.write("tree/kind", b"a file");
    home.write("tree/kept/deep/file", b"same");
    let first = id(&home.backup(&["tree"]));
    large[2 << 20] ^= 1;
    home.write("tree/large", &large);
    home.write("tree/new", &[2; 500]);
    std::fs::remove_dir_all(home.path("tree/gone")).unwrap();
    std::fs::set_permissions(home.path("tree/mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::remove_file(home.path("tree/kind")).unwrap();
    std::os::unix::fs::symlink("kept", home.path("tree/kind")).unwrap();
    let second = id(&home.backup(&["tree"]));

    let report = json(&home.run(&["diff", &first, &second, "--metadata", "--json"]));
    let changes: BTreeMap<&str, &str> = report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["change"].as_str().unwrap()))
        .collect();
    let expected = [
        ("tree", "metadata"),
        ("tree/gone", "removed"),
        ("tree/gone/file", "removed"),
        ("tree/kind", "kind"),
        ("tree/large", "content"),
        ("tree/mode", "metadata"),
        ("tree/new", "added"),
    ];
    assert_eq!(changes, BTreeMap::from(expected));
    let summary = &report["summary"];
    assert_eq!((&summary["files"]["added"], &summary["files"]["removed"]), (&1.into(), &1.into()));
    let (added, removed) = (summary["bytes_added"].as_u64().unwrap(), summary["bytes_removed"].as_u64().unwrap());
    assert!((500 + 1..1 << 20).contains(&added) && (1006 + 1..1 << 20).contains(&removed), "{summary}");

    let text = stdout(&home.run(&["diff", &first, "latest"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"M  tree/large") && lines.contains(&"T  tree/kind"), "{text}");
    assert!(lines.contains(&"+  tree/new") && !text.contains("tree/mode"), "{text}");
    let below = json(&home.run(&["diff", &format!("{first}:tree/kept"), &format!("{second}:tree/kept"), "--json"]));
    assert_eq!(below["changes"], serde_json::json!([]));
    let same = json(&home.run(&["diff", &first, &first, "--json"]));
    assert_eq!((&same["changes"], &same["summary"]["bytes_added"]), (&serde_json::json!([]), &0.into()));
    assert!(stdout(&home.run(&["diff", &first, &first])).starts_with("files "));
    assert_eq!(code(&home.run(&["diff", &first, "latest:tree/absent"])), 1);
}

#[test]
fn a_dumped_tree_unpacks_to_what_it_was() {
    let home = Home::new();
    plant(&home.path("tree"));
    let long = format!("tree/{}/{}", "d".repeat(90), "f".repeat(120));
    home.write(&long, b"a long name");
    home.backup(&["tree"]);
    let mut dump = home.command(&["dump", "latest:tree"]);
    let mut dump = dump.stdout(Stdio::piped()).spawn().unwrap();
    std::fs::create_dir(home.path("out")).unwrap();
    let mut tar = Command::new("tar");
    let unpacked =
        tar.args(["-xpf", "-", "--numeric-owner"]).current_dir(home.path("out")).stdin(dump.stdout.take().unwrap());
    assert!(unpacked.status().unwrap().success());
    assert!(dump.wait().unwrap().success());
    let (expected, found) = (describe(&home.path("tree")), describe(&home.path("out/tree")));
    for (path, expected) in &expected {
        assert_eq!(found.get(path), Some(expected), "{}", path.display());
    }
    assert_eq!(found.len(), expected.len());

    // A file is dumped as it is, an archive into a new file only.
    assert_eq!(home.run(&["dump", "latest:tree/text"]).stdout, home.read("tree/text"));
    let report = json(&home.run(&["dump", "latest:tree/deep", "--output", "deep.tar", "--json"]));
    assert_eq!((&report["damaged"], &report["skipped"]), (&0.into(), &0.into()));
    let archive = home.read("deep.tar");
    assert_eq!(archive.len() % 512, 0);
    assert!(archive.chunks(512).any(|block| block.starts_with(b"deep/\0")), "names start at the directory");
    assert!(stdout(&home.run(&["dump", "latest:tree/deep", "--output", "deep.tar"])).is_empty());
    assert_eq!(code(&home.run(&["dump", "latest:tree/deep", "--output", "deep.tar"])), 1);
    assert_eq!(home.read("deep.tar"), archive);
}

#[test]
fn stats_tell_what_a_snapshot_alone_keeps() {
    let home = Home::new();
    home.write("tree/shared.bin", &noise(1, 2 << 20));
    home.write("tree/copy.bin", &noise(1, 2 << 20));
    let first = id(&home.backup(&["tree"]));
    home.write("tree/own.bin", &noise(2, 1 << 20));
    home.write("tree/text.txt", &[b'x'; 100_000]);
    let second = id(&home.backup(&["tree"]));

    let stats = json(&home.run(&["stats", &second, "--json"]));
    assert_eq!((&stats["files"], &stats["bytes"]), (&4.into(), &(100_000 + (5u64 << 20)).into()));
    assert_eq!(stats["distinct_bytes"], 100_000 + (3u64 << 20));
    assert_eq!(stats["kinds"]["bin"]["distinct_bytes"], 3u64 << 20);
    assert_eq!(stats["kinds"]["txt"]["files"], 1);
    let stored = stats["stored_bytes"].as_u64().unwrap();
    assert!((3 << 20..(3 << 20) + 100_000).contains(&stored), "{stored}");
    assert_eq!(json(&home.run(&["stats", "latest:tree/own.bin", "--json"]))["distinct_bytes"], 1u64 << 20);

    let report = json(&home.run(&["stats", "--by-snapshot", "--json"]));
    let alone: BTreeMap<&str, u64> = report["snapshots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|snapshot| (snapshot["id"].as_str().unwrap(), snapshot["alone"]["stored_bytes"].as_u64().unwrap()))
        .collect();
    assert!(alone[first.as_str()] < 2000, "its listing alone: {alone:?}");
    assert!((1 << 20..(1 << 20) + 10_000).contains(&alone[second.as_str()]), "{alone:?}");
    assert!((2 << 20..(2 << 20) + 10_000).contains(&report["shared"]["stored_bytes"].as_u64().unwrap()), "{report}");
    assert_eq!((&report["unreferenced"]["chunks"], &report["sampled_one_in"]), (&0.into(), &1.into()));
    let text = stdout(&home.run(&["stats", "--by-snapshot"]));
    assert!(text.contains("several snapshots need"), "{text}");
    assert!(stdout(&home.run(&["stats", "latest"])).contains("unique"));
}

#[test]
fn stats_of_the_repository_say_what_it_holds_and_saves() {
    let home = Home::new();
    home.write("tree/a.bin", &noise(1, 1 << 20));
    home.write("tree/b.txt", &[b'x'; 100_000]);
    for host in ["one", "one", "two"] {
        home.backup(&["tree", "--host", host]);
    }
    let usage = &json(&home.run(&["stats", "--json"]))["usage"];
    let whole = 3 * (100_000 + (1u64 << 20));
    assert_eq!((&usage["files"], &usage["bytes"]), (&6.into(), &whole.into()));
    assert_eq!(usage["distinct_bytes"], whole / 3);
    assert_eq!(
        (&usage["kinds"]["bin"]["files"], &usage["kinds"]["bin"]["distinct_bytes"]),
        (&3.into(), &(1 << 20).into())
    );
    let host =
        |name: &str| ["snapshots", "bytes", "distinct_bytes"].map(|key| usage["hosts"][name][key].as_u64().unwrap());
    assert_eq!((host("one"), host("two")), ([2, whole / 3 * 2, whole / 3], [1, whole / 3, 0]));
    let text = stdout(&home.run(&["stats"]));
    for words in [
        "snapshots   3 of 2 hosts",
        "content     3.3 MiB in 6 files",
        "unique      1.1 MiB",
        "ratio       3.",
        "% saved)",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("\nkind ") && text.contains("\nhost ") && !text.contains("depths"), "{text}");
    let one = stdout(&home.run(&["stats", "--host", "two"]));
    assert!(one.contains("snapshots   1 of 1 hosts"), "{one}");
    assert!(stdout(&home.run(&["stats", "--debug"])).contains("depths: 1"));
    assert!(json(&home.run(&["stats", "--debug", "--json"]))["depths"].is_object());
}

/// Damages the data of the repository: flips a byte in the first frame of each container with data.
pub fn damage_data(home: &Home) {
    damage_data_at(home, 200);
}

/// The same at this offset.
pub fn damage_data_at(home: &Home, offset: usize) {
    let mut directories = vec![home.path("data/fhrd/repository/containers")];
    let mut containers: Vec<PathBuf> = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { directories.push(path) } else { containers.push(path) }
        }
    }
    for path in containers {
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes[10] == 0 {
            bytes[offset] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn damage_costs_its_own_bytes_and_exits_with_20() {
    let home = Home::new();
    home.write("tree/bad", &noise(1, 100_000));
    home.backup(&["tree"]);
    damage_data(&home);
    assert_eq!(code(&home.run(&["cat", "latest:tree/bad"])), 20);
    let dump = home.run(&["dump", "latest"]);
    assert_eq!(code(&dump), 20);
    assert!(stderr(&dump).contains("tree/bad"), "{}", stderr(&dump));
    // The archive is whole but for the file's bytes.
    assert_eq!(dump.stdout.len() % 512, 0);
    assert!(dump.stdout.ends_with(&[0; 1024]));
    for fine in [&["find", "bad"][..], &["diff", "latest", "latest"], &["stats", "latest"], &["stats", "--by-snapshot"]]
    {
        assert_eq!(code(&home.run(fine)), 0, "{fine:?}: none reads content");
    }
}
