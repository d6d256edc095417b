//! `import`: with a program that answers as restic does, and with restic where FHRD_TEST_RESTIC names it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::fixture::{Home, code, json as document, stderr};
use super::tree::{describe, plant};

/// A program in the home that answers as restic: `snapshots.json`, `listings/ID` and `trees/ID` are what it has. It
/// runs `before` first.
pub fn write_restic(home: &Home, before: &str) {
    let script = format!(
        "#!/bin/sh\ncd {}\n[ \"$1\" = version ] && echo 'restic 0.19.1 compiled with x' && exit\n\
         shift 4\necho \"$@\" >> calls\n{before}\n\
         case $1 in\nsnapshots) cat snapshots.json;;\nls) cat listings/$3;;\n\
         restore) rm -rf \"$4\"; cp -a trees/$2 \"$4\";;\nesac\n",
        home.path("").display()
    );
    home.write("restic", script.as_bytes());
    std::fs::set_permissions(home.path("restic"), std::fs::Permissions::from_mode(0o755)).unwrap();
    if !home.path("snapshots.json").exists() {
        write_snapshots(home, &[(id(1), "2024-05-06T07:08:09.123456789+02:00")]);
    }
}

fn id(number: u8) -> String {
    format!("{number:02x}").repeat(32)
}

fn write_snapshots(home: &Home, snapshots: &[(String, &str)]) {
    let snapshots: Vec<Value> = snapshots
        .iter()
        .map(|(id, time)| {
            json!({"id": id, "short_id": &id[..8], "time": time, "tree": id, "paths": ["/srv/data", "/etc"],
                   "hostname": "box", "username": "root", "tags": ["weekly"], "excludes": ["*.o"]})
        })
        .collect();
    home.write("snapshots.json", Value::from(snapshots).to_string().as_bytes());
}

/// Lists the tree of a snapshot as restic does.
fn write_listing(home: &Home, id: &str) {
    use std::os::unix::fs::MetadataExt;
    fn visit(root: &Path, at: &Path, lines: &mut Vec<String>) {
        let mut names: Vec<_> = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let metadata = path.symlink_metadata().unwrap();
            let kind = if metadata.is_dir() {
                "dir"
            } else if metadata.is_symlink() {
                "symlink"
            } else {
                "file"
            };
            let stored = format!("/{}", path.strip_prefix(root).unwrap().display());
            let mtime = jiff::Timestamp::new(metadata.mtime(), metadata.mtime_nsec() as i32).unwrap();
            let special = if metadata.mode() & 0o4000 != 0 { 1 << 23 } else { 0 };
            let line = json!({"name": "x", "type": kind, "path": stored, "uid": metadata.uid(), "gid": metadata.gid(),
                              "size": metadata.len(), "mode": metadata.mode() & 0o777 | special, "mtime": mtime,
                              "struct_type": "node", "message_type": "node"});
            lines.push(line.to_string());
            if metadata.is_dir() {
                visit(root, &path, lines);
            }
        }
    }
    let root = home.path(&format!("trees/{id}"));
    let mut lines = vec![json!({"struct_type": "snapshot", "id": id, "mode": 1}).to_string()];
    visit(&root, &root, &mut lines);
    home.write(&format!("listings/{id}"), (lines.join("\n") + "\n").as_bytes());
}

fn prepared() -> Home {
    let home = Home::new();
    write_snapshots(&home, &[(id(2), "2024-05-07T00:00:00Z"), (id(1), "2024-05-06T07:08:09.123456789+02:00")]);
    write_restic(&home, "");
    for number in [1, 2] {
        let tree = format!("trees/{}", id(number));
        home.write(&format!("{tree}/etc/conf"), b"configuration");
        home.write(&format!("{tree}/srv/data/new-{number}"), &[number; 5000]);
        std::os::unix::fs::symlink("conf", home.path(&format!("{tree}/etc/link"))).unwrap();
        std::fs::hard_link(home.path(&format!("{tree}/etc/conf")), home.path(&format!("{tree}/srv/second"))).unwrap();
        let set_user = std::fs::Permissions::from_mode(0o4751);
        std::fs::set_permissions(home.path(&format!("{tree}/srv/data/new-{number}")), set_user).unwrap();
        write_listing(&home, &id(number));
    }
    assert_eq!(code(&home.run(&["init", "--quiet"])), 0);
    home
}

/// What is below a directory. Its own metadata is no part of a snapshot.
fn entries(directory: &Path) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut found = describe(directory);
    found.remove(Path::new(""));
    found
}

