//! Quantised models: stored as what follows from the floats of a stored model, whatever its file is.

use std::fs;
use std::path::Path;

use fhrd::kernel::elements::fp16;
use fhrd::kernel::quantise::{BlockType, ScaleSource, quantise};

use crate::compatibility::copy_directory;
use crate::independent;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{assert_same, describe};
use crate::weights::*;

/// The tensors of the model: name in GGUF, name at a hub, rows, columns. The hub's file has them in another order.
const TENSORS: [(&str, &str, u64, u64); 4] = [
    ("token_embd.weight", "model.embed_tokens.weight", 1024, 256),
    ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", 512, 512),
    ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", 512, 512),
    // Its blocks of three bits and less are shorter than the tensors of floats that are cut into blocks.
    ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", 384, 256),
];
const HUB_ORDER: [usize; 4] = [0, 2, 1, 3];

/// Values of each tensor, which BF16 and FP16 hold exactly.
pub fn values() -> Vec<Vec<f32>> {
    let exact = |value: &f32| (value * 4096.0).round_ties_even() / 4096.0;
    let tensor = |(seed, (_, _, rows, columns)): (u64, &(_, _, u64, u64))| -> Vec<f32> {
        weights(60 + seed, (rows * columns) as usize).iter().map(exact).collect()
    };
    (0..).zip(&TENSORS).map(tensor).collect()
}

/// A GGUF file of tensors of one GGML type.
fn gguf_of(number: u32, tensors: &[Vec<u8>]) -> Vec<u8> {
    let dimensions: Vec<[u64; 2]> = TENSORS.iter().map(|tensor| [tensor.3, tensor.2]).collect();
    let rows = TENSORS.iter().zip(&dimensions).zip(tensors);
    let rows: Vec<(&str, u32, &[u64], &[u8])> =
        rows.map(|((tensor, dimensions), bytes)| (tensor.0, number, dimensions.as_slice(), bytes.as_slice())).collect();
    gguf(&rows)
}

pub fn gguf_f16(values: &[Vec<f32>]) -> Vec<u8> {
    let half = |values: &Vec<f32>| values.iter().flat_map(|value| fp16(value.to_bits()).to_le_bytes()).collect();
    gguf_of(1, &values.iter().map(half).collect::<Vec<_>>())
}

fn hub_bf16(values: &[Vec<f32>]) -> Vec<u8> {
    let tensor = |at: &usize| {
        let (_, name, rows, columns) = TENSORS[*at];
        Tensor::new(name, "BF16", &[rows, columns], bfloat16(&values[*at]))
    };
    safetensors(&HUB_ORDER.iter().map(tensor).collect::<Vec<_>>())
}

/// The least and the greatest value, at most and at least zero.
fn bounds(values: &[f32]) -> [f32; 2] {
    values.iter().fold([0.0, 0.0], |[least, most], value| [value.min(least), value.max(most)])
}

