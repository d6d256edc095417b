//! Families: for each tensor of a new model, the stored tensor that it is nearest to.
//!
//! 1. Candidates are records that share most hashes of tensors with the new one, those of the file's last version and
//!    of models that its card names first, the latest of equals first; then the bases of these.
//! 2. In each candidate a tensor's counterpart is the one of its name, or the nearest by sketch of a few of its shape.
//! 3. The counterpart that promises the shortest delta is the base, if it promises to be worth it. ZipLLM's bit
//!    distance is kept for the lineage; it does not decide, because a distant model can still be worth a delta.

use std::collections::HashMap;
use std::sync::Arc;

use super::catalogue::{Head, name_hash};
use super::record::{BaseModel, ModelRecord, TensorRecord};
use super::sketch::{Comparison, compare, standalone_bits};
use crate::error::Result;
use crate::types::Fingerprint;

/// Records compared with a new model, at most, and bases of those.
const CANDIDATES_MAX: usize = 12;
const BASES_MAX: usize = 4;
/// What a name and the last version weigh beside a shared hash.
const NAME_WEIGHT: usize = 1 << 8;
const VERSION_WEIGHT: usize = 1 << 16;
/// Tensors of one shape tried on either side of the same place.
const NEIGHBOURS: usize = 4;
/// A delta must promise at most this part of the bits that a value takes on its own.
const WORTH: f64 = 0.93;
/// Memory for records of the running session.
const SESSION_BYTES_MAX: usize = 32 << 20;

/// The base of one tensor.
#[derive(Debug, Clone)]
pub struct TensorBase {
    /// The model it is in.
    pub model: Arc<ModelRecord>,
    /// Which of its tensors.
    pub tensor: usize,
    /// How the two compare.
    pub comparison: Comparison,
}

/// Loads the record stored as a chunk; `None` if it cannot be had.
pub type Load<'a> = dyn FnMut(&Fingerprint) -> Result<Option<Arc<ModelRecord>>> + 'a;

/// The models known so far.
#[derive(Default)]
pub struct Families {
    stored: Vec<Head>,
    session: Vec<(Head, Arc<ModelRecord>)>,
    session_bytes: usize,
}

impl Families {
    /// Those of the catalogue.
    pub fn new(stored: Vec<Head>) -> Self {
        Families { stored, ..Families::default() }
    }

    /// Adds a model of the running session; old ones make room.
    pub fn add(&mut self, record: Arc<ModelRecord>) {
        self.session_bytes += record.memory_bytes();
        let head = Head::new(&record, Fingerprint([0; 32]));
        self.session.push((head, record));
        while self.session_bytes > SESSION_BYTES_MAX && self.session.len() > 1 {
            self.session_bytes -= self.session.remove(0).1.memory_bytes();
        }
    }

    /// The records to compare `new` with, most promising first. `last_version` is the content that the file had.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn candidates(
        &self,
        new: &ModelRecord,
        last_version: Option<Fingerprint>,
        load: &mut Load<'_>,
    ) -> Result<Vec<Arc<ModelRecord>>> {
        let keys = new.keys();
        let wanted: Vec<u64> = new.bases.iter().map(|name| name_hash(name)).collect();
        let score = |head: &Head| {
            let shared = keys.iter().filter(|key| head.keys.contains(key)).count();
            let named = usize::from(head.names.iter().any(|name| wanted.contains(name)));
            let is_last = usize::from(last_version.is_some() && last_version == head.content);
            // A name alone is none: a model of another shape has nothing to offer.
            if shared == 0 { 0 } else { shared + named * NAME_WEIGHT + is_last * VERSION_WEIGHT }
        };
        let session = self.session.iter().rev().map(|(head, record)| (head, Some(record)));
        let all = session.chain(self.stored.iter().rev().map(|head| (head, None)));
        let mut scored: Vec<_> = all.map(|(head, record)| (score(head), head, record)).collect();
        scored.retain(|scored| scored.0 > 0);
        scored.sort_by_key(|scored| std::cmp::Reverse(scored.0));
        let mut found: Vec<Arc<ModelRecord>> = Vec::new();
        for (_, head, record) in scored {
            if found.len() == CANDIDATES_MAX {
                break;
            }
            if !found.iter().any(|other| other.id == head.id) {
                found.extend(self.record(head, record, load)?);
            }
        }
        let bases: Vec<Fingerprint> = found.iter().filter_map(|record| Some(record.base.as_ref()?.id)).collect();
        for base in bases {
            if found.len() < CANDIDATES_MAX + BASES_MAX && !found.iter().any(|record| record.id == base) {
                found.extend(self.with_id(&base, load)?);
            }
        }
        Ok(found)
    }

    fn record(
        &self,
        head: &Head,
        record: Option<&Arc<ModelRecord>>,
        load: &mut Load<'_>,
    ) -> Result<Option<Arc<ModelRecord>>> {
        match record {
            Some(record) => Ok(Some(record.clone())),
            None => load(&head.record),
        }
    }

    fn with_id(&self, id: &Fingerprint, load: &mut Load<'_>) -> Result<Option<Arc<ModelRecord>>> {
        if let Some((_, record)) = self.session.iter().find(|(head, _)| head.id == *id) {
            return Ok(Some(record.clone()));
        }
        let head = self.stored.iter().rev().find(|head| head.id == *id);
        head.map_or(Ok(None), |head| load(&head.record))
    }
}