fn import(home: &Home) -> (i32, Value) {
    let output = home.run(&["import", "--from", "restic", "foreign", "--program", "./restic", "--json"]);
    let text = || panic!("{}", stderr(&output));
    (code(&output), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| text()))
}

fn snapshots(home: &Home) -> Value {
    document(&home.run(&["snapshots", "--json"]))
}

#[test]
fn snapshots_come_with_what_they_say_of_themselves_and_only_once() {
    let home = prepared();
    let output = home.run(&["import", "--from", "restic", "foreign", "--program", "./restic", "-n", "--json"]);
    assert_eq!(document(&output)["snapshots"][0]["snapshot"], Value::Null);
    let (exit, report) = import(&home);
    assert_eq!(exit, 0, "{report}");
    let listed = snapshots(&home);
    for (number, time) in [(0, "2024-05-06T05:08:09.123456789Z"), (1, "2024-05-07T00:00:00.000000000Z")] {
        let (snapshot, imported) = (&listed[number], &report["snapshots"][number]);
        assert_eq!(imported["original"], json!(id(number as u8 + 1)));
        assert_eq!((&imported["snapshot"], &imported["error"]), (&snapshot["id"], &Value::Null), "{imported}");
        assert_eq!(snapshot["time"], json!(time));
        assert_eq!((&snapshot["host"], &snapshot["tags"]), (&json!("box"), &json!(["weekly"])));
        assert_eq!(
            (&snapshot["paths"], &snapshot["excludes"]),
            (&json!(["/etc", "/srv/data"]), &json!(["exclude=*.o"]))
        );
        let back = format!("back-{number}");
        let target = ["restore", snapshot["id"].as_str().unwrap(), "--target", &back];
        assert_eq!(code(&home.run(&target)), 0);
        let tree = home.path(&format!("trees/{}", id(number as u8 + 1)));
        assert_eq!(entries(&home.path(&back)), entries(&tree));
    }
    assert_eq!(listed[1]["parent"], listed[0]["id"]);
    assert!(home.names("cache/fhrd/imports").is_empty());
    // restic is never told to write.
    let calls = String::from_utf8(home.read("calls")).unwrap();
    assert!(!calls.contains("forget") && calls.matches("restore ").count() == 2, "{calls}");
    let (exit, again) = import(&home);
    assert_eq!((exit, &again["snapshots"][1]["existed"]), (0, &json!(true)));
    assert_eq!(snapshots(&home), listed);
}

#[test]
fn what_differs_or_fails_is_not_kept_and_the_others_follow() {
    let home = prepared();
    let listing = format!("listings/{}", id(1));
    let whole = String::from_utf8(home.read(&listing)).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let without_last = lines[..lines.len() - 1].join("\n");
    let more = format!("{whole}{}\n", lines.last().unwrap().replace("second", "third"));
    for (what, changed) in [
        ("not list", without_last),
        ("not stored", more),
        ("bytes there", whole.replacen("\"size\":13", "\"size\":14", 1)),
        ("mode", whole.replacen("\"mode\":420", "\"mode\":384", 1)),
        ("time", whole.replacen("\"mtime\":\"20", "\"mtime\":\"19", 1)),
        ("is a", whole.replacen("\"type\":\"symlink\"", "\"type\":\"file\"", 1)),
        ("lists", whole.replacen("/etc/conf", "/etc/other", 1)),
        ("cannot be read", whole.replacen("\"path\":", "\"path\"", 1)),
    ] {
        assert_ne!(changed, whole, "{what}");
        home.write(&listing, changed.as_bytes());
        let (exit, report) = import(&home);
        let error = report["snapshots"][0]["error"].as_str().unwrap_or_else(|| panic!("{what}: {report}"));
        assert!(exit == 3 && error.contains(what), "{what}: {exit} {error}");
        assert_eq!(snapshots(&home).as_array().unwrap().len(), 1, "{what}: the other one is there");
    }
    home.write(&listing, whole.as_bytes());
    // A restore that ends with an error, whatever it wrote.
    write_restic(&home, "[ $1 = restore ] && cp -a trees/$2 \"$4\" && echo 'Fatal: no key' >&2 && exit 1");
    let (exit, report) = import(&home);
    let error = report["snapshots"][0]["error"].as_str().unwrap();
    assert!(exit == 3 && error.contains("no key"), "{error}");
    assert_eq!(snapshots(&home).as_array().unwrap().len(), 1);
    write_restic(&home, "");
    assert_eq!((import(&home).0, snapshots(&home).as_array().unwrap().len()), (0, 2));
}