/// Scales of a block of 256 values as a plain quantiser gives them: from bounds, not from a search. The codes follow as
/// those of llama.cpp do (`golden_quantised`).
fn put_scales(block_type: BlockType, values: &[f32], block: &mut [u8]) {
    let sub_blocks = if matches!(block_type, BlockType::Q4K | BlockType::Q5K) { 8 } else { 16 };
    let bounds: Vec<[f32; 2]> = values.chunks(256 / sub_blocks).map(bounds).collect();
    let half = |value: f32| fp16(value.to_bits()).to_le_bytes();
    let most = |of: fn(&[f32; 2]) -> f32| bounds.iter().map(of).fold(1e-9, f32::max);
    let part = |value: f32, whole: f32| (value / whole).round() as u8;
    match block_type {
        BlockType::Q4K | BlockType::Q5K => {
            let steps = if block_type == BlockType::Q4K { 15.0 } else { 31.0 };
            let d = most(|[least, most]| most - least) / steps / 63.0;
            let m = most(|[least, _]| -least) / 63.0;
            block[..2].copy_from_slice(&half(d));
            block[2..4].copy_from_slice(&half(m));
            for (at, [least, most]) in bounds.iter().enumerate() {
                let (scale, minimum) = (part((most - least) / steps, d), part(-least, m));
                match at {
                    0..4 => (block[4 + at], block[8 + at]) = (scale, minimum),
                    _ => {
                        block[8 + at] = scale & 15 | minimum << 4;
                        block[at] |= scale >> 4 << 6;
                        block[4 + at] |= minimum >> 4 << 6;
                    }
                }
            }
        }
        BlockType::Q2K => {
            let (d, m) = (most(|[least, most]| most - least) / 3.0 / 15.0, most(|[least, _]| -least) / 15.0);
            block[80..82].copy_from_slice(&half(d));
            block[82..].copy_from_slice(&half(m));
            for (at, [least, most]) in bounds.iter().enumerate() {
                block[at] = part((most - least) / 3.0, d) | part(-least, m) << 4;
            }
        }
        _ => {
            let (steps, parts) = if block_type == BlockType::Q3K { (4.0, 31.0) } else { (32.0, 127.0) };
            let d = most(|[least, most]| most.max(-least)) / steps / parts;
            let at = block.len() - 2;
            block[at..].copy_from_slice(&half(d));
            for (at, [least, most]) in bounds.iter().enumerate() {
                let scale = part(most.max(-least) / steps, d);
                match block_type {
                    BlockType::Q3K => {
                        let scale = scale + 32;
                        block[96 + at % 8] |= (scale & 15) << (at / 8 * 4);
                        block[104 + at % 4] |= scale >> 4 << (at / 4 * 2);
                    }
                    _ => block[192 + at] = scale,
                }
            }
        }
    }
}

pub fn gguf_quantised(block_type: BlockType, source: ScaleSource, values: &[Vec<f32>]) -> Vec<u8> {
    let tensor = |values: &Vec<f32>| {
        let mut blocks = vec![0; values.len() / block_type.values() * block_type.bytes()];
        if block_type.values() == 256 {
            let pairs = blocks.chunks_mut(block_type.bytes()).zip(values.chunks(256));
            pairs.for_each(|(block, values)| put_scales(block_type, values, block));
        }
        quantise(block_type, source, &float32(values), &mut blocks);
        blocks
    };
    gguf_of(block_type.number().into(), &values.iter().map(tensor).collect::<Vec<_>>())
}

/// Backs up a file in a directory of its own. The bytes that it takes.
pub fn stored(place: &Place, name: &str, file: &[u8]) -> u64 {
    let path = place.path(name);
    write(path.join("model"), file);
    number(&place.run(&["backup", path.to_str().unwrap()]), "bytes_stored")
}

pub fn assert_restores(place: &Place, name: &str) {
    let (source, target) = (place.path(name), tempfile::tempdir().unwrap());
    place.run(&["restore", "latest", "--target", target.path().join("restored").to_str().unwrap()]);
    let restored = target.path().join("restored").join(source.strip_prefix("/").unwrap());
    assert_same(&describe(&source), &describe(&restored), name);
    if !name.starts_with("gguf") {
        independent::assert_restores_latest(place, &source);
    }
}

/// What a file of a type may take: 3 percent if all follows from the floats, and the scales if they do not. A backup of
/// a model takes some thousand bytes for its record and its containers.
fn bound(block_type: BlockType, file: &[u8]) -> u64 {
    let scales = if block_type.values() == 256 { block_type.scale_bytes().count() as u64 } else { 0 };
    let len = file.len() as u64;
    len * 3 / 100 + len * scales / block_type.bytes() as u64 + 6000
}

