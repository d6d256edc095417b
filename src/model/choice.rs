//! Choice: which stored tensor each tensor of a new model is a delta to, and which model the new one descends from.
//!
//! 1. In each candidate the counterpart of a tensor is the tensor of its name, else the nearest by sketch of a few
//!    tensors of its shape. Many are tried for a quantised tensor: formats name and order tensors in their own ways,
//!    and the tensor that it follows from cannot be mistaken.
//! 2. Candidates are ordered by the estimated size of a delta of the whole model; equal ones by age, the oldest first.
//!    A model that the new one's card names comes first if its estimate is within the noise of the best one.
//! 3. A tensor's base is the counterpart with the shortest estimated delta, the first of equals, if the delta is short
//!    enough. Against a model that the card names, another one must be better by more than the noise. The bit distance
//!    of ZipLLM is recorded for the family tree only. It does not decide, because a delta to a distant model can still
//!    pay.
//! 4. A tensor may also be a delta to an earlier one of its own file, if that is shorter: most are copies in another
//!    type.
//! 5. A tensor that no model is very near to may be a weighted mean of those of two models ([`super::blend`]). Pairs of
//!    the nearest candidates are tried.
//! 6. The model's base is the first candidate that is the base of at least one of its tensors. The recorded distance
//!    is that of the two whole models: it counts all tensors with a counterpart, whatever their own bases are.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use super::blend::blend;
use super::catalogue::name_hash;
use super::own::OwnTensors;
use super::quantised::{compare_any, is_quantised};
use super::record::{BaseModel, ModelRecord, TensorRecord, sorted_dimensions};
use super::relation::{ModelLikeness, Relation};
use super::scaled::{may_be_codes, name_of_floats, unpacked_shape};
use super::sketch::standalone_bits;
use super::tensor_comparison::TensorComparison;
use crate::types::Fingerprint;

/// Tensors of one shape that are tried on either side of the same rank.
const NEIGHBOURS: usize = 4;
/// As many for a quantised tensor.
const QUANTISED_NEIGHBOURS: usize = 512;
/// Searches that find nothing, one after another, until the next ones are short.
const FRUITLESS_MAX: usize = 8;
/// Share of equal codes at which no other tensor is tried.
const FOUND_SHARE: f64 = 0.98;
/// A delta pays if it is estimated below this part of a value's bits without a base.
const WORTH: f64 = 0.93;
/// Two estimates of delta bits that differ by less than this part may be in any order: a sketch has 64 to 4096 values
/// of a model, whose deltas differ by about half their mean.
const NOISE: f64 = 0.03;

/// The base of one tensor.
#[derive(Debug, Clone)]
pub struct TensorBase {
    /// The model that holds it; `None` if that is the new model itself.
    pub model: Option<Arc<ModelRecord>>,
    /// Index of the tensor in the model.
    pub tensor: usize,
    /// Share of the sampled values that are equal.
    pub equal_share: f64,
    /// Estimated bits of a value in a delta.
    pub delta_bits: f64,
    /// It is that tensor with some values set to zero.
    pub is_pruned: bool,
    /// The model and the number of another tensor, if this one is a blend of both.
    pub second: Option<(Arc<ModelRecord>, usize)>,
    /// Estimated bits of a value in a delta without the second tensor.
    pub near_bits: f64,
}

/// The bases of a model.
#[derive(Debug, Clone, Default)]
pub struct BaseChoice {
    /// The base of each tensor.
    pub tensors: Vec<Option<TensorBase>>,
    /// The model that it descends from, estimated from the sketches.
    pub base: Option<BaseModel>,
    /// Candidates of other families.
    pub distant: Vec<Fingerprint>,
}

/// How two models differ, estimated from their sketches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelComparison {
    /// Mean number of differing bits of a value, over all bytes with a counterpart.
    pub bit_distance: f64,
    /// Bits of the whole model as a delta; tensors without a counterpart count on their own.
    pub delta_bits: f64,
    /// How alike the models are, whatever their types.
    pub likeness: ModelLikeness,
}

