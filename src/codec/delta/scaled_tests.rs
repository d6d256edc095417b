//! Codes by scales: what tools make of floats comes back, takes nothing where it follows, and hostile payloads end.

use proptest::prelude::*;

use super::scaled::Scaled;
use super::scaled_fit::{CodePacking, fitted_scale};
use super::{Derivation, decode_tagged, encode_tagged};
use crate::codec::{ElementType, Scratch};
use crate::kernel::elements as kernel;
use crate::kernel::scaled::{QuotientRounding, ScaledCode, greatest_value, scaled_codes};

fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (next() + next() + next()) * 0.07).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The values as BF16, and as FP32 again.
fn brains(values: &[f32]) -> [Vec<u8>; 2] {
    let (wide, mut narrow) = (bytes(values), vec![0; values.len() * 2]);
    kernel::fp32_to_bf16(&wide, &mut narrow);
    let mut rounded = vec![0; wide.len()];
    kernel::bf16_to_fp32(&narrow, &mut rounded);
    [narrow, rounded]
}

/// Codes of a matrix as a tool makes them: each value alone, by the scale of its tile.
struct Tool {
    packing: CodePacking,
    rounding: QuotientRounding,
    columns: usize,
    tile: [usize; 2],
    divisor: f32,
    narrow_scales: bool,
}

impl Tool {
    fn scale(&self, greatest: f32) -> f32 {
        let scale = greatest / self.divisor;
        if self.narrow_scales { f32::from_bits(u32::from(kernel::bf16(scale.to_bits())) << 16) } else { scale }
    }

    fn codes(&self, values: &[u8]) -> Vec<u8> {
        let values = values.as_chunks::<4>().0;
        let tile = |at: usize| [at / self.columns / self.tile[0], at % self.columns / self.tile[1]];
        let mut greatest = std::collections::HashMap::new();
        for (at, value) in values.iter().enumerate() {
            let known = greatest.entry(tile(at)).or_insert(0f32);
            *known = greatest_value(value, *known);
        }
        let mut codes = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let mut code = [0];
            scaled_codes(self.packing.code, self.rounding, value, self.scale(greatest[&tile(at)]), &mut code);
            codes.push(code[0]);
        }
        let mut packed = Vec::new();
        self.packing.pack(&codes, &mut packed);
        packed
    }
}

const COLUMNS: usize = 384;
const ROWS: usize = 300;

fn packing(code: ScaledCode) -> CodePacking {
    CodePacking { code, high_first: code == ScaledCode::NormalFloat, flipped: false }
}

/// Ways of tools: codes, columns and rows of a tile, rounding, divisor, whether scales are BF16.
fn tools() -> Vec<(&'static str, Tool)> {
    let tool = |code, rounding, tile, divisor, narrow_scales| Tool {
        packing: packing(code),
        rounding,
        columns: COLUMNS,
        tile,
        divisor,
        narrow_scales,
    };
    use QuotientRounding::{Bf16, Fp32, Inverse};
    use ScaledCode::{E4m3, E5m2, Int4, Int8, NormalFloat};
    vec![
        ("FP8 rows", tool(E4m3, Fp32, [1, COLUMNS], 448.0, false)),
        ("FP8 rows in BF16", tool(E4m3, Bf16, [1, COLUMNS], 448.0, true)),
        ("FP8 of a tensor", tool(E4m3, Fp32, [ROWS, COLUMNS], 448.0, false)),
        ("FP8 tiles", tool(E4m3, Fp32, [128, 128], 448.0, false)),
        ("E5M2 rows", tool(E5m2, Fp32, [1, COLUMNS], 57344.0, false)),
        ("INT8 rows", tool(Int8, Fp32, [1, COLUMNS], 127.0, false)),
        ("INT8 rows in BF16", tool(Int8, Bf16, [1, COLUMNS], 127.5, true)),
        ("INT4 groups", tool(Int4, Bf16, [1, 128], 7.5, true)),
        ("INT4 groups of 32", tool(Int4, Fp32, [1, 32], 7.0, false)),
        ("NF4 groups", tool(NormalFloat, Inverse, [1, 64], 1.0, false)),
    ]
}

