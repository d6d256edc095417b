//! The contract and the program on every server of buckets.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fhrd::store::{self, Store, StoreOptions};

use super::buckets::{BucketServer, http, start};
use super::contract;
use super::process::{did_run, not_run};
use crate::input::write;
use crate::program::finished;
use crate::trees::{Random, assert_same, describe};

/// Names the store of [`the_contract_of_one_store`].
const CONTRACT_URL: &str = "FHRD_TEST_CONTRACT_URL";

/// Set if the store does not refuse names that were taken a moment ago.
const UNCONDITIONAL: &str = "FHRD_TEST_UNCONDITIONAL";

/// Runs the contract on the store that the environment names. Clients take their credentials from the environment, so
/// this test runs in a process of its own, which [`meets_the_contract`] starts.
#[test]
fn the_contract_of_one_store() {
    let Ok(url) = std::env::var(CONTRACT_URL) else { return };
    let options = StoreOptions { endpoint: std::env::var("FHRD_ENDPOINT").ok(), ..StoreOptions::default() };
    let store = store::create_with(&url, &options).unwrap();
    assert!(store.is_unused().unwrap());
    match std::env::var_os(UNCONDITIONAL) {
        None => contract::check(&store),
        Some(_) => contract::check_with(&store, contract::WRITERS),
    }
}

fn meets_the_contract(server: &BucketServer) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = concat!(module_path!(), "::the_contract_of_one_store");
    command.args([name.split_once("::").unwrap().1, "--exact", "--nocapture"]).env(CONTRACT_URL, &server.url);
    server.let_use(&mut command);
    // moto looks whether the name is free, then at the checksum, then stores.
    if ["OpenStack Swift", "moto"].contains(&server.name) {
        command.env(UNCONDITIONAL, "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", server.name);
}

