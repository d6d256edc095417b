//! Outlines: short extracts of sketches, held in memory for every stored model of an architecture.
//!
//! 1. An outline has the sketches of a model's largest tensors by number of values. Among equal ones it takes those
//!    with the smallest hashes of their names, so that models of one architecture show the same tensors.
//! 2. Tensors of one name are compared, else the nearest tensors of one shape. The saving of a tensor is the part of
//!    the outlined bytes that a delta would save; all savings together are at most 1, for a model that is free.
//! 3. Records are read once in a session, the latest first, until the memory for outlines is full. It holds the
//!    outlines of 22,000 BF16 models of one architecture. Older models have only their catalogue entries.

use std::collections::{HashMap, HashSet};

use super::catalogue::CatalogueEntry;
use super::family::RecordLoader;
use super::quantised::compare_any;
use super::record::{ModelRecord, TensorRecord};
use super::sketch::{Sketched, prefix, standalone_bits};
use crate::error::Result;
use crate::format::Dtype;
use crate::types::Fingerprint;

/// Tensors of an outline, at most.
pub const TENSORS_MAX: usize = 8;
/// Groups of values in all sketches of an outline, about.
const GROUPS_OF_OUTLINE: usize = 32;

/// The saving of each tensor of a new model's outline, as a part of the outlined bytes.
pub type Savings = [f32; TENSORS_MAX];

struct OutlinedTensor {
    name: u64,
    shape: u64,
    dtype: Dtype,
    len: u64,
    /// Bytes of its part of `sketches`.
    sketch_len: u32,
}

/// An extract of a model's sketches.
pub struct ModelOutline {
    tensors: Vec<OutlinedTensor>,
    sketches: Vec<u8>,
}

impl ModelOutline {
    /// The outline of `record`.
    pub fn of(record: &ModelRecord) -> Self {
        let values =
            |tensor: &TensorRecord| tensor.shape.iter().fold(1u64, |values, size| values.saturating_mul(*size));
        let mut largest: Vec<(u64, u64, &TensorRecord)> =
            record.tensors.iter().map(|tensor| (u64::MAX - values(tensor), tensor.named_key(), tensor)).collect();
        largest.sort_by_key(|tensor| (tensor.0, tensor.1));
        largest.truncate(TENSORS_MAX);
        let groups = GROUPS_OF_OUTLINE / largest.len().max(1);
        let (mut tensors, mut sketches) = (Vec::with_capacity(largest.len()), Vec::new());
        for (_, name, tensor) in largest {
            let sketch = prefix(tensor.sketched(), groups);
            sketches.extend_from_slice(sketch);
            let (dtype, sketch_len) = (tensor.dtype(), sketch.len() as u32);
            tensors.push(OutlinedTensor { name, shape: tensor.shape_key(), dtype, len: tensor.len, sketch_len });
        }
        sketches.shrink_to_fit();
        ModelOutline { tensors, sketches }
    }

    fn tensors(&self) -> impl Iterator<Item = (&OutlinedTensor, Sketched<'_>)> {
        let mut rest = self.sketches.as_slice();
        self.tensors.iter().map(move |tensor| {
            let (sketch, behind) = rest.split_at_checked(tensor.sketch_len as usize).unwrap_or_default();
            rest = behind;
            (tensor, Sketched { dtype: tensor.dtype, len: tensor.len, sketch })
        })
    }

    /// Estimated savings of this new model as a delta to the stored model with outline `old`. With `derives`, quantised
    /// tensors may follow from floats.
    pub fn savings(&self, old: &ModelOutline, derives: bool) -> Savings {
        let mut savings = Savings::default();
        let bytes: f64 = self.tensors.iter().map(|tensor| tensor.len as f64).sum();
        for ((tensor, sketched), saving) in self.tensors().zip(&mut savings) {
            let alone = standalone_bits(tensor.dtype);
            let saved =
                |other: Sketched<'_>| Some((1.0 - compare_any(sketched, other, derives)?.delta_bits / alone).max(0.0));
            let named = old.tensors().find(|other| other.0.name == tensor.name).and_then(|other| saved(other.1));
            let alike =
                || old.tensors().filter(|other| other.0.shape == tensor.shape).filter_map(|other| saved(other.1));
            let part_saved = named.or_else(|| alike().max_by(f64::total_cmp)).unwrap_or(0.0);
            *saving = (part_saved * tensor.len as f64 / bytes) as f32;
        }
        savings
    }

    fn memory_bytes(&self) -> usize {
        size_of::<(Fingerprint, ModelOutline)>()
            + self.tensors.len() * size_of::<OutlinedTensor>()
            + self.sketches.len()
    }
}

/// The outlines of stored models, by their ids.
#[derive(Default)]
pub struct ModelOutlines {
    known: HashMap<Fingerprint, ModelOutline>,
    /// Records that were requested, readable or not.
    asked: HashSet<Fingerprint>,
    bytes: usize,
}

impl ModelOutlines {
    /// Reads the outlines of `entries` in this order until they take `bytes_max` bytes; unreadable records are skipped.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn read<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a CatalogueEntry>,
        bytes_max: usize,
        load: &mut RecordLoader<'_>,
    ) -> Result<()> {
        for entry in entries {
            if self.bytes >= bytes_max {
                break;
            }
            if self.known.contains_key(&entry.id) || !self.asked.insert(entry.record) {
                continue;
            }
            if let Some(record) = load(&entry.record)? {
                let outline = ModelOutline::of(&record);
                self.bytes += outline.memory_bytes();
                self.known.insert(entry.id, outline);
            }
        }
        Ok(())
    }

    /// The outline of model `id`.
    pub fn get(&self, id: &Fingerprint) -> Option<&ModelOutline> {
        self.known.get(id)
    }
}