/// Chooses the bases of `new` among `candidates`; the first of equal candidates wins. With `derives`, the base of a
/// quantised tensor may be one of floats.
pub fn choose(new: &ModelRecord, candidates: &[Arc<ModelRecord>], derives: bool) -> BaseChoice {
    let wanted: Vec<u64> = new.bases.iter().map(|name| name_hash(name)).collect();
    let is_named = |model: &ModelRecord| model.names.iter().any(|name| wanted.contains(&name_hash(name)));
    let mut compared: Vec<(ModelComparison, Pairs, &Arc<ModelRecord>)> = Vec::with_capacity(candidates.len());
    for model in candidates {
        let pairs = pairs(new, &TensorLookup { derives, ..TensorLookup::of(model) });
        compared.extend(comparison_of(new, &pairs, model).map(|compare_models| (compare_models, pairs, model)));
    }
    compared.sort_by(|one, other| one.0.delta_bits.total_cmp(&other.0.delta_bits));
    let noise = compared.first().map_or(0.0, |best| best.0.delta_bits * (1.0 + NOISE));
    // The sort is stable.
    compared.sort_by_key(|(found, _, model)| found.delta_bits > noise || !is_named(model));
    let margins: Vec<f64> = compared.iter().map(|one| if is_named(one.2) { 1.0 - NOISE } else { 1.0 }).collect();
    // Bytes of tensors whose base is in each candidate.
    let mut base_bytes = vec![0u64; compared.len()];
    let mut tensors = Vec::with_capacity(new.tensors.len());
    let own = OwnTensors::of(&new.tensors);
    for (at, tensor) in new.tensors.iter().enumerate() {
        let worth = WORTH * standalone_bits(tensor.dtype());
        let mut best: Option<(usize, usize, TensorComparison)> = None;
        for (number, (_, pairs, _)) in compared.iter().enumerate() {
            let Some((counterpart, found)) = pairs.get(at).copied().flatten() else { continue };
            let is_better = best.is_none_or(|(known, _, best)| {
                found.delta_bits < best.delta_bits * margins.get(known).copied().unwrap_or(1.0)
            });
            if is_better && (found.is_cast || found.delta_bits < worth) {
                best = Some((number, counterpart, found));
            }
        }
        let known = best.map_or(worth, |best| best.2.delta_bits);
        if let Some((tensor, found)) = own_base(&own, at, tensor, derives).filter(|own| own.1.delta_bits < known) {
            tensors.push(Some(TensorBase::new(None, tensor, &found)));
            continue;
        }
        let blend = if derives && known > 0.0 { blend(tensor, &compared, at) } else { None };
        if let Some((number, found)) = blend {
            base_bytes.get_mut(number).into_iter().for_each(|bytes| *bytes += tensor.len);
            tensors.push(Some(found));
            continue;
        }
        if let Some(bytes) = best.and_then(|best| base_bytes.get_mut(best.0)) {
            *bytes += tensor.len;
        }
        tensors.push(best.and_then(|(number, tensor, found)| {
            Some(TensorBase::new(Some(compared.get(number)?.2.clone()), tensor, &found))
        }));
    }
    let nearest = std::iter::zip(&compared, base_bytes).find(|(_, bytes)| *bytes > 0);
    let base = nearest.map(|((found, _, model), bytes)| base_model(model, found, bytes));
    let is_distant = |found: &ModelComparison| found.likeness.relation() == Some(Relation::Distant);
    let distant = compared.iter().filter(|one| is_distant(&one.0)).map(|one| one.2.id).collect();
    BaseChoice { tensors, base, distant }
}

impl TensorBase {
    pub(super) fn new(model: Option<Arc<ModelRecord>>, tensor: usize, found: &TensorComparison) -> Self {
        TensorBase {
            model,
            tensor,
            equal_share: found.equal_share,
            delta_bits: found.delta_bits,
            is_pruned: found.is_pruned(),
            second: None,
            near_bits: found.delta_bits,
        }
    }
}

/// The earlier tensor of the same file, of another type, to which a delta is shortest.
fn own_base(
    own: &OwnTensors<'_>,
    at: usize,
    tensor: &TensorRecord,
    derives: bool,
) -> Option<(usize, TensorComparison)> {
    if !derives {
        return None;
    }
    let len_of = |tensor: &TensorRecord| tensor.len / tensor.dtype().width().unwrap_or(1) as u64;
    own.nearest(at, |other| other.dtype != tensor.dtype && len_of(other) == len_of(tensor))
}

