//! Restores into the bucket that has the repository.

use serde_json::Value;

use crate::cli::fixture::{Home, code, json, stderr};
use crate::wire::server::{ACCESS_KEY, S3Server};

#[test]
fn nothing_is_written_into_the_repository() {
    let (home, server) = (Home::new(), S3Server::start());
    let run = |words: &[&str]| {
        let mut command = home.command(words);
        command
            .env("FHRD_REPO", "s3://bucket/data/repository")
            .env("FHRD_PASSWORD", "a password")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("FHRD_ENDPOINT", server.endpoint())
            .env("FHRD_SOURCE_ENDPOINT", server.endpoint())
            .env_remove("AWS_PROFILE");
        command.output().unwrap()
    };
    home.write("src/good", b"good");
    home.write("src/repository/config", b"not that of a repository");
    json(&run(&["init", "--json"]));
    json(&run(&["backup", "src", "--json"]));
    let keys = || server.objects().keys().cloned().collect::<Vec<_>>();
    let before = keys();
    for inside in ["", "/snapshots", "/models/x"] {
        let target = format!("s3://bucket/data/repository{inside}");
        let refused = run(&["restore", "latest:src", "--target", &target, "--overwrite", "always"]);
        assert_eq!(code(&refused), 1, "{inside}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("is in the repository"), "{inside}: {}", stderr(&refused));
        assert_eq!(keys(), before, "{inside}");
    }
    // Beside it, but for what would be in it.
    let words = ["restore", "latest:src", "--target", "s3://bucket/data", "--overwrite", "always", "--json"];
    let beside = run(&words);
    let report: Value = serde_json::from_slice(&beside.stdout).unwrap();
    assert_eq!((code(&beside), report["files"].as_u64(), report["problems"].as_u64()), (1, Some(1), Some(1)));
    let said = stderr(&beside);
    let line = |key: &str| said.lines().find(|line| line.contains(key)).unwrap_or_default().to_string();
    assert!(line("data/repository/config").contains("it would be in the repository"), "{said}");
    assert_eq!(json(&run(&["check", "--read-data", "--json"]))["defects"], serde_json::json!([]));
}
