//! Eight writers and a prune on one bucket, some of them killed or stopped: every reported snapshot restores.
//!
//! `FHRD_TEST_WRITERS_S` is the duration, 15 seconds unless it is set.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::bucket_tests::fhrd;
use super::buckets::{BucketServer, start};
use super::process::did_run;
use crate::input::write;
use crate::program::finished;
use crate::trees::{Looks, Random, assert_same, describe};

const WRITERS: u64 = 8;

/// A snapshot that was reported, with what it must restore to.
struct ReportedSnapshot {
    id: String,
    source: std::path::PathBuf,
    content: BTreeMap<String, Looks>,
}

/// Waits for the end of a backup, which may be killed or stopped for some time. Its snapshot, if it reported one.
fn outcome(mut child: Child, random: &mut Random) -> Option<String> {
    let mut stdout = child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let mut stderr = child.stderr.take().unwrap();
    let draining = thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
    let signal = |signal| kill_process(Pid::from_child(&child), signal).unwrap();
    match random.below(6) {
        0 | 1 => {
            thread::sleep(Duration::from_millis(100 + random.below(2500)));
            signal(Signal::KILL);
        }
        2 => {
            thread::sleep(Duration::from_millis(100 + random.below(1500)));
            signal(Signal::STOP);
            thread::sleep(Duration::from_millis(500 + random.below(5000)));
            signal(Signal::CONT);
        }
        _ => {}
    }
    let status = child.wait().unwrap();
    let text = reading.join().unwrap().unwrap();
    draining.join().unwrap().unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).ok().filter(|_| status.success())?;
    report["snapshot"].as_str().map(str::to_string)
}

fn writer(server: &BucketServer, directory: &Path, number: u64, until: Instant, all: &Mutex<Vec<ReportedSnapshot>>) {
    let (home, source) = (directory.join(format!("home-{number}")), directory.join(format!("source-{number}")));
    let mut random = Random(1000 + number);
    while Instant::now() < until {
        // Half of what it writes, others write as well.
        let shared = random.below(12);
        write(source.join(format!("shared-{}", shared % 4)), &Random(shared).bytes(150_000));
        let own = random.next();
        write(source.join(format!("own-{}", random.below(4))), &Random(own).bytes(100_000));
        let content = describe(&source);
        let child = fhrd(server, &home, &["backup", source.to_str().unwrap()]).arg("--quiet").spawn().unwrap();
        if let Some(id) = outcome(child, &mut random) {
            all.lock().unwrap().push(ReportedSnapshot { id, source: source.clone(), content });
        }
    }
}

/// Forgets a snapshot now and then, and prunes without any grace. Returns the number of containers deleted.
fn pruner(server: &BucketServer, directory: &Path, until: Instant, all: &Mutex<Vec<ReportedSnapshot>>) -> u64 {
    let (home, mut random, mut deleted) = (directory.join("home-prune"), Random(77), 0);
    while Instant::now() < until {
        let forgotten = {
            let mut all = all.lock().unwrap();
            let count = all.len() as u64;
            (count > 4).then(|| all.swap_remove(random.below(count) as usize))
        };
        if let Some(forgotten) = forgotten {
            finished(fhrd(server, &home, &["forget", &forgotten.id]).output().unwrap(), "forget");
        }
        let mut child = fhrd(server, &home, &["prune", "--grace", "0s"]).spawn().unwrap();
        if random.below(5) == 0 {
            thread::sleep(Duration::from_millis(random.below(2000)));
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        deleted += report["containers_deleted"].as_u64().unwrap_or(0);
    }
    deleted
}

#[test]
fn eight_writers_and_a_prune_on_one_bucket_lose_nothing_that_was_reported() {
    let Some(server) = start("eight writers and a prune", "moto") else { return };
    let seconds = std::env::var("FHRD_TEST_WRITERS_S").map_or(15, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home-prune");
    finished(fhrd(&server, &home, &["init"]).output().unwrap(), "init");
    let (until, all) = (Instant::now() + Duration::from_secs(seconds), Mutex::new(Vec::new()));
    let deleted = thread::scope(|scope| {
        for number in 0..WRITERS {
            let (server, directory, all) = (&server, directory.path(), &all);
            scope.spawn(move || writer(server, directory, number, until, all));
        }
        pruner(&server, directory.path(), until, &all)
    });
    let all = all.into_inner().unwrap();
    // What killed ones have left is in nobody's way.
    finished(fhrd(&server, &home, &["prune", "--grace", "0s"]).output().unwrap(), "the last prune");
    for (number, reported) in all.iter().enumerate() {
        let target = directory.path().join("restored");
        let words = ["restore", &reported.id, "--target", target.to_str().unwrap()];
        finished(fhrd(&server, &home, &words).output().unwrap(), &reported.id);
        let restored = describe(&target.join(reported.source.strip_prefix("/").unwrap()));
        assert_same(&reported.content, &restored, &format!("snapshot {number} of {}", all.len()));
        fs::remove_dir_all(&target).unwrap();
    }
    let what = format!("{seconds} s, {} snapshots restored, {deleted} containers deleted meanwhile", all.len());
    did_run("eight writers and a prune", &format!("moto: {what}"));
}

#[test]
fn machines_whose_clocks_are_a_day_apart_share_a_bucket() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let Some(library) = super::process::find_program("FHRD_TEST_FAKETIME", &[LIBRARY]) else {
        return super::process::not_run("clocks a day apart", "libfaketime is not installed");
    };
    let Some(sshd) = super::sshd::Sshd::start("clocks a day apart", "") else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    let run = |home: &str, offset: &str, words: &[&str]| {
        let mut command: Command = super::sftp::fhrd(&sshd, &directory.path().join(home), words);
        // The server keeps the right time.
        let ssh = format!("env -u LD_PRELOAD {}", sshd.ssh_command().display());
        command.env("FHRD_SSH_COMMAND", ssh).env("LD_PRELOAD", &library).env("FAKETIME", offset);
        finished(command.output().unwrap(), &words.join(" "))
    };
    run("ahead", "+1d", &["init"]);
    for number in 0..3 {
        for (home, offset) in [("ahead", "+1d"), ("behind", "-1d")] {
            write(source.join(home), &Random(number).bytes(400_000));
            run(home, offset, &["backup", source.to_str().unwrap()]);
            run(home, offset, &["prune", "--grace", "1h"]);
        }
    }
    // A machine whose clock is behind would take the other one's for snapshots from the future.
    run("ahead", "+1d", &["forget", "--keep-last", "2", "--group-by", ""]);
    run("ahead", "+1d", &["prune", "--grace", "0s"]);
    run("behind", "-1d", &["check", "--read-data"]);
    assert_eq!(run("ahead", "+1d", &["snapshots"]).as_array().map(Vec::len), Some(2));
    did_run("clocks a day apart", "sshd, libfaketime");
}
