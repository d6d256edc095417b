//! Reads the values of an array in the order of their indices, for any strides.
//!
//! 1. Values that are stored in this order are copied.
//! 2. Other values are gathered in batches. A batch has as many indices of the first dimension as fit. If one index
//!    does not fit, the first dimension is walked, and the batch has indices of the second one, and so on. Memory is
//!    limited to one batch.
//! 3. Within a batch the dimensions are walked by descending stride. So the source is read forwards through a small
//!    window, and each value is put at the position of its indices.

use std::io;

use crate::format::Array;
use crate::read_at::{ReadAt, fill};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Bytes of a batch.
const BATCH_BYTES: u64 = 32 << 20;
/// Bytes of the window on the source.
const WINDOW_BYTES: u64 = 16 << 10;

/// Receives the bytes of the array in order.
pub type ByteSink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Passes the stored bytes of the array to `sink`.
///
/// # Errors
/// Fails if `source` cannot be read, and with the error of `sink`.
pub fn copy(source: &dyn ReadAt, array: &Array, sink: &mut ByteSink<'_>) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < array.len {
        let count = COPY_BYTES.min(array.len - at);
        buffer.resize(count as usize, 0);
        fill(source, array.offset + at, &mut buffer)?;
        sink(&buffer)?;
        at += count;
    }
    Ok(())
}

/// Passes the values of the array to `sink` in the order of their indices.
///
/// # Errors
/// As for [`copy`].
pub fn gather(source: &dyn ReadAt, array: &Array, sink: &mut ByteSink<'_>) -> io::Result<()> {
    gather_by(source, array, BATCH_BYTES, sink)
}

fn gather_by(source: &dyn ReadAt, array: &Array, batch_bytes: u64, sink: &mut ByteSink<'_>) -> io::Result<()> {
    let (Some(strides), Some(width)) = (&array.strides, array.value_type.width) else {
        return copy(source, array, sink);
    };
    // An array with a dimension of size 0 has no values.
    if array.len == 0 {
        return Ok(());
    }
    // The stride of a dimension of size 1 is never used and may have any value.
    let step = |size: u64, stride: u64| if size > 1 { stride * width } else { 0 };
    let dimensions: Vec<SourceDimension> = std::iter::zip(&array.shape, strides)
        .map(|(size, stride)| SourceDimension { size: *size, step: step(*size, *stride) })
        .collect();
    let end = dimensions.iter().fold(array.offset + width, |end, of| end + (of.size - 1) * of.step);
    let window = ReadWindow { source, end, start: 0, bytes: Vec::new() };
    let mut gatherer = Gatherer { window, width, batch_bytes: batch_bytes.max(width), batch: Vec::new() };
    gatherer.walk_array(&dimensions, array.offset, sink)
}

/// The bytes of the source that were read last.
struct ReadWindow<'a> {
    source: &'a dyn ReadAt,
    /// End of the bytes that may be read.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl ReadWindow<'_> {
    /// The `len` bytes at offset `at`.
    fn get(&mut self, at: u64, len: u64) -> io::Result<&[u8]> {
        let is_held = self.start <= at && at + len <= self.start + self.bytes.len() as u64;
        if !is_held {
            let count = WINDOW_BYTES.max(len).min(self.end.saturating_sub(at)).max(len);
            self.bytes.resize(count as usize, 0);
            self.start = at;
            fill(self.source, at, &mut self.bytes)?;
        }
        let from = (at - self.start) as usize;
        self.bytes.get(from..from + len as usize).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A dimension of the array.
#[derive(Clone, Copy)]
struct SourceDimension {
    size: u64,
    /// Bytes from one index to the next in the source.
    step: u64,
}

/// A dimension of a batch.
#[derive(Clone, Copy)]
struct BatchDimension {
    size: u64,
    /// Bytes from one index to the next in the source.
    source_step: u64,
    /// Bytes from one index to the next in the batch.
    batch_step: u64,
}

struct Gatherer<'a> {
    window: ReadWindow<'a>,
    /// Bytes of a value.
    width: u64,
    batch_bytes: u64,
    batch: Vec<u8>,
}