/// For each tensor of `new` its base among `candidates`.
pub fn choose(new: &ModelRecord, candidates: &[Arc<ModelRecord>]) -> Vec<Option<TensorBase>> {
    let places: Vec<Places> = candidates.iter().map(|record| Places::of(record)).collect();
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::new();
    let mut chosen = Vec::with_capacity(new.tensors.len());
    for tensor in &new.tensors {
        let rank = seen.entry(tensor.unordered_shape()).or_default();
        let mut best: Option<TensorBase> = None;
        for (model, places) in candidates.iter().zip(&places) {
            let Some((at, comparison)) = places.counterpart(model, tensor, *rank) else { continue };
            let is_better = best.as_ref().is_none_or(|best| comparison.delta_bits < best.comparison.delta_bits);
            if is_better && (comparison.is_cast || comparison.delta_bits < WORTH * standalone_bits(tensor.dtype())) {
                best = Some(TensorBase { model: model.clone(), tensor: at, comparison });
            }
        }
        *rank += 1;
        chosen.push(best);
    }
    chosen
}

/// The model that most bytes of `new` have their bases in.
pub fn likeness(new: &ModelRecord, chosen: &[Option<TensorBase>]) -> Option<BaseModel> {
    struct Share {
        bytes: u64,
        cast_bytes: u64,
        distance: f64,
    }
    let mut shares: Vec<(Fingerprint, Share)> = Vec::new();
    for (tensor, base) in new.tensors.iter().zip(chosen) {
        let Some(base) = base else { continue };
        let id = base.model.id;
        let at = shares.iter().position(|share| share.0 == id).unwrap_or_else(|| {
            shares.push((id, Share { bytes: 0, cast_bytes: 0, distance: 0.0 }));
            shares.len() - 1
        });
        let Some((_, share)) = shares.get_mut(at) else { continue };
        share.bytes += tensor.len;
        share.cast_bytes += if base.comparison.is_cast { tensor.len } else { 0 };
        share.distance += base.comparison.bit_distance * tensor.len as f64;
    }
    let (id, share) = shares.into_iter().max_by_key(|share| share.1.bytes)?;
    let bit_distance = share.distance / share.bytes as f64;
    Some(BaseModel { id, bit_distance, bytes: share.bytes, is_cast: share.cast_bytes * 2 > share.bytes })
}

/// Where a record's tensors are, by name and by shape.
struct Places<'a> {
    names: HashMap<&'a str, usize>,
    shapes: HashMap<Vec<u64>, Vec<usize>>,
}

impl<'a> Places<'a> {
    fn of(record: &'a ModelRecord) -> Self {
        let mut places = Places { names: HashMap::new(), shapes: HashMap::new() };
        for (at, tensor) in record.tensors.iter().enumerate() {
            places.names.insert(&tensor.name, at);
            places.shapes.entry(tensor.unordered_shape()).or_default().push(at);
        }
        places
    }

    /// The tensor of `model` that corresponds to `tensor`, the `rank`-th of its shape.
    fn counterpart(&self, model: &ModelRecord, tensor: &TensorRecord, rank: usize) -> Option<(usize, Comparison)> {
        let compared = |at: usize| {
            let other = model.tensors.get(at)?;
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
