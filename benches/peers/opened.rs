//! Opens and rebuilds files, compares them, and prints a row of the table in docs/MEASUREMENTS.md.
//!
//! `find DIR -name '*.whl' | cargo run --release --example opened -- WHEELS`

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::time::{Duration, Instant};

use fhrd::opened::{OpenLimits, Rebuilder, open_stream};

#[derive(Default)]
struct Row {
    files: u64,
    members: u64,
    closed: u64,
    bytes: u64,
    opened_bytes: u64,
    plain_bytes: u64,
    corrections: u64,
    opening: Duration,
    rebuilding: Duration,
}

fn main() -> io::Result<()> {
    let writer = std::env::args().nth(1).unwrap_or_default();
    let mut row = Row::default();
    for path in io::stdin().lock().lines() {
        let path = path?;
        let mut stream = Vec::new();
        File::open(&path)?.read_to_end(&mut stream)?;
        let (mut plain, mut corrections) = (Vec::new(), Vec::new());
        let start = Instant::now();
        let summary = open_stream(&stream[..], &OpenLimits::default(), &mut plain, &mut corrections)?;
        let opening = start.elapsed();
        let start = Instant::now();
        let mut back = Vec::with_capacity(stream.len());
        Rebuilder::new(&plain[..], &corrections[..]).read_to_end(&mut back)?;
        assert!(back == stream, "{path} is not rebuilt");
        row.files += 1;
        row.members += summary.members;
        row.closed += summary.closed_members;
        row.bytes += stream.len() as u64;
        row.opened_bytes += summary.opened_bytes;
        if summary.members > 0 {
            row.rebuilding += start.elapsed();
            row.opening += opening;
            row.plain_bytes += summary.plain_len;
            row.corrections += summary.corrections_len;
        }
    }
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let rate = |time: Duration| row.plain_bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9);
    println!(
        "| writer | files | members opened, closed | MB | opened | corrections | MB/s of plain, opening, rebuilding |"
    );
    println!(
        "| {writer} | {} | {}, {} | {:.1} | {:.1} % | {:.3} % | {:.0}, {:.0} |",
        row.files,
        row.members,
        row.closed,
        row.bytes as f64 / 1e6,
        share(row.opened_bytes, row.bytes),
        share(row.corrections, row.opened_bytes),
        rate(row.opening),
        rate(row.rebuilding),
    );
    Ok(())
}
