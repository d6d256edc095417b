//! Decodes any bytes as a prefix code and an encoding, and round-trips them as symbols.

#![no_main]

use fhrd::codec::entropy::prefix_code;
use fhrd::kernel::counts::count;
use fhrd::kernel::prefix::{self, PrefixCode};
use fhrd::wire::WireReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (len, low_bits, bytes) = input;
    let mut reader = WireReader::new("code", 0, bytes);
    if let Ok(code) = prefix_code::read(&mut reader) {
        let payload = reader.bytes(reader.remaining()).expect("the rest");
        prefix::decode(payload, &code, &mut vec![0; usize::from(len)]);
    }
    let low_bits = u32::from(low_bits) % (prefix::LOW_BITS_MAX + 1);
    let mut high_bits = vec![0; bytes.len()];
    let mut low_bit_bytes = vec![0; prefix::low_bits_len(bytes.len(), low_bits)];
    prefix::split_low_bits(bytes, low_bits, &mut high_bits, &mut low_bit_bytes);
    let code = PrefixCode::of_counts(&count(&high_bits));
    let (mut payload, mut back) = (Vec::new(), vec![0; bytes.len()]);
    prefix::encode(&high_bits, &code, &mut payload);
    assert!(prefix::decode(&payload, &code, &mut back));
    prefix::join_low_bits(&mut back, low_bits, &low_bit_bytes);
    assert_eq!(back, bytes);
});