/// What `model` is as a base of which tensors of `bytes` bytes are stored against it.
fn base_model(model: &ModelRecord, found: &ModelComparison, bytes: u64) -> BaseModel {
    let relation = found.likeness.relation().unwrap_or(Relation::Distant);
    BaseModel {
        id: model.id,
        bit_distance: found.likeness.any_bit_distance(),
        bytes,
        is_cast: relation == Relation::Cast,
        relation: Some(relation.number()),
    }
}

/// Compares a model with the one of `lookup`; `None` if no tensor has a counterpart.
pub fn compare_models(new: &ModelRecord, lookup: &TensorLookup<'_>) -> Option<ModelComparison> {
    comparison_of(new, &pairs(new, lookup), lookup.model)
}

/// The counterpart of each tensor and how the two compare.
pub(super) type Pairs = Vec<Option<(usize, TensorComparison)>>;

fn pairs(new: &ModelRecord, lookup: &TensorLookup<'_>) -> Pairs {
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::new();
    let counterpart = |tensor: &TensorRecord| {
        let rank = seen.entry(tensor.unordered_shape()).or_default();
        *rank += 1;
        lookup.counterpart(tensor, *rank - 1)
    };
    new.tensors.iter().map(counterpart).collect()
}

fn comparison_of(new: &ModelRecord, pairs: &Pairs, old: &ModelRecord) -> Option<ModelComparison> {
    let (mut bytes, mut distance, mut delta_bits) = (0u64, 0.0, 0.0);
    let mut likeness = ModelLikeness::default();
    for (tensor, pair) in new.tensors.iter().zip(pairs) {
        let (len, width) = (tensor.len as f64, tensor.dtype().width().unwrap_or(1) as f64);
        let alone = standalone_bits(tensor.dtype());
        delta_bits += len / width * pair.map_or(alone, |pair| pair.1.delta_bits.min(alone));
        let Some((counterpart, found)) = pair else { continue };
        bytes += tensor.len;
        distance += found.bit_distance * len;
        // Samples of tensors of other shapes are of other rows, if rows were inserted.
        let dimensions = |shape: &[u64]| shape.iter().copied().filter(|size| *size != 1).collect::<Vec<u64>>();
        let is_of_shape = |old: &TensorRecord| dimensions(&old.shape) == dimensions(&tensor.shape);
        let is_whole = old.tensors.get(*counterpart).is_some_and(is_of_shape);
        if is_whole || found.is_near() {
            likeness.add(tensor.dtype(), tensor.len, found);
        }
    }
    (bytes > 0).then(|| ModelComparison { bit_distance: distance / bytes as f64, delta_bits, likeness })
}

/// The tensors of a record by name and by shape.
pub struct TensorLookup<'a> {
    model: &'a ModelRecord,
    names: HashMap<&'a str, usize>,
    shapes: HashMap<Vec<u64>, Vec<usize>>,
    /// Quantised tensors may follow from floats.
    derives: bool,
    /// Searches among quantised tensors since the last one that found something.
    fruitless: Cell<usize>,
}

impl<'a> TensorLookup<'a> {
    /// The tensors of `model`.
    pub fn of(model: &'a ModelRecord) -> Self {
        let mut lookup = TensorLookup {
            model,
            names: HashMap::new(),
            shapes: HashMap::new(),
            derives: false,
            fruitless: Cell::new(0),
        };
        for (at, tensor) in model.tensors.iter().enumerate() {
            lookup.names.insert(&tensor.name, at);
            lookup.shapes.entry(tensor.unordered_shape()).or_default().push(at);
        }
        lookup
    }

