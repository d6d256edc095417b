//! Restores into a bucket: objects that are put in parts.

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
