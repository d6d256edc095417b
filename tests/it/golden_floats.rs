//! The payloads of float chunks, frozen like those in `golden`.

use std::collections::BTreeMap;
use std::path::Path;

use fhrd::codec::delta::{self, BlockGrid, Cast, Derivation};
use fhrd::codec::entropy::frequency_table;
use fhrd::codec::{Codec, ElementType, Floats, Scratch, floats};
use fhrd::kernel::counts::count;
use fhrd::kernel::planes::deinterleave_rotated;
use fhrd::kernel::quantise::BlockType;
use fhrd::kernel::rans::{self, FrequencyTable};
use fhrd::types::hex;

use crate::compatibility::is_rewrite_wanted;
use crate::golden::{assert_bytes, unhex};

/// Numbers without a pattern.
fn scattered(number: usize) -> u32 {
    let mixed = (number as u32 ^ 0x5bd1_e995).wrapping_mul(2_654_435_761);
    (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 4
}

/// BF16 words of about one size.
fn weights(words: usize) -> Vec<u8> {
    let word = |number| {
        let (noise, exponent) = (scattered(number), 0x7a - scattered(number + 7919).trailing_zeros().min(6));
        ((noise & 0x807f) | exponent << 7) as u16
    };
    (0..words).flat_map(|number| word(number).to_le_bytes()).collect()
}

/// Words of which those in every `groups`-th group of 64 are a few values off.
fn updated(base: &[u8], groups: usize) -> Vec<u8> {
    let by = |number: usize| if (number / 64).is_multiple_of(groups) { (scattered(number) >> 8 & 3) as u16 } else { 0 };
    let words = base.as_chunks().0.iter().enumerate();
    words.flat_map(|(number, word)| u16::from_le_bytes(*word).wrapping_add(by(number)).to_le_bytes()).collect()
}

/// FP32 words that differ in one byte.
fn short_words() -> Vec<u8> {
    (0..5u8).flat_map(|low| [low, 0, 0x80, 0x3f]).collect()
}

fn encoded(word: ElementType, phase: usize, raw: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    floats::encode(word, phase, raw, &mut Scratch::default(), &mut payload).unwrap();
    payload
}

fn decoded(payload: &[u8], raw_len: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    Floats.decode(payload, raw_len, &mut Scratch::default(), &mut raw).unwrap();
    raw
}

#[test]
fn floats_stored_and_constant() {
    let raw: Vec<u8> = (0..=8).collect();
    let payload = encoded(ElementType::Bf16, 1, &raw);
    assert_bytes(&payload, "0d 00 00 02060a0e 00 04080c10", "two stored planes after one byte");
    assert_eq!(decoded(&payload, raw.len()), raw);
    let payload = encoded(ElementType::Fp32, 0, &short_words());
    assert_bytes(&payload, "06 00 0002040608 0100 0100 017f", "three constant planes");
    assert_eq!(decoded(&payload, 20), short_words());
}

/// Half floats of about one size.
fn half_weights(words: usize) -> Vec<u8> {
    let word = |number| {
        let (noise, exponent) = (scattered(number), 13 - scattered(number + 7919).trailing_zeros().min(6));
        ((noise & 0x83ff) | exponent << 10) as u16
    };
    (0..words).flat_map(|number| word(number).to_le_bytes()).collect()
}

/// BF16 words of one of two sizes, of which one is rare.
fn skewed_weights(words: usize) -> Vec<u8> {
    let exponent = |number: usize| if scattered(number + 7919).is_multiple_of(8) { 0x79 } else { 0x7a };
    let word = |number| ((scattered(number) & 0x807f) | exponent(number) << 7) as u16;
    (0..words).flat_map(|number| word(number).to_le_bytes()).collect()
}

/// The payload of BF16 words whose exponents are coded with rANS.
fn with_rans(raw: &[u8]) -> Vec<u8> {
    let mut planes = vec![0; raw.len()];
    deinterleave_rotated(raw, 2, true, &mut planes);
    let (low, high) = planes.split_at(raw.len() / 2);
    let model = FrequencyTable::of_counts(&count(high), 12);
    let mut encoding = Vec::new();
    frequency_table::write(&model, &mut encoding);
    rans::encode(high, &[], &[model], &mut encoding);
    let length = u32::try_from(encoding.len()).unwrap().to_le_bytes();
    [&[5, 0], low, &[2], &length, &encoding].concat()
}

#[test]
fn the_frequency_table_of_the_document_does_not_change() {
    let mut frequencies = [0; 256];
    frequencies[2..4].fill(512);
    let mut table = Vec::new();
    frequency_table::write(&FrequencyTable::of_frequencies(frequencies, 10).unwrap(), &mut table);
    assert_bytes(&table, "8356000000", "two symbols of 512 slots each");
}

fn assert_hash(payload: &[u8], want: &str, what: &str) {
    assert_bytes(&blake3::hash(payload).as_bytes()[..16], want, what);
}

#[test]
fn floats_entropy_coded() {
    let raw = skewed_weights(32 << 10);
    let payload = encoded(ElementType::Bf16, 0, &raw);
    assert_eq!((payload.len(), payload[0], payload[1], payload[32_770]), (35_100, 5, 0, 2));
    assert_hash(&payload, "be493078040bd8e333348d0ba576c18f", "an entropy-coded plane");
    assert!(payload == with_rans(&raw));
    assert_eq!(decoded(&payload, raw.len()), raw);
    // What was written before there were prefix codes.
    let raw = weights(32 << 10);
    let payload = with_rans(&raw);
    assert_eq!(payload.len(), 40_926);
    assert_hash(&payload, "d88e9d5a2499a7315dafda21157583a2", "an entropy-coded plane that would be prefix-coded");
    assert_eq!(decoded(&payload, raw.len()), raw);
}

#[test]
fn floats_prefix_coded() {
    let raw = weights(32 << 10);
    let payload = encoded(ElementType::Bf16, 0, &raw);
    assert_eq!((payload.len(), payload[0], payload[1], payload[32_770], payload[32_775]), (40_843, 5, 0, 4, 0));
    assert_hash(&payload, "74ccedafa0b8f4c7084aa3a6d245792d", "a prefix-coded plane");
    assert_eq!(decoded(&payload, raw.len()), raw);
    let raw = half_weights(32 << 10);
    let payload = encoded(ElementType::Fp16, 0, &raw);
    assert_eq!((payload.len(), payload[0], payload[1], payload[32_770], payload[32_775]), (53_130, 5, 0, 4, 3));
    assert_hash(&payload, "42f30f193ca37ca02a30e17c81803609", "a prefix-coded plane without its low bits");
    assert_eq!(decoded(&payload, raw.len()), raw);
    // Seven BF16 words of exponents 7a, 79 and 78, as FORMAT.md has them.
    let raw = unhex("003d 013d 82bc 033d 043c 853c 063d");
    let payload = unhex("05 00 00020506080a0c 04 15000000 00 00c44502 01000000 01000000 01000000 00 03 0d 00");
    assert_eq!(decoded(&payload, raw.len()), raw);
}

#[test]
fn floats_zstd() {
    // One byte in each plane of two, and in the upper one the frame of forty bytes 3f.
    let payload = unhex("01 0107 03 0a000000 28b52ffd 20 28 430100 3f");
    assert_eq!(decoded(&payload, 80), [7, 0x3f].repeat(40));
}

fn assert_delta(derivation: Derivation, raw: &[u8], base: &[u8], want: &str) {
    let (mut payload, mut back) = (Vec::new(), Vec::new());
    delta::encode(derivation, raw, base, &mut Scratch::default(), &mut payload).unwrap();
    assert_bytes(&payload, want, &format!("{derivation:?} of {} bytes", raw.len()));
    delta::decode(derivation.id(), &payload, base, raw.len(), &mut Scratch::default(), &mut back).unwrap();
    assert_eq!(back, raw);
}

#[test]
fn deltas_same_standalone_and_cast() {
    let base = weights(16).repeat(2);
    assert_delta(Derivation::Context(ElementType::Bf16), &base[..5], &base, "00");
    assert_delta(Derivation::Context(ElementType::Bf16), &[1, 2, 3], &[], "01 05 0102 0104 03");
    assert_delta(
        Derivation::Cast(Cast::Bf16ToFp32),
        &base,
        &base,
        "
         00010600f6e7bf50b6b1d671f6e7bf50b6b1d67100797a777a777a7774797a777a777a77740064dda33dc59c947d64dd
         a33dc59c947d017a
        ",
    );
}

#[test]
fn deltas_in_context() {
    let base = weights(640);
    assert_delta(
        Derivation::Context(ElementType::Bf16),
        &updated(&base, 1),
        &base,
        "
         037a0100e31bc0a27516ddb300400100007b351b0064c012001c8df00019c136001b6553005828b2000179f9009bcb0b
         001a113900e7f9520073a1a40011d77800b9399f009947ec005a4e7500a80c4b00003398000ce84c009793010003b5c3
         0021fccd00c2f5e300067b4000b1481e009fc9690002b91c020d4b0a007a8c400071eb7f0045280f00272b9b0014f142
         0005c31270a1bc24c8e6bb28336ed952c5e6d10413f1885af12a7181e6cc0852da6456a783ff322c9db77e7e2b058bda
         84708e028ae313cfcfad1c5dd08cd58ded81f1e47265d1b974fbd5640150ea5db8b872390790589b1b7df6760c442def
         1e938740881634c8240dee68223977549781fb846a5d0120646613733b7c8f03d96958dcfc0440729aab2448883fe997
         0d20b69c7d8d694f732333c0a84b32ddc9fb9d672ec8e86b9aee4007319dd4bb7d45619083e6b69a729fcd9f51719cd6
         65
        ",
    );
}

#[test]
fn deltas_masked() {
    let base = weights(4096);
    assert_delta(
        Derivation::Context(ElementType::Bf16),
        &updated(&base, 10),
        &base,
        "
         040001041040000104107a01002744192e856df61c0000010000e6a91e00c9f000009571be0016516a0050290300c2d4
         03002b191800ae972f01578d0d0006161e00c9451800030754000eda1c00b3ab300045421f0262c40c00086f1e00c790
         1600a2cb650092fd38000d781f00ee2d3b0067735c00aa702900bb510300976d2c00fe224600565025002cdb2a002d70
         2c003ccb11008d593a000894571c0d698dea6d579ddc2120674ca3ddc7ea906fb58c88f2ad0dcbde62ea347a7321c71b
         f0a96d1876c1dc361a39f80925f7551553e9672248d5af622c67d028beec81826f3f81b18898ec1d16519912ed0e11a7
         69f22019ee22ce4f437181b6f76209bd46ee5cceac5cf2272e8c9f2efa450ce2a7ca7fc7052ebfc8c0be
        ",
    );
}

#[test]
fn deltas_of_other_modes_are_read() {
    // XOR with forty bytes 3f, as zstd and as a constant plane, and the same as an addition.
    let base: Vec<u8> = (0..40).collect();
    for (derivation, payload, by) in [
        (Derivation::Xor, "02 28b52ffd 20 28 430100 3f", true),
        (Derivation::Bytes, "05 00 013f", true),
        (Derivation::Bytes, "06 00 013f", false),
    ] {
        let mut raw = Vec::new();
        delta::decode(derivation.id(), &unhex(payload), &base, 40, &mut Scratch::default(), &mut raw).unwrap();
        let want: Vec<u8> = base.iter().map(|byte| if by { byte ^ 0x3f } else { byte + 0x3f }).collect();
        assert_eq!(raw, want);
    }
}

/// Words of which the lesser half of each eight is zero.
fn pruned_words(words: &[u8]) -> Vec<u8> {
    let is_zero = |number: usize| (scattered(number + 31) & 7) < 4;
    let words = words.chunks(2).enumerate();
    words.flat_map(|(number, word)| if is_zero(number) { [0, 0] } else { [word[0], word[1]] }).collect()
}

/// Payloads without zeros by name, each with the derivation (0 for floats alone), the base and what it is of.
fn payloads_without_zeros() -> Vec<(&'static str, u8, Vec<u8>, Vec<u8>)> {
    let base = weights(1500);
    let threshold = |word: &[u8]| u16::from_le_bytes([word[0], word[1]]) & 0x7fff < 0x3ca0;
    let below = base.chunks(2).flat_map(|word| if threshold(word) { [0, word[1] & 0x80] } else { [word[0], word[1]] });
    vec![
        ("alone", 0, Vec::new(), pruned_words(&base)),
        ("mask", 1, base.clone(), pruned_words(&base)),
        ("mask and changes", 1, base.clone(), pruned_words(&updated(&base, 2))),
        ("signed below a threshold", 1, base.clone(), below.collect()),
        ("a longer chunk", 1, base[..1999].to_vec(), pruned_words(&base)),
    ]
}

/// Payloads of classes by name: the derivation of their encoder, the base and what they are of.
fn payloads_of_classes() -> Vec<(&'static str, Derivation, Vec<u8>, Vec<u8>)> {
    let base: Vec<u8> = (0..3400).map(|number| (scattered(number) >> 7) as u8).collect();
    let step = |number: usize| (scattered(number + 77) >> 9 & 1) as u8;
    let each = |change: fn(u8, u8) -> u8| {
        base.iter().enumerate().map(|(number, byte)| change(*byte, step(number))).collect::<Vec<u8>>()
    };
    // Small numbers change, large ones do not.
    let nibbles = each(|byte, step| {
        let by = |nibble: u8| if nibble < 5 { step } else { 0 };
        byte ^ by(byte & 15) ^ by(byte >> 4) << 4
    });
    let bytes = each(|byte, step| if byte < 100 { byte.wrapping_add(step) } else { byte });
    // Quantised blocks after three bytes, whose scales stay.
    let blocks = |block_type: BlockType, mut raw: Vec<u8>| {
        for start in (3..raw.len() - block_type.bytes()).step_by(block_type.bytes()) {
            block_type.scale_bytes().for_each(|at| raw[start + at] = base[start + at]);
        }
        (Derivation::Blocks(BlockGrid { block_type, head: 3 }), raw)
    };
    let (q8, q8_raw) = blocks(BlockType::Q8_0, bytes.clone());
    let (q4, q4_raw) = blocks(BlockType::Q4K, nibbles.clone());
    vec![
        ("bytes", Derivation::Bytes, base.clone(), bytes),
        ("nibbles", Derivation::Bytes, base.clone(), nibbles),
        ("Q8_0", q8, base.clone(), q8_raw),
        ("Q4_K", q4, base.clone(), q4_raw),
    ]
}

/// The payloads of a fixture. It has what was written when a mode was new.
fn frozen(name: &str, written: impl FnOnce() -> BTreeMap<&'static str, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.json"));
    if is_rewrite_wanted(name) {
        let texts: BTreeMap<&str, String> = written().iter().map(|(name, payload)| (*name, hex(payload))).collect();
        std::fs::write(&path, serde_json::to_string_pretty(&texts).unwrap() + "\n").unwrap();
    }
    let texts: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    texts.into_iter().map(|(name, text)| (name, unhex(&text))).collect()
}

#[test]
fn payloads_without_zeros_are_read() {
    let scratch = &mut Scratch::of_writer(true);
    let payloads = frozen("pruned-payloads", || {
        let written = payloads_without_zeros().into_iter().map(|(name, id, base, raw)| {
            let (mut payload, scratch) = (Vec::new(), &mut Scratch::of_writer(true));
            match id {
                0 => floats::encode(ElementType::Bf16, 0, &raw, scratch, &mut payload).unwrap(),
                _ => {
                    let derivation = Derivation::Context(ElementType::Bf16);
                    delta::encode(derivation, &raw, &base, scratch, &mut payload).unwrap();
                }
            }
            (name, payload)
        });
        written.collect()
    });
    assert_eq!(payloads.len(), payloads_without_zeros().len());
    for (name, id, base, raw) in payloads_without_zeros() {
        let (payload, mut back) = (&payloads[name], Vec::new());
        match id {
            0 => Floats.decode(payload, raw.len(), scratch, &mut back).unwrap(),
            _ => delta::decode(id, payload, &base, raw.len(), scratch, &mut back).unwrap(),
        }
        assert!(back == raw, "{name}");
        // The mode of pruned chunks, or the bit of floats without zeros.
        assert_eq!(payload[0], if id == 0 { 0x45 } else { 7 }, "{name}");
    }
}

#[test]
fn payloads_of_classes_are_read() {
    let payloads = frozen("class-payloads", || {
        let written = payloads_of_classes().into_iter().map(|(name, derivation, base, raw)| {
            let mut payload = Vec::new();
            delta::encode(derivation, &raw, &base, &mut Scratch::of_writer(true), &mut payload).unwrap();
            (name, payload)
        });
        written.collect()
    });
    assert_eq!(payloads.len(), payloads_of_classes().len());
    for (name, derivation, base, raw) in payloads_of_classes() {
        let (payload, mut back) = (&payloads[name], Vec::new());
        delta::decode(derivation.id(), payload, &base, raw.len(), &mut Scratch::default(), &mut back).unwrap();
        assert!(back == raw, "{name}");
        assert_eq!(payload[0], 8, "{name}");
    }
}

#[test]
fn the_examples_without_zeros() {
    // Four BF16 words, 0, 3d02, 0, 3d01.
    assert_eq!(decoded(&unhex("45 01 05 00 0402 00 7a7a"), 8), unhex("0000 023d 0000 013d"));
    // 1, 2^-7, 2, 2^-6 without the lesser two.
    let (base, raw) = (unhex("803f 003c 0040 803c"), unhex("803f 0000 0040 0000"));
    let (mut payload, scratch) = (Vec::new(), &mut Scratch::of_writer(true));
    delta::encode(Derivation::Context(ElementType::Bf16), &raw, &base, scratch, &mut payload).unwrap();
    assert_bytes(&payload, "07 00 01 0a 00", "a mask");
    for (payload, what) in [("07 00 01 0a 00", "a mask"), ("07 01 8179 01 00 00", "less"), ("07 02 01 00 00", "four")] {
        let mut back = Vec::new();
        delta::decode(1u8, &unhex(payload), &base, 8, scratch, &mut back).unwrap();
        assert_eq!(back, raw, "{what}");
    }
}
