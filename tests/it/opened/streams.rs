//! Compressed streams of tests.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A gzip file.
pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}
