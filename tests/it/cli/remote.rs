//! Repositories in a bucket, as a user meets them.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::fixture::{Home, code, json, stderr, stdout};
use crate::wire::server::{ACCESS_KEY, Behaviour, ConditionalPut, S3Server, WireFault};

const LOCATION: &str = "s3://bucket/laptop";

fn command(home: &Home, server: &S3Server, arguments: &[&str]) -> Command {
    let mut command = home.command(arguments);
    command
        .env("FHRD_REPO", LOCATION)
        .env("FHRD_ENDPOINT", server.endpoint())
        .env("FHRD_PASSWORD", "a password")
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env_remove("AWS_PROFILE")
        .env("XDG_STATE_HOME", home.path("state"));
    command
}

fn run(home: &Home, server: &S3Server, arguments: &[&str]) -> Output {
    command(home, server, arguments).output().unwrap()
}

/// A user with a repository in a bucket, and one snapshot of `docs`.
fn with_snapshot() -> (Home, S3Server) {
    let (home, server) = (Home::new(), S3Server::start());
    home.write("docs/a.txt", b"one");
    home.write("docs/b.txt", &[7; 50_000]);
    json(&run(&home, &server, &["init", "--json"]));
    json(&run(&home, &server, &["backup", "docs", "--json"]));
    (home, server)
}

#[test]
fn another_machine_restores_from_a_bucket_that_is_encrypted_by_default() {
    let (home, server) = with_snapshot();
    let created = String::from_utf8_lossy(&server.objects()["laptop/config"].0).into_owned();
    assert!(!created.contains("docs"));
    let is_clear =
        |bytes: &[u8]| bytes.windows(9).any(|window| window == b"docs/b.tx") || bytes.windows(99).any(|w| w == [7; 99]);
    assert!(!server.objects().values().any(|(bytes, _)| is_clear(bytes)), "what is stored can be read");
    let other = Home::new();
    let restored = json(&run(&other, &server, &["restore", "latest", "--target", "back", "--json"]));
    assert_eq!(restored["problems"], 0);
    assert_eq!((other.read("back/docs/a.txt"), other.read("back/docs/b.txt")), (b"one".to_vec(), vec![7; 50_000]));
    // The other machine builds its caches, and finds what is stored.
    home.write("docs/c.txt", b"three");
    other.write("docs/b.txt", &[7; 50_000]);
    assert_eq!(json(&run(&other, &server, &["backup", "docs", "--json"]))["chunks_new"], 0);
    assert_eq!(json(&run(&home, &server, &["check", "--read-data", "--json"]))["defects"], serde_json::json!([]));
    let wrong = command(&Home::new(), &server, &["snapshots"]).env("FHRD_PASSWORD", "another").output().unwrap();
    assert_eq!(code(&wrong), 12, "{}", stderr(&wrong));
    json(&run(&home, &server, &["forget", "--keep-last", "1", "--group-by", "", "--prune", "--grace", "0s", "--json"]));
    assert_eq!(json(&run(&home, &server, &["check", "--json"]))["defects"], serde_json::json!([]));
}

#[test]
fn a_password_for_a_bucket_that_is_not_encrypted_is_refused() {
    let (home, server) = (Home::new(), S3Server::start());
    home.write("docs/a.txt", b"one");
    let without = |words: &[&str]| command(&home, &server, words).env_remove("FHRD_PASSWORD").output().unwrap();
    json(&without(&["init", "--unencrypted", "--json"]));
    let before = server.objects().len();
    let output = run(&home, &server, &["backup", "docs"]);
    assert_eq!((code(&output), server.objects().len()), (12, before), "{}", stderr(&output));
    assert!(stderr(&output).contains("not encrypted"), "{}", stderr(&output));
    json(&without(&["backup", "docs", "--json"]));
}

#[test]
fn a_credential_that_may_only_read_suffices_for_all_that_reads() {
    let (home, server) = with_snapshot();
    home.write("docs/new", b"new");
    server.behave(Behaviour { may_write: false, ..Behaviour::default() });
    let reads: [&[&str]; 12] = [
        &["snapshots"],
        &["ls", "latest"],
        &["find", "*.txt"],
        &["cat", "latest:docs/a.txt"],
        &["dump", "latest:docs"],
        &["stats"],
        &["diff", "latest", "latest"],
        &["models"],
        &["check", "--read-data"],
        &["key", "list"],
        &["restore", "latest", "--target", "back"],
        &["forget", "--keep-last", "1", "--dry-run"],
    ];
    for user in [&home, &Home::new()] {
        for arguments in reads {
            let output = run(user, &server, arguments);
            assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
        }
    }
    let writes: [&[&str]; 3] = [&["backup", "docs"], &["forget", "latest"], &["tag", "latest", "--add", "x"]];
    for arguments in writes {
        let output = run(&home, &server, arguments);
        assert_eq!(code(&output), 11, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("may not write or delete"), "{}", stderr(&output));
    }
}

