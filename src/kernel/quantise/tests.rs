//! Each set of CPU features against the scalar reference, and codes that can be told by looking.

use super::codes::quantise_loop;
use super::*;
use crate::kernel::cpu_features::with_each_subset;
use crate::kernel::elements::fp16;

/// Values of every size, and others.
fn values(count: usize) -> Vec<u8> {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, 1e-41, -1e-38];
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut value = |at: usize| match next() % 97 {
        pick @ 0..7 if at / 32 % 5 == 4 => special[pick as usize],
        _ => (next() as f32 / 2f32.powi(31) - 0.5) * [1e-6, 0.05, 0.05, 1e5, 2.0][at / 512 % 5],
    };
    (0..count).flat_map(|at| value(at).to_le_bytes()).collect()
}

#[test]
fn every_set_of_cpu_features_makes_the_blocks_of_the_scalar_reference() {
    let values = values(256 * 24);
    for block_type in BlockType::ALL {
        for source in [ScaleSource::Given, ScaleSource::Computed, ScaleSource::Fused] {
            let len = 256 * 24 / block_type.values() * block_type.bytes();
            let given: Vec<u8> = (0..len).map(|at| (at * 37 / 8) as u8).collect();
            let mut expected = given.clone();
            quantise_loop(block_type, source, &values, &mut expected);
            assert!(expected != given, "{block_type:?}");
            with_each_subset(|_| {
                let mut blocks = given.clone();
                quantise(block_type, source, &values, &mut blocks);
                assert!(blocks == expected, "{block_type:?} {source:?}");
            });
        }
    }
}

#[test]
fn scales_follow_from_the_values_and_the_rows_on_every_set_of_cpu_features() {
    let values = values(256 * 24);
    for block_type in BlockType::ALL {
        let count = 256 * 24 / block_type.values();
        let mut random = 1u32;
        let mut byte = |_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        let mut blocks: Vec<u8> = (0..count * block_type.bytes()).map(&mut byte).collect();
        let (mut rows, given) = (vec![0; count * block_type.row_bytes()], blocks.clone());
        scales::scale_rows_loop(block_type, ScaleRows::Fill, &values, &mut blocks, &mut rows);
        assert!(blocks == given && rows.iter().any(|byte| *byte != 0));
        with_each_subset(|_| {
            let (mut back, mut again) = (given.clone(), vec![0; rows.len()]);
            scale_rows(block_type, ScaleRows::Fill, &values, &mut back, &mut again);
            assert!(again == rows, "{block_type:?}");
            for block in back.chunks_mut(block_type.bytes()) {
                block_type.scale_bytes().for_each(|at| block[at] = 0);
            }
            scale_rows(block_type, ScaleRows::Apply, &values, &mut back, &mut again);
            assert!(back == given, "{block_type:?}");
        });
    }
}

#[test]
fn a_rest_that_is_no_block_stays_as_it_is() {
    let values = values(256);
    for block_type in BlockType::ALL {
        let bytes = block_type.bytes();
        let mut blocks = vec![7; bytes + 3];
        quantise(block_type, block_type.sources()[0], &values[..block_type.values() * 4 - 1], &mut blocks);
        assert!(blocks.iter().all(|byte| *byte == 7));
        quantise(block_type, block_type.sources()[0], &values, &mut blocks[..bytes - 1]);
        assert!(blocks.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn the_least_value_is_the_first_of_zeros_of_both_signs() {
    for [first, other] in [[-0.0, 0.0], [0.0, -0.0f32]] {
        let mut values = [1f32; 32];
        (values[1], values[8]) = (first, other);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        for block_type in [BlockType::Q4_1, BlockType::Q5_1] {
            let mut block = vec![0; block_type.bytes()];
            quantise(block_type, ScaleSource::Computed, &bytes, &mut block);
            assert_eq!(block[2..4], fp16(first.to_bits()).to_le_bytes(), "{block_type:?} {first}");
        }
    }
}

/// A block whose scales are all 1 and whose least values are 0.
fn of_unit_scales(block_type: BlockType) -> Vec<u8> {
    let one = [0, 0x3c];
    let mut block = vec![0x55; block_type.bytes()];
    block_type.scale_bytes().for_each(|at| block[at] = 0);
    match block_type {
        BlockType::Q2K => {
            block[..16].fill(1);
            block[80..82].copy_from_slice(&one);
        }
        BlockType::Q3K => {
            // 33 less 32.
            block[96..104].fill(0x11);
            block[104..108].fill(0xaa);
            block[108..].copy_from_slice(&one);
        }
        BlockType::Q4K | BlockType::Q5K => {
            block[..2].copy_from_slice(&one);
            block[4..8].fill(1);
            block[12..16].fill(1);
        }
        BlockType::Q6K => {
            block[192..208].fill(1);
            block[208..].copy_from_slice(&one);
        }
        _ => block[..2].copy_from_slice(&one),
    }
    block
}

#[test]
fn the_codes_of_integers_are_where_the_block_has_them() {
    for block_type in BlockType::ALL {
        let lowest: i32 = match block_type {
            BlockType::Q4_0 => -8,
            BlockType::Q5_0 => -16,
            BlockType::Q3K => -4,
            BlockType::Q6K => -32,
            BlockType::Q8_0 => -100,
            _ => 0,
        };
        let codes = 1 << block_type.code_bits().min(7);
        let integers: Vec<i32> = (0..block_type.values() as i32).map(|at| lowest + at * 7 % codes).collect();
        let values: Vec<u8> = integers.iter().flat_map(|integer| (*integer as f32).to_le_bytes()).collect();
        let mut block = of_unit_scales(block_type);
        let scales: Vec<u8> = block_type.scale_bytes().map(|at| block[at]).collect();
        quantise(block_type, ScaleSource::Given, &values, &mut block);
        let offset = if block_type == BlockType::Q8_0 { 0 } else { lowest };
        let expected: Vec<u8> = integers.iter().map(|integer| (integer - offset) as u8).collect();
        let unpacked = unpack(block_type, &block);
        assert_eq!(unpacked[..expected.len()], expected, "{block_type:?}");
        assert!(unpacked[expected.len()..].iter().all(|code| *code == 0));
        let stayed: Vec<u8> = block_type.scale_bytes().map(|at| block[at]).collect();
        assert_eq!(stayed, scales, "{block_type:?}");
    }
}

#[test]
fn numbers_round_as_the_format_says() {
    use super::codes::{half_away, nearest, truncated};
    let nearest = |number| nearest(number, -4.0, 3.0);
    assert_eq!([0.5, 1.5, 2.5, -0.5, -1.5, -9.0, 9.0].map(nearest), [4, 6, 6, 4, 2, 0, 7]);
    assert_eq!([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0].map(nearest), [0, 7, 0, 4]);
    let truncated = |number| truncated(number, 15);
    assert_eq!([0.99, 1.0, 8.999_999, 15.5, 16.5, 255.0, 256.0, -0.5].map(truncated), [0, 1, 8, 15, 15, 15, 0, 0]);
    assert_eq!([f32::NAN, f32::INFINITY, -0.0].map(truncated), [0, 0, 0]);
    let numbers = [0.5, 1.5, 2.5, -0.5, -2.5, 0.499_999_97, 127.4, -127.0, 128.0];
    assert_eq!(numbers.map(half_away), [1, 2, 3, 255, 253, 0, 127, 129, 0]);
    assert_eq!([f32::NAN, f32::NEG_INFINITY, -0.0].map(half_away), [0, 0, 0]);
}
