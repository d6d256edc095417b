//! Tiny models of which each is stored by another derivation.

use std::path::Path;

use fhrd::kernel::elements::{bf16, fp16};
use fhrd::kernel::float_format::FloatFormat;
use fhrd::kernel::quantise::{BlockType, ScaleSource, quantise};
use fhrd::kernel::scaled::{QuotientRounding, ScaledCode, greatest_value, scaled_codes};

use crate::input::write;
use crate::pruned::by_magnitude;
use crate::trees::Random;
use crate::weights::{Tensor, bfloat16, float32, gguf, safetensors, tuned, weights};

/// Values of a model: as few as a tensor that is cut into blocks has.
const VALUES: usize = 32 << 10;
/// Columns of a matrix.
const ROW: usize = 256;
/// The matrices of a model, which have the same bytes: a file of one byte a value is a model only with two of them.
const NAMES: [&str; 2] = ["model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"];
/// The matrix of a model of as many bytes as a tensor of codes has that is cut into blocks.
const WIDE: &str = "model.layers.0.mlp.down_proj.weight";

/// Values as BF16 has them.
fn narrow(values: Vec<f32>) -> Vec<f32> {
    values.iter().map(|value| f32::from_bits(u32::from(bf16(value.to_bits())) << 16)).collect()
}

/// The model that all others come from, of values that FP16 has, too.
fn base() -> Vec<f32> {
    narrow(weights(1, VALUES).iter().map(|value| (value * 4096.0).round_ties_even() / 4096.0).collect())
}

/// The source of codes, of few values.
fn wide() -> Vec<f32> {
    weights(21, 2 * VALUES).iter().map(|value| (value * 128.0).round_ties_even() / 128.0).collect()
}

/// A matrix of elements of so many bytes.
fn matrix(name: &str, dtype: &'static str, width: usize, bytes: &[u8]) -> Tensor {
    Tensor::new(name, dtype, &[(bytes.len() / width / ROW) as u64, ROW as u64], bytes.to_vec())
}

fn model(dtype: &'static str, width: usize, bytes: &[u8]) -> Vec<u8> {
    safetensors(&NAMES.map(|name| matrix(name, dtype, width, bytes)))
}

fn bf16_model(values: &[f32]) -> Vec<u8> {
    model("BF16", 2, &bfloat16(values))
}

/// A model that resembles no other.
fn alone(values: &[f32]) -> Vec<u8> {
    let shape = [(values.len() / 512) as u64, 512];
    safetensors(&[Tensor::new("decoder.weight", "BF16", &shape, bfloat16(values))])
}

fn half(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| fp16(value.to_bits()).to_le_bytes()).collect()
}

fn eight_bits(values: &[f32]) -> Vec<u8> {
    let mut codes = vec![0; values.len()];
    FloatFormat::E4m3.narrow(&float32(values), &mut codes);
    codes
}

/// A GGUF file of blocks whose scales follow from the values.
fn blocks(values: &[f32]) -> Vec<u8> {
    let block_type = BlockType::Q8_0;
    let mut blocks = vec![0; values.len() / block_type.values() * block_type.bytes()];
    quantise(block_type, ScaleSource::Computed, &float32(values), &mut blocks);
    let dimensions = [ROW as u64, (values.len() / ROW) as u64];
    let number = block_type.number().into();
    gguf(&["blk.0.ffn_up.weight", "blk.1.ffn_up.weight"].map(|name| (name, number, &dimensions[..], &blocks[..])))
}

/// Codes of eight bits, and a scale for each row.
fn codes(values: &[f32]) -> Vec<u8> {
    let (mut codes, mut scales) = (vec![0; values.len()], Vec::new());
    for (row, codes) in values.chunks(ROW).zip(codes.chunks_mut(ROW)) {
        let scale = narrow(vec![greatest_value(&float32(row), 0.0) / 127.5])[0];
        scaled_codes(ScaledCode::Int8, QuotientRounding::Bf16, &float32(row), scale, codes);
        scales.push(scale);
    }
    let scale = Tensor::new(&format!("{WIDE}_scale"), "BF16", &[scales.len() as u64], bfloat16(&scales));
    safetensors(&[matrix(WIDE, "I8", 1, &codes), scale])
}

/// Values that are one of seven numbers times the scale of their group.
fn dequantised(values: &[f32]) -> Vec<f32> {
    let group = |values: &[f32]| -> Vec<f32> {
        let scale = values.iter().fold(0f32, |most, value| most.max(value.abs())) / 3.0;
        values.iter().map(|value| (value / scale).round() * scale).collect()
    };
    values.chunks(128).flat_map(group).collect()
}

/// Bytes of few values, most of which are one of two.
fn bytes(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..2 * VALUES).map(|_| (random.next() & random.next() & random.next() & 3) as u8).collect()
}

/// The same with another number in the place of a few.
fn other_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut random = Random(6);
    let change = |byte: &u8| if random.below(20) == 0 { (byte + 1) % 4 } else { *byte };
    bytes.iter().map(change).collect()
}

/// Writes the models that others are differences to.
pub fn write_base(directory: &Path) {
    write(directory.join("base/model.safetensors"), &bf16_model(&base()));
    write(directory.join("bytes/model.safetensors"), &model("U8", 1, &bytes(5)));
    let wide = safetensors(&[matrix(WIDE, "BF16", 2, &bfloat16(&wide()))]);
    write(directory.join("wide/model.safetensors"), &wide);
}

/// A fine-tune of the model.
fn tune() -> Vec<f32> {
    narrow(tuned(&base(), 2, 0.0003))
}

/// Writes what follows from them, and models that are stored in a way of their own.
pub fn write_others(directory: &Path) {
    let base = base();
    let files = [
        ("half", model("F16", 2, &half(&base))),
        ("eight-bits", model("F8_E4M3", 1, &eight_bits(&base))),
        ("codes", codes(&wide())),
        ("pruned", bf16_model(&by_magnitude(&base, 2))),
        ("zeros", alone(&by_magnitude(&weights(9, VALUES), 4))),
        ("tune", bf16_model(&tune())),
        ("dequantised", alone(&dequantised(&weights(8, VALUES)))),
        ("other-bytes", model("U8", 1, &other_bytes(&bytes(5)))),
    ];
    write(directory.join("blocks/model.gguf"), &blocks(&base));
    files.iter().for_each(|(name, file)| write(directory.join(name).join("model.safetensors"), file));
}

/// Writes the mean of the model and its fine-tune.
pub fn write_blend(directory: &Path) {
    let blend: Vec<f32> = std::iter::zip(&base(), &tune()).map(|(one, other)| (one + other) / 2.0).collect();
    write(directory.join("model.safetensors"), &bf16_model(&blend));
}

/// Writes the model as it is after so many steps, in each of which few elements change by one bit step.
pub fn write_step(directory: &Path, steps: u64) {
    let (mut bytes, mut random) = (bfloat16(&base()), Random(11));
    for _ in 0..steps {
        for element in bytes.as_chunks_mut::<2>().0 {
            if random.below(200) == 0 {
                *element = (u16::from_le_bytes(*element) ^ 1).to_le_bytes();
            }
        }
    }
    write(directory.join("model.safetensors"), &model("BF16", 2, &bytes));
}
