//! ModelOutlines: what is kept in memory of every stored model of an architecture, to find those that a new one is near to.
//!
//! 1. An outline has the sketches of a model's largest tensors, by their number of values; of equal ones those with the
//!    smallest hashes of their names, so that models of one architecture show the same ones.
//! 2. In two outlines the tensors of one name are compared, or the nearest of one shape. What a delta would save of
//!    each is the saving; all of them together are at most 1, for a model that takes no space.
//! 3. Records are read once in a session, the latest first, as long as there is memory for their outlines: 22,000
//!    models of one architecture in BF16. Of older ones nothing is known but their heads.

use std::collections::{HashMap, HashSet};

use super::catalogue::CatalogueEntry;
use super::family::RecordLoader;
use super::record::{ModelRecord, TensorRecord};
use super::sketch::{Sketched, compare, prefix, standalone_bits};
use crate::error::Result;
use crate::format::Dtype;
use crate::types::Fingerprint;

/// Tensors of an outline.
pub const TENSORS_MAX: usize = 8;
/// Groups of values in all sketches of an outline, about.
const GROUPS_OF_OUTLINE: usize = 32;
/// Memory for the outlines of stored models.
const OUTLINES_BYTES_MAX: usize = 32 << 20;

/// For each tensor of a new model's outline, the part of the outlined bytes that a delta would save.
pub type Savings = [f32; TENSORS_MAX];

struct OutlinedTensor {
    name: u64,
    shape: u64,
    dtype: Dtype,
    len: u64,
    /// Bytes of its sketch.
    sketch_len: u32,
}

/// See the module.
pub struct ModelOutline {
    parts: Vec<OutlinedTensor>,
    sketches: Vec<u8>,
}

impl ModelOutline {
    /// That of `record`.
    pub fn of(record: &ModelRecord) -> Self {
        let values =
            |tensor: &TensorRecord| tensor.shape.iter().fold(1u64, |values, size| values.saturating_mul(*size));
        let mut largest: Vec<(u64, u64, &TensorRecord)> =
            record.tensors.iter().map(|tensor| (u64::MAX - values(tensor), tensor.named_key(), tensor)).collect();
        largest.sort_by_key(|tensor| (tensor.0, tensor.1));
        largest.truncate(TENSORS_MAX);
        let groups = GROUPS_OF_OUTLINE / largest.len().max(1);
        let (mut parts, mut sketches) = (Vec::with_capacity(largest.len()), Vec::new());
        for (_, name, tensor) in largest {
            let sketch = prefix(tensor.sketched(), groups);
            sketches.extend_from_slice(sketch);
            let (dtype, sketch_len) = (tensor.dtype(), sketch.len() as u32);
            parts.push(OutlinedTensor { name, shape: tensor.shape_key(), dtype, len: tensor.len, sketch_len });
        }
        sketches.shrink_to_fit();
        ModelOutline { parts, sketches }
    }

    fn parts(&self) -> impl Iterator<Item = (&OutlinedTensor, Sketched<'_>)> {
        let mut rest = self.sketches.as_slice();
        self.parts.iter().map(move |part| {
            let (sketch, behind) = rest.split_at_checked(part.sketch_len as usize).unwrap_or_default();
            rest = behind;
            (part, Sketched { dtype: part.dtype, len: part.len, sketch })
        })
    }

    /// What this model, a new one, would save as a delta to the stored one of outline `old`.
    pub fn savings(&self, old: &ModelOutline) -> Savings {
        let mut savings = Savings::default();
        let bytes: f64 = self.parts.iter().map(|part| part.len as f64).sum();
        for ((part, sketched), saving) in self.parts().zip(&mut savings) {
            let alone = standalone_bits(part.dtype);
            let saved = |other: Sketched<'_>| Some((1.0 - compare(sketched, other)?.delta_bits / alone).max(0.0));
            let named = old.parts().find(|other| other.0.name == part.name).and_then(|other| saved(other.1));
            let alike = || old.parts().filter(|other| other.0.shape == part.shape).filter_map(|other| saved(other.1));
            let part_saved = named.or_else(|| alike().max_by(f64::total_cmp)).unwrap_or(0.0);
            *saving = (part_saved * part.len as f64 / bytes) as f32;
        }
        savings
    }

    fn memory_bytes(&self) -> usize {
        size_of::<(Fingerprint, ModelOutline)>() + self.parts.len() * size_of::<OutlinedTensor>() + self.sketches.len()
    }
}

/// The outlines of stored models by their ids.
#[derive(Default)]
pub struct ModelOutlines {
    known: HashMap<Fingerprint, ModelOutline>,
    /// Records that have been asked for, whatever came of it.
    asked: HashSet<Fingerprint>,
    bytes: usize,
}

impl ModelOutlines {
    /// ModelOutlines what can be had of `heads`, those that are wanted most first.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn read<'a>(
        &mut self,
        heads: impl Iterator<Item = &'a CatalogueEntry>,
        load: &mut RecordLoader<'_>,
    ) -> Result<()> {
        for head in heads {
            if self.bytes >= OUTLINES_BYTES_MAX {
                break;
            }
            if self.known.contains_key(&head.id) || !self.asked.insert(head.record) {
                continue;
            }
            if let Some(record) = load(&head.record)? {
                let outline = ModelOutline::of(&record);
                self.bytes += outline.memory_bytes();
                self.known.insert(head.id, outline);
            }
        }
        Ok(())
    }

    /// That of the model `id`.
    pub fn get(&self, id: &Fingerprint) -> Option<&ModelOutline> {
        self.known.get(id)
    }
}
