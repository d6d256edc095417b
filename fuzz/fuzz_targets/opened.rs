//! Opens any bytes and rebuilds them, and rebuilds any bytes as plain content and corrections.

#![no_main]

use std::io::{self, Read};

use fhrd::opened::{OpenLimits, Rebuilder, open_stream};
use libfuzzer_sys::fuzz_target;

/// Bytes of one rebuilt stream that are read.
const REBUILT_MAX: u64 = 1 << 20;

fuzz_target!(|input: (bool, &[u8], &[u8])| {
    let (is_zlib, first, second) = input;
    let head: &[u8] = if is_zlib { &[0x78, 0x9C] } else { &[0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3] };
    let stream = [head, first].concat();
    let limits = OpenLimits { max_correction_share: 1.0, ..OpenLimits::default() };
    let (mut plain, mut corrections) = (Vec::new(), Vec::new());
    open_stream(&stream[..], &limits, &mut plain, &mut corrections).expect("the outputs take all bytes");
    let mut back = Vec::new();
    Rebuilder::new(&plain[..], &corrections[..]).read_to_end(&mut back).expect("the stream comes back");
    assert_eq!(back, stream);
    let _ = io::copy(&mut Rebuilder::new(first, second).take(REBUILT_MAX), &mut io::sink());
});
