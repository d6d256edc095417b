//! Gathering: the values of an array in the order of their indices, wherever they lie.
//!
//! 1. Values that lie in order are copied.
//! 2. Others are gathered a piece at a time: as many indices of the first dimension as fit, or, where one does not, as
//!    many of the second one, and so on. Memory is that of a piece, whatever the array.
//! 3. Within a piece the dimensions are walked by descending stride, so the source is read forwards, through a small
//!    window, and each value is put where its indices say.

use std::io;

use crate::format::{Array, ReadAt};
use crate::repo::stored_file::fill;

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Bytes of the array gathered at a time.
const OPERATION_BYTES: u64 = 32 << 20;
/// Bytes of the source read at a time for that.
const WINDOW_BYTES: u64 = 16 << 10;

/// Takes bytes of the array in order.
pub type ByteSink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Hands `take` the bytes that lie in one run.
///
/// # Errors
/// Those of reading and of `take`.
pub fn copy(source: &dyn ReadAt, array: &Array, take: &mut ByteSink<'_>) -> io::Result<()> {
    let mut space = Vec::new();
    let mut at = 0;
    while at < array.len {
        let count = COPY_BYTES.min(array.len - at);
        space.resize(count as usize, 0);
        fill(source, array.offset + at, &mut space)?;
        take(&space)?;
        at += count;
    }
    Ok(())
}

/// Hands `take` the bytes of the values in the order of their indices.
///
/// # Errors
/// As for [`copy`].
pub fn gather(source: &dyn ReadAt, array: &Array, take: &mut ByteSink<'_>) -> io::Result<()> {
    gather_by(source, array, OPERATION_BYTES, take)
}

fn gather_by(source: &dyn ReadAt, array: &Array, operation_bytes: u64, take: &mut ByteSink<'_>) -> io::Result<()> {
    let (Some(strides), Some(width)) = (&array.strides, array.value.width) else { return copy(source, array, take) };
    // A size of none has no values at all.
    if array.len == 0 {
        return Ok(());
    }
    // The stride of one index leads nowhere, whatever it is.
    let step = |size: u64, stride: u64| if size > 1 { stride * width } else { 0 };
    let dimensions: Vec<(u64, u64)> =
        array.shape.iter().zip(strides).map(|(size, by)| (*size, step(*size, *by))).collect();
    let end = dimensions.iter().fold(array.offset + width, |end, (size, stride)| end + (size - 1) * stride);
    let window = ReadWindow { source, end, start: 0, bytes: Vec::new() };
    Gatherer { window, width, operation_bytes: operation_bytes.max(width), piece: Vec::new() }.part(
        &dimensions,
        array.offset,
        take,
    )
}

/// The bytes of the source around those read last.
struct ReadWindow<'a> {
    source: &'a dyn ReadAt,
    /// Behind the last byte that may be read.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl ReadWindow<'_> {
    /// `len` bytes from byte `at`.
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

struct Gatherer<'a> {
    window: ReadWindow<'a>,
    /// Bytes of a value.
    width: u64,
    operation_bytes: u64,
    piece: Vec<u8>,
}

/// A dimension of a piece: its size, bytes from one index to the next in the source, and in the piece.
type Dimension = (u64, u64, u64);

impl Gatherer<'_> {
    /// Gives a part of the array whose first value is at byte `at`: sizes, and bytes from one index to the next.
    fn part(&mut self, dimensions: &[(u64, u64)], at: u64, take: &mut ByteSink<'_>) -> io::Result<()> {
        let Some(((size, stride), inner)) = dimensions.split_first() else { return self.piece(&[], at, take) };
        let inner_bytes = inner.iter().fold(self.width, |bytes, (size, _)| bytes.saturating_mul(*size));
        let at_once = self.operation_bytes / inner_bytes;
        let mut index = 0;
        while index < *size {
            let start = at + index * stride;
            if at_once == 0 {
                self.part(inner, start, take)?;
                index += 1;
            } else {
                let count = at_once.min(size - index);
                self.piece(&[&[(count, *stride)], inner].concat(), start, take)?;
                index += count;
            }
        }
        Ok(())
    }

    /// Gives a part that fits.
    fn piece(&mut self, dimensions: &[(u64, u64)], at: u64, take: &mut ByteSink<'_>) -> io::Result<()> {
        let mut step = self.width;
        let mut walked: Vec<Dimension> = Vec::with_capacity(dimensions.len());
        for (size, stride) in dimensions.iter().rev() {
            if *size > 1 {
                walked.push((*size, *stride, step));
            }
            step *= size;
        }
        walked.sort_by_key(|(_, stride, _)| std::cmp::Reverse(*stride));
        self.piece.resize(step as usize, 0);
        let mut piece = std::mem::take(&mut self.piece);
        let filled = self.walk(&walked, at, 0, &mut piece);
        self.piece = piece;
        filled?;
        take(&self.piece)
    }

    fn walk(&mut self, dimensions: &[Dimension], from: u64, to: u64, piece: &mut [u8]) -> io::Result<()> {
        let width = self.width;
        match dimensions {
            [] => self.put(from, to, width, piece),
            [(size, stride, step)] if *stride == width && *step == width => {
                let mut done = 0;
                while done < size * width {
                    let len = WINDOW_BYTES.min(size * width - done);
                    self.put(from + done, to + done, len, piece)?;
                    done += len;
                }
                Ok(())
            }
            [(size, stride, step), inner @ ..] => {
                (0..*size).try_for_each(|index| self.walk(inner, from + index * stride, to + index * step, piece))
            }
        }
    }

    fn put(&mut self, from: u64, to: u64, len: u64, piece: &mut [u8]) -> io::Result<()> {
        let bytes = self.window.get(from, len)?;
        let place = piece.get_mut(to as usize..(to + len) as usize).ok_or(io::ErrorKind::InvalidData)?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Dtype, Value};
    use proptest::prelude::*;

    fn array(dtype: Dtype, shape: &[u64], strides: &[u64], offset: u64) -> Array {
        let value = Value::of(dtype);
        let len = shape.iter().product::<u64>() * value.width.unwrap();
        Array { name: "w".into(), value, shape: shape.into(), strides: Some(strides.into()), offset, len }
    }

    /// The values one by one, by their indices.
    fn expected(source: &[u8], array: &Array) -> Vec<u8> {
        let (width, strides) = (array.value.width.unwrap(), array.strides.as_ref().unwrap());
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

    fn gathered(source: &[u8], array: &Array, operation_bytes: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let mut largest = 0;
        gather_by(&source, array, operation_bytes, &mut |bytes| {
            largest = largest.max(bytes.len() as u64);
            all.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert!(largest <= operation_bytes.max(8), "{largest} bytes at once");
        all
    }

    #[test]
    fn transposed_sliced_repeated_and_empty() {
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
            for operation_bytes in [4, 100, 1000, 1 << 20] {
                assert_eq!(gathered(&source, array, operation_bytes), expected(&source, array), "{array:?}");
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
        fn as_by_indices(
            dimensions in proptest::collection::vec((1u64..7, 0u64..30), 0..5),
            offset in 0u64..50,
            operation_bytes in 1u64..600,
        ) {
            let source: Vec<u8> = (0..5000u32).map(|at| (at * 7 % 251) as u8).collect();
            let (shape, strides): (Vec<u64>, Vec<u64>) = dimensions.into_iter().unzip();
            let array = array(Dtype::Int16, &shape, &strides, offset);
            prop_assert_eq!(gathered(&source, &array, operation_bytes), expected(&source, &array));
        }
    }
}
