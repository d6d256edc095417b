//! `import`: with a program that answers as restic does, and with restic where FHRD_TEST_RESTIC names it.

use std::os::unix::ffi::OsStringExt;
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
        "#!/bin/sh\ncd {}\n\
         shift 4\necho \"$@\" >> calls\n{before}\n\
         case $1 in\nsnapshots) cat snapshots.json;;\nls) cat listings/$3;;\n\
         restore) cp -a trees/$2 \"$4\";;\nesac\n",
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
fn what_restic_cannot_load_is_no_success() {
    let home = prepared();
    write_restic(&home, "[ $1 = snapshots ] && echo 'could not load snapshot 0303: EOF\x1b[2J' >&2");
    let output = home.run(&["import", "--from", "restic", "foreign", "--program", "./restic", "--json"]);
    let text = stderr(&output);
    assert!(code(&output) == 3 && text.contains("could not load snapshot 0303") && !text.contains('\x1b'), "{text}");
    assert_eq!(snapshots(&home).as_array().unwrap().len(), 2, "the others are there");
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

/// The largest container of the repository of a home.
fn largest_container(home: &Home) -> String {
    let containers = "data/fhrd/repository/containers";
    let paths = home.names(containers).into_iter().flat_map(|directory| {
        let directory = format!("{containers}/{directory}");
        home.names(&directory).into_iter().map(move |name| format!("{directory}/{name}"))
    });
    paths.max_by_key(|path| home.read(path).len()).unwrap()
}

#[test]
fn an_import_again_stores_what_a_check_has_found_bad() {
    let home = prepared();
    let noise = format!("trees/{}/srv/data/noise", id(2));
    home.write(&noise, &super::tree::noise(5, 300_000));
    write_listing(&home, &id(2));
    assert_eq!(import(&home).0, 0);
    let container = largest_container(&home);
    let mut bytes = home.read(&container);
    bytes[100_000] ^= 4;
    home.write(&container, &bytes);
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    let dry = document(&home.run(&["import", "--from", "restic", "foreign", "--program", "./restic", "-n", "--json"]));
    assert_eq!((&dry["snapshots"][0]["existed"], &dry["snapshots"][1]["existed"]), (&json!(true), &json!(false)));
    assert_eq!(code(&home.run(&["check"])), 20);
    let (exit, report) = import(&home);
    let existed = |number: usize| &report["snapshots"][number]["existed"];
    assert_eq!((exit, existed(0), existed(1)), (0, &json!(true), &json!(false)), "{report}");
    assert!(report["snapshots"][1]["bytes_new"].as_u64() > Some(0), "{report}");
    let listed = snapshots(&home);
    assert_eq!(listed.as_array().unwrap().len(), 2, "the damaged one is gone: {listed}");
    assert_eq!(code(&home.run(&["restore", listed[1]["id"].as_str().unwrap(), "--target", "back"])), 0);
    assert!(home.read("back/srv/data/noise") == home.read(&noise));
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    let (exit, again) = import(&home);
    assert_eq!((exit, &again["snapshots"][1]["existed"]), (0, &json!(true)));
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
    // What cannot be recorded of one snapshot.
    let listed = String::from_utf8(home.read("snapshots.json")).unwrap();
    for (from, to, part) in [
        ("2024-05-06T07:08:09.123456789+02:00", "1600-01-01T00:00:00Z", "too far away"),
        (&id(1), &"x".repeat(64), "hex digits"),
    ] {
        home.write("snapshots.json", listed.replace(from, to).as_bytes());
        let (exit, report) = import(&home);
        assert!(exit == 3 && report["snapshots"].to_string().contains(part), "{part}: {report}");
        assert_eq!(snapshots(&home).as_array().unwrap().len(), 1, "{part}: the other one is there");
    }
    home.write("snapshots.json", listed.as_bytes());
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
    for (content, part) in [
        ("[{\"id\": \"", "a list of snapshots"),
        ("{}", "a list of snapshots"),
        ("[{\"id\": \"x\", \"time\": \"yesterday\"}]", "a list of snapshots"),
    ] {
        home.write("snapshots.json", content.as_bytes());
        fails(&run("./restic"), part);
    }
    write_restic(&home, "echo 'Fatal: wrong password' >&2; exit 12");
    fails(&run("./restic"), "wrong password");
    assert_eq!(snapshots(&home), json!([]));
}

/// Names of a file that were linked and are so no more, with equal content, are two files; and a name that ends within
/// a character is written by restic with a replacement for each byte.
#[test]
fn links_that_were_split_and_names_that_are_cut_come_as_they_are() {
    let home = prepared();
    let tree = home.path(&format!("trees/{}", id(2)));
    std::fs::remove_file(tree.join("srv/second")).unwrap();
    assert!(
        Command::new("cp").arg("-p").args([tree.join("etc/conf"), tree.join("srv/second")]).status().unwrap().success()
    );
    write_listing(&home, &id(2));
    let cut = std::ffi::OsString::from_vec(b"srv/t\xe2\x82".to_vec());
    std::fs::write(tree.join(cut), b"cut").unwrap();
    let (listing, at) = (format!("listings/{}", id(2)), tree.join("srv"));
    write_listing(&home, &id(2));
    let listed = String::from_utf8_lossy(&home.read(&listing)).replace("t\u{fffd}\"", "t\u{fffd}\u{fffd}\"");
    home.write(&listing, listed.as_bytes());
    let (exit, report) = import(&home);
    assert_eq!(exit, 0, "{report}");
    let restored = ["restore", report["snapshots"][1]["snapshot"].as_str().unwrap(), "--target", "back"];
    assert_eq!(code(&home.run(&restored)), 0);
    assert_eq!(entries(&home.path("back")), entries(&tree), "{}", at.display());
}

/// Waits until the program has been called with these arguments.
fn wait_for_call(home: &Home, arguments: &str) {
    while !std::fs::read_to_string(home.path("calls")).is_ok_and(|calls| calls.contains(arguments)) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_run_that_is_killed_before_it_compares_leaves_nothing_that_counts() {
    let home = prepared();
    let hangs = format!("[ $1 = ls ] && [ $3 = {} ] && exec sleep 30", id(1));
    write_restic(&home, &hangs);
    let command = ["import", "--from", "restic", "foreign", "--program", "./restic"];
    let listing = format!("listings/{}", id(1));
    let whole = home.read(&listing);
    home.write(&listing, String::from_utf8_lossy(&whole).replacen("\"size\":13", "\"size\":14", 1).as_bytes());
    let mut child = home.command(&command).spawn().unwrap();
    wait_for_call(&home, &format!("ls --json {}", id(1)));
    // No second one beside it.
    let other = home.run(&command);
    assert!(code(&other) == 1 && stderr(&other).contains("another import"), "{}", stderr(&other));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(snapshots(&home).as_array().unwrap().len(), 1, "it was stored, and not compared");
    write_restic(&home, "");
    let (exit, report) = import(&home);
    let error = report["snapshots"][0]["error"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(exit == 3 && error.contains("14 bytes there"), "{exit} {error}");
    home.write(&listing, &whole);
    // A signal ends it although restic hangs.
    write_restic(&home, &hangs);
    std::fs::remove_file(home.path("calls")).unwrap();
    let mut child = home.command(&command).spawn().unwrap();
    wait_for_call(&home, &format!("ls --json {}", id(1)));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    write_restic(&home, "");
    assert_eq!((import(&home).0, snapshots(&home).as_array().unwrap().len()), (0, 2));
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
