//! Tensors: the result of recognition, and the checks that the tensors of every format pass.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::dtype::Dtype;
use super::read::FormatError;

/// Most tensors of a file.
pub(super) const TENSORS_MAX: usize = 1_000_000;
/// Most dimensions of a tensor.
pub(super) const DIMENSIONS_MAX: usize = 32;
/// Most entries of a file's metadata that are retained.
const METADATA_ENTRIES_MAX: usize = 64;
/// Longest metadata value that is retained. Keys may have a quarter of it.
pub(super) const METADATA_BYTES_MAX: usize = 1024;

/// One tensor of a file, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Name in the file, unique there.
    pub name: String,
    /// Type of its values.
    pub dtype: Dtype,
    /// Sizes of the dimensions. The first one varies slowest in the file.
    pub shape: Vec<u64>,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Size, bytes.
    pub len: u64,
}

/// Tensors and metadata of a model file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// Name of the format.
    pub format: &'static str,
    /// The tensors by ascending offset. They do not overlap, end within the file, and are not empty.
    pub tensors: Vec<Tensor>,
    /// Short strings of the file's metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Result of recognition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recognition {
    /// The content has no known format.
    Opaque,
    /// The content looks like the format and contradicts itself.
    Defective {
        /// Name of the format.
        format: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// The content is a model file.
    Model(Recognised),
}

/// Number of values of a tensor. `None` if it exceeds 64 bits.
pub(super) fn value_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
}

/// Adds a metadata entry if it is short and the map is not full.
pub(super) fn insert_short(metadata: &mut BTreeMap<String, String>, key: String, value: String) {
    let is_short = key.len() <= METADATA_BYTES_MAX / 4 && value.len() <= METADATA_BYTES_MAX;
    if is_short && metadata.len() < METADATA_ENTRIES_MAX {
        metadata.insert(key, value);
    }
}

/// Sorts the tensors of a file of `len` bytes, drops empty ones, and checks the promises of [`Recognised`].
pub(super) fn checked_model(
    format: &'static str,
    mut tensors: Vec<Tensor>,
    metadata: BTreeMap<String, String>,
    len: u64,
) -> Result<Option<Recognised>, FormatError> {
    let mut names = HashSet::with_capacity(tensors.len());
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return FormatError::defective(format!("expected one tensor called {:?}, found two", twice.name));
    }
    drop(names);
    tensors.retain(|tensor| tensor.len > 0);
    tensors.sort_by_key(|tensor| tensor.offset);
    let mut end = 0;
    let mut before = "";
    for tensor in &tensors {
        let (name, offset) = (tensor.name.as_str(), tensor.offset);
        if offset < end {
            return FormatError::defective(format!(
                "expected tensor {name:?} after {before:?}, which ends at byte {end}, found it at byte {offset}"
            ));
        }
        end = match offset.checked_add(tensor.len) {
            Some(end) if end <= len => end,
            _ => {
                return FormatError::defective(format!(
                    "expected tensor {name:?} within {len} bytes, found {} bytes at byte {offset}",
                    tensor.len
                ));
            }
        };
        before = name;
    }
    Ok(Some(Recognised { format, tensors, metadata }))
}

/// The checks of [`checked_model`] for tensors that are visited one by one and not retained.
pub(super) struct ListingChecks {
    /// Hashes of the names.
    names: HashSet<u64>,
    hasher: RandomState,
    /// Start and end of each tensor.
    ranges: Vec<(u64, u64)>,
    /// Size of the file, bytes.
    len: u64,
}

impl ListingChecks {
    /// Checks for a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        ListingChecks { names: HashSet::new(), hasher: RandomState::new(), ranges: Vec::new(), len }
    }

    /// Whether a name is new. Two names are confused only if their 64-bit hashes with a random key are equal.
    pub(super) fn is_new(&mut self, name: &str) -> bool {
        self.names.insert(self.hasher.hash_one(name))
    }

    /// Checks name and end of a tensor and records its range.
    pub(super) fn add(&mut self, name: &str, offset: u64, len: u64) -> Result<(), FormatError> {
        if !self.is_new(name) {
            return FormatError::defective(format!("expected one tensor called {name:?}, found two"));
        }
        match offset.checked_add(len).filter(|end| *end <= self.len || len == 0) {
            Some(end) if len > 0 => self.ranges.push((offset, end)),
            Some(_) => {}
            None => {
                let within = self.len;
                return FormatError::defective(format!(
                    "expected tensor {name:?} within {within} bytes, found {len} bytes at byte {offset}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that no two tensors overlap.
    pub(super) fn finish(mut self) -> Result<(), FormatError> {
        self.ranges.sort_unstable();
        match self.ranges.iter().zip(self.ranges.iter().skip(1)).find(|(before, next)| next.0 < before.1) {
            Some((before, next)) => {
                let (end, start) = (before.1, next.0);
                FormatError::defective(format!(
                    "expected a tensor after the one that ends at byte {end}, found it at byte {start}"
                ))
            }
            None => Ok(()),
        }
    }
}
