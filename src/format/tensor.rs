//! What recognition finds: tensors, and the checks every format's tensors pass before a caller sees them.

use std::collections::{BTreeMap, HashSet};

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
