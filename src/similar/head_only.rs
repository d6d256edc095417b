//! Sub-blocks from the head of a chunk only: half of what FHRD changes, for comparison.
//!
//! [`sub_blocks`](super::sub_blocks) has the steps; this is a layout. The length is that of the bidirectional layout,
//! so that chunks of different lengths share sub-blocks. The rest at the end is a sub-block of its own if it is at
//! least a quarter of one. An insertion shifts every sub-block after it, also those that the bidirectional layout finds
//! from the tail. The layout is not in the paper: its FHRD-2 is [`uniform`](super::uniform).

use super::sub_blocks::{SubBlock, sub_block_len};

/// Position code of the rest.
const REST: u64 = 255;

/// Sub-blocks of a chunk of `len` bytes.
pub fn layout(len: usize) -> Vec<SubBlock> {
    let size = sub_block_len(len);
    let parts = len / size;
    let mut blocks: Vec<SubBlock> =
        (0..parts).map(|k| SubBlock { code: k as u64, offset: k * size, len: size }).collect();
    let rest = len - parts * size;
    if rest > 0 && rest >= size / 4 {
        blocks.push(SubBlock { code: REST, offset: parts * size, len: rest });
    }
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
    fn all_sub_blocks_but_the_last_have_equal_lengths() {
        assert_eq!(layout(65_536).len(), 8);
        let blocks = layout(65_536 + 3000);
        assert!(blocks[..8].iter().all(|block| block.len == 8192));
        assert_eq!(blocks[8], SubBlock { code: REST, offset: 65_536, len: 3000 });
    }
}
