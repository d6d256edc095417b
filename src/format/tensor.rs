//! What recognition finds: tensors, and the checks every format's tensors pass before a caller sees them.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::dtype::Dtype;
use super::read::Fault;

/// Most tensors in one file.
pub(super) const TENSORS_MAX: usize = 1_000_000;
/// Most dimensions of a tensor.
pub(super) const DIMENSIONS_MAX: usize = 32;
/// Most strings of metadata kept.
const METADATA_ENTRIES_MAX: usize = 64;
/// Longest string of metadata kept; keys may have a quarter of it.
pub(super) const METADATA_BYTES_MAX: usize = 1024;

/// One tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Its name in the file; no two tensors of a file have the same.
    pub name: String,
    /// Type of its values.
    pub dtype: Dtype,
    /// Sizes of the dimensions, the one that varies slowest in the file first.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What a model file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// Name of the format.
    pub format: &'static str,
    /// By ascending offset, not overlapping, all within the file, none of them empty.
    pub tensors: Vec<Tensor>,
    /// Short strings the file says of itself.
    pub metadata: BTreeMap<String, String>,
}

/// What content is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recognition {
    /// Nothing known.
    Opaque,
    /// It looks like the format but lies.
    Defective {
        /// Name of the format.
        format: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// A model file.
    Model(Recognised),
}

/// Values of a tensor of this shape; none if the number does not fit.
pub(super) fn values(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
}

/// Keeps a string of metadata if it is short and there is room.
pub(super) fn note(metadata: &mut BTreeMap<String, String>, key: String, value: String) {
    let is_short = key.len() <= METADATA_BYTES_MAX / 4 && value.len() <= METADATA_BYTES_MAX;
    if is_short && metadata.len() < METADATA_ENTRIES_MAX {
        metadata.insert(key, value);
    }
}

/// Sorts the tensors, leaves empty ones out and checks what [`Recognised`] promises of those in `len` bytes.
pub(super) fn settle(
    format: &'static str,
    mut tensors: Vec<Tensor>,
    metadata: BTreeMap<String, String>,
    len: u64,
) -> Result<Option<Recognised>, Fault> {
    let mut names = HashSet::with_capacity(tensors.len());
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Fault::because(format!("expected one tensor called {:?}, found two", twice.name));
    }
    drop(names);
    tensors.retain(|tensor| tensor.len > 0);
    tensors.sort_by_key(|tensor| tensor.offset);
    let mut end = 0;
    let mut before = "";
    for tensor in &tensors {
        let (name, offset) = (tensor.name.as_str(), tensor.offset);
        if offset < end {
            return Fault::because(format!(
                "expected tensor {name:?} behind {before:?}, which ends at byte {end}, found it at byte {offset}"
            ));
        }
        end = match offset.checked_add(tensor.len) {
            Some(end) if end <= len => end,
            _ => {
                return Fault::because(format!(
                    "expected tensor {name:?} within {len} bytes, found {} bytes at byte {offset}",
                    tensor.len
                ));
            }
        };
        before = name;
    }
    Ok(Some(Recognised { format, tensors, metadata }))
}

/// The checks of [`settle`] for tensors that are seen one by one and not kept.
pub(super) struct Spans {
    /// Hashes of the names.
    names: HashSet<u64>,
    hasher: RandomState,
    /// First byte and the byte behind the last one.
    spans: Vec<(u64, u64)>,
    /// Bytes of the file.
    len: u64,
}

impl Spans {
    /// Of a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Spans { names: HashSet::new(), hasher: RandomState::new(), spans: Vec::new(), len }
    }

    /// Whether a name is new; two names are taken for one as often as 64-bit hashes of a random key are the same.
    pub(super) fn is_new(&mut self, name: &str) -> bool {
        self.names.insert(self.hasher.hash_one(name))
    }

    /// A tensor.
    pub(super) fn add(&mut self, name: &str, offset: u64, len: u64) -> Result<(), Fault> {
        if !self.is_new(name) {
            return Fault::because(format!("expected one tensor called {name:?}, found two"));
        }
        match offset.checked_add(len).filter(|end| *end <= self.len || len == 0) {
            Some(end) if len > 0 => self.spans.push((offset, end)),
            Some(_) => {}
            None => {
                let within = self.len;
                return Fault::because(format!(
                    "expected tensor {name:?} within {within} bytes, found {len} bytes at byte {offset}"
                ));
            }
        }
        Ok(())
    }

    /// That no two tensors share a byte.
    pub(super) fn settle(mut self) -> Result<(), Fault> {
        self.spans.sort_unstable();
        match self.spans.iter().zip(self.spans.iter().skip(1)).find(|(before, next)| next.0 < before.1) {
            Some((before, next)) => {
                let (end, start) = (before.1, next.0);
                Fault::because(format!("expected a tensor behind the one that ends at byte {end}, found it at {start}"))
            }
            None => Ok(()),
        }
    }
}