/// The payload of a chunk of the tensor's codes against its floats.
fn delta(raw: &[u8], base: &[u8], scaled: Scaled) -> Vec<u8> {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    scratch.has_derivations = true;
    encode_tagged(Derivation::Scaled(scaled), 0, raw, base, &mut scratch, &mut out).unwrap();
    let mut decoded = Vec::new();
    decode_tagged(&out, base, raw.len(), &mut scratch, &mut decoded).unwrap();
    assert!(decoded == raw, "a chunk comes back");
    out
}

fn scaled(from: ElementType, packing: CodePacking, position: usize) -> Scaled {
    Scaled {
        from,
        per_byte: packing.per_byte() as u8,
        columns: COLUMNS as u64,
        values: (COLUMNS * ROWS) as u64,
        position: position as u64,
    }
}

#[test]
fn codes_of_tools_take_next_to_nothing() {
    let values = noise(COLUMNS * ROWS, 5);
    let [narrow, rounded] = brains(&values);
    for (name, tool) in tools() {
        let raw = tool.codes(&rounded);
        let out = delta(&raw, &narrow, scaled(ElementType::Bf16, tool.packing, 0));
        assert_eq!(out[0], Derivation::SCALED_ID, "{name}");
        assert!(out.len() < 90, "{name}: {} bytes", out.len());
        // From the wider values that the source was rounded from.
        let out = delta(&raw, &bytes(&values), scaled(ElementType::Fp32, tool.packing, 0));
        assert!(out.len() < 90, "{name} from FP32: {} bytes", out.len());
    }
}

#[test]
fn a_chunk_begins_and_ends_anywhere_in_a_tile() {
    let [narrow, rounded] = brains(&noise(COLUMNS * ROWS, 6));
    for (name, tool) in tools() {
        let raw = tool.codes(&rounded);
        let per_byte = tool.packing.per_byte();
        for (from, to) in [(1000, 40_003), (77, 30_000), (raw.len() - 9001, raw.len())] {
            let position = from * per_byte;
            let base = &narrow[position * 2..to * per_byte * 2];
            let out = delta(&raw[from..to], base, scaled(ElementType::Bf16, tool.packing, position));
            // The first and the last tiles are not whole: six tiles of 128 rows, or two others.
            assert!(out.len() < 330, "{name} {from}: {} bytes", out.len());
        }
    }
}

/// What is stored as the grid: columns, rows and columns of a tile.
fn grid(payload: &[u8]) -> [u64; 3] {
    let mut reader = crate::wire::WireReader::new("test", 0, &payload[7..]);
    std::array::from_fn(|_| reader.bounded("a size", 1 << 40).unwrap())
}

#[test]
fn one_scale_of_a_tensor_is_found_and_scales_of_rows_are_not_taken_for_one() {
    let [narrow, rounded] = brains(&noise(COLUMNS * ROWS, 9));
    let fp8 = scaled(ElementType::Bf16, packing(ScaledCode::E4m3), 0);
    let whole = (COLUMNS * ROWS) as u64;
    // The scale does not follow from the values of the chunk, which is a part of the tensor.
    let mut codes = vec![0; COLUMNS * ROWS];
    scaled_codes(ScaledCode::E4m3, QuotientRounding::Fp32, &rounded, 0.0003, &mut codes);
    let out = delta(&codes, &narrow, fp8);
    assert_eq!((grid(&out), out.len() < 30), ([whole, 1, whole], true), "{} bytes", out.len());
    // The scales of a few rows are others, and the first sample may have none of their values.
    for rows in [vec![], vec![17], vec![150, 151], (200..215).collect(), (0..ROWS).step_by(3).collect()] {
        let mut codes = codes.clone();
        for row in &rows {
            let range = row * COLUMNS..(row + 1) * COLUMNS;
            let values = &rounded[range.start * 4..range.end * 4];
            scaled_codes(ScaledCode::E4m3, QuotientRounding::Fp32, values, 0.00041, &mut codes[range]);
        }
        let out = delta(&codes, &narrow, fp8);
        let most = if rows.is_empty() { 30 } else { 30 + ROWS * 4 };
        assert!(out.len() < most, "{} rows: {} bytes", rows.len(), out.len());
        // Where few codes do not follow, they may take less than scales of all rows.
        if rows.is_empty() || rows.len() > 10 {
            assert_eq!(grid(&out)[2] == whole, rows.is_empty(), "{} rows", rows.len());
        }
    }
}

