//! SFTP: the contract, the program, and servers that can do less.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fhrd::config::RepositoryConfig;
use fhrd::error::{Error, ErrorKind};
use fhrd::repo::Repository;
use fhrd::store::{self, BlobKind, BlobName, BlobPrefix, Durable, RateLimits, Reading, Store, StoreExt, StoreOptions};

use super::contract;
use super::process::did_run;
use super::sshd::Sshd;
use crate::double::named;
use crate::input::write;
use crate::program::finished;
use crate::trees::{Random, assert_same, describe};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_sftp_store_meets_the_contract() {
    let Some(sshd) = Sshd::start("SFTP store", "") else { return };
    let url = sshd.url("deep/er");
    assert!(matches!(store::open_with(&url, &sshd.options()), Err(Error::NoRepository { .. })));
    let store = store::create_with(&url, &sshd.options()).unwrap();
    assert_eq!(mode(&sshd.data().join("deep/er")), 0o700);
    contract::check(&store);
    assert_eq!(fs::read_dir(sshd.data().join("deep/er/tmp")).unwrap().count(), 0, "no temporaries are left");
    assert!(store.put_if_absent(&named("containers/ab/cd"), &[b"x"]).unwrap());
    let path = |name: &str| sshd.data().join("deep/er").join(name);
    assert_eq!((mode(&path("containers")), mode(&path("containers/ab/cd"))), (0o700, 0o400));
    assert_eq!(store::open_with(&url, &sshd.options()).unwrap().get(&named("containers/ab/cd"), 9).unwrap(), b"x");
    let (relative, _) = url.split_at(url.find("/tmp").unwrap_or(url.len()));
    assert!(store::open_with(format!("{relative}/~/none-of-that-name"), &sshd.options()).is_err());
    did_run("SFTP store", "sshd");
}

#[test]
fn foreign_files_are_not_listed_and_only_old_temporaries_are_removed() {
    let Some(sshd) = Sshd::start("SFTP foreign files", "") else { return };
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    assert!(store.is_unused().unwrap());
    let root = sshd.data().join("a");
    write(root.join("tmp").join("0".repeat(32)), b"left by a writer that is dead or alive");
    assert!(store.is_unused().unwrap(), "all that a killed init leaves");
    let odd = OsStr::new("models/.DS_Store");
    write(root.join(odd), b"foreign");
    write(root.join(std::os::unix::ffi::OsStrExt::from_bytes(b"models/\xff") as &OsStr), b"foreign");
    assert!(!store.is_unused().unwrap());
    store.put_if_absent(&named("models/a"), &[b"x"]).unwrap();
    std::os::unix::fs::symlink("a", root.join("models/link")).unwrap();
    let names: Vec<_> = store.list(BlobPrefix::All).unwrap().into_iter().map(|listed| listed.name).collect();
    assert_eq!(names, ["models/a"]);
    assert_eq!(store.clean_temporaries().unwrap(), 0, "its writer may live");
    let day_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3600);
    let temporary = root.join("tmp").join("0".repeat(32));
    fs::File::options().write(true).open(temporary).unwrap().set_modified(day_ago).unwrap();
    assert_eq!(store.clean_temporaries().unwrap(), 1);
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

