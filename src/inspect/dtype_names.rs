//! The exact names of tensor types, as the model file gives them.
//!
//! A stored [`Dtype`] tells the width and whether values are floats. Only the file tells whether integers are signed or
//! booleans, whether floats are parts of complex numbers, and which 8-bit float format is used.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;

use crate::format::{Dtype, ListedArray, Tensor, list_arrays};
use crate::read_at::ReadAt;

/// Type names of the tensors of a file.
#[derive(Debug, Default)]
pub struct DtypeNames {
    /// Names that differ from that of the stored type, by offset of the tensor.
    exact: HashMap<u64, (Dtype, Cow<'static, str>)>,
}

impl DtypeNames {
    /// The type names in the first `len` bytes of `source`.
    ///
    /// # Errors
    /// Fails if `source` cannot be read.
    pub fn read(source: &dyn ReadAt, len: u64) -> io::Result<Self> {
        let mut exact = HashMap::new();
        list_arrays(source, len, &mut |listed| {
            if let ListedArray::Array(array) = listed
                && array.value_type.name != array.value_type.dtype.name()
            {
                exact.entry(array.offset).or_insert((array.value_type.dtype, array.value_type.name));
            }
        })?;
        Ok(DtypeNames { exact })
    }

    /// Name of the type of `tensor`.
    pub fn of(&self, tensor: &Tensor) -> Cow<'static, str> {
        let exact = self.exact.get(&tensor.offset).filter(|exact| exact.0 == tensor.dtype);
        exact.map_or(Cow::Borrowed(tensor.dtype.name()), |exact| exact.1.clone())
    }
}
