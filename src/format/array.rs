//! Arrays: the contents of a model file by the names that people use, in contrast to its stored tensors.
//!
//! Several arrays may be views of the same bytes, have any order of dimensions, or be empty. Listing passes them on one
//! by one and retains none, so a file with many arrays needs little memory.

use std::io;

use super::read::{FormatError, Window};
use super::tensor::value_count;
use super::value_type::ValueType;
use super::{FORMATS, Format, HEAD_BYTES};
use crate::read_at::ReadAt;

/// An array of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Name of the array.
    pub name: String,
    /// Type of the values.
    pub value_type: ValueType,
    /// Sizes of the dimensions.
    pub shape: Vec<u64>,
    /// Number of values between neighbouring indices, for each dimension. `None` in row-major order without gaps.
    pub strides: Option<Vec<u64>>,
    /// Offset of the first value in the file, bytes.
    pub offset: u64,
    /// Size of all values, bytes.
    pub len: u64,
}

/// An array of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedArray {
    /// An array whose values can be read.
    Array(Array),
    /// An array whose values cannot be read.
    Unreadable {
        /// Name of the array.
        name: String,
        /// Why its values cannot be read.
        reason: String,
    },
}

/// Result of listing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayListing {
    /// The file has no known format.
    Opaque,
    /// The file looks like the format and contradicts itself. The arrays visited so far are void.
    Defective {
        /// Name of the format.
        format: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// The file has a known format.
    Arrays {
        /// Name of the format.
        format: &'static str,
    },
}

impl Array {
    /// Whether the values are stored in column-major order (the first index varies fastest) without gaps.
    pub fn is_column_major(&self) -> bool {
        let reversed = |list: &[u64]| list.iter().rev().copied().collect::<Vec<_>>();
        self.strides.as_ref().is_some_and(|strides| is_contiguous(&reversed(&self.shape), &reversed(strides)))
    }
}

impl ListedArray {
    /// Name of the array.
    pub fn name(&self) -> &str {
        match self {
            ListedArray::Array(array) => &array.name,
            ListedArray::Unreadable { name, .. } => name,
        }
    }

    /// The array as seen from a file whose byte `start` is the first one here.
    pub(super) fn shifted(self, start: u64) -> ListedArray {
        match self {
            ListedArray::Array(array) => ListedArray::Array(Array { offset: start + array.offset, ..array }),
            unreadable => unreadable,
        }
    }

    /// The array as seen from an archive whose member `file` starts at byte `start`.
    pub(super) fn within(self, file: &str, start: u64) -> ListedArray {
        match self.shifted(start) {
            ListedArray::Array(array) => ListedArray::Array(Array { name: format!("{file}:{}", array.name), ..array }),
            ListedArray::Unreadable { name, reason } => {
                ListedArray::Unreadable { name: format!("{file}:{name}"), reason }
            }
        }
    }
}

/// Passes the arrays in the first `len` bytes of `source` to `visit`, in any order. Names are unique.
///
/// # Errors
/// Errors of `source`. Content is never an error.
pub fn list_arrays(source: &dyn ReadAt, len: u64, visit: &mut dyn FnMut(ListedArray)) -> io::Result<ArrayListing> {
    list_arrays_as(Window::new(source, len), |_| true, visit)
}

/// Tries the formats that `admitted` accepts.
pub(super) fn list_arrays_as(
    window: Window,
    admitted: impl Fn(&dyn Format) -> bool,
    visit: &mut dyn FnMut(ListedArray),
) -> io::Result<ArrayListing> {
    let head = window.head(HEAD_BYTES)?;
    for format in FORMATS.iter().filter(|format| admitted(**format) && format.matches_head(&head)) {
        match format.list(window, visit) {
            Ok(Some(format)) => return Ok(ArrayListing::Arrays { format }),
            Ok(None) => {}
            Err(FormatError::Io(error)) => return Err(error),
            Err(FormatError::Defective(reason)) => {
                return Ok(ArrayListing::Defective { format: format.name(), reason });
            }
        }
    }
    Ok(ArrayListing::Opaque)
}

/// Whether values are stored in row-major order without gaps.
pub(super) fn is_contiguous(sizes: &[u64], strides: &[u64]) -> bool {
    let mut expected = 1u64;
    let fits = sizes.iter().zip(strides).rev().all(|(size, stride)| {
        let is_next = *size == 1 || *stride == expected;
        expected = expected.saturating_mul(*size);
        is_next
    });
    fits && sizes.len() == strides.len()
}

/// Strides of column-major order. `None` if the number of values exceeds 64 bits.
pub(super) fn column_major(sizes: &[u64]) -> Option<Vec<u64>> {
    value_count(sizes)?;
    let mut stride = 1u64;
    let stride_of = |size: &u64| {
        let next = stride.saturating_mul(*size);
        std::mem::replace(&mut stride, next)
    };
    Some(sizes.iter().map(stride_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Dtype;

    #[test]
    fn row_major_and_column_major_orders_are_distinguished() {
        let array = |shape: &[u64], strides: Option<&[u64]>| {
            let (value_type, strides) = (ValueType::of(Dtype::Int8), strides.map(<[u64]>::to_vec));
            Array { name: "w".into(), value_type, shape: shape.into(), strides, offset: 0, len: 0 }
        };
        assert_eq!(column_major(&[2, 3, 4]), Some(vec![1, 2, 6]));
        assert_eq!(column_major(&[u64::MAX, 3]), None);
        assert!(array(&[2, 3, 4], Some(&[1, 2, 6])).is_column_major());
        assert!(!array(&[2, 3, 4], Some(&[12, 4, 1])).is_column_major());
        assert!(!array(&[2, 3], Some(&[1, 3])).is_column_major());
        assert!(!array(&[2, 3], None).is_column_major());
        assert!(is_contiguous(&[2, 1, 4], &[4, 99, 1]) && !is_contiguous(&[2, 4], &[8, 1]));
    }
}
