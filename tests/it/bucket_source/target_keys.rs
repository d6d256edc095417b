//! Restores into a bucket: files whose keys are none, or those of others.

use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::server::SourceServer;
use super::target::{count, objects, restore};
use crate::cli::fixture::{Home, code, stderr};

#[test]
fn a_path_that_is_not_unicode_is_named_and_is_no_object() {
    let (home, server) = (Home::new(), SourceServer::start());
    home.write("src/good", b"good");
    for name in [&b"f\xff"[..], b"f\xfe"] {
        std::fs::write(home.path("src").join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    home.backup(&["src"]);
    let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((count(&report, "files"), count(&report, "problems"), count(&report, "damaged")), (1, 2, 0));
    assert_eq!(objects(&server, "back/").into_keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(stderr(&output).matches("its path is not UTF-8").count(), 2, "{}", stderr(&output));
}