#[test]
fn what_is_wrong_is_said_at_once() {
    let (home, server) = with_snapshot();
    let started = Instant::now();
    let said = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = command(&home, &server, arguments).envs(variables.iter().copied()).output().unwrap();
        (code(&output), stderr(&output))
    };
    let (exit, text) = said(&["snapshots", "--repo", "s3://typo/laptop"], &[]);
    assert!(exit == 10 && text.contains("the bucket does not exist"), "{text}");
    let (exit, text) = said(&["init", "--repo", "s3://typo/laptop"], &[]);
    assert!(exit == 10 && text.contains("the bucket does not exist"), "{text}");
    let (exit, text) = said(&["snapshots", "--repo", "s3://bucket/typo"], &[]);
    assert!(exit == 10 && text.contains("fhrd init --repo s3://bucket/typo"), "{text}");
    let (exit, text) = said(&["snapshots"], &[("AWS_ACCESS_KEY_ID", "wrong")]);
    assert!(exit == 1 && text.contains("InvalidAccessKeyId"), "{text}");
    let (exit, text) = said(&["snapshots"], &[("FHRD_ENDPOINT", "http://127.0.0.1:1")]);
    assert!(exit == 1 && text.contains("check the network and the endpoint"), "{text}");
    let (exit, text) = said(&["init", "--repo", "s3://bucket"], &[]);
    assert!(exit == 1 && text.contains("already holds other files"), "{text}");
    let (exit, text) = said(&["init"], &[]);
    assert!(exit == 1 && text.contains("already holds a repository"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn init_warns_if_two_could_collide() {
    for (conditional_put, is_warned) in
        [(ConditionalPut::Honoured, false), (ConditionalPut::Unknown, true), (ConditionalPut::Ignored, true)]
    {
        let (home, server) = (Home::new(), S3Server::start());
        server.behave(Behaviour { conditional_put, ..Behaviour::default() });
        let run = |words: &[&str]| command(&home, &server, words).env_remove("FHRD_PASSWORD").output().unwrap();
        let output = run(&["init", "--unencrypted"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("would overwrite each other"), is_warned, "{}", stderr(&output));
        assert!(!stdout(&output).contains("encrypted"));
        home.write("docs/a", b"one");
        json(&run(&["backup", "docs", "--json"]));
    }
}

#[test]
fn ctrl_c_ends_a_request_that_is_tried_again() {
    let (home, server) = with_snapshot();
    let fault = Some((3..usize::MAX, WireFault::SlowDown));
    for arguments in [&["restore", "latest", "--target", "back"][..], &["backup", "docs"]] {
        server.behave(Behaviour { fault: fault.clone(), ..Behaviour::default() });
        let mut child = command(&home, &server, arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
        while server.seen().len() < 6 {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let started = Instant::now();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{arguments:?}");
        assert!(started.elapsed() < Duration::from_secs(30), "{arguments:?}: {:?}", started.elapsed());
    }
}

#[test]
fn limits_of_the_rate_hold_both_ways() {
    let (home, server) = with_snapshot();
    let content: Vec<u8> =
        (0..400_000u32).flat_map(|at| blake3::hash(&at.to_le_bytes()).as_bytes()[..1].to_vec()).collect();
    home.write("docs/random", &content);
    let started = Instant::now();
    json(&run(&home, &server, &["backup", "docs", "--json", "--limit-upload", "200KB"]));
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
    let other = Home::new();
    let started = Instant::now();
    let arguments = ["restore", "latest", "--target", "back", "--json", "--limit-download", "200KB"];
    json(&run(&other, &server, &arguments));
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
    assert_eq!(other.read("back/docs/random"), content);
}

#[test]
fn copies_and_profiles_take_urls() {
    let (home, server) = with_snapshot();
    let endpoint = server.endpoint();
    home.write("config/fhrd/bucket.toml", format!("repo = \"{LOCATION}\"\nendpoint = \"{endpoint}\"\n").as_bytes());
    let mut listed = command(&home, &server, &["snapshots", "--profile", "bucket", "--json"]);
    let listed = json(&listed.env_remove("FHRD_REPO").env_remove("FHRD_ENDPOINT").output().unwrap());
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    let from_bucket = |arguments: &[&str]| {
        let mut command = command(&home, &server, arguments);
        command.env_remove("FHRD_REPO").env_remove("FHRD_ENDPOINT").env_remove("FHRD_PASSWORD");
        json(&command.env("FHRD_FROM_ENDPOINT", &endpoint).env("FHRD_FROM_PASSWORD", "a password").output().unwrap())
    };
    let init = ["init", "--repo", "second", "--from-repo", LOCATION, "--copy-chunker-params", "--encrypt", "--json"];
    home.write("key", &[1; 32]);
    from_bucket(&[&init[..], &["--key-file", "key"]].concat());
    from_bucket(&["copy", "--repo", "second", "--from-repo", LOCATION, "--key-file", "key", "--json"]);
    let second = home.run(&["snapshots", "--repo", "second", "--key-file", "key", "--json"]);
    assert_eq!(json(&second).as_array().map(Vec::len), Some(1));
}
