//! Arrays: what people find in a file by name, as against the tensors that it is stored by.
//!
//! Several arrays may be views of one range of bytes, lie in any order of their dimensions, or hold nothing. Listing
//! hands them out one by one and keeps none, so a file of many costs little memory.

use std::io;

use super::read::{Fault, ReadAt, Window};
use super::tensor::values;
use super::value::Value;
use super::{FORMATS, Format, HEAD_BYTES};

/// An array of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub value: Value,
    /// Sizes of its dimensions.
    pub shape: Vec<u64>,
    /// Values from one index to the next, for each dimension; none where they lie in the order of their indices, the
    /// last one fastest, without gaps.
    pub strides: Option<Vec<u64>>,
    /// Its first value's first byte in the file.
    pub offset: u64,
    /// Bytes of its values.
    pub len: u64,
}

/// What listing comes upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// An array.
    Array(Array),
    /// One whose values cannot be read.
    Hidden {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// What listing says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Nothing known.
    Opaque,
    /// It looks like the format but lies; what was handed out is void.
    Defective {
        /// Name of the format.
        format: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// A file of arrays.
    Arrays {
        /// Name of the format.
        format: &'static str,
    },
}

impl Array {
    /// Whether the values lie in the order of their indices, the first one fastest, without gaps.
    pub fn is_column_major(&self) -> bool {
        let reversed = |list: &[u64]| list.iter().rev().copied().collect::<Vec<_>>();
        self.strides.as_ref().is_some_and(|strides| is_contiguous(&reversed(&self.shape), &reversed(strides)))
    }
}

impl Listed {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Listed::Array(array) => &array.name,
            Listed::Hidden { name, .. } => name,
        }
    }

    /// The same in a file within a file, which begins at byte `start` and goes before the name.
    pub(super) fn within(self, file: &str, start: u64) -> Listed {
        match self {
            Listed::Array(array) => {
                Listed::Array(Array { name: format!("{file}:{}", array.name), offset: start + array.offset, ..array })
            }
            Listed::Hidden { name, reason } => Listed::Hidden { name: format!("{file}:{name}"), reason },
        }
    }
}

/// Hands out the arrays in the first `len` bytes of `source`, in no particular order, no two of one name.
///
/// # Errors
/// Those of `source`; content is never an error.
pub fn list(source: &dyn ReadAt, len: u64, visit: &mut dyn FnMut(Listed)) -> io::Result<Listing> {
    look(Window::new(source, len), |_| true, visit)
}

/// Tries those formats that `admitted` lets through.
pub(super) fn look(
    window: Window,
    admitted: impl Fn(&dyn Format) -> bool,
    visit: &mut dyn FnMut(Listed),
) -> io::Result<Listing> {
    let head = window.head(HEAD_BYTES)?;
    for format in FORMATS.iter().filter(|format| admitted(**format) && format.may_be(&head, window.len())) {
        match format.list(window, visit) {
            Ok(Some(format)) => return Ok(Listing::Arrays { format }),
            Ok(None) => {}
            Err(Fault::Io(error)) => return Err(error),
            Err(Fault::Defective(reason)) => return Ok(Listing::Defective { format: format.name(), reason }),
        }
    }
    Ok(Listing::Opaque)
}

/// Whether values lie in the order of their indices, without gaps.
pub(super) fn is_contiguous(sizes: &[u64], strides: &[u64]) -> bool {
    let mut expected = 1u64;
    let fits = sizes.iter().zip(strides).rev().all(|(size, stride)| {
        let is_next = *size == 1 || *stride == expected;
        expected = expected.saturating_mul(*size);
        is_next
    });
    fits && sizes.len() == strides.len()
}

/// Strides of values in the order of their indices reversed; none if the number of values is no number.
pub(super) fn column_major(sizes: &[u64]) -> Option<Vec<u64>> {
    values(sizes)?;
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
    fn orders_of_dimensions_are_told_apart() {
        let array = |shape: &[u64], strides: Option<&[u64]>| {
            let strides = strides.map(<[u64]>::to_vec);
            Array { name: "w".into(), value: Value::of(Dtype::Int8), shape: shape.into(), strides, offset: 0, len: 0 }
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
