//! FP8, INT8, INT4 and NF4 weights: stored as what follows from the floats of a stored model, however they are packed.

use std::path::Path;

use fhrd::codec::delta::CodePacking;
use fhrd::kernel::elements::bf16;
use fhrd::kernel::scaled::{QuotientRounding, ScaledCode, greatest_value, scaled_codes};

use crate::compatibility::copy_directory;
use crate::input::write;
use crate::program::{Place, number};
use crate::quantised::{assert_restores, stored};
use crate::weights::*;

/// Matrices of the model: name, rows, columns.
const MATRICES: [(&str, u64, u64); 3] =
    [("model.embed_tokens", 1024, 384), ("model.layers.0.up_proj", 640, 384), ("model.layers.0.down_proj", 384, 640)];

/// How a tool stores the matrices.
struct Tool {
    name: &'static str,
    code: ScaledCode,
    rounding: QuotientRounding,
    divisor: f32,
    /// Rows and columns with one scale; 0 for all.
    tile: [usize; 2],
    scales: &'static str,
    /// Type and name of the codes.
    dtype: &'static str,
    codes: &'static str,
    high_first: bool,
}

const TOOLS: [Tool; 6] = {
    use QuotientRounding::{Bf16, Fp32, Inverse};
    use ScaledCode::{E4m3, Int4, Int8, NormalFloat};
    [
        tool("fp8-rows", E4m3, Fp32, 448.0, [1, 0], "F32", ["F8_E4M3", "weight"]),
        tool("fp8-tensor", E4m3, Fp32, 448.0, [0, 0], "F32", ["F8_E4M3", "weight"]),
        tool("fp8-tiles", E4m3, Fp32, 448.0, [128, 128], "F32", ["F8_E4M3", "weight"]),
        tool("int8-rows", Int8, Bf16, 127.5, [1, 0], "BF16", ["I8", "weight"]),
        tool("int4-groups", Int4, Bf16, 7.5, [1, 128], "BF16", ["I32", "weight_packed"]),
        tool("nf4-groups", NormalFloat, Inverse, 1.0, [1, 64], "F32", ["U8", "weight"]),
    ]
};

