//! Tokens of a member between its plain bytes and the corrections.
//!
//! A member is coded in sections of whole blocks. Before a section it is coded how many plain bytes it has,
//! and how many follow in the member (at most [`LOOKAHEAD`]): where the compressor's input ended, its matches end.

use std::io::{self, Read};

use super::chains::PlainView;
use super::codes::BlockKind;
use super::corrections::{BlockStart, CorrectionModel};
use super::deflate_writer::DeflateWriter;
use super::inflate::{BLOCK_TOKENS_MAX, Block};
use super::predictor::{LOOKAHEAD, Predictor, Settings};
use super::range_coder::{Coder, RangeDecoder, RangeEncoder};
use super::symbols::{Token, WINDOW};

/// Most plain bytes of one member, so that numbers of positions fit.
pub(super) const MEMBER_PLAIN_MAX: u64 = 1 << 30;
/// Number of a position from which the next member begins at 1 again.
const ORIGIN_MAX: u32 = 1 << 31;
/// Plain bytes that the history may have before those that are not needed are dropped.
const HISTORY_MAX: usize = 8 * WINDOW;

/// Predictor and plain bytes of the current member.
#[derive(Debug)]
pub(super) struct OpenMember {
    pub(super) settings: Settings,
    predictor: Predictor,
    /// History, then bytes of the current section, then bytes beyond it.
    pub(super) data: Vec<u8>,
    /// Index in `data` of the next token.
    pub(super) index: usize,
    origin: u32,
    floor: u32,
}

/// Coded before a section.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Section {
    pub(super) plain_len: u64,
    /// Plain bytes of the member after it, at most [`LOOKAHEAD`].
    pub(super) lookahead: u64,
    pub(super) blocks: u64,
}

impl Section {
    pub(super) fn code<C: Coder>(model: &mut CorrectionModel, coder: &mut C, section: Section) -> Section {
        let plain_len = model.plain_len.code(coder, section.plain_len);
        let full = coder.bit(&mut model.lookahead_full, section.lookahead == LOOKAHEAD as u64);
        let lookahead = if full { LOOKAHEAD as u64 } else { model.lookahead.code(coder, section.lookahead) };
        let blocks = model.blocks.code(coder, section.blocks.saturating_sub(1)).saturating_add(1);
        Section { plain_len, lookahead, blocks }
    }
}

impl OpenMember {
    pub(super) fn new() -> Self {
        OpenMember {
            settings: Settings::default(),
            predictor: Predictor::new(),
            data: Vec::new(),
            index: 0,
            origin: 1,
            floor: 1,
        }
    }

    /// Starts a member without history.
    pub(super) fn start(&mut self, settings: &Settings) {
        self.origin += self.data.len() as u32 + 1;
        if self.origin >= ORIGIN_MAX {
            self.predictor.clear();
            self.origin = 1;
        }
        self.floor = self.origin;
        self.data.clear();
        self.index = 0;
        self.settings = *settings;
        self.predictor.start(settings, self.floor);
    }

    /// Plain bytes of the member up to the current position.
    pub(super) fn plain_position(&self) -> u64 {
        u64::from(self.origin - self.floor) + self.index as u64
    }

    /// Drops history that no match can reach. Gives the number of bytes.
    pub(super) fn forget(&mut self) -> usize {
        if self.index < HISTORY_MAX {
            return 0;
        }
        let count = self.index - 2 * WINDOW;
        self.data.drain(..count);
        self.index -= count;
        self.origin += count as u32;
        self.predictor.shift(count);
        count
    }

    /// Number of tokens of `blocks` that are not as predicted, without coding; stops above `most`.
    /// The member has to be started again afterwards.
    pub(super) fn count_misses(&mut self, data: &[u8], blocks: &[Block], tokens: usize, most: usize) -> usize {
        let view = PlainView { data, origin: self.origin, floor: self.floor };
        let mut misses = 0;
        let mut left = tokens;
        for block in blocks {
            if block.kind == BlockKind::Stored {
                self.predictor.advance_stored(&view, self.index, block.plain_len);
                self.index += block.plain_len;
            }
            for &token in &block.tokens {
                if left == 0 {
                    break;
                }
                left -= 1;
                misses += usize::from(self.predictor.predict(&view, self.index) != token);
                self.predictor.advance(&view, self.index, token);
                self.index += token.len();
                if misses > most {
                    break;
                }
            }
        }
        // Numbers of positions in use must not come again.
        self.origin += data.len() as u32 + 1;
        misses
    }

