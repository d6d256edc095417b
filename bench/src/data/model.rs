//! Generates a family of models with Gaussian weights: a base and its fine-tunes, each a safetensors file in a
//! directory of its own.
//!
//! 1. The tensors are those of a transformer: embeddings, and in every layer four square matrices, three matrices of
//!    the feed-forward network and two norms.
//! 2. Each tensor of the base has its own standard deviation within `sigma_weight`, uniform on a logarithmic scale.
//! 3. Each tensor of a fine-tune adds Gaussian noise to the stored values of the base. Its standard deviation is drawn
//!    from `sigma_delta`; 0 leaves the tensor unchanged. The ZipLLM paper reports weights with 0.015 to 0.05 and
//!    changes of up to 0.02.
//!
//! One tensor is in memory at a time. The base's tensor is generated again for each fine-tune.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::random::Random;
use super::rounding::{brain, half};

/// Element type of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GeneratedDtype {
    /// bfloat16.
    #[serde(rename = "BF16")]
    Bf16,
    /// Half precision.
    #[serde(rename = "F16")]
    F16,
    /// Single precision.
    #[serde(rename = "F32")]
    F32,
}

/// Parameters of a family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedFamily {
    /// Number of layers of each model.
    pub layers: usize,
    /// Width of the matrices, values.
    pub hidden: usize,
    /// Rows of the embeddings.
    pub vocabulary: usize,
    /// Number of models fine-tuned from the base.
    pub fine_tunes: usize,
    /// Element type of the weights.
    #[serde(default = "default_dtype")]
    pub dtype: GeneratedDtype,
    /// Smallest and largest standard deviation of a tensor's weights.
    #[serde(default = "default_sigma_weight")]
    pub sigma_weight: [f64; 2],
    /// Standard deviations of a tensor's changes; one is drawn for each tensor.
    #[serde(default = "default_sigma_delta")]
    pub sigma_delta: Vec<f64>,
}

fn default_dtype() -> GeneratedDtype {
    GeneratedDtype::Bf16
}
fn default_sigma_weight() -> [f64; 2] {
    [0.015, 0.05]
}
fn default_sigma_delta() -> Vec<f64> {
    vec![0.0, 0.0002, 0.0005, 0.002]
}

/// Maximum number of values of a tensor, which is held in memory.
const VALUES_MAX: usize = 1 << 28;

/// The value `steps` of 256 equal factors above `least`, on the way to `largest`. Uses square roots, which round
/// equally on every machine. Fractional powers do not.
fn between(least: f64, largest: f64, steps: u64) -> f64 {
    let (mut value, mut root) = (least, largest / least);
    for bit in (0..8).rev() {
        root = root.sqrt();
        if steps >> bit & 1 == 1 {
            value *= root;
        }
    }
    value
}

struct GeneratedTensor {
    name: String,
    shape: Vec<usize>,
}

impl GeneratedDtype {
    fn name(self) -> &'static str {
        match self {
            GeneratedDtype::Bf16 => "BF16",
            GeneratedDtype::F16 => "F16",
            GeneratedDtype::F32 => "F32",
        }
    }

    fn bytes(self) -> usize {
        if self == GeneratedDtype::F32 { 4 } else { 2 }
    }

    /// Appends the rounded `value` and returns the stored one.
    fn append(self, value: f32, out: &mut Vec<u8>) -> f32 {
        match self {
            GeneratedDtype::F32 => out.extend_from_slice(&value.to_le_bytes()),
            GeneratedDtype::Bf16 => out.extend_from_slice(&brain(value).to_le_bytes()),
            GeneratedDtype::F16 => out.extend_from_slice(&half(value).to_le_bytes()),
        }
        match self {
            GeneratedDtype::Bf16 => f32::from_bits(u32::from(brain(value)) << 16),
            // FP16: the unrounded value, because changes of a fine-tune are smaller than one unit in the last place.
            GeneratedDtype::F16 | GeneratedDtype::F32 => value,
        }
    }
}

impl GeneratedTensor {
    fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

impl GeneratedFamily {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let [least, largest] = self.sigma_weight;
        let values = self.hidden.checked_mul(self.vocabulary.max(self.hidden.saturating_mul(4)));
        match () {
            () if self.hidden == 0 || self.vocabulary == 0 => Some("`hidden` and `vocabulary` must be at least 1"),
            () if values.is_none_or(|values| values > VALUES_MAX) => Some("a tensor has at most 2^28 values"),
            () if self.layers > 1024 || self.fine_tunes > 1000 => {
                Some("there are at most 1024 layers and 1000 fine-tunes")
            }
            () if !(least > 0.0 && least <= largest && largest <= 100.0) => {
                Some("`sigma_weight` must be [smallest, largest], above 0 and at most 100")
            }
            () if self.sigma_delta.iter().any(|sigma| !(0.0..=100.0).contains(sigma)) => {
                Some("`sigma_delta` must be from 0 to 100")
            }
            () if self.sigma_delta.is_empty() => Some("`sigma_delta` needs at least one value"),
            () => None,
        }
    }

