//! Decodes any bytes as the payload of a delta to any base. What was decoded before changes nothing, and neither does
//! decoding in place.

#![no_main]

use fhrd::codec::{Scratch, delta};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8], u16, u8, &[u8], &[u8])| {
    let (earlier_len, earlier_id, earlier, raw_len, id, base, payload) = input;
    let decode = |scratch: &mut Scratch| {
        let mut raw = Vec::new();
        delta::decode(id, payload, base, usize::from(raw_len), scratch, &mut raw).ok().map(|()| raw)
    };
    let raw = decode(&mut Scratch::default());
    assert!(raw.as_ref().is_none_or(|raw| raw.len() == usize::from(raw_len)));
    let mut used = Scratch::default();
    let _ = delta::decode(earlier_id, earlier, base, usize::from(earlier_len), &mut used, &mut Vec::new());
    assert_eq!(decode(&mut used), raw);
    if base.len() == usize::from(raw_len) {
        let mut content = base.to_vec();
        match delta::apply(id, payload, &mut content, &mut used) {
            Ok(true) => assert_eq!(raw, Some(content)),
            Ok(false) => assert_eq!(content, base),
            Err(_) => assert!(raw.is_none()),
        }
    }
});
