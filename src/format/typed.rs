//! Tensors with the exact types of their values, as the readers of descriptive formats collect them.
//!
//! [`TypedTensors`] bounds what a file makes a reader retain, and gives both results of a format: the stored tensors,
//! and the arrays that people see.

use std::collections::{BTreeMap, HashSet};

use super::array::{Array, ListedArray};
use super::dtype::Dtype;
use super::read::{FormatError, Window};
use super::tensor::{DIMENSIONS_MAX, ListingChecks, Recognised, Tensor, checked_model, value_count};
use super::value_type::{KnownType, ValueType};

/// Most tensors of a file. Their shapes take at most 64 MiB.
pub(super) const TYPED_MAX: usize = 1 << 18;
/// Longest name of a tensor, or of a part of it.
pub(super) const NAME_BYTES_MAX: u64 = 1024;
/// Most bytes of all names of a file.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// A tensor whose exact type is known.
pub(super) struct TypedTensor {
    pub(super) name: String,
    pub(super) value_type: ValueType,
    pub(super) shape: Vec<u64>,
    /// Offset in the file, bytes.
    pub(super) offset: u64,
    /// Size of all values, bytes.
    pub(super) len: u64,
}

/// The tensors of a file, within the bounds of this module.
#[derive(Default)]
pub(super) struct TypedTensors {
    tensors: Vec<TypedTensor>,
    /// Names of the tensors that cannot be read, each with the reason.
    unreadable: Vec<(String, String)>,
    /// Bytes of all names and reasons.
    names_bytes: usize,
}

/// How many tensors there were at some time.
#[derive(Clone, Copy)]
pub(super) struct TypedMark {
    tensors: usize,
    unreadable: usize,
}

/// Bytes of a tensor of a known type. `None` if they exceed 64 bits.
pub(super) fn known_len(known: &KnownType, shape: &[u64]) -> Option<u64> {
    value_count(shape)?.checked_mul(known.bits).map(|bits| bits.div_ceil(8))
}

impl TypedTensor {
    /// A tensor of a known type in `len` bytes. Fails if shape and type need another number of bytes.
    pub(super) fn known(
        name: String,
        known: &'static KnownType,
        shape: Vec<u64>,
        offset: u64,
        len: u64,
    ) -> Result<TypedTensor, FormatError> {
        if known_len(known, &shape) != Some(len) {
            let label = known.name;
            return FormatError::defective(format!(
                "expected the bytes of {label} {shape:?} for tensor {name:?}, found {len}"
            ));
        }
        Ok(TypedTensor { name, value_type: ValueType::from(known), shape, offset, len })
    }

    /// Whether the values are of a type that weights have. Wider numbers, records and texts are indices, tables and
    /// measurements: as ordinary data they share chunks and frames, and take less than as blocks of their own.
    fn is_weights(&self) -> bool {
        match self.value_type.dtype {
            Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float8 | Dtype::Int8 => true,
            // Parts of bytes, as quantised weights have them.
            Dtype::Other => self.value_type.width.is_none(),
            _ => false,
        }
    }

    /// The tensor as it is stored: the parts of a complex value are values.
    fn stored(self) -> Tensor {
        let TypedTensor { name, value_type: ValueType { dtype, width, .. }, mut shape, offset, len } = self;
        let parts = width.zip(dtype.width()).map_or(1, |(all, one)| all / one as u64);
        if parts > 1 {
            shape.push(parts);
        }
        Tensor { name, dtype, shape, offset, len }
    }

    fn listed(self) -> ListedArray {
        let TypedTensor { name, value_type, shape, offset, len } = self;
        ListedArray::Array(Array { name, value_type, shape, strides: None, offset, len })
    }
}

impl TypedTensors {
    /// Adds a tensor.
    pub(super) fn push(&mut self, mut tensor: TypedTensor) -> Result<(), FormatError> {
        if tensor.len == 0 {
            // What is empty is nowhere, and must not be beyond the end.
            tensor.offset = 0;
        }
        if tensor.shape.len() > DIMENSIONS_MAX {
            let (name, count) = (&tensor.name, tensor.shape.len());
            return FormatError::defective(format!(
                "expected at most {DIMENSIONS_MAX} dimensions of tensor {name:?}, found {count}"
            ));
        }
        self.names_bytes += tensor.name.len();
        self.tensors.push(tensor);
        self.check()
    }

