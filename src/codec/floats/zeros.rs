//! Zeros left out: a mask of the elements that are zero, and planes of the others. Pruned weights have many.
//!
//! In planes of all elements, the mask would be paid for once per plane.

use super::layout::PlaneLayout;
use super::plane;
use crate::codec::Scratch;
use crate::error::Result;
use crate::kernel::{interleave, planes, zeros};
use crate::wire::WireReader;

/// Bit of a layout: elements that are zero are left out.
pub(super) const LEFT_OUT: u8 = 0x40;
/// Elements looked at, and one of so many must be zero.
const SAMPLE_ELEMENTS: usize = 512;
const SHARE: usize = 16;
/// An encoding of at most one in this many bytes has nothing to gain.
const SMALL_SHARE: usize = 64;

/// Buffers of one worker, reused between blocks.
#[derive(Default)]
pub(in crate::codec) struct ZeroBuffers {
    mask: Vec<u8>,
    left: Vec<u8>,
}

/// Whether many elements are zero, by a sample.
fn has_many(width: usize, whole: &[u8]) -> bool {
    let elements = whole.len() / width;
    let taken = elements.min(SAMPLE_ELEMENTS);
    let is_zero = |number: &usize| {
        let at = elements * number / taken * width;
        whole.get(at..at + width).is_some_and(|element| element.iter().all(|byte| *byte == 0))
    };
    (0..taken).filter(is_zero).count() * SHARE > taken
}

/// Replaces the encoding of `raw` in this layout, which `out` has from `start` on, by one without its zeros if that is
/// shorter.
pub(super) fn try_smaller(
    layout: PlaneLayout,
    raw: &[u8],
    start: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (head, whole, tail) = layout.split(raw);
    let middle = out.len();
    if layout.width() == 1 || (middle - start) * SMALL_SHARE <= raw.len() || !has_many(layout.width(), whole) {
        return Ok(());
    }
    out.push(layout.byte() | LEFT_OUT);
    out.extend_from_slice(head);
    let mut buffers = std::mem::take(&mut scratch.zeros);
    let encoded = buffers.encode(layout, whole, scratch, out);
    scratch.zeros = buffers;
    out.extend_from_slice(tail);
    if encoded.is_ok() && out.len() - middle < middle - start {
        out.drain(start..middle);
    } else {
        out.truncate(middle);
    }
    encoded
}

impl ZeroBuffers {
    /// Appends the mask of the elements of `whole`, and the planes of those that are no zeros.
    fn encode(&mut self, layout: PlaneLayout, whole: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let width = layout.width();
        self.mask.resize((whole.len() / width).div_ceil(8), 0);
        self.left.resize(whole.len(), 0);
        zeros::mark(width, whole, whole, false, &mut self.mask);
        let len = zeros::keep(width, whole, &self.mask, &mut self.left);
        plane::encode(&self.mask, scratch, out)?;
        let mut split = std::mem::take(&mut scratch.planes);
        split.resize(len, 0);
        planes::deinterleave_rotated(self.left.get(..len).unwrap_or_default(), width, layout.rotated, &mut split);
        let plane = |number: usize| split.get(number * (len / width)..(number + 1) * (len / width));
        let encoded = (0..width).try_for_each(|number| plane::encode(plane(number).unwrap_or_default(), scratch, out));
        scratch.planes = split;
        encoded
    }

    /// Reads the mask of so many elements; returns how many are marked.
    pub(super) fn read_mask(
        &mut self,
        elements: usize,
        reader: &mut WireReader<'_>,
        scratch: &mut Scratch,
    ) -> Result<usize> {
        self.mask.resize(elements.div_ceil(8), 0);
        if let Some(stored) = plane::decode(reader, scratch, &mut self.mask)? {
            self.mask.copy_from_slice(stored);
        }
        if !zeros::is_mask_of(&self.mask, elements) {
            return Err(reader.error(format!("a mask of {elements} elements"), "a longer one"));
        }
        Ok(zeros::marked(&self.mask))
    }

    /// Appends `elements` elements: those of the planes, and zeros where the mask that was read is set.
    pub(super) fn append(&mut self, layout: PlaneLayout, planes: &[&[u8]], elements: usize, out: &mut Vec<u8>) {
        self.left.clear();
        interleave::append(planes, layout.rotated, &mut self.left);
        let start = out.len();
        out.resize(start + elements * layout.width(), 0);
        zeros::spread(layout.width(), &self.left, &self.mask, out.get_mut(start..).unwrap_or_default());
    }
}
