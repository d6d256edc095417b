//! Go's fastest level: one candidate a hash, in blocks of the input, with growing steps where nothing matches.

use super::chains::{PlainView, match_len};
use super::symbols::{Token, WINDOW};

/// Plain bytes of one block of the compressor.
const BLOCK: usize = 65_535;
/// Blocks that are shorter have no matches.
const BLOCK_MIN: usize = 128;
/// Bytes before the end of a block in which no match begins.
const MARGIN: usize = 15;
const HEADS: usize = 1 << 14;

/// State between tokens.
#[derive(Debug)]
pub(super) struct GoFast {
    /// Position and bytes by hash.
    table: Box<[(u32, u32); HEADS]>,
    /// Index where the next block begins.
    block_end: usize,
    /// Index where the next match may begin; `None`: not in this block.
    probe: Option<usize>,
    skip: usize,
    /// The probe follows a match.
    after_match: bool,
    predicted: Token,
}

impl GoFast {
    pub(super) fn new() -> Self {
        let table = vec![(0, 0); HEADS].into_boxed_slice().try_into();
        GoFast {
            table: table.unwrap_or_else(|_| Box::new([(0, 0); HEADS])),
            block_end: 0,
            probe: None,
            skip: 0,
            after_match: false,
            predicted: Token(0),
        }
    }

    /// Starts a stream. Old positions are below its floor, so the table stays.
    pub(super) fn start(&mut self) {
        self.block_end = 0;
    }

    pub(super) fn clear(&mut self) {
        self.table.fill((0, 0));
    }

    /// Token at `index`. `lookahead`: bytes that may be looked at, unless the data ends before.
    pub(super) fn predict(&mut self, view: &PlainView<'_>, index: usize, lookahead: usize) -> Token {
        if index >= self.block_end {
            self.block_end = index + BLOCK;
            self.skip = 32;
            self.after_match = false;
            self.probe = Some(index);
        }
        // Where the data ends within the lookahead, the block ends there too.
        let left = view.data.len() - index;
        let end = if left < lookahead { self.block_end.min(view.data.len()) } else { self.block_end };
        let is_short = end + BLOCK < self.block_end + BLOCK_MIN;
        self.predicted = match self.probe {
            Some(probe) if probe == index && !is_short => self.match_at(view, index, end),
            _ => None,
        }
        .unwrap_or(Token::literal(view.data[index]));
        self.predicted
    }

    fn match_at(&mut self, view: &PlainView<'_>, index: usize, end: usize) -> Option<Token> {
        if self.after_match {
            self.put(view, index - 1)?;
            self.probe = Some(index + 1);
            self.skip = 32;
            self.after_match = false;
        } else {
            let step = self.skip >> 5;
            self.skip += step;
            let next = index + step;
            self.probe = (next + MARGIN <= end).then_some(next);
            self.probe?;
        }
        let (position, bytes) = self.put(view, index)?;
        let own = view.origin + index as u32;
        let distance = own.wrapping_sub(position) as usize;
        if position < view.floor || distance == 0 || distance > WINDOW || bytes != read(view, index)? {
            return None;
        }
        let len = match_len(view.data, index - distance, index).min(end - index);
        (len >= 4).then(|| Token::copy(len, distance))
    }

    /// Puts a position into the table and gives the one that was there.
    fn put(&mut self, view: &PlainView<'_>, index: usize) -> Option<(u32, u32)> {
        let bytes = read(view, index)?;
        let entry = &mut self.table[(bytes.wrapping_mul(0x1E35_A7BD) >> 18) as usize % HEADS];
        Some(std::mem::replace(entry, (view.origin + index as u32, bytes)))
    }

    /// Takes the token at `index`.
    pub(super) fn advance(&mut self, view: &PlainView<'_>, index: usize, token: Token, lookahead: usize) {
        let next = index + token.len();
        if token != self.predicted {
            self.skip = 32;
            self.after_match = token.is_copy();
            self.probe = Some(next);
        } else if token.is_copy() {
            let left = view.data.len() - index;
            let end = if left < lookahead { self.block_end.min(view.data.len()) } else { self.block_end };
            self.after_match = true;
            self.probe = (next + MARGIN < end).then_some(next);
        }
    }

    /// Skips the bytes of a stored block.
    pub(super) fn skip_to(&mut self, index: usize) {
        self.block_end = index;
    }

    pub(super) fn shift(&mut self, count: usize) {
        self.block_end = self.block_end.saturating_sub(count);
        self.probe = self.probe.map(|probe| probe.saturating_sub(count));
    }
}

fn read(view: &PlainView<'_>, index: usize) -> Option<u32> {
    view.data.get(index..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes))
}