const fn tool(
    name: &'static str,
    code: ScaledCode,
    rounding: QuotientRounding,
    divisor: f32,
    tile: [usize; 2],
    scales: &'static str,
    [dtype, codes]: [&'static str; 2],
) -> Tool {
    let high_first = matches!(code, ScaledCode::NormalFloat);
    Tool { name, code, rounding, divisor, tile, scales, dtype, codes, high_first }
}

/// Values of each matrix, which BF16 holds exactly.
fn values() -> Vec<Vec<f32>> {
    let exact = |value: &f32| f32::from_bits(u32::from(bf16(value.to_bits())) << 16);
    let matrix = |(seed, (_, rows, columns)): (u64, &(&str, u64, u64))| -> Vec<f32> {
        weights(160 + seed, (rows * columns) as usize).iter().map(exact).collect()
    };
    (0..).zip(&MATRICES).map(matrix).collect()
}

/// A norm, which every file of the model has as it is.
fn norm() -> Tensor {
    Tensor::new("model.norm.weight", "BF16", &[384], bfloat16(&weights(7, 384)))
}

fn source(values: &[Vec<f32>]) -> Vec<u8> {
    let matrix = |((name, rows, columns), values): (&(&str, u64, u64), &Vec<f32>)| {
        Tensor::new(&format!("{name}.weight"), "BF16", &[*rows, *columns], bfloat16(values))
    };
    let matrices = MATRICES.iter().zip(values).map(matrix);
    safetensors(&matrices.chain([norm()]).collect::<Vec<_>>())
}

/// The file of a tool, and the bytes of its scales.
fn quantised(tool: &Tool, values: &[Vec<f32>]) -> (Vec<u8>, u64) {
    // The files of packed codes have no other tensor in common with the model.
    let (mut tensors, mut scale_bytes) = (if tool.code.bits() == 8 { vec![norm()] } else { Vec::new() }, 0);
    for ((name, rows, columns), values) in MATRICES.iter().zip(values) {
        let (rows, columns) = (*rows as usize, *columns as usize);
        let [tile_rows, tile_columns] = [
            if tool.tile[0] == 0 { rows } else { tool.tile[0] },
            if tool.tile[1] == 0 { columns } else { tool.tile[1] },
        ];
        let of_row = columns.div_ceil(tile_columns);
        let tile = |at: usize| at / columns / tile_rows * of_row + at % columns / tile_columns;
        let mut scales = vec![0f32; rows.div_ceil(tile_rows) * of_row];
        for (at, value) in values.iter().enumerate() {
            scales[tile(at)] = greatest_value(&value.to_le_bytes(), scales[tile(at)]);
        }
        let narrow = |scale: f32| f32::from_bits(u32::from(bf16(scale.to_bits())) << 16);
        let stored =
            |scale: &f32| if tool.scales == "BF16" { narrow(scale / tool.divisor) } else { scale / tool.divisor };
        let scales: Vec<f32> = scales.iter().map(stored).collect();
        let mut codes = vec![0; values.len()];
        for (at, value) in values.iter().enumerate() {
            scaled_codes(tool.code, tool.rounding, &value.to_le_bytes(), scales[tile(at)], &mut codes[at..at + 1]);
        }
        let packing = CodePacking { code: tool.code, high_first: tool.high_first, flipped: false };
        let mut bytes = Vec::new();
        packing.pack(&codes, &mut bytes);
        let width = if tool.dtype == "I32" { 4 } else { 1 };
        let shape = [rows as u64, (bytes.len() / width / rows) as u64];
        tensors.push(Tensor::new(&format!("{name}.{}", tool.codes), tool.dtype, &shape, bytes));
        let bytes = if tool.scales == "BF16" { bfloat16(&scales) } else { float32(&scales) };
        scale_bytes += bytes.len() as u64;
        let shape = [scales.len() as u64];
        tensors.push(Tensor::new(&format!("{name}.weight_scale"), tool.scales, &shape, bytes));
    }
    (safetensors(&tensors), scale_bytes)
}

/// What a file may take: its scales, which are stored, and records of some thousand bytes.
fn bound(file: &[u8], scale_bytes: u64) -> u64 {
    file.len() as u64 / 200 + scale_bytes + 7000
}

#[test]
fn codes_cost_their_scales_after_the_floats_they_follow_from() {
    let (place, values) = (Place::new(), values());
    place.run(&["init"]);
    stored(&place, "source", &source(&values));
    for tool in &TOOLS {
        let (file, scale_bytes) = quantised(tool, &values);
        let bytes = stored(&place, tool.name, &file);
        assert!(bytes <= bound(&file, scale_bytes), "{}: {bytes} of {}", tool.name, file.len());
        assert_restores(&place, tool.name);
    }
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
}

#[test]
fn codes_of_a_fine_tune_take_less_than_alone() {
    let (place, values) = (Place::new(), values());
    place.run(&["init"]);
    stored(&place, "source", &source(&values));
    let tunes: Vec<Vec<f32>> = (90..).zip(&values).map(|(seed, values)| tuned(values, seed, 0.0003)).collect();
    for tool in &TOOLS {
        let (file, _) = quantised(tool, &tunes);
        let bytes = stored(&place, tool.name, &file);
        assert!(bytes < file.len() as u64 * 3 / 4, "{}: {bytes} of {}", tool.name, file.len());
        assert_restores(&place, tool.name);
    }
}

#[test]
fn one_backup_stores_the_floats_before_their_codes_whatever_the_names_are() {
    let (place, values) = (Place::new(), values());
    place.run(&["init"]);
    let alone = stored(&place, "alone", &source(&values));
    let place = Place::new();
    place.run(&["init"]);
    let models = place.path("models");
    write(models.join("z/model.safetensors"), &source(&values));
    let mut most = alone;
    for tool in &TOOLS {
        let (file, scale_bytes) = quantised(tool, &values);
        most += bound(&file, scale_bytes);
        write(models.join(format!("a-{}/model.safetensors", tool.name)), &file);
    }
    let bytes = number(&place.run(&["backup", models.to_str().unwrap()]), "bytes_stored");
    assert!(bytes < most, "{bytes}, at most {most}");
    assert_restores(&place, "models");
}

#[test]
fn a_repository_of_an_earlier_version_has_codes_after_an_upgrade_only() {
    let (place, values) = (Place::new(), values());
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    stored(&place, "source", &source(&values));
    let (file, scale_bytes) = quantised(&TOOLS[0], &values);
    let before = stored(&place, "before", &file);
    assert!(before > file.len() as u64 * 3 / 4, "{before}");
    assert_eq!(place.run(&["upgrade"])["enabled"][0]["feature"], "derivations");
    let (file, other_bytes) = quantised(&TOOLS[3], &values);
    let after = stored(&place, "after", &file);
    assert!(after <= bound(&file, scale_bytes + other_bytes), "{after} of {}", file.len());
    assert_restores(&place, "after");
}