    /// The tensor that corresponds to `tensor`, the `rank`-th of its shape.
    fn counterpart(&self, tensor: &TensorRecord, rank: usize) -> Option<(usize, TensorComparison)> {
        let compared = |at: usize| {
            let other = self.model.tensors.get(at)?;
            Some((at, compare_any(tensor.sketched(), other.sketched(), self.derives)?))
        };
        if let Some(found) = self.names.get(tensor.name.as_str()).and_then(|at| compared(*at)) {
            return Some(found);
        }
        if self.derives && may_be_codes(tensor) {
            let of_floats = name_of_floats(&tensor.name).and_then(|name| self.names.get(name.as_str()));
            let found = of_floats.and_then(|at| compared(*at)).or_else(|| {
                let same = self.shapes.get(&sorted_dimensions(&unpacked_shape(tensor)?))?;
                self.nearest_of(same, rank, compared)
            });
            if found.is_some() {
                return found;
            }
        }
        let same = self.shapes.get(&tensor.unordered_shape())?;
        if self.derives && is_quantised(tensor) {
            return self.nearest_of(same, rank, compared);
        }
        let (from, to) = (rank.saturating_sub(NEIGHBOURS), (rank + NEIGHBOURS + 1).min(same.len()));
        let near = same.get(from..to).unwrap_or_default().iter().filter_map(|at| compared(*at));
        near.min_by(|one, other| one.1.delta_bits.total_cmp(&other.1.delta_bits))
    }

    /// Of the tensors `same`, tried outward from number `rank`, the nearest one. The search ends where nearly all codes
    /// follow, and is short behind some that found nothing: of many tensors of one shape, none may follow from these.
    fn nearest_of(
        &self,
        same: &[usize],
        rank: usize,
        compared: impl Fn(usize) -> Option<(usize, TensorComparison)>,
    ) -> Option<(usize, TensorComparison)> {
        let reach = if self.fruitless.get() < FRUITLESS_MAX { QUANTISED_NEIGHBOURS } else { NEIGHBOURS };
        let mut best: Option<(usize, TensorComparison)> = None;
        for near in outward(rank, reach).filter_map(|at| same.get(at)) {
            let found = compared(*near);
            let is_better = |found: &(usize, TensorComparison)| {
                best.as_ref().is_none_or(|best| found.1.delta_bits < best.1.delta_bits)
            };
            best = found.filter(is_better).or(best);
            if best.as_ref().is_some_and(|best| best.1.equal_share >= FOUND_SHARE) {
                break;
            }
        }
        self.fruitless.set(if best.is_some() { 0 } else { self.fruitless.get() + 1 });
        best
    }
}

/// `middle`, then the numbers around it by their distance, up to `reach`.
fn outward(middle: usize, reach: usize) -> impl Iterator<Item = usize> {
    let around = (1..=reach).flat_map(move |distance| [middle.checked_add(distance), middle.checked_sub(distance)]);
    std::iter::once(middle).chain(around.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tensor_comparison::Likeness;

    #[test]
    fn searches_that_find_nothing_become_short_until_one_finds_something() {
        let model = ModelRecord {
            id: Fingerprint([0; 32]),
            content: None,
            format: String::new(),
            path: Vec::new(),
            names: Vec::new(),
            bases: Vec::new(),
            evidence: None,
            bytes: 0,
            parameters: 0,
            block_bytes: 1,
            tensors: Vec::new(),
            base: None,
        };
        let (lookup, same) = (TensorLookup::of(&model), (0..5000).collect::<Vec<usize>>());
        let tried = Cell::new(0);
        let search = |finds: bool| {
            tried.set(0);
            let found = TensorComparison {
                values: 1,
                bit_distance: 0.0,
                delta_bits: 0.0,
                is_cast: false,
                equal_share: 1.0,
                likeness: Likeness::default(),
            };
            let compared = |at| {
                tried.set(tried.get() + 1);
                finds.then_some((at, found))
            };
            lookup.nearest_of(&same, 2500, compared);
            tried.get()
        };
        assert!((0..FRUITLESS_MAX).all(|_| search(false) == 1 + 2 * QUANTISED_NEIGHBOURS));
        assert!((0..100).all(|_| search(false) == 1 + 2 * NEIGHBOURS));
        assert_eq!(search(true), 1);
        assert_eq!(search(false), 1 + 2 * QUANTISED_NEIGHBOURS, "it is worth a long search again");
    }
}
