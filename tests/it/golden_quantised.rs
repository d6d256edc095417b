//! Quantised blocks as llama.cpp makes them, frozen: what follows from values and scales today follows in every version.
//!
//! `tests/fixtures/quantised.json` has 1024 FP32 values and the blocks that ggml-quants.c of llama.cpp made of them, in
//! hexadecimal, with and without fused operations. The first 256 values are the traps: zeros of both signs, ties of the
//! greatest magnitude, subnormal and huge values. Then come values half-way between two codes, and weights.

use std::collections::BTreeMap;

use fhrd::codec::delta::{Derivation, Quantised, decode_tagged, encode_tagged};
use fhrd::codec::{ElementType, Scratch};
use fhrd::kernel::elements::fp32_to_bf16;
use fhrd::kernel::quantise::{BlockType, ScaleSource, quantise, unpack};
use fhrd::types::hex;

use crate::compatibility::is_rewrite_wanted;
use crate::golden::unhex;

/// The values, and the blocks by the name of their type.
fn fixture() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let texts: BTreeMap<String, String> = serde_json::from_str(include_str!("../fixtures/quantised.json")).unwrap();
    let mut blocks: BTreeMap<String, Vec<u8>> = texts.iter().map(|(name, hex)| (name.clone(), unhex(hex))).collect();
    (blocks.remove("values").unwrap(), blocks)
}

/// The name of a type in the fixture.
fn name(block_type: BlockType) -> String {
    let name = format!("{block_type:?}");
    if name.contains('_') { name } else { name.replace('K', "_K") }
}

#[test]
fn blocks_of_32_values_follow_from_the_values() {
    let (values, expected) = fixture();
    for block_type in BlockType::ALL.into_iter().filter(|block_type| block_type.values() == 32) {
        for source in block_type.sources() {
            let name = name(block_type) + if *source == ScaleSource::Fused { " fused" } else { "" };
            let mut blocks = expected[&name].clone();
            if *source != ScaleSource::Given {
                blocks.fill(0xff);
                quantise(block_type, *source, &values, &mut blocks);
                let pairs = blocks.chunks(block_type.bytes()).zip(expected[&name].chunks(block_type.bytes()));
                pairs.enumerate().for_each(|(at, (got, want))| assert_eq!(got, want, "{name}: block {at}"));
            }
        }
    }
    assert_ne!(expected["Q4_0"], expected["Q4_0 fused"]);
    assert_ne!(expected["Q5_0"], expected["Q5_0 fused"]);
}

#[test]
fn the_example_of_the_format() {
    let values: Vec<u8> = (0..32u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    let mut block = vec![0; BlockType::Q8_0.bytes()];
    quantise(BlockType::Q8_0, ScaleSource::Computed, &values, &mut block);
    let mut tagged = Vec::new();
    let quantised = Quantised { block_type: BlockType::Q8_0, from: ElementType::Fp32, head: 0 };
    let derivation = Derivation::Quantised(quantised);
    encode_tagged(derivation, 0, &block, &values, &mut Scratch::default(), &mut tagged).unwrap();
    assert_eq!(tagged, unhex("0b 08 13 00 00"));
}

#[test]
fn the_codes_of_256_values_follow_from_the_values_and_the_scales() {
    let (values, expected) = fixture();
    for block_type in BlockType::ALL.into_iter().filter(|block_type| block_type.values() == 256) {
        let name = name(block_type);
        let want = &expected[&name];
        let mut blocks = vec![0xff; want.len()];
        for at in (0..want.len()).step_by(block_type.bytes()) {
            block_type.scale_bytes().for_each(|scale| blocks[at + scale] = want[at + scale]);
        }
        quantise(block_type, ScaleSource::Given, &values, &mut blocks);
        let mut differing = 0;
        for (got, want) in blocks.chunks(block_type.bytes()).zip(want.chunks(block_type.bytes())) {
            let (got, want) = (unpack(block_type, got), unpack(block_type, want));
            for (got, want) in got.chunks(16).zip(want.chunks(16)) {
                // Where a scale is 0, the search leaves any codes.
                assert!(got == want || got.iter().all(|code| *code == 0), "{name}: {got:?}, {want:?}");
                differing += usize::from(got != want);
            }
        }
        assert!(differing <= 20, "{name}: {differing} of 64 parts differ");
    }
}

/// Payloads of all types and ways, with corrections where a base of another precision or a scale of 0 needs them.
#[test]
fn payloads_of_every_type_are_read() {
    let (values, expected) = fixture();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/quantised-payloads.json");
    let mut bf16 = vec![0; values.len() / 2];
    fp32_to_bf16(&values, &mut bf16);
    let scratch = &mut Scratch::default();
    let mut payloads: BTreeMap<String, String> = BTreeMap::new();
    if is_rewrite_wanted("quantised-payloads") {
        for (name, blocks) in &expected {
            let block_type = *BlockType::ALL.iter().find(|one| name.starts_with(&self::name(**one))).unwrap();
            for (from, base) in [(ElementType::Fp32, &values), (ElementType::Bf16, &bf16)] {
                let derivation = Derivation::Quantised(Quantised { block_type, from, head: 0 });
                let mut tagged = Vec::new();
                encode_tagged(derivation, 0, blocks, base, scratch, &mut tagged).unwrap();
                payloads.insert(format!("{name} {from:?}"), hex(&tagged));
            }
        }
        std::fs::write(path, serde_json::to_string_pretty(&payloads).unwrap() + "\n").unwrap();
    }
    payloads = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(payloads.len(), 24);
    for (name, payload) in payloads {
        let (blocks, from) = name.rsplit_once(' ').unwrap();
        let (want, mut back) = (&expected[blocks], Vec::new());
        let base = if from == "Fp32" { &values } else { &bf16 };
        decode_tagged(&unhex(&payload), base, want.len(), scratch, &mut back).unwrap();
        assert!(back == *want, "{name}");
    }
}
