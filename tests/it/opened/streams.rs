//! Compressed streams of tests, made by Python's zlib.

use std::io::Write;
use std::process::{Command, Stdio};

/// Compresses what comes in.
const PROGRAM: &str = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(sys.stdin.buffer.read(), 6, mtime=0))";

/// A gzip file.
pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut command = Command::new("python3");
    let mut child = command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(plain).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
    output.stdout
}
