//! The command `fhrd` in the process of Python, so that a wheel needs no second copy of the engine.

use std::ffi::OsString;
use std::panic::catch_unwind;

use fhrd::cli::{Called, hosted};
use pyo3::prelude::*;

/// The exit code of a program that panics.
const PANICKED: i32 = 101;

/// Runs the command with these arguments, and ends the process with its exit code. `again` are the words that start the
/// command again, from any directory.
#[pyfunction]
pub fn run_command(py: Python<'_>, arguments: Vec<OsString>, again: Vec<OsString>) {
    py.detach(|| {
        let code = catch_unwind(|| hosted(Called { arguments, again })).map_or(PANICKED, i32::from);
        // What Python would do at its end takes time, and its streams have nothing to write.
        std::process::exit(code)
    })
}
