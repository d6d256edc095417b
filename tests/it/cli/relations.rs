//! Relations: `models`, `lineage` and `distance` say the same of two models, whatever one was made of the other.

use serde_json::Value;

use super::fixture::{Home, json as parsed, stdout};
use super::model_fixture::{EMBED, LAYER, LAYER_VALUES, Weights};
use crate::normal::Normal;
use crate::quantised::{gguf_f16, gguf_quantised, values};
use crate::weights::{Tensor, bfloat16, float32, safetensors};
use fhrd::kernel::elements::fp16;
use fhrd::kernel::quantise::{BlockType, ScaleSource};

/// The model `other` stored after `base`: what `models` and `lineage` say of it, and what `distance` says.
struct Said {
    model: Value,
    member: Value,
    distance: Value,
    text: String,
}

fn said(base: &[u8], other: &[u8]) -> Said {
    let home = Home::new();
    home.write("m/base/model.safetensors", base);
    home.backup(&["m"]);
    home.write("m/other/model.safetensors", other);
    home.backup(&["m"]);
    let find = |list: Value, of: &dyn Fn(&Value) -> bool| -> Value {
        list.as_array().unwrap().iter().find(|one| of(one)).unwrap_or_else(|| panic!("{list}")).clone()
    };
    let model = find(parsed(&home.run(&["models", "--json"])), &|one| one["name"] == "other");
    let member = find(parsed(&home.run(&["lineage", "--json"])), &|one| one["name"] == "other");
    let paths = ["m/base/model.safetensors", "m/other/model.safetensors"];
    let distance = parsed(&home.run(&["distance", paths[0], paths[1], "--json"]));
    let text = stdout(&home.run(&["distance", paths[1], paths[0]]));
    Said { model, member, distance, text }
}

impl Said {
    /// All three say that the models are of one family, in this way, at a distance of about `bits`.
    fn assert_family(&self, kind: &str, bits: f64, what: &str) {
        let Said { model, member, distance, text } = self;
        assert_eq!((&model["family"], &model["base"]["kind"]), (&"base".into(), &kind.into()), "{what}: {model}");
        assert_eq!((&member["parent"], &member["note"]), (&0.into(), &Value::Null), "{what}: {member}");
        assert_eq!(
            (&distance["same_family"], &distance["relation"]),
            (&true.into(), &kind.into()),
            "{what}: {distance}"
        );
        assert!(text.contains("the same family"), "{what}: {text}");
        let found = [&model["base"]["bit_distance"], &distance["bit_distance"]];
        for found in found.iter().filter_map(|found| found.as_f64()) {
            assert!((found - bits).abs() < 0.3 + bits / 10.0, "{what}: {found}, expected {bits}");
        }
    }

    /// All three say that they are not, or that nothing is known.
    fn assert_apart(&self, what: &str) {
        let Said { model, member, distance, text } = self;
        assert_eq!(model["family"], "other", "{what}: {model}");
        assert_eq!(member["parent"], Value::Null, "{what}: {member}");
        assert_ne!(distance["same_family"], true, "{what}: {distance}");
        assert!(!text.contains("the same family"), "{what}: {text}");
    }
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| fp16(value.to_bits()).to_le_bytes()).collect()
}

/// Values that BF16 holds.
fn exact(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| f32::from_bits(value.to_bits() & 0xffff_0000)).collect()
}

/// Writes values in some format.
type Narrowing = fn(&[f32]) -> Vec<u8>;

#[test]
fn fine_tunes_are_near_in_every_float_format_and_others_are_not() {
    let base = Weights::base();
    let near = base.tuned(2);
    let other = Weights {
        embed: Normal::new(8).weights(base.embed.len(), 0.04),
        layer: Normal::new(9).weights(base.layer.len(), 0.03),
    };
    let file = |of: &Weights, dtype, bytes: fn(&[f32]) -> Vec<u8>| {
        let embed = Tensor::new("embed", dtype, EMBED, bytes(&of.embed));
        safetensors(&[embed, Tensor::new("layer.weight", dtype, LAYER, bytes(&of.layer))])
    };
    let doubles = |values: &[f32]| values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
    let types: [(&str, Narrowing); 4] = [("BF16", bfloat16), ("F32", float32), ("F16", halves), ("F64", doubles)];
    for (dtype, bytes) in types {
        let of = |of| file(of, dtype, bytes);
        let found = said(&of(&base), &of(&near));
        let bits = found.distance["bit_distance"].as_f64().unwrap();
        found.assert_family("delta", bits, dtype);
        said(&of(&base), &of(&other)).assert_apart(dtype);
    }
}