#[test]
fn a_scale_is_found_where_quotients_are_halfway_between_codes() {
    // All quotients are halves: of each code, both bounds are this one scale.
    let scale = 0.0625f32;
    let values: Vec<f32> = (-100..100).map(|half| (half as f32 + 0.5) * scale).collect();
    let values = bytes(&values);
    let mut codes = vec![0; 200];
    scaled_codes(ScaledCode::Int8, QuotientRounding::Fp32, &values, scale, &mut codes);
    assert_eq!(fitted_scale(ScaledCode::Int8, QuotientRounding::Fp32, &values, &codes), scale);
    for scale in [0.1f32, 0.0123, 3.7e-5] {
        let values = bytes(&noise(3000, 3));
        let mut codes = vec![0; 3000];
        for code in [ScaledCode::E4m3, ScaledCode::Int8, ScaledCode::NormalFloat] {
            let scale = if code == ScaledCode::NormalFloat { 0.1 } else { scale };
            scaled_codes(code, QuotientRounding::Fp32, &values, scale, &mut codes);
            let fitted = fitted_scale(code, QuotientRounding::Fp32, &values, &codes);
            let mut made = vec![0; 3000];
            scaled_codes(code, QuotientRounding::Fp32, &values, fitted, &mut made);
            assert!(made == codes, "{code:?} {scale} {fitted}");
        }
    }
}

#[test]
fn a_rounding_is_found_that_few_codes_show() {
    let values = bytes(&noise(1 << 18, 4));
    let mut codes = vec![0; 1 << 18];
    for (values, codes) in values.chunks(256).zip(codes.chunks_mut(64)) {
        let scale = greatest_value(values, 0.0);
        scaled_codes(ScaledCode::NormalFloat, QuotientRounding::Inverse, values, scale, codes);
    }
    let packing = packing(ScaledCode::NormalFloat);
    let mut raw = Vec::new();
    packing.pack(&codes, &mut raw);
    let scaled = Scaled { from: ElementType::Fp32, per_byte: 2, columns: 1 << 9, values: 1 << 18, position: 0 };
    let out = delta(&raw, &values, scaled);
    assert!(out.len() < 30, "{} bytes", out.len());
}

#[test]
fn packed_codes_come_back_in_every_arrangement() {
    let codes: Vec<u8> = (0..101u32).map(|at| (at * 7 % 16) as u8).collect();
    for packing in [4, 8].into_iter().flat_map(CodePacking::all) {
        for len in [0, 1, 2, 33, 100, 101] {
            let (mut packed, mut back) = (vec![9], vec![0; len]);
            packing.pack(&codes[..len], &mut packed);
            assert_eq!(packed.len(), 1 + len.div_ceil(packing.per_byte()));
            packing.unpack(&packed[1..], &mut back);
            assert_eq!(back, codes[..len], "{packing:?}");
        }
    }
    let low = CodePacking { code: ScaledCode::Int4, high_first: false, flipped: true };
    for (packing, expected) in [(low, [0xa9, 0x0b]), (CodePacking { high_first: true, ..low }, [0x9a, 0xb0])] {
        let mut packed = Vec::new();
        packing.pack(&[1, 2, 3], &mut packed);
        assert_eq!(packed, expected);
    }
}

#[test]
fn codes_that_do_not_follow_cost_no_more_than_alone() {
    let [narrow, rounded] = brains(&noise(COLUMNS * ROWS, 7));
    let [_, others] = brains(&noise(COLUMNS * ROWS, 8));
    for (name, tool) in tools() {
        let raw = tool.codes(&others);
        let out = delta(&raw, &narrow, scaled(ElementType::Bf16, tool.packing, 0));
        assert!(out.len() <= raw.len() + 16, "{name}: {} of {}", out.len(), raw.len());
        // A tenth of the codes is another one.
        let mut raw = tool.codes(&rounded);
        (0..raw.len()).step_by(10).for_each(|at| raw[at] ^= 1);
        let out = delta(&raw, &narrow, scaled(ElementType::Bf16, tool.packing, 0));
        assert!(out.len() < raw.len() / 6, "{name}: {} of {}", out.len(), raw.len());
    }
}

