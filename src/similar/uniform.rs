//! Uniform sub-blocks (FHRD's variant FHRD-2, figure 7): a fixed number of equal parts of a chunk.
//!
//! [`sub_blocks`](super::sub_blocks) has the steps; this is a layout. The length of the parts differs with that of the
//! chunk, so chunks of different lengths share no part unless by chance. That is what the bidirectional layout is
//! measured against. The last part also has the bytes that the division leaves over.

use super::sub_blocks::{SubBlock, SubBlockLayout};

/// The layout with `parts` parts.
pub fn layout_of(parts: usize) -> SubBlockLayout {
    Box::new(move |len| layout(parts, len))
}

/// Equal parts of a chunk of `len` bytes, `parts` or, in a shorter chunk, one for each byte.
pub fn layout(parts: usize, len: usize) -> Vec<SubBlock> {
    let parts = parts.min(len).max(1);
    let size = len / parts;
    let part = |number: usize| {
        let offset = number * size;
        let end = if number + 1 == parts { len } else { offset + size };
        SubBlock { code: number as u64, offset, len: end - offset }
    };
    (0..parts).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_chunk_and_are_equal_but_for_the_last() {
        for (parts, len) in [(3, 65_536), (10, 65_536), (10, 70_001), (3, 2), (100, 1 << 20)] {
            let blocks = layout(parts, len);
            assert_eq!(blocks.len(), parts.min(len), "{parts} of {len}");
            assert!(blocks.windows(2).all(|pair| pair[0].offset + pair[0].len == pair[1].offset));
            assert!(blocks[..blocks.len() - 1].iter().all(|block| block.len == len / parts.min(len)));
            assert_eq!(blocks.last().map(|block| block.offset + block.len), Some(len));
            assert!(blocks.iter().enumerate().all(|(number, block)| block.code == number as u64));
        }
    }

    #[test]
    fn an_insertion_moves_every_part_but_the_first() {
        let (old, new) = (layout(10, 65_536), layout(10, 65_536 + 100));
        assert!(old[1..].iter().zip(&new[1..]).all(|(old, new)| old.offset != new.offset && old.len != new.len));
    }
}