    fn tensors(&self) -> Vec<GeneratedTensor> {
        let tensor = |name: String, shape: &[usize]| GeneratedTensor { name, shape: shape.to_vec() };
        let (hidden, wide) = (self.hidden, self.hidden * 4);
        let mut tensors = vec![tensor("model.embed_tokens.weight".into(), &[self.vocabulary, hidden])];
        for layer in 0..self.layers {
            let prefix = format!("model.layers.{layer}");
            for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
                tensors.push(tensor(format!("{prefix}.self_attn.{name}.weight"), &[hidden, hidden]));
            }
            for (name, shape) in
                [("gate_proj", [wide, hidden]), ("up_proj", [wide, hidden]), ("down_proj", [hidden, wide])]
            {
                tensors.push(tensor(format!("{prefix}.mlp.{name}.weight"), &shape));
            }
            for name in ["input_layernorm", "post_attention_layernorm"] {
                tensors.push(tensor(format!("{prefix}.{name}.weight"), &[hidden]));
            }
        }
        tensors
    }

    /// Writes `base/model.safetensors` and `fine-tune-NN/model.safetensors` below `directory`, fine-tunes with a model
    /// card.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, seed: u64, directory: &Path) -> Result<()> {
        self.write_model(seed, None, &directory.join("base"))?;
        (0..self.fine_tunes).try_for_each(|number| {
            self.write_model(seed, Some(number), &directory.join(format!("fine-tune-{number:02}")))
        })
    }

    fn write_model(&self, seed: u64, fine_tune: Option<usize>, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
        let path = directory.join("model.safetensors");
        let tensors = self.tensors();
        self.write_file(seed, fine_tune, &tensors, &path).map_err(|error| Error::io("write", &path, error))?;
        if fine_tune.is_some() {
            let card = directory.join("README.md");
            let text = "---\nbase_model: fhrd-synthetic/base\n---\n";
            std::fs::write(&card, text).map_err(|error| Error::io("write", &card, error))?;
        }
        Ok(())
    }

    fn write_file(
        &self,
        seed: u64,
        fine_tune: Option<usize>,
        tensors: &[GeneratedTensor],
        path: &Path,
    ) -> std::io::Result<()> {
        let (mut header, mut offset) = (serde_json::Map::new(), 0);
        for tensor in tensors {
            let end = offset + tensor.values() * self.dtype.bytes();
            let entry = json!({"dtype": self.dtype.name(), "shape": tensor.shape, "data_offsets": [offset, end]});
            header.insert(tensor.name.clone(), entry);
            offset = end;
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        let mut bytes = Vec::new();
        for tensor in tensors {
            bytes.clear();
            self.append_values(seed, fine_tune, tensor, &mut bytes);
            out.write_all(&bytes)?;
        }
        out.flush()
    }

    fn append_values(&self, seed: u64, fine_tune: Option<usize>, tensor: &GeneratedTensor, out: &mut Vec<u8>) {
        let mut random = Random::of_part(seed, &tensor.name);
        let (is_norm, [least, largest]) = (tensor.shape.len() == 1, self.sigma_weight);
        let sigma = between(least, largest, random.below(256));
        let mut base = || (f64::from(u8::from(is_norm)) + sigma * random.normal()) as f32;
        let Some(number) = fine_tune else {
            (0..tensor.values()).for_each(|_| {
                self.dtype.append(base(), out);
            });
            return;
        };
        let mut changes = Random::of_part(seed, &format!("{}/{number}", tensor.name));
        let delta = changes.choose(&self.sigma_delta).copied().unwrap_or_default();
        let mut stored = Vec::with_capacity(self.dtype.bytes());
        for _ in 0..tensor.values() {
            stored.clear();
            let value = self.dtype.append(base(), &mut stored);
            let change = if delta > 0.0 { (delta * changes.normal()) as f32 } else { 0.0 };
            self.dtype.append(value + change, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_uniform_on_a_logarithmic_scale() {
        assert_eq!((between(0.015, 0.05, 0), between(1.0, 16.0, 128), between(1.0, 16.0, 64)), (0.015, 4.0, 2.0));
        assert!((between(0.015, 0.05, 255) / 0.05 - 1.0).abs() < 0.01);
    }
}