#[test]
fn a_pruned_model_belongs_to_the_family_of_what_was_pruned() {
    let base = Weights::base();
    let pruned = |step: usize| {
        let zeroed = |values: &[f32]| -> Vec<f32> {
            values.iter().enumerate().map(|(at, value)| if at % step == 0 { 0.0 } else { *value }).collect()
        };
        Weights { embed: zeroed(&base.embed), layer: zeroed(&base.layer) }
    };
    for step in [2, 4] {
        let found = said(&base.bf16(), &pruned(step).bf16());
        let bits = found.distance["bit_distance"].as_f64().unwrap();
        assert!(bits * step as f64 > 6.0, "{bits}");
        found.assert_family("pruned", bits, "pruned");
        assert_eq!(found.distance["nonzero_distance"], 0.0);
        assert!(found.text.contains("one is pruned"), "{}", found.text);
    }
}

#[test]
fn casts_are_recognised_between_all_float_formats() {
    let base = Weights::base();
    let base = Weights { embed: exact(&base.embed), layer: exact(&base.layer) };
    let file = |dtype, bytes: fn(&[f32]) -> Vec<u8>| {
        let embed = Tensor::new("embed", dtype, EMBED, bytes(&base.embed));
        safetensors(&[embed, Tensor::new("layer.weight", dtype, LAYER, bytes(&base.layer))])
    };
    let eights = |values: &[f32]| {
        let (wide, mut narrow) = (float32(values), vec![0; values.len()]);
        fhrd::kernel::float_format::FloatFormat::E4m3.narrow(&wide, &mut narrow);
        narrow
    };
    let types: [(&str, Narrowing); 4] = [("BF16", bfloat16), ("F32", float32), ("F16", halves), ("F8_E4M3", eights)];
    for (one, one_bytes) in types {
        for (other, other_bytes) in types.into_iter().filter(|(other, _)| *other != one) {
            let found = said(&file(one, one_bytes), &file(other, other_bytes));
            found.assert_family("cast", 0.0, &format!("{other} of {one}"));
            assert_eq!(found.distance["left_out"].as_array().map(Vec::len), Some(0));
        }
    }
}

#[test]
fn quantised_files_belong_to_the_family_of_the_floats_they_follow_from() {
    let values = values();
    let floats = gguf_f16(&values);
    for block_type in [BlockType::Q8_0, BlockType::Q4_0, BlockType::Q4K] {
        let blocks = gguf_quantised(block_type, block_type.sources()[0], &values);
        let found = said(&floats, &blocks);
        found.assert_family("cast", 0.0, &format!("{block_type:?}"));
        assert!(found.text.contains("one is the cast of the other"), "{}", found.text);
    }
    let others: Vec<Vec<f32>> = values.iter().map(|values| values.iter().rev().copied().collect()).collect();
    said(&floats, &gguf_quantised(BlockType::Q8_0, ScaleSource::Computed, &others)).assert_apart("of other floats");
    // Fine-tunes of the same type, of which 16-bit floats say nothing.
    let near: Vec<Vec<f32>> = (90..).zip(&values).map(|(seed, one)| crate::weights::tuned(one, seed, 0.0003)).collect();
    let blocks = |values: &[Vec<f32>]| gguf_quantised(BlockType::Q8_0, ScaleSource::Computed, values);
    let found = said(&blocks(&values), &blocks(&near));
    assert_eq!((&found.distance["bit_distance"], &found.distance["relation"]), (&Value::Null, &"delta".into()));
    assert_eq!(found.model["family"], "base");
}

#[test]
fn rows_that_were_added_are_no_distance() {
    let base = Weights::base();
    let file = |embed: &[f32], rows: u64| {
        safetensors(&[
            Tensor::new("embed", "BF16", &[rows, 256], bfloat16(embed)),
            Tensor::new("layer.weight", "BF16", LAYER, bfloat16(&base.layer)),
        ])
    };
    let rows = Normal::new(5).weights(4 * 256, 0.04);
    let (front, behind) = ([&rows[..], &base.embed[..]].concat(), [&base.embed[..], &rows[..]].concat());
    for (grown, what) in [(front, "in front"), (behind, "behind")] {
        let found = said(&file(&base.embed, 512), &file(&grown, 516));
        found.assert_family("delta", 0.0, what);
        assert!(found.distance["bit_distance"].as_f64().unwrap() < 0.01, "{what}: {}", found.distance);
        assert_eq!(found.distance["types"][0]["compared"]["values"], 512 * 256 + LAYER_VALUES, "{what}");
        assert!(found.model["base"]["bit_distance"].as_f64().unwrap() < 0.01, "{what}: {}", found.model);
    }
}