    /// Adds the name of a tensor whose values cannot be read.
    pub(super) fn push_unreadable(&mut self, name: String, reason: String) -> Result<(), FormatError> {
        self.names_bytes += name.len() + reason.len();
        self.unreadable.push((name, reason));
        self.check()
    }

    /// How many there are now.
    pub(super) fn mark(&self) -> TypedMark {
        TypedMark { tensors: self.tensors.len(), unreadable: self.unreadable.len() }
    }

    /// Puts `prefix` and a dot before the names of all that were added after `mark`.
    pub(super) fn prefix(&mut self, mark: TypedMark, prefix: &str) -> Result<(), FormatError> {
        if prefix.is_empty() {
            return Ok(());
        }
        let readable = self.tensors.iter_mut().skip(mark.tensors).map(|tensor| &mut tensor.name);
        let unreadable = self.unreadable.iter_mut().skip(mark.unreadable).map(|(name, _)| name);
        for name in readable.chain(unreadable) {
            let full = if name.is_empty() { prefix.to_string() } else { format!("{prefix}.{name}") };
            self.names_bytes += full.len() - name.len();
            *name = full;
            if self.names_bytes > NAMES_BYTES_MAX {
                break;
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.tensors.len() + self.unreadable.len() > TYPED_MAX {
            return FormatError::defective(format!("expected at most {TYPED_MAX} tensors, found more"));
        }
        if self.names_bytes > NAMES_BYTES_MAX {
            return FormatError::defective(format!("expected at most {NAMES_BYTES_MAX} bytes of names, found more"));
        }
        Ok(())
    }

    /// Gives a number to names that were used before, because formats allow equal names in different parts of a file.
    fn with_unique_names(mut self) -> Self {
        let mut names = HashSet::new();
        let readable = self.tensors.iter_mut().map(|tensor| &mut tensor.name);
        for (number, name) in readable.chain(self.unreadable.iter_mut().map(|(name, _)| name)).enumerate() {
            if !names.insert(name.clone()) {
                *name = format!("{name} (number {number})");
                names.insert(name.clone());
            }
        }
        self
    }

    /// The result of [`super::Format::find`]: the tensors that may be weights.
    pub(super) fn found(self, format: &'static str, window: Window) -> Result<Option<Recognised>, FormatError> {
        let named = self.with_unique_names().tensors.into_iter();
        let tensors: Vec<Tensor> = named.filter(TypedTensor::is_weights).map(TypedTensor::stored).collect();
        if tensors.is_empty() {
            return Ok(None);
        }
        checked_model(format, tensors, BTreeMap::new(), window.len())
    }

    /// The result of [`super::Format::list`].
    pub(super) fn list(
        self,
        format: &'static str,
        window: Window,
        visit: &mut dyn FnMut(ListedArray),
    ) -> Result<Option<&'static str>, FormatError> {
        let TypedTensors { tensors, unreadable, .. } = self.with_unique_names();
        let mut checks = ListingChecks::new(window.len());
        for tensor in &tensors {
            checks.add(&tensor.name, tensor.offset, tensor.len)?;
        }
        for (name, _) in &unreadable {
            checks.add(name, 0, 0)?;
        }
        checks.finish()?;
        let count = tensors.len() + unreadable.len();
        tensors.into_iter().for_each(|tensor| visit(tensor.listed()));
        unreadable.into_iter().for_each(|(name, reason)| visit(ListedArray::Unreadable { name, reason }));
        Ok((count > 0).then_some(format))
    }
}

/// The type of values whose name in safetensors or in this program is `name`. Other types are bytes.
pub(super) fn named_type(name: &'static str) -> ValueType {
    KnownType::named(name).map_or_else(|| ValueType::custom(name, Dtype::Other, None), ValueType::from)
}
