//! Hostile streams and corrections: bounded, no panic.

use std::io::{self, Read, Write};

use proptest::prelude::*;

use super::made_streams_tests::{Habits, gzip, text};
use super::predictor::Settings;
use super::{OpenLimits, Rebuilder, open_stream};

fn open(stream: &[u8], limits: &OpenLimits) -> (Vec<u8>, Vec<u8>) {
    let (mut plain, mut corrections) = (Vec::new(), Vec::new());
    open_stream(stream, limits, &mut plain, &mut corrections).expect("no faults");
    (plain, corrections)
}

/// Reads at most 4 MiB; a fault is as good as bytes.
fn rebuild(plain: &[u8], corrections: &[u8]) -> io::Result<u64> {
    io::copy(&mut Rebuilder::new(plain, corrections).take(4 << 20), &mut io::sink())
}

#[test]
fn a_member_above_the_limit_is_opened_up_to_it() {
    let settings = Settings { block_tokens: 1000, ..Settings::default() };
    let stream = gzip(&text(3, 500_000), &Habits::of(settings));
    let limits = OpenLimits { max_member_plain: 100_000, ..OpenLimits::default() };
    let (plain, corrections) = open(&stream, &limits);
    assert!(plain.len() < stream.len() + 100_000);
    let mut back = Vec::new();
    Rebuilder::new(&plain[..], &corrections[..]).read_to_end(&mut back).expect("the stream comes back");
    assert!(back == stream);
}

#[test]
fn headers_within_members_do_not_matter() {
    // Each header begins a stored block that holds the headers that follow.
    let stream = b"\x1F\x8B\x08\0\0\0\0\0\0\x03\0\xFF\xFF\0\0".repeat(20_000);
    let (plain, corrections) = open(&stream, &OpenLimits::default());
    let mut back = Vec::new();
    Rebuilder::new(&plain[..], &corrections[..]).read_to_end(&mut back).expect("the stream comes back");
    assert!(back == stream);
}

#[test]
fn truncated_parts_are_errors() {
    let stream = gzip(&text(3, 100_000), &Habits { odd_tokens: 200, ..Habits::of(Settings::default()) });
    let (plain, corrections) = open(&stream, &OpenLimits::default());
    assert!(rebuild(&plain, &corrections).is_ok());
    assert!(rebuild(&plain[..plain.len() / 2], &corrections).is_err());
    assert!(rebuild(&plain, &[]).is_ok(), "no corrections: all bytes pass");
}

#[test]
fn faults_of_the_input_are_errors() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() { Err(io::Error::other("broken")) } else { self.0.read(buf) }
        }
    }
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("full"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let stream = gzip(&text(3, 400_000), &Habits::of(Settings::default()));
    let stored = b"\x1F\x8B\x08\0\0\0\0\0\0\x03\0\xFF\xFF\0\0".repeat(9000);
    for stream in [&stream, &stored] {
        for len in [0, 5, 1000, 65_540, 70_000, stream.len()] {
            let input = Broken(&stream[..len]);
            let result = open_stream(input, &OpenLimits::default(), &mut io::sink(), &mut io::sink());
            assert!(result.is_err(), "{len} bytes");
        }
    }
    assert!(open_stream(&stream[..], &OpenLimits::default(), &mut Full, &mut io::sink()).is_err());
    assert!(open_stream(&stream[..], &OpenLimits::default(), &mut io::sink(), &mut Full).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_corrections_end(
        plain in prop::collection::vec(any::<u8>(), 0..4000),
        corrections in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = rebuild(&plain, &corrections);
    }

    #[test]
    fn damaged_corrections_end(at in 0usize..1000, mask in 1u8.., odd_tokens in 10u64..100) {
        let stream = gzip(&text(3, 20_000), &Habits { odd_tokens, ..Habits::of(Settings::default()) });
        let limits = OpenLimits { max_correction_share: 1.0, ..OpenLimits::default() };
        let (plain, mut corrections) = open(&stream, &limits);
        let at = at % corrections.len();
        corrections[at] ^= mask;
        let _ = rebuild(&plain, &corrections);
    }
}
