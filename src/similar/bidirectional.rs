//! Bidirectional fixed-length sub-blocks (FHRD, section 3.2): duplicates from both ends of a chunk to its middle.
//!
//! [`sub_blocks`](super::sub_blocks) has the steps; this is a layout. Sub-blocks start at the head and at the tail and
//! meet in the middle. The rest there is one shorter or longer sub-block. An insertion in the middle leaves the
//! sub-blocks of both ends unchanged.
//!
//! The paper does not cover the middle. Here it counts if it is at least a quarter of a sub-block.

use super::sub_blocks::{SubBlock, sub_block_len};

/// Position code of the last sub-block; those before it count up.
const TAIL: u64 = 128;
/// Position code of the middle.
const MIDDLE: u64 = 255;

/// Sub-blocks of a chunk of `len` bytes.
pub fn layout(len: usize) -> Vec<SubBlock> {
    let size = sub_block_len(len);
    let heads = len / 2 / size;
    let tails = (len - len / 2) / size;
    let (middle, tail_start) = (heads * size, len - tails * size);
    let mut blocks: Vec<SubBlock> =
        (0..heads).map(|k| SubBlock { code: k as u64, offset: k * size, len: size }).collect();
    if tail_start - middle >= size / 4 {
        blocks.push(SubBlock { code: MIDDLE, offset: middle, len: tail_start - middle });
    }
    let tail = |k| SubBlock { code: TAIL + k as u64, offset: len - (k + 1) * size, len: size };
    blocks.extend((0..tails).rev().map(tail));
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::sub_blocks::tests::check;
    use super::*;

    #[test]
    fn sub_blocks_cover_a_chunk_without_overlap() {
        check(layout);
    }

    #[test]
    fn sub_blocks_of_both_ends_stay_when_the_middle_grows() {
        let (old, new) = (layout(65_536), layout(65_536 + 100));
        assert_eq!(old[..4], new[..4]);
        let from_end =
            |blocks: &[SubBlock], len| blocks.iter().rev().take(4).map(|b| len - b.offset).collect::<Vec<_>>();
        assert_eq!(from_end(&old, 65_536), from_end(&new, 65_636));
    }
}