/// `fhrd` with these words for a repository on the server, with caches and data in `home`.
pub fn fhrd(sshd: &Sshd, home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fhrd"));
    command.args(words).args(["--json", "--quiet", "--repo", &sshd.url("repository")]);
    command.env("FHRD_SSH_COMMAND", sshd.ssh_command()).env("FHRD_PASSWORD", "secret");
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, home.join(name));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn two_machines_share_a_repository_over_sftp() {
    let Some(sshd) = Sshd::start("fhrd over SFTP", "") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (one, two, source) = (directory.path().join("one"), directory.path().join("two"), directory.path().join("s"));
    for number in 0..20 {
        write(source.join(format!("file-{number}")), &Random(number).bytes(100_000));
    }
    let run = |home: &Path, words: &[&str]| finished(fhrd(&sshd, home, words).output().unwrap(), &words.join(" "));
    assert_eq!(run(&one, &["init"])["encryption"], "AES-256-GCM", "a remote repository is encrypted");
    let first = run(&one, &["backup", source.to_str().unwrap()]);
    assert!(first["bytes_stored"].as_u64().unwrap() >= 2_000_000);
    fs::remove_file(source.join("file-3")).unwrap();
    write(source.join("new"), &Random(99).text(50_000));
    let second = run(&two, &["backup", source.to_str().unwrap()]);
    assert!(second["bytes_stored"].as_u64().unwrap() < 200_000, "the other machine's chunks are found: {second}");
    run(&two, &["forget", "--keep-last", "1", "--group-by", ""]);
    run(&two, &["prune", "--grace", "0s"]);
    run(&one, &["check", "--read-data"]);
    let target = directory.path().join("restored");
    run(&one, &["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), "restored");
    let wrong = fhrd(&sshd, &one, &["snapshots"]).env("FHRD_PASSWORD", "wrong").output().unwrap();
    assert_eq!(wrong.status.code(), Some(12));
    did_run("fhrd over SFTP", "sshd");
}

#[test]
fn a_server_without_hard_links_or_sync_is_refused_unless_the_user_says_so() {
    let Some(sshd) = Sshd::start("SFTP without extensions", "-P hardlink,fsync,posix-rename,limits,statvfs") else {
        return;
    };
    for result in [store::create_with(sshd.url("a"), &sshd.options()), store::open_with(sshd.url(""), &sshd.options())]
    {
        let Err(Error::Usage(text)) = result else { panic!("accepted") };
        let parts = ["hardlink@openssh.com and fsync@openssh.com", "--unsafe-sftp"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let options = StoreOptions { unsafe_sftp: true, ..sshd.options() };
    let store = store::create_with(sshd.url("a"), &options).unwrap();
    contract::check(&store);
    did_run("SFTP without extensions", "sshd");
}

#[test]
fn a_server_that_deletes_nothing_takes_backups() {
    let denied = "-P remove,rmdir,rename,posix-rename,setstat,fsetstat";
    let Some(mut sshd) = Sshd::start("append-only SFTP", denied) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (home, source) = (directory.path().join("home"), directory.path().join("source"));
    let run = |sshd: &Sshd, words: &[&str]| finished(fhrd(sshd, &home, words).output().unwrap(), &words.join(" "));
    run(&sshd, &["init"]);
    for number in 0..3 {
        write(source.join(number.to_string()), &Random(number).bytes(100_000));
        let report = run(&sshd, &["backup", source.to_str().unwrap()]);
        assert_eq!(report["parent"].is_string(), number > 0, "{report}");
    }
    let forget = fhrd(&sshd, &home, &["forget", "latest"]).output().unwrap();
    assert!(!forget.status.success());
    let intents = || fs::read_dir(sshd.data().join("repository/intents")).unwrap().count();
    assert!(intents() >= 6);
    let config = fs::read_to_string(sshd.path("sshd.conf")).unwrap();
    fs::write(sshd.path("sshd.conf"), config.replace(denied, "")).unwrap();
    sshd.restart();
    run(&sshd, &["prune", "--grace", "0s"]);
    assert_eq!(fs::read_dir(sshd.data().join("repository/intents")).unwrap().count(), 0);
    run(&sshd, &["check", "--read-data"]);
    assert_eq!(run(&sshd, &["snapshots"]).as_array().unwrap().len(), 3);
    did_run("append-only SFTP", "sshd");
}

#[test]
fn a_read_only_server_serves_readers_and_tells_writers() {
    let Some(mut sshd) = Sshd::start("read-only SFTP", "") else { return };
    let url = sshd.url("a");
    let store = store::create_with(&url, &sshd.options()).unwrap();
    store.put_if_absent(&named("a/b"), &[b"text"]).unwrap();
    drop(store);
    let config = fs::read_to_string(sshd.path("sshd.conf")).unwrap();
    fs::write(sshd.path("sshd.conf"), config.replace("internal-sftp ", "internal-sftp -R ")).unwrap();
    sshd.restart();
    let options = StoreOptions { unsafe_sftp: true, ..sshd.options() };
    let store = store::open_with(&url, &options).unwrap();
    assert_eq!(store.get(&named("a/b"), 10).unwrap(), b"text");
    assert!(!store.put_if_absent(&named("a/b"), &[b"more"]).unwrap(), "it exists");
    for failed in
        [store.put_if_absent(&named("a/c"), &[b"more"]).map(drop), store.delete(&named("a/b"), Durable::OnReturn)]
    {
        let error = failed.unwrap_err();
        let Error::Io { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.to_string().contains("sftp://127.0.0.1:"), "{error}");
    }
    did_run("read-only SFTP", "sshd");
}

#[test]
fn what_is_behind_a_link_on_a_server_is_there_or_unreadable_but_never_absent() {
    let Some(sshd) = Sshd::start("SFTP links", "") else { return };
    let (root, away) = (sshd.data().join("a"), sshd.data().join("away"));
    let name = named(&format!("containers/03/{}", "03".repeat(32)));
    for moved in ["containers", "containers/03", name.as_str()] {
        let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
        store.put_if_absent(&name, &[b"content"]).unwrap();
        fs::rename(root.join(moved), &away).unwrap();
        symlink(&away, root.join(moved)).unwrap();
        let store = store::open_with(sshd.url("a"), &sshd.options()).unwrap();
        let listed = store.list(BlobKind::Container.into()).unwrap();
        assert_eq!((listed.len(), listed[0].len), (1, 7), "{moved}");
        assert_eq!(store.get(&name, 100).unwrap(), b"content");
        for target in ["nowhere", moved.rsplit('/').next().unwrap()] {
            fs::remove_file(root.join(moved)).unwrap();
            symlink(target, root.join(moved)).unwrap();
            let store = store::open_with(sshd.url("a"), &sshd.options()).unwrap();
            let reads = [
                store.head(&name).map(drop),
                store.get(&name, 100).map(drop),
                store.get_range(&name, 0, 3, Reading::Once).map(drop),
            ];
            for error in reads.map(|read| read.expect_err(moved)) {
                assert!(error.kind() == ErrorKind::Damaged && !error.is_proven_damage(), "{moved}: {error}");
            }
            match store.list(BlobKind::Container.into()) {
                Ok(listed) => assert!(moved == name.as_str() && listed[0].name == name, "{moved}: {listed:?}"),
                Err(error) => assert!(matches!(error, Error::Unreadable { .. }), "{moved}: {error}"),
            }
            assert!(store.head(&named("containers/04/absent")).is_ok() || moved == "containers", "{moved}");
        }
        fs::remove_dir_all(&root).unwrap();
        let _ = fs::remove_dir_all(&away).or_else(|_| fs::remove_file(&away));
    }
    did_run("SFTP links", "sshd");
}

#[test]
fn what_is_no_directory_or_no_file_on_a_server_is_unreadable_but_never_absent() {
    let Some(sshd) = Sshd::start("SFTP irregular files", "") else { return };
    let (root, away) = (sshd.data().join("a"), sshd.data().join("away"));
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    drop(Repository::init(store, &RepositoryConfig::default()).unwrap());
    let name = named(&format!("containers/03/{}", "03".repeat(32)));
    let store = store::open_with(sshd.url("a"), &sshd.options()).unwrap();
    store.put_if_absent(&name, &[b"content"]).unwrap();
    for (moved, is_blob) in [("containers", false), ("containers/03", false), (name.as_str(), true)] {
        for kind in ["file", "pipe", "link", "directory"] {
            if kind == if is_blob { "file" } else { "directory" } {
                continue;
            }
            fs::rename(root.join(moved), &away).unwrap();
            match kind {
                "file" => write(root.join(moved), b""),
                "directory" => fs::create_dir(root.join(moved)).unwrap(),
                "pipe" => assert!(Command::new("mkfifo").arg(root.join(moved)).status().unwrap().success()),
                _ => symlink("/dev/zero", root.join(moved)).unwrap(),
            }
            let store = store::open_with(sshd.url("a"), &sshd.options()).unwrap();
            let what = format!("a {kind} at {moved}");
            let reads = [
                store.head(&name).map(drop),
                store.get(&name, 100).map(drop),
                store.get_range(&name, 0, 3, Reading::Once).map(drop),
            ];
            for error in reads.map(|read| read.expect_err(&what)) {
                assert!(error.kind() == ErrorKind::Damaged && !error.is_proven_damage(), "{what}: {error}");
            }
            for prefix in [BlobPrefix::All, BlobKind::Container.into(), BlobPrefix::Containers(3)] {
                match store.list(prefix) {
                    Ok(listed) => {
                        let found = listed.iter().find(|blob| blob.name == name);
                        assert!(is_blob && found.is_some_and(|blob| blob.len == 0), "{what}: {listed:?}");
                    }
                    Err(error) => assert!(!is_blob && matches!(error, Error::Unreadable { .. }), "{what}: {error}"),
                }
            }
            assert!(is_blob || store.put_if_absent(&name, &[b"x"]).is_err(), "{what}");
            let _ = fs::remove_file(root.join(moved)).or_else(|_| fs::remove_dir(root.join(moved)));
            fs::rename(&away, root.join(moved)).unwrap();
        }
    }
    assert_eq!(store.get(&name, 100).unwrap(), b"content");
    did_run("SFTP irregular files", "sshd");
}

#[test]
fn a_directory_that_is_away_on_a_server_is_never_taken_for_empty() {
    let Some(sshd) = Sshd::start("SFTP directories that are away", "") else { return };
    let (root, away) = (sshd.data().join("a"), sshd.data().join("away"));
    let repository =
        Repository::init(store::create_with(sshd.url("a"), &sshd.options()).unwrap(), &RepositoryConfig::default());
    drop(repository.unwrap());
    assert!(root.join(".directories").is_dir());
    let kinds = [BlobKind::Container, BlobKind::Segment, BlobKind::Snapshot, BlobKind::Mark, BlobKind::Intent];
    for kind in kinds {
        for is_seen in [true, false] {
            let (before, directory) = (store::open_with(sshd.url("a"), &sshd.options()).unwrap(), kind.directory());
            fs::rename(root.join(directory), &away).unwrap();
            let store = match is_seen {
                true => before,
                false => store::open_with(sshd.url("a"), &sshd.options()).unwrap(),
            };
            let name = BlobName::hashed(kind, &[7; 32]);
            let errors = [
                store.list(kind.into()).map(drop),
                store.list(BlobPrefix::All).map(drop),
                store.head(&name).map(drop),
                store.get(&name, 9).map(drop),
                store.put_if_absent(&name, &[b"x"]).map(drop),
                store.delete(&name, Durable::OnReturn),
                store.make_directories(false),
            ];
            for (error, at) in errors.map(|done| done.expect_err(directory)).iter().zip(0..) {
                assert!(matches!(error, Error::Unreadable { .. }), "{at} {directory}: {error}");
                assert!(error.to_string().contains("does not exist"), "{at} {directory}: {error}");
            }
            assert!(!root.join(directory).exists());
            fs::rename(&away, root.join(directory)).unwrap();
            assert_eq!(store.list(kind.into()).unwrap(), []);
            assert!(store.head(&name).unwrap().is_none());
        }
    }
    // Repositories of earlier programs have neither.
    fs::remove_dir_all(&root).unwrap();
    let store = store::create_with(sshd.url("a"), &sshd.options()).unwrap();
    assert_eq!(store.list(BlobKind::Container.into()).unwrap(), []);
    let (container, segment) = (named("containers/03/03"), named("index/04"));
    assert!(store.put_if_absent(&container, &[b"x"]).unwrap() && store.put_if_absent(&segment, &[b"x"]).unwrap());
    fs::rename(root.join("containers"), &away).unwrap();
    let store = store::open_with(sshd.url("a"), &sshd.options()).unwrap();
    assert!(store.list(BlobKind::Container.into()).is_err() && store.head(&container).is_err());
    assert_eq!(store.list(BlobKind::Pending.into()).unwrap(), []);
    fs::rename(&away, root.join("containers")).unwrap();
    store.make_directories(true).unwrap();
    assert!(!root.join("pending").exists());
    store.make_directories(false).unwrap();
    assert!(root.join("pending").is_dir() && root.join(".directories").is_dir() && !root.join("keys").exists());
    did_run("SFTP directories that are away", "sshd");
}

#[test]
fn a_deletion_is_synced_on_a_server_that_can() {
    let Some(sshd) = Sshd::start("SFTP deletions", "") else { return };
    let log = sshd.data().join("requests");
    let recorded = format!("tee -a {} | {}", log.display(), sshd.ssh_command().display());
    let options = StoreOptions { ssh_command: Some(recorded.into()), ..sshd.options() };
    let syncs = || {
        // A request may be answered before it is recorded.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let bytes = fs::read(&log).unwrap();
        bytes.windows(17).filter(|window| window == b"fsync@openssh.com").count()
    };
    let store = store::create_with(sshd.url("a"), &options).unwrap();
    store.delete(&named("containers/03/none"), Durable::OnReturn).unwrap();
    store.put_if_absent(&named("snapshots/a"), &[b"x"]).unwrap();
    let before = syncs();
    store.delete(&named("snapshots/a"), Durable::OnReturn).unwrap();
    assert_eq!(syncs(), before + 1);
    store.delete(&named("snapshots/a"), Durable::OnReturn).unwrap();
    assert_eq!(syncs(), before + 2, "who deleted it may not have come to that");
    // Many deletions share the syncs of their directories.
    let names = ["snapshots/b", "snapshots/c", "snapshots/d", "intents/e"].map(named);
    names.iter().for_each(|name| _ = store.put_if_absent(name, &[b"x"]).unwrap());
    let before = syncs();
    names.iter().for_each(|name| store.delete(name, Durable::AfterSync).unwrap());
    assert_eq!(syncs(), before);
    store.sync_deletions(&names).unwrap();
    assert_eq!(syncs(), before + 2);
    did_run("SFTP deletions", "sshd");
}

#[test]
fn limits_of_the_rate_hold_for_a_server_of_sftp() {
    let Some(sshd) = Sshd::start("SFTP limits", "") else { return };
    let content = Random(1).bytes(400_000);
    let name = named("containers/03/a");
    let limited = |upload, download| StoreOptions { limits: RateLimits::new(upload, download), ..sshd.options() };
    // Of whatever speed the machine is, so many bytes take a second at least.
    let started = Instant::now();
    let store = store::create_with(sshd.url("a"), &limited(Some(400_000), None)).unwrap();
    store.put_if_absent(&name, &[&content]).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(950), "{:?}", started.elapsed());
    let started = Instant::now();
    let store = store::open_with(sshd.url("a"), &limited(None, Some(400_000))).unwrap();
    assert!(store.get(&name, 1 << 20).unwrap() == content);
    assert!(started.elapsed() >= Duration::from_millis(950), "{:?}", started.elapsed());
    did_run("SFTP limits", "sshd");
}
