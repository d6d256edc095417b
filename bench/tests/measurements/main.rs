//! Integration tests of the measurements, one binary.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;
mod committed;
#[path = "../../../tests/it/cli/documented.rs"]
mod documented;
#[expect(dead_code, reason = "a home can do more than these tests ask")]
#[path = "../../../tests/it/cli/fixture.rs"]
mod fixture;
mod manifests;
mod simulate;

use std::path::{Path, PathBuf};

/// The program that [`fixture::Home`] runs.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fhrd-bench");

/// A path below the checkout.
fn below_checkout(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
}
