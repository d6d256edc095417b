//! Decodes any bytes as a payload of floats, and round-trips them as floats. What was decoded before changes nothing.

#![no_main]

use fhrd::codec::{Codec, ElementType, Floats, Scratch, floats};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8], u16, u8, &[u8])| {
    let (earlier_len, earlier, raw_len, choice, bytes) = input;
    let decode = |scratch: &mut Scratch| {
        let mut raw = Vec::new();
        Floats.decode(bytes, usize::from(raw_len), scratch, &mut raw).ok().map(|()| raw)
    };
    let raw = decode(&mut Scratch::default());
    assert!(raw.as_ref().is_none_or(|raw| raw.len() == usize::from(raw_len)));
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
    let (mut used, mut writer) = (Scratch::default(), Scratch::of_writer(true));
    let _ = Floats.decode(earlier, usize::from(earlier_len), &mut used, &mut Vec::new());
    assert_eq!(decode(&mut used), raw);
    floats::encode(element_type, phase, earlier, &mut writer, &mut payload).expect("encodes any bytes");
    Floats.decode(&payload, earlier.len(), &mut used, &mut Vec::new()).expect("decodes its own payload");
    assert_eq!(decode(&mut used), raw);
    payload.clear();
    floats::encode(element_type, phase, bytes, &mut writer, &mut payload).expect("encodes any bytes");
    Floats.decode(&payload, bytes.len(), &mut used, &mut back).expect("decodes its own payload");
    assert_eq!(back, bytes);
});