/// `fhrd` with these words for the repository in the bucket, with caches and data in `home`.
pub fn fhrd(server: &BucketServer, home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fhrd"));
    command.args(words).args(["--json", "--repo", &server.url]).env("FHRD_PASSWORD", "secret");
    server.let_use(&mut command);
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, home.join(name));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Two machines with homes of their own back up, forget, prune, check and restore.
fn holds_a_repository(server: &BucketServer) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, source) = (directory.path().join("one"), directory.path().join("two"), directory.path().join("s"));
    for number in 0..12 {
        write(source.join(format!("file-{number}")), &Random(number).bytes(100_000));
    }
    let run = |home: &Path, words: &[&str]| finished(fhrd(server, home, words).output().unwrap(), &words.join(" "));
    let init = fhrd(server, &one, &["init"]).output().unwrap();
    let warning = String::from_utf8_lossy(&init.stderr).into_owned();
    assert_eq!(finished(init, "init")["encryption"], "AES-256-GCM");
    assert_eq!(fhrd(server, &two, &["init"]).output().unwrap().status.code(), Some(1), "there is one already");
    run(&one, &["backup", source.to_str().unwrap()]);
    fs::remove_file(source.join("file-3")).unwrap();
    write(source.join("new"), &Random(99).text(50_000));
    let second = run(&two, &["backup", source.to_str().unwrap()]);
    assert!(second["bytes_stored"].as_u64().unwrap() < 200_000, "the other machine's chunks are found: {second}");
    run(&two, &["forget", "--keep-last", "1", "--group-by", ""]);
    run(&two, &["prune", "--grace", "0s"]);
    run(&one, &["check", "--read-data"]);
    // The cache may be lost at any time.
    fs::remove_dir_all(one.join("XDG_CACHE_HOME")).unwrap();
    let target = directory.path().join("restored");
    run(&one, &["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), server.name);
    warning
}

#[test]
fn swift_checks_signatures_and_knows_no_conditional_puts() {
    let Some(server) = start("OpenStack Swift", "OpenStack Swift") else { return };
    meets_the_contract(&server);
    let warning = holds_a_repository(&server);
    assert!(warning.contains("does not refuse names that are taken"), "{warning}");
    let mut command = fhrd(&server, &server.path("home"), &["snapshots"]);
    let wrong = command.env("AWS_SECRET_ACCESS_KEY", "wrong").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{}", String::from_utf8_lossy(&wrong.stderr));
    did_run("OpenStack Swift", "contract, program, a wrong key");
}

#[test]
fn moto_refuses_a_name_that_is_taken() {
    let Some(server) = start("moto", "moto") else { return };
    meets_the_contract(&server);
    let warning = holds_a_repository(&server);
    assert!(!warning.contains("names that are taken"), "{warning}");
    did_run("moto", "contract, program");
}

#[test]
fn azurite_holds_a_repository() {
    let Some(server) = start("Azurite", "Azurite") else { return };
    meets_the_contract(&server);
    holds_a_repository(&server);
    did_run("Azurite", "contract, program");
}

#[test]
fn no_emulator_of_google_cloud_storage_is_there() {
    // Those on PyPI and npm speak Google's JSON interface alone; clients that sign requests speak its XML interface.
    not_run("Google Cloud Storage", "no emulator on PyPI or npm has the XML interface");
}

#[test]
fn moto_is_a_source() {
    let Some(server) = start("moto as a source", "moto") else { return };
    let directory = tempfile::tempdir().unwrap();
    let port: u16 = server.endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let source = directory.path().join("s");
    let keys = [("a/one", 900), ("a/two", 5_000_000), ("b", 0), ("c/d e+f%", 70_000)];
    for (number, (key, len)) in (0..).zip(keys) {
        let bytes = Random(number).bytes(len);
        write(source.join(key), &bytes);
        let path = format!("/bucket/src/{}", key.replace('%', "%25").replace(' ', "%20").replace('+', "%2B"));
        assert_eq!(http(port, "PUT", &path, "", &bytes).0, 200, "{key}");
    }
    assert_eq!(http(port, "PUT", "/bucket/src/odd//key", "", b"odd").0, 200);
    let run = |words: &[&str]| {
        let mut command = fhrd(&server, directory.path(), words);
        finished(command.env("FHRD_SOURCE_ENDPOINT", &server.endpoint).output().unwrap(), &words.join(" "))
    };
    run(&["init"]);
    assert_eq!(run(&["backup", "s3://bucket/src"])["files"], 5);
    assert_eq!(run(&["backup", "s3://bucket/src"])["files_unchanged"], 5);
    let target = directory.path().join("restored");
    run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    for (key, _) in keys {
        assert_eq!(fs::read(target.join(key)).unwrap(), fs::read(source.join(key)).unwrap(), "{key}");
    }
    assert_eq!(fs::read(target.join("odd/%2F/key")).unwrap(), b"odd");
    did_run("moto as a source", "backup, unchanged, restore");
}

#[test]
fn azurite_is_a_source() {
    let Some(server) = start("Azurite as a source", "Azurite") else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("s");
    for (number, (key, len)) in (0..).zip([("a/one", 900), ("a/two", 5_000_000), ("b", 0)]) {
        let bytes = Random(number).bytes(len);
        write(source.join(key), &bytes);
        server.put_into_azurite(&format!("src/{key}"), &bytes);
    }
    let run = |words: &[&str]| {
        let mut command = fhrd(&server, directory.path(), words);
        finished(command.env("FHRD_SOURCE_ENDPOINT", &server.endpoint).output().unwrap(), &words.join(" "))
    };
    run(&["init"]);
    assert_eq!(run(&["backup", "az://bucket/src"])["files"], 3);
    let again = run(&["backup", "az://bucket/src"]);
    assert_eq!((&again["files_unchanged"], &again["bytes_read"]), (&3.into(), &0.into()), "{again}");
    server.put_into_azurite("src/a/one", b"another");
    write(source.join("a/one"), b"another");
    assert_eq!(run(&["backup", "az://bucket/src"])["files_changed"], 1);
    let target = directory.path().join("restored");
    run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    for key in ["a/one", "a/two", "b"] {
        assert_eq!(fs::read(target.join(key)).unwrap(), fs::read(source.join(key)).unwrap(), "{key}");
    }
    did_run("Azurite as a source", "backup, unchanged, changed, restore");
}