    /// Codes the blocks of a section. `data` holds their plain bytes from `index` on, then the bytes beyond it.
    pub(super) fn encode(
        &mut self,
        model: &mut CorrectionModel,
        coder: &mut RangeEncoder,
        section: &Section,
        blocks: &[Block],
    ) {
        let end = self.index + (section.plain_len + section.lookahead) as usize;
        let data = std::mem::take(&mut self.data);
        let view = PlainView { data: &data[..end], origin: self.origin, floor: self.floor };
        for (number, block) in blocks.iter().enumerate() {
            let is_stored = block.kind == BlockKind::Stored;
            let count = if is_stored { block.plain_len } else { block.tokens.len() } as u64;
            let start = BlockStart { is_stored, is_last: block.is_last, count: Some(count), padding: block.padding };
            let ends_section = number + 1 == blocks.len();
            model.block_start(coder, u64::from(self.settings.block_tokens), ends_section, start);
            if is_stored {
                self.predictor.advance_stored(&view, self.index, block.plain_len);
                self.index += block.plain_len;
            } else {
                self.encode_tokens(model, coder, &view, &block.tokens);
                model.kind(coder, self.settings.builder, &block.tokens, &block.kind);
            }
        }
        self.data = data;
    }

    fn encode_tokens(
        &mut self,
        model: &mut CorrectionModel,
        coder: &mut RangeEncoder,
        view: &PlainView<'_>,
        tokens: &[Token],
    ) {
        let mut run = 0;
        let mut after_miss = false;
        for &token in tokens {
            let predicted = self.predictor.predict(view, self.index);
            if predicted == token {
                run += 1;
            } else {
                model.more_misses(coder, after_miss, true);
                model.run(coder, after_miss, run);
                model.miss(coder, predicted, token, view.data[self.index]);
                run = 0;
                after_miss = true;
            }
            self.predictor.advance(view, self.index, token);
            self.index += token.len();
        }
        model.more_misses(coder, after_miss, false);
    }
}

/// The decoder's side: a section that is being rebuilt.
#[derive(Debug, Default)]
pub(super) struct OpenSection {
    /// Blocks not yet rebuilt.
    pub(super) blocks: u64,
    /// Plain bytes not yet used.
    left: u64,
    lookahead: u64,
    is_last: bool,
}

impl OpenSection {
    /// Starts a section; checks its limits.
    pub(super) fn start(member: &OpenMember, section: &Section) -> io::Result<OpenSection> {
        if section.lookahead > LOOKAHEAD as u64
            || section.plain_len > MEMBER_PLAIN_MAX - member.plain_position().min(MEMBER_PLAIN_MAX)
        {
            return Err(fault("a section is too long"));
        }
        if (member.data.len() - member.index) as u64 > section.plain_len + section.lookahead {
            return Err(fault("a section is shorter than the one before says"));
        }
        Ok(OpenSection {
            blocks: section.blocks,
            left: section.plain_len,
            lookahead: section.lookahead,
            is_last: false,
        })
    }

    /// Rebuilds the next block into `writer`.
    pub(super) fn rebuild_block<P: Read, C: Read>(
        &mut self,
        member: &mut OpenMember,
        model: &mut CorrectionModel,
        coder: &mut RangeDecoder<C>,
        plain: &mut P,
        writer: &mut DeflateWriter,
    ) -> io::Result<()> {
        self.blocks -= 1;
        let full = u64::from(member.settings.block_tokens);
        let start = model.block_start(coder, full, self.blocks == 0, BlockStart::default());
        coder.check()?;
        self.is_last = start.is_last;
        if start.is_stored {
            return self.rebuild_stored(member, plain, writer, &start);
        }
        let most = start.count.unwrap_or(BLOCK_TOKENS_MAX as u64);
        if most > BLOCK_TOKENS_MAX as u64 {
            return Err(fault("a block has too many tokens"));
        }
        let tokens = self.rebuild_tokens(member, model, coder, plain, most as usize, start.count.is_none())?;
        let kind = model.kind(coder, member.settings.builder, &tokens, &BlockKind::Stored);
        coder.check()?;
        writer.block(start.is_last, &kind, &tokens);
        Ok(())
    }

