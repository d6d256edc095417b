//! Pairs of models: where the two come from, and which tensors of theirs are compared.
//!
//! Two tensors are compared if they have the same name, dtype and length. With `layers`, a tensor of layer N of the
//! first model is compared with layer N + `layers` of the second: real weights of one shape that do not derive from
//! each other.

use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};
use fhrd::format::Tensor;
use fhrd::inspect::distance::OpenModel;
use fhrd::kernel::elements;
use fhrd::read_at::{fill, unwrapped};
use serde::Deserialize;

use super::data::{Set, set_with};

/// A pair of models, as a configuration describes it: a set and the other keys below.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct PairSource {
    /// The two model files, the base second; or generated data.
    pub data: Set,
    /// How the models are related, such as `one family`.
    pub relation: String,
    /// Generated data that holds the second model, if it is not in `data`.
    pub other: Option<Set>,
    /// Paths of the two models in generated data.
    pub members: Option<[PathBuf; 2]>,
    /// Pattern of the tensor names, with `*`.
    pub tensors: String,
    /// Added to the layer of the first model to get the layer of the second.
    pub layers: u32,
}

#[derive(Deserialize)]
struct PairKeys {
    relation: String,
    other: Option<Set>,
    members: Option<[PathBuf; 2]>,
    #[serde(default = "any")]
    tensors: String,
    #[serde(default)]
    layers: u32,
}

impl TryFrom<toml::Value> for PairSource {
    type Error = String;

    fn try_from(value: toml::Value) -> std::result::Result<Self, String> {
        let (keys, data) = set_with(value, &["relation", "other", "members", "tensors", "layers"])?;
        let PairKeys { relation, other, members, tensors, layers } = keys;
        Ok(PairSource { data, relation, other, members, tensors, layers })
    }
}

fn any() -> String {
    "*".into()
}

/// Bytes of a tensor that is read into memory, at most.
const TENSOR_BYTES_MAX: u64 = 4 << 30;

impl PairSource {
    /// The reason why a model cannot be read, if there is one. Generates nothing.
    pub fn missing(&self, corpus: &Path) -> Option<String> {
        let reason = self.data.missing(corpus).or_else(|| self.other.as_ref().and_then(|other| other.missing(corpus)));
        reason.map(|reason| format!("pair `{}`: {reason}", self.data.name))
    }

    /// Opens both models. Data that is missing is generated below `made`.
    ///
    /// # Errors
    /// Errors of the data; [`Error::Usage`] if it is not two models.
    pub fn open(&self, corpus: &Path, made: &Path) -> Result<[OpenModel; 2]> {
        let paths = |set: &Set| -> Result<Vec<PathBuf>> {
            Ok(set.sources(corpus, made)?.into_iter().flat_map(|source| source.paths).collect())
        };
        let wrong = |what: &str| Error::Usage(format!("pair `{}`: {what}", self.data.name));
        let first = paths(&self.data)?;
        let second = self.other.as_ref().map(paths).transpose()?;
        let [one, other] = match (&self.members, first.as_slice(), second.as_deref()) {
            (None, [one, other], None) => [one.clone(), other.clone()],
            (Some([one, other]), [made], None) => [made.join(one), made.join(other)],
            (Some([one, other]), [first], Some([second])) => [first.join(one), second.join(other)],
            _ => return Err(wrong("`data` must have two paths, or `members` must name two files of generated data")),
        };
        Ok([OpenModel::open(&one)?, OpenModel::open(&other)?])
    }

    /// The tensors to compare.
    ///
    /// # Errors
    /// [`Error::Usage`] if the pattern is invalid or no two tensors can be compared.
    pub fn tensors<'a>(&self, models: &'a [OpenModel; 2]) -> Result<Vec<(&'a Tensor, &'a Tensor)>> {
        let wrong = |what: String| Error::Usage(format!("pair `{}`: {what}", self.data.name));
        let pattern = glob::Pattern::new(&self.tensors).map_err(|error| wrong(error.to_string()))?;
        let [first, second] = models;
        let counterpart = |one: &'a Tensor| {
            let name = if self.layers == 0 { Some(one.name.clone()) } else { later_layer(&one.name, self.layers) }?;
            let other = second.model.tensors.iter().find(|other| other.name == name)?;
            let is_same = other.dtype == one.dtype && other.len == one.len && one.dtype.is_float();
            is_same.then_some((one, other))
        };
        let ones = first.model.tensors.iter().filter(|one| pattern.matches(&one.name));
        let found: Vec<_> = ones.filter_map(counterpart).collect();
        if found.is_empty() { Err(wrong("no two tensors can be compared".into())) } else { Ok(found) }
    }
}

/// The name with its first number increased; `None` without a number.
pub(super) fn later_layer(name: &str, by: u32) -> Option<String> {
    let mut parts: Vec<String> = name.split('.').map(str::to_string).collect();
    let part = parts.iter_mut().find(|part| part.parse::<u32>().is_ok())?;
    *part = part.parse::<u32>().ok()?.checked_add(by)?.to_string();
    Some(parts.join("."))
}

/// Reads the bytes of a tensor.
///
/// # Errors
/// [`Error::Usage`] for a tensor that is too large for memory; errors of reading.
pub fn bytes_of(model: &OpenModel, tensor: &Tensor) -> Result<Vec<u8>> {
    if tensor.len > TENSOR_BYTES_MAX {
        let (name, len) = (&tensor.name, tensor.len);
        return Err(Error::Usage(format!("tensor {name} of {} has {len} bytes, more than 4 GiB", model.label)));
    }
    let mut bytes = vec![0; tensor.len as usize];
    let read = fill(model.source(), tensor.offset, &mut bytes);
    read.map_err(|error| unwrapped(error, Path::new(&model.label)))?;
    Ok(bytes)
}

/// The values of a tensor of FP32, BF16 or FP16 as FP32, which is exact; `None` for other dtypes.
pub fn singles(dtype: fhrd::format::Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    use fhrd::format::Dtype::{Bfloat16, Float16, Float32};
    let widen = |convert: fn(&[u8], &mut [u8])| {
        let mut wide = vec![0; bytes.len() / 2 * 4];
        convert(bytes, &mut wide);
        wide
    };
    let wide = match dtype {
        Float32 => bytes.to_vec(),
        Bfloat16 => widen(elements::bf16_to_fp32),
        Float16 => widen(elements::fp16_to_fp32),
        _ => return None,
    };
    Some(wide.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fhrd::format::Dtype;

    #[test]
    fn the_first_number_of_a_name_is_its_layer() {
        assert_eq!(later_layer("encoder.layer.3.out.0.weight", 2).as_deref(), Some("encoder.layer.5.out.0.weight"));
        assert_eq!(later_layer("pooler.weight", 1), None);
    }

    #[test]
    fn values_are_widened_exactly() {
        assert_eq!(singles(Dtype::Bfloat16, &[0x80, 0x3f, 0, 0xc0]), Some(vec![1.0, -2.0]));
        assert_eq!(singles(Dtype::Float16, &[0, 0x3c]), Some(vec![1.0]));
        assert_eq!(singles(Dtype::Float32, &1.5f32.to_le_bytes()), Some(vec![1.5]));
        assert_eq!(singles(Dtype::Int8, &[1]), None);
    }
}
