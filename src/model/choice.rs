//! Choice: for each tensor of a new model the stored tensor that it is nearest to, and the model that it descends from.
//!
//! 1. In each candidate a tensor's counterpart is the one of its name, or the nearest by sketch of a few of its shape.
//! 2. The candidate that promises the shortest delta of the whole model comes first; of copies the oldest.
//! 3. The counterpart that promises the shortest delta is the base, the first of equals, if it promises to be worth it.
//!    ZipLLM's bit distance is kept for the lineage; it does not decide, because a distant model can still be worth a
//!    delta.
//! 4. The model's base is the first candidate in that order that is the base of any of its tensors. The distance shown
//!    is that of the two models: it counts all tensors that have a counterpart, wherever their own bases are.

use std::collections::HashMap;
use std::sync::Arc;

use super::record::{BaseModel, ModelRecord, TensorRecord};
use super::sketch::{SketchComparison, compare, standalone_bits};

/// Tensors of one shape tried on either side of the same place.
const NEIGHBOURS: usize = 4;
/// A delta must promise at most this part of the bits that a value takes on its own.
const WORTH: f64 = 0.93;

/// The base of one tensor.
#[derive(Debug, Clone)]
pub struct TensorBase {
    /// The model it is in.
    pub model: Arc<ModelRecord>,
    /// Which of its tensors.
    pub tensor: usize,
}

/// What a model is stored against.
#[derive(Debug, Clone, Default)]
pub struct BaseChoice {
    /// For each tensor its base.
    pub tensors: Vec<Option<TensorBase>>,
    /// The model that it descends from, by what the sketches show.
    pub base: Option<BaseModel>,
}

/// How two models compare, as far as their sketches show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelComparison {
    /// Differing bits of a value, mean over all bytes that have a counterpart.
    pub bit_distance: f64,
    /// Bits that the whole model would take as a delta, tensors without a counterpart on their own.
    pub delta_bits: f64,
    /// Most of what was compared is the cast of the other's.
    pub is_cast: bool,
}

/// What `new` is to be stored against, of `candidates`, of which the first of equals is preferred.
pub fn choose(new: &ModelRecord, candidates: &[Arc<ModelRecord>]) -> BaseChoice {
    let mut compared: Vec<(ModelComparison, Pairs, &Arc<ModelRecord>)> = Vec::with_capacity(candidates.len());
    for model in candidates {
        let pairs = pairs(new, &TensorLookup::of(model));
        compared.extend(comparison_of(new, &pairs).map(|compare_models| (compare_models, pairs, model)));
    }
    compared.sort_by(|one, other| one.0.delta_bits.total_cmp(&other.0.delta_bits));
    // Bytes that have their base in each.
    let mut leaning = vec![0u64; compared.len()];
    let mut tensors = Vec::with_capacity(new.tensors.len());
    for (at, tensor) in new.tensors.iter().enumerate() {
        let worth = WORTH * standalone_bits(tensor.dtype());
        let mut best: Option<(usize, usize, SketchComparison)> = None;
        for (number, (_, pairs, _)) in compared.iter().enumerate() {
            let Some((counterpart, found)) = pairs.get(at).copied().flatten() else { continue };
            let is_better = best.is_none_or(|best| found.delta_bits < best.2.delta_bits);
            if is_better && (found.is_cast || found.delta_bits < worth) {
                best = Some((number, counterpart, found));
            }
        }
        if let Some(bytes) = best.and_then(|best| leaning.get_mut(best.0)) {
            *bytes += tensor.len;
        }
        let base = best.and_then(|(number, counterpart, _)| Some((compared.get(number)?.2.clone(), counterpart)));
        tensors.push(base.map(|(model, tensor)| TensorBase { model, tensor }));
    }
    let nearest = std::iter::zip(&compared, leaning).find(|(_, bytes)| *bytes > 0);
    let base = nearest.map(|((compare_models, _, model), bytes)| {
        let ModelComparison { bit_distance, is_cast, .. } = *compare_models;
        BaseModel { id: model.id, bit_distance, bytes, is_cast }
    });
    BaseChoice { tensors, base }
}

/// Compares a model with one whose tensors `lookup` knows; `None` if they have nothing in common.
pub fn compare_models(new: &ModelRecord, lookup: &TensorLookup<'_>) -> Option<ModelComparison> {
    comparison_of(new, &pairs(new, lookup))
}

/// For each tensor its counterpart and how the two compare.
type Pairs = Vec<Option<(usize, SketchComparison)>>;

fn pairs(new: &ModelRecord, lookup: &TensorLookup<'_>) -> Pairs {
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::new();
    let counterpart = |tensor: &TensorRecord| {
        let rank = seen.entry(tensor.unordered_shape()).or_default();
        *rank += 1;
        lookup.counterpart(tensor, *rank - 1)
    };
    new.tensors.iter().map(counterpart).collect()
}

fn comparison_of(new: &ModelRecord, pairs: &Pairs) -> Option<ModelComparison> {
    let (mut bytes, mut cast_bytes, mut distance, mut delta_bits) = (0u64, 0u64, 0.0, 0.0);
    for (tensor, pair) in new.tensors.iter().zip(pairs) {
        let (len, width) = (tensor.len as f64, tensor.dtype().width().unwrap_or(1) as f64);
        let alone = standalone_bits(tensor.dtype());
        delta_bits += len / width * pair.map_or(alone, |pair| pair.1.delta_bits.min(alone));
        let Some((_, found)) = pair else { continue };
        bytes += tensor.len;
        cast_bytes += if found.is_cast { tensor.len } else { 0 };
        distance += found.bit_distance * len;
    }
    (bytes > 0).then(|| ModelComparison {
        bit_distance: distance / bytes as f64,
        delta_bits,
        is_cast: cast_bytes > bytes / 2,
    })
}

/// Where a record's tensors are, by name and by shape.
pub struct TensorLookup<'a> {
    model: &'a ModelRecord,
    names: HashMap<&'a str, usize>,
    shapes: HashMap<Vec<u64>, Vec<usize>>,
}

impl<'a> TensorLookup<'a> {
    /// Those of `model`.
    pub fn of(model: &'a ModelRecord) -> Self {
        let mut lookup = TensorLookup { model, names: HashMap::new(), shapes: HashMap::new() };
        for (at, tensor) in model.tensors.iter().enumerate() {
            lookup.names.insert(&tensor.name, at);
            lookup.shapes.entry(tensor.unordered_shape()).or_default().push(at);
        }
        lookup
    }

    /// The tensor that corresponds to `tensor`, the `rank`-th of its shape.
    fn counterpart(&self, tensor: &TensorRecord, rank: usize) -> Option<(usize, SketchComparison)> {
        let compared = |at: usize| {
            let other = self.model.tensors.get(at)?;
            Some((at, compare(tensor.sketched(), other.sketched())?))
        };
        if let Some(found) = self.names.get(tensor.name.as_str()).and_then(|at| compared(*at)) {
            return Some(found);
        }
        let same = self.shapes.get(&tensor.unordered_shape())?;
        let (from, to) = (rank.saturating_sub(NEIGHBOURS), (rank + NEIGHBOURS + 1).min(same.len()));
        let near = same.get(from..to).unwrap_or_default().iter().filter_map(|at| compared(*at));
        near.min_by(|one, other| one.1.delta_bits.total_cmp(&other.1.delta_bits))
    }
}
