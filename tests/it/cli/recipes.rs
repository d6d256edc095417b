//! The recipes of docs/RECIPES.md store a state of one moment, and leave nothing behind.
//!
//! FHRD_TEST_RECIPES=all runs those, too, that need root, a file system or a server. What cannot run says so.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::fixture::{Home, code, json, stderr, stdout};

const PAGE: &str = include_str!("../../../docs/RECIPES.md");

/// The script of a recipe, with other values of its variables.
fn script(recipe: &str, values: &[(&str, &str)]) -> String {
    let section = PAGE.split(&format!("\n## {recipe}\n")).nth(1).unwrap();
    let script = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let mut lines: Vec<String> = script.lines().map(str::to_string).collect();
    for (name, value) in values {
        let line = lines.iter_mut().find(|line| line.starts_with(&format!("{name}="))).unwrap();
        *line = format!("{name}='{value}'");
    }
    lines.join("\n")
}

/// A command of the shell with `fhrd`, and with the programs of the directory `bin` of the home.
fn shell(home: &Home, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_fhrd")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("/bin/sh");
    for (key, value) in home.command(&[]).get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    shell.args(["-eu", "-c", script]).current_dir(home.path("")).env("FHRD_REPO", home.path("repo"));
    shell.env("PATH", format!("{}:{}:{path}", home.path("bin").display(), program.display()));
    shell
}

fn run(home: &Home, script: &str) -> Output {
    shell(home, script).output().unwrap()
}

fn succeed(home: &Home, script: &str) -> String {
    let output = run(home, script);
    assert_eq!(code(&output), 0, "{script}: {}", stderr(&output));
    stdout(&output)
}