    fn rebuild_stored<P: Read>(
        &mut self,
        member: &mut OpenMember,
        plain: &mut P,
        writer: &mut DeflateWriter,
        start: &BlockStart,
    ) -> io::Result<()> {
        let len = start.count.unwrap_or(self.left);
        let Ok(short) = u16::try_from(len) else { return Err(fault("a stored block is too long")) };
        if len > self.left {
            return Err(fault("a stored block is longer than its section"));
        }
        // The hashes of its last positions are of bytes behind it.
        self.fill(member, plain, len as usize + LOOKAHEAD)?;
        writer.stored(start.is_last, start.padding, short);
        let view = PlainView { data: &member.data, origin: member.origin, floor: member.floor };
        member.predictor.advance_stored(&view, member.index, len as usize);
        writer.bytes(&member.data[member.index..member.index + len as usize]);
        member.index += len as usize;
        self.left -= len;
        Ok(())
    }

    fn rebuild_tokens<P: Read, C: Read>(
        &mut self,
        member: &mut OpenMember,
        model: &mut CorrectionModel,
        coder: &mut RangeDecoder<C>,
        plain: &mut P,
        most: usize,
        to_end: bool,
    ) -> io::Result<Vec<Token>> {
        let mut tokens = Vec::with_capacity(if to_end { 1024 } else { most });
        let mut more = model.more_misses(coder, false, false);
        let mut run = if more { model.run(coder, false, 0) } else { 0 };
        while if to_end { self.left > 0 } else { tokens.len() < most } {
            if tokens.len() == BLOCK_TOKENS_MAX || self.left == 0 {
                return Err(fault("the tokens of a block do not fit its bytes"));
            }
            self.fill(member, plain, 0)?;
            let view = PlainView { data: &member.data, origin: member.origin, floor: member.floor };
            let mut token = member.predictor.predict(&view, member.index);
            if more && run == 0 {
                token = model.miss(coder, token, Token::literal(0), view.data[member.index]);
                more = model.more_misses(coder, true, false);
                run = if more { model.run(coder, true, 0) } else { 0 };
                coder.check()?;
            } else {
                run = run.saturating_sub(1);
            }
            if token.len() as u64 > self.left {
                return Err(fault("a match is longer than its section"));
            }
            member.predictor.advance(&view, member.index, token);
            member.index += token.len();
            self.left -= token.len() as u64;
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// Reads plain bytes until [`LOOKAHEAD`] (at least `need`) are there, or all that may be looked at.
    #[inline]
    fn fill<P: Read>(&mut self, member: &mut OpenMember, plain: &mut P, need: usize) -> io::Result<()> {
        let there = member.data.len() - member.index;
        let all = self.left + self.lookahead;
        if there >= need.max(LOOKAHEAD) || there as u64 >= all {
            return Ok(());
        }
        member.forget();
        let count = (all - there as u64).min(need.max(2 * WINDOW) as u64);
        let before = member.data.len();
        plain.by_ref().take(count).read_to_end(&mut member.data)?;
        if (member.data.len() - before) as u64 != count {
            return Err(fault("the plain content ends too early"));
        }
        Ok(())
    }

    /// Checks that the blocks took all bytes.
    pub(super) fn check_end(&self) -> io::Result<()> {
        if self.left > 0 { Err(fault("the blocks are shorter than their section")) } else { Ok(()) }
    }

    /// Whether the last block of the section was the last of its member.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }
}

/// An error of corrections or plain content that do not belong together.
pub(super) fn fault(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
