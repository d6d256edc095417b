//! SFTP when something breaks: the connection, the server, the disk, the keys.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fhrd::error::Error;
use fhrd::store::{self, BlobPrefix, Durable, NewName, Reading, Store, StoreExt, StoreOptions};

use super::process::{did_run, not_run};
use super::sshd::Sshd;
use crate::double::{named, names_in};
use crate::trees::Random;

#[test]
fn connections_that_break_again_and_again_lose_nothing_and_duplicate_nothing() {
    let Some(sshd) = Sshd::start("SFTP connections that break", "") else { return };
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    let (done, content) = (AtomicBool::new(false), Random(1).bytes(9 << 20));
    thread::scope(|scope| {
        scope.spawn(|| {
            // A slow machine needs moments without cuts at the end.
            for number in 0..12 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(900 + 400 * (number % 5)));
                sshd.cut();
            }
        });
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let (store, content) = (&store, &content);
                scope.spawn(move || {
                    for number in 0..4u64 {
                        let name = named(&format!("w{worker}/{number}"));
                        let len = content.len() / (1 + number as usize);
                        let part = &content[..len];
                        assert!(
                            store.put_stream(NewName::Given(&name), len as u64, &mut Cursor::new(part)).unwrap().is_new,
                            "{name} is new"
                        );
                        assert!(store.get(&name, len as u64).unwrap() == part, "{name}");
                        assert_eq!(store.get_range(&name, 5, 1000, Reading::Once).unwrap(), &part[5..1005]);
                        assert_eq!(names_in(store.as_ref(), &format!("w{worker}")).len() as u64, number + 1);
                    }
                    store.delete(&named(&format!("w{worker}/0")), Durable::OnReturn).unwrap();
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert_eq!(store.list(BlobPrefix::All).unwrap().len(), 12);
    did_run("SFTP connections that break", "sshd");
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let Some(mut sshd) = Sshd::start("SFTP server that restarts", "") else { return };
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    store.put_if_absent(&named("a/b"), &[b"text"]).unwrap();
    sshd.stop();
    thread::scope(|scope| {
        let reading = scope.spawn(|| store.get(&named("a/b"), 10));
        thread::sleep(Duration::from_secs(2));
        sshd.restart();
        assert_eq!(reading.join().unwrap().unwrap(), b"text");
    });
    did_run("SFTP server that restarts", "sshd");
}

/// The text of the error of opening a store.
fn failure(url: &str, options: &StoreOptions) -> String {
    let start = Instant::now();
    let error = store::open_with(url, options).map(drop).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "the first try is the last");
    error.to_string()
}

#[test]
fn what_keeps_ssh_from_connecting_is_in_the_error() {
    let Some(mut sshd) = Sshd::start("SFTP errors", "") else { return };
    let url = sshd.url("");
    let command = |text: &str| StoreOptions { ssh_command: Some(text.into()), ..StoreOptions::default() };
    let config = sshd.path("ssh.conf").display().to_string();
    let cases = [
        (format!("ssh -F {config} -o UserKnownHostsFile=none"), "Host key verification failed"),
        (format!("ssh -F {config} -o PubkeyAuthentication=no"), "Permission denied"),
        ("echo hello; exit 0;".into(), "is not SFTP"),
        ("printf '\\0\\0\\0\\5\\2\\0\\0\\0\\6'; sleep 5;".into(), "version 6"),
        ("printf '\\0\\0\\0\\11\\2\\0\\0\\0\\3'; exit 3;".into(), "within a reply"),
        ("no-such-program".into(), "no-such-program"),
        ("sh -c 'exit 7'".into(), "exit status: 7"),
    ];
    for (text, expected) in cases {
        let error = failure(&url, &command(&text));
        assert!(error.contains(expected) && error.contains("cannot connect to sftp://127.0.0.1"), "{text}: {error}");
    }
    sshd.stop();
    let error = failure(&url, &sshd.options());
    assert!(error.contains("Connection refused"), "{error}");
    did_run("SFTP errors", "sshd");
}

#[test]
fn a_full_disk_is_an_error_that_says_so_and_leaves_nothing() {
    let Some(sshd) = Sshd::start("SFTP and a full disk", "") else { return };
    let mounted = sshd.data().join("small");
    fs::create_dir(&mounted).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&mounted).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return not_run("SFTP and a full disk", "this user cannot mount a small file system");
    }
    let result = std::panic::catch_unwind(|| {
        let store = store::create_with(sshd.url("small/a"), &sshd.options()).unwrap();
        let content = Random(3).bytes(6 << 20);
        let error = store.put_if_absent(&named("a/b"), &[&content]).unwrap_err();
        assert!(error.is_full_disk(), "{error}");
        assert!(error.to_string().contains("/small/a/a/b"), "{error}");
        assert_eq!(store.list(BlobPrefix::All).unwrap(), []);
        assert_eq!(fs::read_dir(mounted.join("a/tmp")).unwrap().count(), 0);
        assert!(store.put_if_absent(&named("a/b"), &[&content[..1 << 20]]).unwrap(), "what fits is stored");
    });
    unmount(&mounted);
    result.unwrap();
    did_run("SFTP and a full disk", "sshd");
}

fn unmount(path: &Path) {
    let _ = Command::new("umount").arg("-l").arg(path).status();
}

#[test]
fn a_directory_that_is_no_longer_there_is_not_created_again() {
    let Some(sshd) = Sshd::start("SFTP and a removed directory", "") else { return };
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    store.put_if_absent(&named("a/b/c"), &[b"x"]).unwrap();
    fs::remove_dir_all(sshd.data().join("a/a")).unwrap();
    fs::remove_dir_all(sshd.data().join("a/tmp")).unwrap();
    assert!(store.put_if_absent(&named("a/b/c"), &[b"y"]).unwrap(), "only what was below it is");
    assert!(matches!(store.put_if_absent(&named("a/b"), &[b"x"]), Err(Error::AlreadyExists { .. })));
    fs::remove_dir_all(sshd.data().join("a")).unwrap();
    let error = store.put_if_absent(&named("a/b/c"), &[b"y"]).unwrap_err().to_string();
    assert!(error.contains("a/b/c") && !sshd.data().join("a").exists(), "{error}");
}