fn prepared() -> Home {
    let home = Home::new();
    assert_eq!(code(&home.run(&["init", "--repo", "repo", "--quiet"])), 0);
    home
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether a recipe that needs `programs` can run; `is_heavy`: only if all are asked for.
fn has(programs: &[&str], is_heavy: bool) -> bool {
    let is_there = |program: &&&str| {
        let found = Command::new("/bin/sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let missing: Vec<&&str> = programs.iter().filter(|program| !is_there(program)).collect();
    let is_asked = !is_heavy || std::env::var_os("FHRD_TEST_RECIPES").is_some_and(|value| value == "all");
    if !is_asked || !missing.is_empty() {
        println!("not tried: FHRD_TEST_RECIPES is not `all`, or it lacks {missing:?}");
    }
    is_asked && missing.is_empty()
}

/// Puts a program into the directory `bin` that notes its arguments in `log` and then runs `then`.
fn stub(home: &Home, name: &str, then: &str) {
    let log = home.path("log");
    home.write(
        &format!("bin/{name}"),
        format!("#!/bin/sh\necho {name} \"$@\" >> {}\n{then}\n", log.display()).as_bytes(),
    );
    std::fs::set_permissions(home.path(&format!("bin/{name}")), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn snapshots_of_volumes_are_stored_as_the_live_ones_and_removed() {
    for (recipe, last) in [
        ("ZFS", "zfs destroy tank/data@fhrd"),
        ("LVM", "lvremove --yes vg0/fhrd-snapshot"),
        ("Docker volumes", "docker start app"),
    ] {
        let home = prepared();
        let live = home.path("data");
        home.write("data/live", b"changes meanwhile");
        home.write("volume/file", b"content");
        stub(
            &home,
            "zfs",
            &format!("mkdir -p {0}/.zfs/snapshot/fhrd; cp volume/file {0}/.zfs/snapshot/fhrd", live.display()),
        );
        stub(&home, "mount", "for last in \"$@\"; do :; done; cp volume/file \"$last\"");
        stub(&home, "umount", "rm \"$1\"/file");
        stub(&home, "docker", &format!("if [ \"$1\" = volume ]; then echo {}; fi", home.path("volume").display()));
        stub(&home, "lvcreate", "");
        stub(&home, "lvremove", "");
        let values = [("live", text(&live))];
        let script = script(recipe, if recipe == "Docker volumes" { &[] } else { &values });
        let stored = if recipe == "Docker volumes" { "/docker/app-data" } else { text(&live) };
        succeed(&home, &script);
        let listed = json(&home.run(&["snapshots", "--repo", "repo", "--json"]));
        assert_eq!(listed[0]["paths"], serde_json::json!([stored]), "{recipe}");
        let file = home.run(&["dump", &format!("latest:{stored}/file"), "--repo", "repo"]);
        assert_eq!(stdout(&file), "content", "{recipe}");
        let log = |home: &Home| String::from_utf8(home.read("log")).unwrap();
        assert!(log(&home).trim_end().ends_with(last), "{recipe}: {}", log(&home));
        // A backup that fails leaves nothing behind either, and the script fails.
        std::fs::rename(home.path("repo"), home.path("away")).unwrap();
        std::fs::remove_file(home.path("log")).unwrap();
        assert_ne!(code(&run(&home, &script)), 0, "{recipe}");
        assert!(log(&home).trim_end().ends_with(last), "{recipe}: {}", log(&home));
    }
}

#[test]
fn a_database_of_sqlite_is_stored_while_it_is_written() {
    if !has(&["sqlite3"], false) {
        return;
    }
    let home = prepared();
    let database = home.path("app.db");
    let sql = |sql: &str| succeed(&home, &format!("sqlite3 -cmd '.timeout 9000' app.db \"{sql}\""));
    sql("PRAGMA journal_mode=WAL; CREATE TABLE t(a, b); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 20000) INSERT INTO t SELECT i, hex(randomblob(20)) FROM n;");
    let recipe = script("SQLite", &[("database", text(&database))]);
    let writer = "while :; do sqlite3 app.db 'PRAGMA busy_timeout=5000; INSERT INTO t VALUES (-1, 0); INSERT INTO t VALUES (-2, 0)'; done";
    let mut writer = Ended(shell(&home, writer).stdout(Stdio::null()).process_group(0).spawn().unwrap());
    succeed(&home, &recipe);
    // With the statement that it runs.
    rustix::process::kill_process_group(Pid::from_child(&writer.0), Signal::KILL).unwrap();
    writer.end();
    sql("UPDATE t SET b = 'changed' WHERE a = 5;");
    let before = sql(".dump");
    succeed(&home, &recipe);
    let listed = json(&home.run(&["snapshots", "--repo", "repo", "--json"]));
    assert_eq!(listed[1]["parent"], listed[0]["id"], "{listed}");
    let reports = json(&home.run(&["stats", "--repo", "repo", "--json"]));
    assert!(reports.is_object(), "{reports}");
    let back = ["restore", &format!("latest:{}", text(&database)), "--repo", "repo", "--target", "back"];
    assert_eq!(code(&home.run(&back)), 0);
    assert_eq!(succeed(&home, "sqlite3 back/app.db .dump"), before);
    // The first one was taken between two statements, and is whole.
    let first = format!("{}:{}", listed[0]["id"].as_str().unwrap(), text(&database));
    assert_eq!(code(&home.run(&["restore", &first, "--repo", "repo", "--target", "first"])), 0);
    assert_eq!(succeed(&home, "sqlite3 first/app.db 'PRAGMA integrity_check'").trim(), "ok");
}

/// A process that ends with the test.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

/// Unmounts at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_subvolume_of_btrfs_is_stored_from_a_snapshot() {
    if !has(&["mkfs.btrfs", "btrfs", "mount"], true) {
        return;
    }
    let home = prepared();
    succeed(&home, "truncate -s 200M image; mkfs.btrfs -q image; mkdir mounted; mount -o loop image mounted");
    let _mounted = Mounted(home.path("mounted"));
    succeed(
        &home,
        "btrfs subvolume create mounted/data; echo content > mounted/data/file; echo more > mounted/data/more",
    );
    let live = home.path("mounted/data");
    let recipe = script("btrfs", &[("live", text(&live))]);
    succeed(&home, &recipe);
    // The inode numbers of a snapshot are those of the live files.
    std::thread::sleep(Duration::from_millis(1500));
    succeed(&home, "echo changed > mounted/data/file; sync");
    succeed(&home, &recipe);
    let listed = json(&home.run(&["snapshots", "--repo", "repo", "--json"]));
    assert_eq!(listed[1]["parent"], listed[0]["id"], "{listed}");
    let stored = format!("latest:{}", text(&live));
    assert_eq!(stdout(&home.run(&["dump", &format!("{stored}/file"), "--repo", "repo"])), "changed\n");
    assert_eq!(home.names("mounted/data"), ["file", "more"], "the snapshot is gone");
}

#[test]
fn another_image_with_equal_times_at_the_same_path_is_read() {
    if !has(&["mksquashfs", "mount"], true) {
        return;
    }
    let home = prepared();
    let make = "mksquashfs tree image -noappend -quiet -no-progress -mkfs-time 0 -all-time 1000000000 > /dev/null";
    let back_up = |version: &str| {
        succeed(&home, &format!("mkdir -p tree mounted; echo version {version} > tree/file; {make}"));
        succeed(&home, "mount -o loop image mounted");
        let _mounted = Mounted(home.path("mounted"));
        let report = json(&home.run(&["backup", "mounted", "--repo", "repo", "--json"]));
        assert_eq!(
            stdout(&home.run(&["dump", "latest:mounted/file", "--repo", "repo"])),
            format!("version {version}\n")
        );
        report
    };
    back_up("1");
    let report = back_up("2");
    assert_eq!((&report["files_unchanged"], &report["files_rechecked"]), (&0.into(), &1.into()), "{report}");
    // Below an overlay that takes changes.
    for version in ["1", "2"] {
        succeed(&home, &format!("mkdir -p both; echo version {version} > tree/file; {make}"));
        succeed(&home, "mount -o loop image mounted");
        let _mounted = Mounted(home.path("mounted"));
        succeed(
            &home,
            "mkdir -p memory; mount -t tmpfs none memory; mkdir memory/upper memory/work; \
             mount -t overlay none -o lowerdir=mounted,upperdir=memory/upper,workdir=memory/work both",
        );
        let (_memory, _both) = (Mounted(home.path("memory")), Mounted(home.path("both")));
        home.backup(&["both", "--repo", "repo"]);
        assert_eq!(stdout(&home.run(&["dump", "latest:both/file", "--repo", "repo"])), format!("version {version}\n"));
    }
}

/// Waits until a server answers.
fn wait(home: &Home, script: &str) {
    let started = Instant::now();
    while code(&run(home, script)) != 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "{}", stderr(&run(home, script)));
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn databases_of_postgresql_are_dumped_and_come_back() {
    const DIRECTORY: &str = "server=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)";
    if !has(&["runuser", "psql", "pg_dump"], true)
        || code(&run(&Home::new(), "ls /usr/lib/postgresql/*/bin/initdb")) != 0
    {
        return;
    }
    let home = prepared();
    // The server refuses to run as root.
    succeed(&home, "chmod 755 .; mkdir pg; chown postgres pg");
    let start = format!(
        "{DIRECTORY}; cd pg; runuser -u postgres -- $server/initdb -D data -A trust > /dev/null; \
         exec runuser -u postgres -- $server/postgres -D data -k {} -c listen_addresses=",
        home.path("pg").display()
    );
    let _server = Ended(shell(&home, &format!("exec setpriv --pdeathsig TERM sh -c '{start}'")).spawn().unwrap());
    let with = format!("export PGHOST={} PGUSER=postgres; ", home.path("pg").display());
    wait(&home, &format!("{with} psql -c 'SELECT 1' postgres"));
    succeed(
        &home,
        &format!(
            "{with} createdb app; psql app -c 'CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 9999) i'"
        ),
    );
    let query = "psql -tA app -c 'SELECT sum(i), max(md5) FROM t'";
    let before = succeed(&home, &format!("{with} {query}"));
    succeed(&home, &format!("{with} {}", script("PostgreSQL", &[])));
    assert_eq!(stdout(&home.run(&["ls", "latest", "--repo", "repo"])).lines().count(), 2);
    let restore = "dropdb app; fhrd dump latest:app.dump | pg_restore --create --dbname=postgres; \
                   fhrd dump latest:globals.sql | grep -q 'CREATE ROLE'";
    succeed(&home, &format!("{with} {restore}"));
    assert_eq!(succeed(&home, &format!("{with} {query}")), before);
    // A database that does not exist: no snapshot at all.
    assert_ne!(code(&run(&home, &format!("{with} {}", script("PostgreSQL", &[("database", "none")])))), 0);
    assert_eq!(json(&home.run(&["snapshots", "--repo", "repo", "--json"])).as_array().unwrap().len(), 1);
    succeed(&home, &format!("{DIRECTORY}; runuser -u postgres -- $server/pg_ctl -D pg/data stop -m fast"));
}

#[test]
fn databases_of_mariadb_are_dumped_and_come_back() {
    if !has(&["mariadbd", "mariadb-install-db", "mariadb-dump"], true) {
        return;
    }
    let home = prepared();
    succeed(
        &home,
        "mariadb-install-db --no-defaults --auth-root-authentication-method=normal --datadir=$PWD/my > /dev/null",
    );
    let start = "exec mariadbd --no-defaults --user=root --datadir=$PWD/my --socket=$PWD/socket --skip-networking";
    let _server = Ended(shell(&home, start).stderr(Stdio::null()).spawn().unwrap());
    // The settings of the machine name another socket.
    home.write(".my.cnf", format!("[client]\nsocket={}\n", home.path("socket").display()).as_bytes());
    let with = format!("export HOME={}; ", home.path("").display());
    wait(&home, &format!("{with} mariadb -e 'SELECT 1'"));
    succeed(
        &home,
        &format!(
            "{with} mariadb -e 'CREATE DATABASE app; CREATE TABLE app.t AS WITH RECURSIVE n(i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i, md5(i) m FROM n'"
        ),
    );
    let query = "mariadb -N -e 'SELECT count(*), max(m) FROM app.t'";
    let before = succeed(&home, &format!("{with} {query}"));
    succeed(&home, &format!("{with} {}", script("MariaDB", &[])));
    succeed(&home, &format!("{with} mariadb -e 'DROP DATABASE app'; fhrd dump latest:all.sql | mariadb"));
    assert_eq!(succeed(&home, &format!("{with} {query}")), before);
}

/// The table of the page names each recipe.
#[test]
fn the_page_says_what_is_tried() {
    let table = PAGE.split("\n## ").next().unwrap();
    for heading in PAGE.split("\n## ").skip(1).map(|section| section.lines().next().unwrap()) {
        assert!(heading == "Each night" || table.contains(&format!("[{heading}](#")), "{heading}");
    }
}