#[test]
fn a_program_that_is_none_or_says_nonsense_ends_the_import() {
    let home = prepared();
    let run = |program: &str| home.run(&["import", "--from", "restic", "foreign", "--program", program]);
    let fails = |output: &Output, part: &str| {
        assert!(code(output) == 1 && stderr(output).contains(part), "{part}: {}", stderr(output));
    };
    fails(&run("./none"), "none");
    home.write("old", b"#!/bin/sh\necho restic 0.16.5 compiled with go\n");
    std::fs::set_permissions(home.path("old"), std::fs::Permissions::from_mode(0o755)).unwrap();
    fails(&run("./old"), "0.17");
    for (content, part) in [
        ("[{\"id\": \"", "a list of snapshots"),
        ("{}", "a list of snapshots"),
        (&format!("[{{\"id\": \"{}\", \"time\": \"2024-05-06T07:08:09Z\"}}]", "x".repeat(64)), "hex digits"),
        (&format!("[{{\"id\": \"{}\", \"time\": \"2924-05-06T07:08:09Z\"}}]", id(1)), "too far"),
    ] {
        home.write("snapshots.json", content.as_bytes());
        fails(&run("./restic"), part);
    }
    write_restic(&home, "echo 'Fatal: wrong password' >&2; exit 12");
    fails(&run("./restic"), "wrong password");
    assert_eq!(snapshots(&home), json!([]));
}

/// Thirty snapshots of a tree that changes: restored by both, they are the same.
#[test]
fn snapshots_of_restic_come_back_as_restic_restores_them() {
    let Some(program) = std::env::var_os("FHRD_TEST_RESTIC") else {
        println!("NOT RUN: FHRD_TEST_RESTIC does not name restic");
        return;
    };
    let program = program.to_str().unwrap();
    let home = Home::new();
    let restic = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-r", "foreign", "--quiet"]).args(arguments).current_dir(home.path(""));
        let output =
            command.env("RESTIC_PASSWORD", "secret").env("RESTIC_CACHE_DIR", home.path("rc")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    };
    restic(&["init"]);
    plant(&home.path("src"));
    for step in 0..30u64 {
        let name = format!("src/step-{}", step % 7);
        home.write(&name, &crate::trees::Random(step).bytes(20_000));
        if step % 3 == 0 {
            let _ = std::fs::remove_file(home.path(&format!("src/step-{}", (step + 3) % 7)));
        }
        if step % 4 == 1 {
            std::fs::rename(home.path(&name), home.path(&format!("src/moved-{step}"))).unwrap();
        }
        if step % 5 == 2 {
            std::fs::hard_link(home.path("src/moved-1"), home.path(&format!("src/link-{step}"))).unwrap();
        }
        if step % 6 == 5 {
            std::fs::create_dir_all(home.path(&format!("src/dir-{step}/in"))).unwrap();
            home.write(&format!("src/dir-{}/in/file", step), b"in");
            let _ = std::fs::remove_dir_all(home.path(&format!("src/dir-{}", step - 5)));
        }
        let tag = format!("t{}", step % 3);
        restic(&["backup", "src", "--tag", &tag, "--host", if step % 2 == 0 { "one" } else { "two" }]);
    }
    assert_eq!(code(&home.run(&["init", "--quiet"])), 0);
    let mut command = home.command(&["import", "--from", "restic", "foreign", "--program", program, "--json"]);
    let output = command.env("RESTIC_PASSWORD", "secret").output().unwrap();
    let report = document(&output);
    let imported = report["snapshots"].as_array().unwrap();
    assert_eq!((code(&output), imported.len()), (0, 30), "{}", stderr(&output));
    for snapshot in imported {
        for name in ["theirs", "ours"] {
            let _ = std::fs::remove_dir_all(home.path(name));
        }
        restic(&["restore", snapshot["original"].as_str().unwrap(), "--target", "theirs"]);
        let ours = ["restore", snapshot["snapshot"].as_str().unwrap(), "--target", "ours"];
        assert_eq!(code(&home.run(&ours)), 0);
        assert_eq!(entries(&home.path("ours")), entries(&home.path("theirs")), "{snapshot}");
    }
    let again = home
        .command(&["import", "--from", "restic", "foreign", "--program", program, "--json"])
        .env("RESTIC_PASSWORD", "secret")
        .output()
        .unwrap();
    assert!(document(&again)["snapshots"].as_array().unwrap().iter().all(|one| one["existed"] == true));
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
}