impl Gatherer<'_> {
    /// Gathers the part of the array that has `dimensions` and whose first value is at byte `at`.
    fn walk_array(&mut self, dimensions: &[SourceDimension], at: u64, sink: &mut ByteSink<'_>) -> io::Result<()> {
        let Some((outer, inner)) = dimensions.split_first() else { return self.gather_batch(&[], at, sink) };
        let inner_bytes = inner.iter().fold(self.width, |bytes, of| bytes.saturating_mul(of.size));
        let batch_indices = self.batch_bytes / inner_bytes;
        let mut index = 0;
        while index < outer.size {
            let start = at + index * outer.step;
            if batch_indices == 0 {
                self.walk_array(inner, start, sink)?;
                index += 1;
            } else {
                let count = batch_indices.min(outer.size - index);
                self.gather_batch(&[&[SourceDimension { size: count, ..*outer }], inner].concat(), start, sink)?;
                index += count;
            }
        }
        Ok(())
    }

    /// Gathers a part of the array that fits into a batch.
    fn gather_batch(&mut self, dimensions: &[SourceDimension], at: u64, sink: &mut ByteSink<'_>) -> io::Result<()> {
        let mut batch_step = self.width;
        let mut walked: Vec<BatchDimension> = Vec::with_capacity(dimensions.len());
        for SourceDimension { size, step } in dimensions.iter().rev().copied() {
            if size > 1 {
                walked.push(BatchDimension { size, source_step: step, batch_step });
            }
            batch_step *= size;
        }
        walked.sort_by_key(|dimension| std::cmp::Reverse(dimension.source_step));
        self.batch.resize(batch_step as usize, 0);
        let mut batch = std::mem::take(&mut self.batch);
        let filled = self.walk_batch(&walked, at, 0, &mut batch);
        self.batch = batch;
        filled?;
        sink(&self.batch)
    }

    /// Copies the values of `dimensions` from byte `from` of the source to byte `to` of the batch.
    fn walk_batch(&mut self, dimensions: &[BatchDimension], from: u64, to: u64, batch: &mut [u8]) -> io::Result<()> {
        let width = self.width;
        match dimensions {
            [] => self.put(from, to, width, batch),
            [BatchDimension { size, source_step, batch_step }] if *source_step == width && *batch_step == width => {
                let mut done = 0;
                while done < size * width {
                    let len = WINDOW_BYTES.min(size * width - done);
                    self.put(from + done, to + done, len, batch)?;
                    done += len;
                }
                Ok(())
            }
            [BatchDimension { size, source_step, batch_step }, inner @ ..] => (0..*size).try_for_each(|index| {
                self.walk_batch(inner, from + index * source_step, to + index * batch_step, batch)
            }),
        }
    }

    fn put(&mut self, from: u64, to: u64, len: u64, batch: &mut [u8]) -> io::Result<()> {
        let bytes = self.window.get(from, len)?;
        let target = batch.get_mut(to as usize..(to + len) as usize).ok_or(io::ErrorKind::InvalidData)?;
        target.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Dtype, ValueType};
    use proptest::prelude::*;

    fn array(dtype: Dtype, shape: &[u64], strides: &[u64], offset: u64) -> Array {
        let value_type = ValueType::of(dtype);
        let len = shape.iter().product::<u64>() * value_type.width.unwrap();
        Array { name: "w".into(), value_type, shape: shape.into(), strides: Some(strides.into()), offset, len }
    }

    /// The values, looked up one by one by their indices.
    fn expected(source: &[u8], array: &Array) -> Vec<u8> {
        let (width, strides) = (array.value_type.width.unwrap(), array.strides.as_ref().unwrap());
        let count = array.shape.iter().product::<u64>();
        let value = |number: u64| {
            let (mut rest, mut at) = (number, 0);
            for (size, stride) in array.shape.iter().zip(strides).rev() {
                at += rest % size * stride;
                rest /= size;
            }
            let at = (array.offset + at * width) as usize;
            source[at..at + width as usize].to_vec()
        };
        (0..count).flat_map(value).collect()
    }

    fn gathered(source: &[u8], array: &Array, batch_bytes: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let mut largest = 0;
        gather_by(&source, array, batch_bytes, &mut |bytes| {
            largest = largest.max(bytes.len() as u64);
            all.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert!(largest <= batch_bytes.max(8), "{largest} bytes at once");
        all
    }

    #[test]
    fn transposed_sliced_repeated_and_empty_arrays_are_gathered() {
        let source: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let of = |shape: &[u64], strides: &[u64], offset| array(Dtype::Float32, shape, strides, offset);
        let arrays = [
            of(&[200, 300], &[1, 200], 40),
            of(&[50, 60, 20], &[1, 50, 3000], 0),
            of(&[30, 40], &[400, 3], 8),
            of(&[7, 5], &[0, 1], 12),
            of(&[4], &[9000], 0),
            of(&[9, 9], &[1, 1], 0),
        ];
        for array in &arrays {
            for batch_bytes in [4, 100, 1000, 1 << 20] {
                assert_eq!(gathered(&source, array, batch_bytes), expected(&source, array), "{array:?}");
            }
        }
        assert!(gathered(&source, &of(&[0, 5], &[5, 1], 0), 100).is_empty());
        let mut beyond = of(&[300, 400], &[1, 300], 0);
        beyond.offset = 4;
        beyond.shape = vec![300, 334];
        assert!(gather_by(&source, &beyond, 1 << 20, &mut |_| Ok(())).is_err());
    }

    proptest! {
        #[test]
        fn gathered_values_equal_those_looked_up_by_indices(
            dimensions in proptest::collection::vec((1u64..7, 0u64..30), 0..5),
            offset in 0u64..50,
            batch_bytes in 1u64..600,
        ) {
            let source: Vec<u8> = (0..5000u32).map(|at| (at * 7 % 251) as u8).collect();
            let (shape, strides): (Vec<u64>, Vec<u64>) = dimensions.into_iter().unzip();
            let array = array(Dtype::Int16, &shape, &strides, offset);
            prop_assert_eq!(gathered(&source, &array, batch_bytes), expected(&source, &array));
        }
    }
}
