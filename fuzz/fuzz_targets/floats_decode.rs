//! Decodes any bytes as a payload of floats, and round-trips them as floats.

#![no_main]

use fhrd::codec::{Codec, ElementType, Floats, Scratch, floats};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (raw_len, choice, bytes) = input;
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    if Floats.decode(bytes, usize::from(raw_len), &mut scratch, &mut out).is_ok() {
        assert_eq!(out.len(), usize::from(raw_len));
    }
    let types = [
        ElementType::Bf16,
        ElementType::Fp16,
        ElementType::Fp32,
        ElementType::Fp64,
        ElementType::Byte,
        ElementType::Unknown,
    ];
    let (element_type, phase) = (types[usize::from(choice) % types.len()], usize::from(choice >> 4));
    let (mut payload, mut back) = (Vec::new(), Vec::new());
    let mut writer = Scratch::of_writer(true);
    floats::encode(element_type, phase, bytes, &mut writer, &mut payload).expect("encodes any bytes");
    Floats.decode(&payload, bytes.len(), &mut scratch, &mut back).expect("decodes its own payload");
    assert_eq!(back, bytes);
});
