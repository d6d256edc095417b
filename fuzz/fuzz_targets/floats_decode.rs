//! Any bytes as a payload of floats, and as floats that must come back.

#![no_main]

use fhrd::codec::{Codec, Floats, Scratch, ElementType, floats};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (raw_len, word, bytes) = input;
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    if Floats.decode(bytes, usize::from(raw_len), &mut scratch, &mut out).is_ok() {
        assert_eq!(out.len(), usize::from(raw_len));
    }
    let words = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32, ElementType::Fp64, ElementType::Byte, ElementType::Unknown];
    let (mut payload, mut back) = (Vec::new(), Vec::new());
    floats::encode(words[usize::from(word) % words.len()], usize::from(word >> 4), bytes, &mut scratch, &mut payload)
        .expect("any bytes are encoded");
    Floats.decode(&payload, bytes.len(), &mut scratch, &mut back).expect("its own payload is decoded");
    assert_eq!(back, bytes);
});