#[test]
fn odd_values_come_back() {
    let odd = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-41, -1e-45, f32::MAX, f32::MIN, 1.0];
    let values: Vec<f32> = (0..COLUMNS * 4).map(|at| odd[at * 7 % odd.len()]).collect();
    for from in [ElementType::Fp32, ElementType::Bf16, ElementType::Fp16] {
        let base = match from {
            ElementType::Fp32 => bytes(&values),
            ElementType::Bf16 => brains(&values)[0].clone(),
            _ => {
                let mut narrow = vec![0; values.len() * 2];
                kernel::fp32_to_fp16(&bytes(&values), &mut narrow);
                narrow
            }
        };
        for (_, tool) in tools() {
            let raw = tool.codes(&bytes(&values));
            delta(&raw, &base, scaled(from, tool.packing, 0));
            delta(&raw[..raw.len() / 2 + 1], &base[..base.len() / 3], scaled(from, tool.packing, 384));
            delta(&raw, &[], scaled(from, tool.packing, 0));
        }
    }
}

#[test]
fn payloads_are_those_of_the_format() {
    // Two rows of four BF16 values, INT8 codes: 127 times the value by the greatest of its row.
    let [base, _] = brains(&[1.0, -0.5, 0.25, 0.0, 2.0, 2.0, -1.0, 0.0]);
    let raw = [127, 192, 32, 0, 127, 127, 192, 0];
    let payload =
        [&[0x0e, 0x03, 0x01, 0x00, 0x00, 0xfe, 0x42, 4, 1, 4, 0][..], &[1, 0, 1, 0, 1, 0, 1, 0, 0][..]].concat();
    let (mut scratch, mut decoded) = (Scratch::default(), Vec::new());
    decode_tagged(&payload, &base, 8, &mut scratch, &mut decoded).unwrap();
    assert_eq!(decoded, raw);
}

#[test]
fn unknown_ways_are_of_a_newer_version_and_senseless_ones_are_damage() {
    let decode = |payload: &[u8]| {
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        decode_tagged(payload, &[0; 64], 32, &mut scratch, &mut out).map(|()| out)
    };
    let head = [0x0e, 0x03, 0x01, 0x00, 0x00, 0xfe, 0x42, 4, 1, 4, 0];
    let rest = [1, 0, 1, 0, 1, 0, 1, 0, 0];
    let with = |at: usize, byte: u8| {
        let mut payload = [&head[..], &rest[..]].concat();
        payload[at] = byte;
        decode(&payload)
    };
    assert!(with(0, 0x0e).is_ok());
    for (at, byte) in [(1, 0), (1, 6), (1, 0x13), (1, 0x21), (1, 0x43), (2, 0x00), (2, 0x0d), (2, 0xc1)] {
        assert!(matches!(with(at, byte), Err(crate::Error::Unsupported { .. })), "{at} {byte:#x}");
    }
    // A divisor of minus infinity, sizes of zero, and a first value outside of a row of tiles.
    for (at, byte) in [(6, 0xff), (7, 0), (8, 0), (9, 0), (10, 4)] {
        assert!(matches!(with(at, byte), Err(crate::Error::Corrupt { .. })), "{at} {byte:#x}");
    }
    // More scales than values: tiles of a column in rows of 100.
    let wide = [&head[..7], &[100, 1, 1, 0], &rest[..]].concat();
    assert!(matches!(decode(&wide), Err(crate::Error::Corrupt { .. })));
}

proptest! {
    #[test]
    fn hostile_payloads_end(tail: Vec<u8>, base: Vec<u8>, raw_len in 0usize..5000, is_head_valid: bool) {
        let head: &[u8] = if is_head_valid { &[0x0e, 0x04, 0x12, 0x00, 0x00, 0xf0, 0x40] } else { &[0x0e] };
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        if decode_tagged(&[head, &tail].concat(), &base, raw_len, &mut scratch, &mut out).is_ok() {
            prop_assert_eq!(out.len(), raw_len);
        }
    }

    #[test]
    fn any_chunk_comes_back(
        raw in proptest::collection::vec(any::<u8>(), 0..600),
        base in proptest::collection::vec(any::<u8>(), 0..1500),
        numbers in (1u64..50, 1u64..2000, 0u64..3000),
        per_byte in 1u8..3,
        from in 0usize..3,
    ) {
        let from = [ElementType::Bf16, ElementType::Fp16, ElementType::Fp32][from];
        let (columns, values, position) = numbers;
        delta(&raw, &base, Scaled { from, per_byte, columns, values, position });
    }
}
