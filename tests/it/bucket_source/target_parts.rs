//! Restores into a bucket: objects that are put in parts.

use serde_json::Value;

use super::server::SourceServer;
use super::target::{count, objects, restore};
use super::writes::Completion;
use crate::cli::fixture::{Home, code, json, stderr};
use crate::trees::Random;

#[test]
fn an_upload_counts_as_complete_only_if_the_object_is_there() {
    let (home, large) = (Home::new(), Random(9).bytes(40_000_000));
    home.write("src/large", &large);
    home.backup(&["src"]);
    for completion in [Completion::Lost, Completion::FailsLate, Completion::Form] {
        let server = SourceServer::start();
        server.writes().completions = vec![completion];
        let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back"]);
        assert_eq!(code(&output), 0, "{completion:?}: {}", stderr(&output));
        assert!(objects(&server, "back/").remove("large").is_some_and(|found| found == large), "{completion:?}");
        assert_eq!((count(&json(&output), "bytes_written"), server.uploads()), (40_000_000, 0), "{completion:?}");
    }
}

#[test]
fn an_object_whose_parts_are_too_long_is_a_problem_before_it_is_read() {
    let (home, server) = (Home::new(), SourceServer::start());
    home.write("src/small", b"small");
    let sparse = std::fs::File::create(home.path("src/sparse")).unwrap();
    sparse.set_len(400 << 30).unwrap();
    home.backup(&["src"]);
    let words = |memory| ["latest:src", "--target", "s3://bucket/back", "--memory", memory, "--dry-run"];
    let output = restore(&home, &server, &words("64MiB"));
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((count(&report, "files"), count(&report, "problems"), count(&report, "damaged")), (1, 1, 0));
    assert!(stderr(&output).contains("back/sparse") && stderr(&output).contains("--memory"), "{}", stderr(&output));
    assert_eq!(count(&json(&restore(&home, &server, &words("256MiB"))), "files"), 2);
}
