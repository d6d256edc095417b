//! Blocks of a member that were read and are not coded yet.

use std::io::Read;

use super::codes::BlockKind;
use super::inflate::{BLOCK_PLAIN_MAX, Block, read_block};
use super::input::BitInput;
use super::predictor::LOOKAHEAD;

/// Plain bytes of a section, if its blocks allow it.
const SECTION_BYTES: usize = 512 << 10;
/// Tokens of a section, if its blocks allow it.
const SECTION_TOKENS: usize = 128 << 10;
/// Most blocks of a section.
const SECTION_BLOCKS: usize = 4 << 10;

/// What follows the blocks of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More blocks of the member.
    Block,
    /// The member ended.
    End,
    /// The member goes on at this position in bits, and is not opened further.
    Cut(u64),
}

/// The section at the front of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) blocks: usize,
    /// Plain bytes of the member that are known after it.
    pub(super) lookahead: usize,
    pub(super) next: Next,
}

impl Ready {
    /// Position in bits after what was read for it.
    pub(super) fn end<R: Read>(&self, input: &BitInput<R>) -> u64 {
        if let Next::Cut(position) = self.next { position } else { input.bit_position() }
    }
}

/// Blocks of a member in order.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) blocks: Vec<Block>,
    plain_len: usize,
    tokens: usize,
    /// Plain bytes that the member may still have.
    plain_left: u64,
    /// The first section is kept, so that the member can be given up.
    keeps: bool,
}

impl Queue {
    pub(super) fn new(plain_left: u64) -> Self {
        Queue { blocks: Vec::new(), plain_len: 0, tokens: 0, plain_left, keeps: true }
    }

    /// Reads blocks until a section is ready. Their plain bytes are appended to `data`.
    pub(super) fn read<R: Read>(&mut self, input: &mut BitInput<R>, data: &mut Vec<u8>) -> Ready {
        let keeps = std::mem::take(&mut self.keeps);
        loop {
            if !keeps {
                input.set_mark();
            }
            let position = input.bit_position();
            let before = data.len();
            let block = read_block(input, data, 0).filter(|block| block.plain_len as u64 <= self.plain_left);
            let Some(block) = block else {
                data.truncate(before);
                return self.all(Next::Cut(position));
            };
            self.plain_left -= block.plain_len as u64;
            let is_flush = block.kind == BlockKind::Stored && block.plain_len == 0;
            let (is_last, len) = (block.is_last, block.plain_len);
            let is_full = self.plain_len >= SECTION_BYTES || self.tokens >= SECTION_TOKENS;
            self.plain_len += len;
            self.tokens += block.tokens.len();
            self.blocks.push(block);
            if is_last {
                return self.all(Next::End);
            }
            if is_full && len >= LOOKAHEAD {
                return Ready { blocks: self.blocks.len() - 1, lookahead: LOOKAHEAD, next: Next::Block };
            }
            let is_over = self.plain_len >= SECTION_BYTES + BLOCK_PLAIN_MAX || self.blocks.len() >= SECTION_BLOCKS;
            if is_flush || is_over {
                return self.all(Next::Block);
            }
        }
    }

    fn all(&self, next: Next) -> Ready {
        Ready { blocks: self.blocks.len(), lookahead: 0, next }
    }

    /// Drops blocks that were coded.
    pub(super) fn drop_front(&mut self, count: usize) {
        self.blocks.drain(..count);
        self.plain_len = self.blocks.iter().map(|block| block.plain_len).sum();
        self.tokens = self.blocks.iter().map(|block| block.tokens.len()).sum();
    }
}
