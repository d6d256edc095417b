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
    assert!(said.contains("nothing is cached") && said.lines().count() == 1, "{said}");
    assert!(run(&["backup", "src", "--no-cache"]).is_empty());
    run(&["backup", "src"]);
    run(&["restore", "latest", "--target", "out"]);
    assert_eq!(home.read("out/src/a"), home.read("src/a"));
    run(&["check", "--read-data"]);
    run(&["prune"]);
}

#[test]
fn a_backup_without_caches_writes_none_and_leaves_those_of_others_out() {
    let home = Home::new();
    home.write("src/a", &vec![7; 300_000]);
    let run = |arguments: &[&str]| {
        let output = home.run(&[&["backup", "--repo", "r", "--json"], arguments].concat());
        assert!(stderr(&output).is_empty(), "{}", stderr(&output));
        json(&output)
    };
    json(&home.run(&["init", "--repo", "r", "--json"]));
    run(&["src", "--no-cache"]);
    let second = run(&["src", "--no-cache"]);
    // It is so new that it may be read again.
    let same = ["files_unchanged", "files_rechecked"].map(|key| second[key].as_u64().unwrap());
    assert_eq!(same.iter().sum::<u64>(), 1, "{second}");
    home.write("src/b", &vec![7; 300_000]);
    let again = run(&["src", "--no-cache", "--force"]);
    assert_eq!((&again["bytes_new"], home.path("cache").exists()), (&0.into(), false), "{again}");
    assert_eq!(run(&["src"])["files"], run(&[".", "--no-cache"])["files"]);
    assert!(home.path("cache").exists());
    assert_eq!(run(&[".", "--no-cache"])["files"], 2);
    assert_eq!(code(&home.run(&["backup", "src", "--no-cache", "-n"])), 2);
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

#[test]
fn a_backup_of_nothing_but_what_is_excluded_is_warned_of() {
    let home = Home::new();
    home.write("src/a", b"a");
    for (pattern, is_warned) in [("*", true), ("b", false)] {
        let output = home.run(&["backup", "src", "--exclude", pattern]);
        assert_eq!(code(&output), 0);
        assert_eq!(stderr(&output).contains("no file is stored"), is_warned, "{pattern}: {}", stderr(&output));
    }
}

#[test]
fn a_snapshot_that_is_named_twice_counts_once() {
    let home = Home::new();
    home.write("src/a", b"a");
    home.backup(&["src"]);
    let report = json(&home.run(&["forget", "latest", "latest", "--dry-run", "--json"]));
    assert_eq!(report["deleted"].as_array().map(Vec::len), Some(1), "{report}");
}

#[test]
fn a_file_is_no_place_for_a_repository() {
    let home = Home::new();
    home.write("file", b"a");
    let output = home.run(&["snapshots", "--repo", "file"]);
    assert_eq!(code(&output), 10);
    assert!(stderr(&output).contains("not a directory") && !stderr(&output).contains("init"), "{}", stderr(&output));
    assert!(stderr(&home.run(&["snapshots", "--repo", "absent"])).contains("fhrd init --repo absent"));
    let output = home.run(&["init", "--repo", "file"]);
    assert!(code(&output) == 1 && stderr(&output).contains("something that is no directory"), "{}", stderr(&output));
}

#[test]
fn a_path_with_dots_is_recorded_as_it_is_stored() {
    let home = Home::new();
    home.write("a/b", b"b");
    home.write("c/d/e", b"e");
    std::os::unix::fs::symlink("../c/d", home.path("a/link")).unwrap();
    let expected = serde_json::json!([home.path("c")]);
    // After a link, `..` is the parent of what it leads to.
    for path in ["c", "./c/", "a/../c", "a/./../c/../c", "a/link/..", "a/link/../../c"] {
        home.backup(&[path]);
        let listed = json(&home.run(&["snapshots", "--latest", "9", "--json", "--path", path]));
        let last = listed.as_array().unwrap().last().unwrap();
        assert_eq!(last["paths"], expected, "{path}");
    }
    let listed = json(&home.run(&["snapshots", "--json"]));
    let has_parent = |one: &serde_json::Value| !one["parent"].is_null();
    assert_eq!(listed.as_array().unwrap().iter().filter(|one| has_parent(one)).count(), 5, "{listed}");
}

#[test]
fn a_home_that_is_relative_is_none() {
    let home = Home::new();
    home.write("src/a", b"a");
    let mut command = home.command(&["backup", "src"]);
    let output = command.env("HOME", "here").env_remove("XDG_DATA_HOME").output().unwrap();
    assert!(code(&output) == 1 && stderr(&output).contains("HOME must be an absolute path"), "{}", stderr(&output));
    // What does not need it works.
    let output = home.command(&["backup", "src"]).env("HOME", "here").output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(home.names(""), ["data", "src"]);
}

#[test]
fn a_restore_of_nothing_leaves_no_directory() {
    let home = Home::new();
    home.write("src/a", b"a");
    home.backup(&["src"]);
    let absent = |target: &str| home.run(&["restore", "latest", "--target", target, "--path", "absent"]);
    assert_eq!((code(&absent("out")), home.path("out").exists()), (1, false));
    assert_eq!((code(&absent("deep/er/out")), home.path("deep").exists()), (1, false));
    std::fs::create_dir(home.path("mine")).unwrap();
    assert_eq!((code(&absent("mine")), home.path("mine").exists()), (1, true));
}

#[test]
fn a_file_url_may_have_one_slash() {
    let home = Home::new();
    let url = format!("file:{}", home.path("a b").display()).replace(' ', "%20");
    assert_eq!(code(&home.run(&["init", "--repo", &url])), 0);
    assert!(home.path("a b/config").exists() && code(&home.run(&["snapshots", "--repo", "a b"])) == 0);
}

#[test]
fn long_hosts_and_tags_are_shortened_in_tables_only() {
    let home = Home::new();
    home.write("src/a", b"a");
    let (host, tag) = ("h".repeat(300), "t".repeat(300));
    home.backup(&["src", "--host", &host, "--tag", &tag]);
    let table = home.run(&["snapshots"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains('…') && table.lines().all(|line| line.chars().count() < 300), "{table}");
    let listed = json(&home.run(&["snapshots", "--json"]));
    assert_eq!((&listed[0]["host"], &listed[0]["tags"][0]), (&host.into(), &tag.into()));
}

#[test]
fn no_command_writes_its_output_into_a_repository() {
    let home = Home::new();
    home.write("src/a", b"a");
    for repository in ["r", "second"] {
        assert_eq!(code(&home.run(&["init", "--repo", repository, "--unencrypted", "--quiet"])), 0);
    }
    assert_eq!(code(&home.run(&["backup", "src", "--repo", "r", "--quiet"])), 0);
    home.write("key", &[b'k'; 40]);
    let sealed = ["--repo", "r-sealed", "--key-file", "key"];
    assert_eq!(code(&home.run(&[&["init", "--encrypt", "--quiet"], &sealed[..]].concat())), 0);
    std::os::unix::fs::symlink("r/containers", home.path("link")).unwrap();
    std::os::unix::fs::symlink("r-sealed", home.path("sealed-link")).unwrap();
    std::fs::create_dir(home.path("beside")).unwrap();
    let before = |repository: &str| {
        let mut all = Vec::new();
        let mut open = vec![home.path(repository)];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                open.extend(path.is_dir().then(|| path.clone()));
                all.push(path);
            }
        }
        all.sort();
        all
    };
    let (first, third) = (before("r"), before("r-sealed"));
    let url = format!("file://{}", home.path("r").display());
    let lines: &[&[&str]] = &[
        &["report", "--out", "r/report.html", "--repo", "r"],
        &["report", "--out", "link/report.html", "--repo", "r"],
        &["report", "--out", "beside/../r/report.html", "--repo", &url],
        &["import", "--from", "restic", "foreign", "--directory", "r", "--repo", "r"],
        &["import", "--from", "restic", "foreign", "--directory", "absent/../link/new/deep", "--repo", "r"],
        &["dump", "latest:src", "--output", "r/dump.tar", "--repo", "r"],
        &["backup", "src", "--metrics-file", "r/m.prom", "--repo", "r"],
        &["check", "--metrics-file", "r/index/m.prom", "--repo", "r"],
        &["verify", "--metrics-file", "./r/m.prom", "--repo", "r"],
        &["prune", "--metrics-file", "r/m.prom", "--repo", "r"],
        &["copy", "--from-repo", "r", "--metrics-file", "r/m.prom", "--repo", "second"],
        &["restore", "latest", "--tensor", "w", "--output", "r/w.npy", "--repo", "r"],
        &["restore", "latest", "--target", "r/back", "--repo", "r"],
        &["restore", "latest", "--target", "link", "--repo", "r"],
        &["trace", "src", "--output", "r/trace", "--repo", "r"],
        &["man", "r/pages", "--repo", "r"],
        &["mount", "link", "--repo", "r"],
        &["key", "export", "sealed-link/keys", "--repo", "r-sealed", "--key-file", "key"],
    ];
    for line in lines {
        let output = home.run(line);
        assert_eq!(code(&output), 1, "{line:?} {}", stderr(&output));
        assert!(stderr(&output).contains("the repository"), "{line:?} {}", stderr(&output));
        assert!(before("r") == first && before("r-sealed") == third, "{line:?} wrote");
    }
    let inside =
        home.command(&["restore", "latest", "--tensor", "w", "--repo", "."]).current_dir(home.path("r")).output();
    assert!(stderr(&inside.unwrap()).contains("it is in the repository"));
    // Beside it, all is well, also with a name that starts alike.
    for line in [&["check", "--metrics-file", "r.prom"][..], &["report", "--out", "beside/../report.html"]] {
        let output = home.run(&[line, &["--repo", "r", "--quiet"]].concat());
        assert_eq!((code(&output), stderr(&output)), (0, String::new()), "{line:?}");
    }
    assert!(home.path("r.prom").exists() && home.path("report.html").exists());
}
