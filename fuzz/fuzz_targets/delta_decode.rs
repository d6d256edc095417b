//! Decodes any bytes as the payload of a delta to any base.

#![no_main]

use fhrd::codec::{Scratch, delta};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8], &[u8])| {
    let (raw_len, id, base, payload) = input;
    let mut raw = Vec::new();
    if delta::decode(id, payload, base, usize::from(raw_len), &mut Scratch::default(), &mut raw).is_ok() {
        assert_eq!(raw.len(), usize::from(raw_len));
    }
});