#[test]
fn quantised_files_cost_the_scales_that_do_not_follow_from_a_stored_model() {
    let values = values();
    for (source, file) in [("gguf", gguf_f16(&values)), ("hub", hub_bf16(&values))] {
        let place = Place::new();
        place.run(&["init"]);
        stored(&place, source, &file);
        for block_type in BlockType::ALL {
            let file = gguf_quantised(block_type, block_type.sources()[0], &values);
            let name = format!("{source}-{block_type:?}");
            let bytes = stored(&place, &name, &file);
            assert!(bytes <= bound(block_type, &file), "{name}: {bytes} of {}", file.len());
            assert_restores(&place, &name);
        }
        let fused = gguf_quantised(BlockType::Q4_0, ScaleSource::Fused, &tuned_a_little(&values));
        let bytes = stored(&place, "tuned", &fused);
        assert!(bytes < fused.len() as u64 * 3 / 4, "of a fine-tune: {bytes} of {}", fused.len());
        assert_restores(&place, "tuned");
        assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    }
}

fn tuned_a_little(values: &[Vec<f32>]) -> Vec<Vec<f32>> {
    (90..).zip(values).map(|(seed, values)| tuned(values, seed, 0.0003)).collect()
}

#[test]
fn one_backup_stores_the_floats_first_whatever_the_names_are() {
    let (place, values) = (Place::new(), values());
    place.run(&["init"]);
    let source = place.path("models");
    write(source.join("z/model.safetensors"), &hub_bf16(&values));
    let alone = number(&place.run(&["backup", source.to_str().unwrap()]), "bytes_stored");
    let place = Place::new();
    place.run(&["init"]);
    let source = place.path("models");
    write(source.join("z/model.safetensors"), &hub_bf16(&values));
    let mut raw = 0;
    for block_type in [BlockType::Q8_0, BlockType::Q4_0] {
        let file = gguf_quantised(block_type, ScaleSource::Computed, &values);
        raw += file.len() as u64;
        write(source.join(format!("a/{block_type:?}.gguf")), &file);
    }
    let both = number(&place.run(&["backup", source.to_str().unwrap()]), "bytes_stored");
    assert!(both < alone + raw * 3 / 100 + 6000, "{both} with {raw} more bytes than {alone}");
    assert_restores(&place, "models");
}

#[test]
fn a_repository_of_an_earlier_version_has_them_after_an_upgrade_only() {
    let (place, values) = (Place::new(), values());
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    stored(&place, "source", &gguf_f16(&values));
    let file = gguf_quantised(BlockType::Q8_0, ScaleSource::Computed, &values);
    let before = stored(&place, "before", &file);
    assert!(before > file.len() as u64 * 3 / 4, "{before}");
    assert_eq!(place.run(&["upgrade"])["enabled"][0]["feature"], "derivations");
    let file = gguf_quantised(BlockType::Q4_0, ScaleSource::Computed, &values);
    let after = stored(&place, "after", &file);
    assert!(after <= bound(BlockType::Q4_0, &file), "{after} of {}", file.len());
    assert_restores(&place, "after");
}

#[test]
fn damage_of_the_floats_costs_what_follows_from_them_and_is_named() {
    let (place, values) = (Place::new(), values());
    place.run(&["init"]);
    stored(&place, "source", &gguf_f16(&values));
    let containers: Vec<_> = independent::containers(&place.repository());
    stored(&place, "quantised", &gguf_quantised(BlockType::Q8_0, ScaleSource::Computed, &values));
    for container in containers {
        let mut bytes = fs::read(&container).unwrap();
        bytes[5000] ^= 1;
        fs::write(&container, bytes).unwrap();
    }
    let target = place.path("restored");
    let words = ["restore", "latest", "--target", target.to_str().unwrap()];
    let output = place.command(&place.path("."), &words).output().unwrap();
    assert_eq!(output.status.code(), Some(20), "{}", String::from_utf8_lossy(&output.stderr));
    let restored = target.join(place.path("quantised").strip_prefix("/").unwrap());
    assert!(restored.join("model.damaged").exists() && !restored.join("model").exists());
    // Stored again, it needs nothing of what is damaged.
    place.command(&place.path("."), &["check", "--read-data"]).output().unwrap();
    stored(&place, "quantised", &gguf_quantised(BlockType::Q8_0, ScaleSource::Computed, &values));
    place.run(&["backup", "--force", place.path("quantised").to_str().unwrap()]);
    fs::remove_dir_all(&target).unwrap();
    place.run(&words);
}
