//! Scales that are given, as differences from those that the values suggest.
//!
//! A search has found them, so they are not known, but they are near to what the least and the greatest value of each
//! sub-block suggest. A row has the differences of one block: of the FP16 numbers first, then of the small integers,
//! which are guessed with the FP16 numbers that the block has.

use super::codes::nearest;
use super::small::{extreme, scale_at, span, stored};
use super::{BlockType, ScaleSource, large, small};

/// Sub-blocks of a block, at most.
const SUB_BLOCKS: usize = 16;

/// What to do with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleRows {
    /// Fill them from the scales in the blocks.
    Fill,
    /// Put the scales that they stand for into the blocks.
    Apply,
}

/// The integers of a block, those of scales before those of least values, and what they are guessed from.
struct Suggested {
    /// What an integer times the FP16 number of its kind should be.
    parts: [[f32; SUB_BLOCKS]; 2],
    /// FP16 numbers.
    halves: [u16; 2],
}

/// What the values suggest for a block with sub-blocks.
#[inline(always)]
fn suggested(block_type: BlockType, values: &[f32; 256]) -> Suggested {
    // Values of a sub-block, the greatest code, and the greatest integer of its scale.
    let (len, steps, top) = match block_type {
        BlockType::Q2K => (16, 3.0, 15.0),
        BlockType::Q3K => (16, -4.0, -32.0),
        BlockType::Q4K => (32, 15.0, 63.0),
        BlockType::Q5K => (32, 31.0, 63.0),
        _ => (16, -32.0, -128.0),
    };
    let mut parts = [[0.0; SUB_BLOCKS]; 2];
    for (at, values) in values.chunks_exact(len).enumerate() {
        let [least, greatest] = span(values, [0.0; 2]);
        if steps > 0.0 {
            (parts[0][at], parts[1][at]) = ((greatest - least) / steps, 0.0 - least);
        } else {
            parts[0][at] = (if greatest > 0.0 - least { greatest } else { least }) / steps;
        }
    }
    let half = |numbers: &[f32]| u16::from_le_bytes(stored(extreme(numbers) / top));
    Suggested { halves: [half(&parts[0]), half(&parts[1])], parts }
}

/// What the values suggest for a block without sub-blocks: the scales that follow from them.
#[inline(always)]
fn computed(block_type: BlockType, values: &[f32; 256]) -> [u16; 2] {
    let Some(values) = values.first_chunk::<32>() else { return [0; 2] };
    let mut block = [0; 34];
    match block_type {
        BlockType::Q4_0 => small::q4_0(values, first(&mut block), ScaleSource::Computed),
        BlockType::Q4_1 => small::q4_1(values, first(&mut block), ScaleSource::Computed),
        BlockType::Q5_0 => small::q5_0(values, first(&mut block), ScaleSource::Computed),
        BlockType::Q5_1 => small::q5_1(values, first(&mut block), ScaleSource::Computed),
        _ => small::q8_0(values, &mut block, ScaleSource::Computed),
    }
    [u16::from_le_bytes([block[0], block[1]]), u16::from_le_bytes([block[2], block[3]])]
}

/// The first bytes of a longer array.
#[inline(always)]
fn first<const N: usize>(block: &mut [u8; 34]) -> &mut [u8; N] {
    const { assert!(N <= 34) };
    let (bytes, _) = block.as_chunks_mut::<N>();
    &mut bytes[0]
}

/// The integers that the suggestion gives with the block's FP16 numbers, as the block has them.
#[inline(always)]
fn guessed(block_type: BlockType, parts: &[[f32; SUB_BLOCKS]; 2], halves: [f32; 2]) -> [[u8; SUB_BLOCKS]; 2] {
    let (low, high, flip) = match block_type {
        BlockType::Q2K => (0.0, 15.0, 0),
        BlockType::Q3K => (-32.0, 31.0, 0),
        BlockType::Q6K => (-128.0, 127.0, 128),
        _ => (0.0, 63.0, 0),
    };
    let mut integers = [[0; SUB_BLOCKS]; 2];
    for ((integers, parts), half) in integers.iter_mut().zip(parts).zip(halves) {
        if half != 0.0 {
            for (integer, part) in integers.iter_mut().zip(parts) {
                *integer = nearest(part / half, low, high) ^ flip;
            }
        }
    }
    integers
}

/// The loop over blocks.
#[inline(always)]
pub(super) fn scale_rows_loop(
    block_type: BlockType,
    direction: ScaleRows,
    values: &[u8],
    blocks: &mut [u8],
    rows: &mut [u8],
) {
    let (halves_at, groups) = block_type.row_layout();
    let halves = halves_at.len();
    let blocks = blocks.chunks_exact_mut(block_type.bytes()).zip(rows.chunks_exact_mut(block_type.row_bytes()));
    let mut space = [0.0; 256];
    for (bytes, (block, row)) in values.chunks_exact(block_type.values() * 4).zip(blocks) {
        for (value, bytes) in space.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        let Suggested { parts, halves: guesses } = match groups[0] {
            0 => Suggested { parts: [[0.0; SUB_BLOCKS]; 2], halves: computed(block_type, &space) },
            _ => suggested(block_type, &space),
        };
        let (half_rows, integer_row) = row.split_at_mut(2 * halves);
        let mut numbers = [0.0; 2];
        for (at, row) in half_rows.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let position = halves_at[at];
            if direction == ScaleRows::Fill {
                let own = u16::from_le_bytes([block[position], block[position + 1]]);
                let difference = own.wrapping_sub(guesses[at]) as i16;
                *row = ((difference << 1 ^ difference >> 15) as u16).to_le_bytes();
            } else {
                let folded = u16::from_le_bytes(*row);
                let difference = folded >> 1 ^ 0u16.wrapping_sub(folded & 1);
                block[position..position + 2].copy_from_slice(&guesses[at].wrapping_add(difference).to_le_bytes());
            }
            numbers[at] = scale_at(block, position);
        }
        if groups[0] == 0 {
            continue;
        }
        let guesses = guessed(block_type, &parts, numbers);
        let (scales, least) = integer_row.split_at_mut(groups[0]);
        let mut integers = large::integers(block_type, block);
        for ((row, guesses), integers) in [scales, least].into_iter().zip(guesses).zip(&mut integers) {
            for ((row, guess), integer) in row.iter_mut().zip(guesses).zip(integers) {
                match direction {
                    ScaleRows::Fill => *row = integer.wrapping_sub(guess),
                    ScaleRows::Apply => *integer = row.wrapping_add(guess),
                }
            }
        }
        if direction == ScaleRows::Apply {
            large::put_integers(block_type, &integers, block);
        }
    }
}
