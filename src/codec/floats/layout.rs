//! Layout: width, rotation and phase of a block's elements, chosen by the entropy of byte groups in a sample.
//!
//! The sample has up to 256 windows of 16 bytes at multiples of eight, one in each of equal parts of the block. For
//! each candidate layout, the whole elements in the windows are rotated and their bytes counted. The layout with the
//! least entropy of all groups wins; a group near eight bits counts as eight.

use crate::codec::ElementType;
use crate::kernel::entropy::{Histogram, entropy_bits};

/// Where the elements of a block are, and whether they are rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaneLayout {
    /// Logarithm of an element's width.
    power: u8,
    /// Whether elements are rotated left by one bit.
    pub(super) rotated: bool,
    /// Bytes before the first whole element; less than an element.
    pub(super) phase: usize,
}

/// Bits per byte of the groups.
type GroupBits = [f32; 8];

/// Windows of a sample, and bytes of a window.
const WINDOWS: usize = 256;
const WINDOW_BYTES: usize = 16;
/// Windows start at multiples of this.
const GRID_BYTES: usize = 8;
/// A group with at least this many bits per byte is stored.
const STORED_BITS: f32 = 7.8;
/// Bits per byte by which a later candidate must be smaller.
const BETTER_BITS: f32 = 0.02;

impl PlaneLayout {
    pub(super) const fn width(self) -> usize {
        1 << self.power
    }

    /// The layout as the first byte of a payload.
    pub(super) fn byte(self) -> u8 {
        self.power | u8::from(self.rotated) << 2 | (self.phase as u8) << 3
    }

    /// Inverse of [`Self::byte`]; `None` for any other byte.
    pub(super) fn of_byte(byte: u8) -> Option<PlaneLayout> {
        let layout = PlaneLayout { power: byte & 3, rotated: byte & 4 != 0, phase: usize::from(byte >> 3) };
        (layout.phase < layout.width() && (layout.power > 0 || !layout.rotated)).then_some(layout)
    }

    /// The bytes before the first whole element, the whole elements, and the bytes after them.
    pub(super) fn split(self, raw: &[u8]) -> (&[u8], &[u8], &[u8]) {
        let (head, rest) = raw.split_at(self.phase.min(raw.len()));
        let (whole, tail) = rest.split_at(rest.len() / self.width() * self.width());
        (head, whole, tail)
    }

    /// ZipNN's layout: BF16 and FP32 are rotated, others are not. For an unknown type as [`Self::choose`].
    pub(super) fn fixed(element_type: ElementType, raw: &[u8]) -> PlaneLayout {
        let power = element_type.width().trailing_zeros() as u8;
        let rotated = matches!(element_type, ElementType::Bf16 | ElementType::Fp32);
        match element_type {
            ElementType::Unknown => Self::choose(element_type, 0, raw).0,
            _ => PlaneLayout { power, rotated, phase: 0 },
        }
    }

    /// The layout for elements of this type after `phase` bytes, and the number of planes that seem to be noise. Counts
    /// from the lowest plane on and never includes the highest.
    pub(super) fn choose(element_type: ElementType, phase: usize, raw: &[u8]) -> (PlaneLayout, usize) {
        let (layout, _, groups) = Self::choose_with_bits(element_type, phase, raw);
        let lower = groups.iter().take(layout.width() - 1);
        (layout, lower.take_while(|bits| **bits >= STORED_BITS).count())
    }

    /// The layout, and the sample's bits per byte in it: overall and per group.
    pub(super) fn choose_with_bits(
        element_type: ElementType,
        phase: usize,
        raw: &[u8],
    ) -> (PlaneLayout, f32, GroupBits) {
        let power = element_type.width().trailing_zeros() as u8;
        let phase = phase % element_type.width();
        let both = |rotated| PlaneLayout { power, rotated, phase };
        match element_type {
            ElementType::Byte => best(&[both(false)], raw),
            ElementType::Fp64 => best(&[both(false), both(true)], raw),
            ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32 => best(&[both(true), both(false)], raw),
            ElementType::Unknown => best(&UNKNOWN, raw),
        }
    }
}

/// Candidates for an unknown type. Without rotation, other phases only permute the planes.
const UNKNOWN: [PlaneLayout; 10] = {
    const fn layout(power: u8, rotated: bool, phase: usize) -> PlaneLayout {
        PlaneLayout { power, rotated, phase }
    }
    [
        layout(0, false, 0),
        layout(1, false, 0),
        layout(1, true, 0),
        layout(1, true, 1),
        layout(2, false, 0),
        layout(2, true, 0),
        layout(2, true, 1),
        layout(2, true, 2),
        layout(2, true, 3),
        layout(3, false, 0),
    ]
};

fn best(layouts: &[PlaneLayout], raw: &[u8]) -> (PlaneLayout, f32, GroupBits) {
    let windows = windows(raw);
    let mut best = (PlaneLayout { power: 0, rotated: false, phase: 0 }, f32::INFINITY, [0.0; 8]);
    for layout in layouts.iter().filter(|layout| layout.phase <= raw.len()) {
        let groups = bits(*layout, &windows);
        let bits = groups.iter().sum::<f32>() / layout.width() as f32;
        if bits < best.1 - BETTER_BITS {
            best = (*layout, bits, groups);
        }
    }
    best
}

/// The windows of the sample.
fn windows(raw: &[u8]) -> Vec<[u8; WINDOW_BYTES]> {
    let positions = (raw.len() / GRID_BYTES).saturating_sub(WINDOW_BYTES / GRID_BYTES - 1);
    let taken = positions.min(WINDOWS);
    let mut scatter = 0u32;
    // Avoids a division by a variable, so that the reads of several windows overlap.
    let start = |ordinal: usize| if taken < WINDOWS { ordinal } else { positions * ordinal / WINDOWS };
    let window = |ordinal: usize| {
        scatter = scatter.wrapping_add(0x9e37_79b9);
        let (start, end) = (start(ordinal), start(ordinal + 1));
        let within = (((end - start) as u64 * u64::from(scatter)) >> 32) as usize;
        let bytes = raw.get((start + within) * GRID_BYTES..).unwrap_or_default();
        bytes.first_chunk().copied().unwrap_or_default()
    };
    (0..taken).map(window).collect()
}

/// Bits per byte of each group of the elements in the windows; 0 for groups beyond the width.
fn bits(layout: PlaneLayout, windows: &[[u8; WINDOW_BYTES]]) -> GroupBits {
    let width = layout.width();
    let mut groups = [[0; 256]; 8];
    for window in windows {
        let elements = window.get(layout.phase..).unwrap_or_default();
        match (layout.power, layout.rotated) {
            (1, true) => elements.as_chunks().0.iter().for_each(|element| {
                count(&u16::from_le_bytes(*element).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            (2, true) => elements.as_chunks().0.iter().for_each(|element| {
                count(&u32::from_le_bytes(*element).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            (3, true) => elements.as_chunks().0.iter().for_each(|element| {
                count(&u64::from_le_bytes(*element).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            _ => elements.chunks_exact(width).for_each(|element| count(element, &mut groups)),
        }
    }
    let cost = |histogram: &Histogram| match entropy_bits(histogram) {
        bits if bits < STORED_BITS => bits,
        _ => 8.0,
    };
    let mut bits = [0.0; 8];
    bits.iter_mut().zip(groups.iter().take(width)).for_each(|(bits, group)| *bits = cost(group));
    bits
}

fn count(element: &[u8], groups: &mut [Histogram; 8]) {
    for (byte, histogram) in element.iter().zip(groups) {
        if let Some(count) = histogram.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
}