#[test]
fn parameters_count_once_for_copies_and_the_state_of_an_optimizer() {
    let home = Home::new();
    let Weights { embed, layer } = Weights::base();
    let copy = |prefix: &str, dtype, bytes: fn(&[f32]) -> Vec<u8>| {
        let name = |name: &str| format!("{prefix}{name}");
        [
            Tensor::new(&name("embed"), dtype, EMBED, bytes(&embed)),
            Tensor::new(&name("layer"), dtype, LAYER, bytes(&layer)),
            Tensor::new(&name("bias"), dtype, &[16], bytes(&layer[..16])),
        ]
    };
    let parameters = 512 * 256 + LAYER_VALUES + 16;
    let thrice = [copy("", "F32", float32), copy("bf16.", "BF16", bfloat16), copy("fp16.", "F16", halves)];
    home.write("m/thrice/model.safetensors", &safetensors(&thrice.into_iter().flatten().collect::<Vec<_>>()));
    let state = |name: &str, seed| {
        let values = Normal::new(seed).weights(LAYER_VALUES, 1e-4);
        Tensor::new(&format!("optimizer.{name}.layer"), "F32", LAYER, float32(&values))
    };
    let trained = copy("model.", "F32", float32).into_iter().chain([state("exp_avg", 3), state("exp_avg_sq", 4)]);
    home.write("m/trained/model.safetensors", &safetensors(&trained.collect::<Vec<_>>()));
    home.backup(&["m"]);
    let models = parsed(&home.run(&["models", "--json"]));
    for model in models.as_array().unwrap() {
        assert_eq!(model["parameters"], parameters, "{model}");
    }
}

#[test]
fn an_adapter_hangs_under_the_model_that_its_configuration_names() {
    let home = Home::new();
    home.write("hub/base-7/model.safetensors", &Weights::base().bf16());
    let adapter = |seed| {
        let small = Normal::new(seed).weights(8 * 1024, 0.02);
        let tensor =
            |layer| Tensor::new(&format!("layers.{layer}.lora_A.weight"), "BF16", &[8, 1024], bfloat16(&small));
        safetensors(&(0..8).map(tensor).collect::<Vec<_>>())
    };
    home.write("hub/lora/adapter_model.safetensors", &adapter(6));
    home.write("hub/lora/adapter_config.json", br#"{"base_model_name_or_path": "org/base-7", "peft_type": "LORA"}"#);
    // Without a configuration, these tensors are a file like any other.
    home.write("hub/plain/adapter_model.safetensors", &adapter(7));
    home.backup(&["hub"]);
    let models = parsed(&home.run(&["models", "--json"]));
    let [base, adapter] = models.as_array().unwrap().as_slice() else { panic!("{models}") };
    assert_eq!((&base["name"], &adapter["name"]), (&"base-7".into(), &"lora".into()));
    assert_eq!((&adapter["base"]["name"], &adapter["base"]["kind"]), (&"base-7".into(), &"named".into()));
    assert_eq!((&adapter["base"]["bit_distance"], &adapter["family"]), (&Value::Null, &"base-7".into()));
    assert_eq!(adapter["parameters"], 8 * 8 * 1024);
    let tree = stdout(&home.run(&["lineage"]));
    assert!(tree.lines().any(|line| line.starts_with("└── lora ") && line.contains(" named ")), "{tree}");
    let table = stdout(&home.run(&["models"]));
    let line = table.lines().find(|line| line.contains("adapter_model")).unwrap();
    assert!(line.contains("named") && line.contains(" - "), "{table}");
}

#[test]
fn shards_of_ranks_hang_under_the_model_that_was_cut() {
    let home = Home::new();
    let Weights { layer, .. } = Weights::base();
    let layers: Vec<Vec<f32>> = (0..4).map(|seed| Normal::new(40 + seed).tuned(&layer, 0.02)).collect();
    let whole: Vec<Tensor> = layers
        .iter()
        .enumerate()
        .map(|(at, layer)| Tensor::new(&format!("{at}.weight"), "BF16", LAYER, bfloat16(layer)))
        .collect();
    home.write("m/whole/model.safetensors", &safetensors(&whole));
    home.backup(&["m"]);
    for rank in 0..2 {
        let shard: Vec<Tensor> = layers
            .iter()
            .enumerate()
            .map(|(at, layer)| {
                let half = layer.len() / 2;
                let part = &layer[rank * half..(rank + 1) * half];
                Tensor::new(&format!("{at}.weight"), "BF16", &[LAYER[0] / 2, LAYER[1]], bfloat16(part))
            })
            .collect();
        home.write(&format!("m/rank-{rank}/model.safetensors"), &safetensors(&shard));
    }
    home.backup(&["m"]);
    let models = parsed(&home.run(&["models", "--json"]));
    for model in models.as_array().unwrap() {
        assert_eq!(model["family"], "whole", "{model}");
    }
}
