//! PlaneLayout: how words lie in a block, found by the entropy of byte groups in a sample.
//!
//! Windows of 16 bytes at multiples of eight are looked at, one from each of equal stretches. For each layout that may
//! be, the words that lie in the windows are turned and their bytes counted; the layout whose groups have the least
//! entropy together is taken, a group near eight bits counting as eight.

use super::ElementType;
use crate::kernel::entropy::{Histogram, entropy_bits};

/// How words lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaneLayout {
    /// Logarithm of the width.
    power: u8,
    /// Whether words are turned left by a bit.
    pub(super) rotated: bool,
    /// Bytes before the first whole word; less than a word has.
    pub(super) phase: usize,
}

/// Bits per byte of the groups.
type GroupBits = [f32; 8];

/// Windows of a sample, and their bytes.
const WINDOWS: usize = 256;
const WINDOW_BYTES: usize = 16;
/// Where windows start.
const GRID_BYTES: usize = 8;
/// A group of more bits is stored.
const STORED_BITS: f32 = 7.8;
/// Bits per byte by which a later layout must be better.
const BETTER_BITS: f32 = 0.02;

impl PlaneLayout {
    pub(super) const fn width(self) -> usize {
        1 << self.power
    }

    /// The header of a payload.
    pub(super) fn byte(self) -> u8 {
        self.power | u8::from(self.rotated) << 2 | (self.phase as u8) << 3
    }

    /// None for a header that none has.
    pub(super) fn of_byte(byte: u8) -> Option<PlaneLayout> {
        let layout = PlaneLayout { power: byte & 3, rotated: byte & 4 != 0, phase: usize::from(byte >> 3) };
        (layout.phase < layout.width() && (layout.power > 0 || !layout.rotated)).then_some(layout)
    }

    /// The layout for words of this type, `phase` bytes being in front of the first whole one, and how many of its
    /// planes seem to be noise, from the lowest on; one at least does not.
    pub(super) fn choose(word: ElementType, phase: usize, raw: &[u8]) -> (PlaneLayout, usize) {
        let (layout, _, groups) = Self::choose_with_bits(word, phase, raw);
        let lower = groups.iter().take(layout.width() - 1);
        (layout, lower.take_while(|bits| **bits >= STORED_BITS).count())
    }

    /// The layout, with the bits per byte that the sample has in it, in all and in each group.
    pub(super) fn choose_with_bits(word: ElementType, phase: usize, raw: &[u8]) -> (PlaneLayout, f32, GroupBits) {
        let power = word.width().trailing_zeros() as u8;
        let phase = phase % word.width();
        let both = |rotated| PlaneLayout { power, rotated, phase };
        match word {
            ElementType::Byte => best(&[both(false)], raw),
            ElementType::Fp64 => best(&[both(false), both(true)], raw),
            ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32 => best(&[both(true), both(false)], raw),
            ElementType::Unknown => best(&UNKNOWN, raw),
        }
    }
}

/// All layouts there are that differ: planes that are not turned are the same in every phase but for their order.
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

/// The windows looked at.
fn windows(raw: &[u8]) -> Vec<[u8; WINDOW_BYTES]> {
    let places = (raw.len() / GRID_BYTES).saturating_sub(WINDOW_BYTES / GRID_BYTES - 1);
    let taken = places.min(WINDOWS);
    let mut scatter = 0u32;
    // Without a division by what is not known before, many places are read at the same time.
    let start = |ordinal: usize| if taken < WINDOWS { ordinal } else { places * ordinal / WINDOWS };
    let place = |ordinal: usize| {
        scatter = scatter.wrapping_add(0x9e37_79b9);
        let (start, end) = (start(ordinal), start(ordinal + 1));
        let within = (((end - start) as u64 * u64::from(scatter)) >> 32) as usize;
        let bytes = raw.get((start + within) * GRID_BYTES..).unwrap_or_default();
        bytes.first_chunk().copied().unwrap_or_default()
    };
    (0..taken).map(place).collect()
}

/// Bits per byte of the groups of the words in the windows; none of what there is no group of.
fn bits(layout: PlaneLayout, windows: &[[u8; WINDOW_BYTES]]) -> GroupBits {
    let width = layout.width();
    let mut groups = [[0; 256]; 8];
    for window in windows {
        let words = window.get(layout.phase..).unwrap_or_default();
        match (layout.power, layout.rotated) {
            (1, true) => words.as_chunks().0.iter().for_each(|word| {
                count(&u16::from_le_bytes(*word).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            (2, true) => words.as_chunks().0.iter().for_each(|word| {
                count(&u32::from_le_bytes(*word).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            (3, true) => words.as_chunks().0.iter().for_each(|word| {
                count(&u64::from_le_bytes(*word).rotate_left(1).to_le_bytes(), &mut groups);
            }),
            _ => words.chunks_exact(width).for_each(|word| count(word, &mut groups)),
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

fn count(word: &[u8], groups: &mut [Histogram; 8]) {
    for (byte, histogram) in word.iter().zip(groups) {
        if let Some(count) = histogram.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
}
