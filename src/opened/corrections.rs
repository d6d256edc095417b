//! The model of the corrections: what a stream has otherwise than its predictor and builder say.
//!
//! Every function works in both directions: with an encoder it writes its arguments, with a decoder it
//! ignores and returns them.

use super::codes::{BlockKind, Header, extra_bits, predicted_lengths, run_of};
use super::huffman::Builder;
use super::predictor::{CompressorFamily, Settings};
use super::range_coder::{Coder, Number, Prob};
use super::symbols::{Counts, Token, distance_base, distance_code, fixed_lengths};

/// Probabilities of all corrections. They go on from member to member.
#[derive(Debug, Clone)]
pub(super) struct CorrectionModel {
    pub(super) directive: [Prob; 8],
    pub(super) copied: Number,
    pub(super) chunks: Number,
    pub(super) chunk_len: Number,
    pub(super) chunks_equal: Prob,
    cut: Prob,
    pub(super) plain_len: Number,
    pub(super) lookahead_full: Prob,
    pub(super) lookahead: Number,
    pub(super) blocks: Number,
    padding: Prob,
    stored: [Prob; 2],
    last: [Prob; 2],
    full: Prob,
    tokens: Number,
    stored_len: Number,
    settings_same: Prob,
    misses: [Prob; 2],
    run: [Number; 2],
    is_copy: [Prob; 2],
    same_len: Prob,
    len: Vec<Prob>,
    same_distance: Prob,
    distance: Vec<Prob>,
    fixed: [Prob; 2],
    lengths_same: Prob,
    length: Vec<[Prob; 16]>,
    symbols_same: Prob,
    symbol: [Prob; 32],
}

impl Default for CorrectionModel {
    fn default() -> Self {
        CorrectionModel {
            directive: Default::default(),
            copied: Number::default(),
            chunks: Number::default(),
            chunk_len: Number::default(),
            chunks_equal: Prob::default(),
            cut: Prob::default(),
            plain_len: Number::default(),
            lookahead_full: Prob::default(),
            lookahead: Number::default(),
            blocks: Number::default(),
            padding: Prob::default(),
            stored: Default::default(),
            last: Default::default(),
            full: Prob::default(),
            tokens: Number::default(),
            stored_len: Number::default(),
            settings_same: Prob::default(),
            misses: Default::default(),
            run: Default::default(),
            is_copy: Default::default(),
            same_len: Prob::default(),
            len: vec![Prob::default(); 256],
            same_distance: Prob::default(),
            distance: vec![Prob::default(); 32],
            fixed: Default::default(),
            lengths_same: Prob::default(),
            length: vec![[Prob::default(); 16]; 16],
            symbols_same: Prob::default(),
            symbol: [Prob::default(); 32],
        }
    }
}

/// What is coded of a block before its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockStart {
    pub(super) is_stored: bool,
    pub(super) is_last: bool,
    /// Tokens; bytes of a stored block. `None`: as many as fill the section.
    pub(super) count: Option<u64>,
    /// Bits before the length of a stored block.
    pub(super) padding: u32,
}

impl CorrectionModel {
    /// Codes the settings of a member; `before` are those of the member before. `None`: this decoder does not know
    /// them.
    pub(super) fn settings<C: Coder>(
        &mut self,
        coder: &mut C,
        before: &Settings,
        settings: &Settings,
    ) -> Option<Settings> {
        if coder.bit(&mut self.settings_same, settings == before) {
            return Some(*before);
        }
        let family = CompressorFamily::ALL.iter().position(|family| *family == settings.family).unwrap_or(0);
        let family = coder.raw(family as u32, 3) as usize;
        let level = coder.raw(u32::from(settings.level), 4) as u8;
        let hash_bits = coder.raw(u32::from(settings.hash_bits), 5) as u8;
        let filtered = coder.raw(u32::from(settings.filtered), 1) != 0;
        let window_bits = coder.raw(u32::from(settings.window_bits), 4) as u8;
        let builder = Builder::ALL.iter().position(|builder| *builder == settings.builder).unwrap_or(0);
        let builder = coder.raw(builder as u32, 2) as usize;
        let low = coder.raw(settings.block_tokens & 0xFFFF, 16);
        let block_tokens = coder.raw(settings.block_tokens >> 16, 5) << 16 | low;
        let settings = Settings {
            family: *CompressorFamily::ALL.get(family)?,
            level,
            hash_bits,
            filtered,
            window_bits,
            builder: *Builder::ALL.get(builder)?,
            block_tokens,
        };
        settings.is_known().then_some(settings)
    }

    /// Codes the start of a block. `ends_section`: it is the last block of its section, so its count is not coded.
    pub(super) fn block_start<C: Coder>(
        &mut self,
        coder: &mut C,
        full: u64,
        ends_section: bool,
        start: BlockStart,
    ) -> BlockStart {
        let at = usize::from(ends_section);
        let is_stored = coder.bit(&mut self.stored[at], start.is_stored);
        let is_last = coder.bit(&mut self.last[at], start.is_last);
        let given = start.count.unwrap_or(0);
        let count = if ends_section {
            None
        } else if is_stored {
            Some(self.stored_len.code(coder, given))
        } else if coder.bit(&mut self.full, given == full) {
            Some(full)
        } else {
            Some(self.tokens.code(coder, given))
        };
        let padding = if is_stored { self.padding(coder, start.padding) } else { 0 };
        BlockStart { is_stored, is_last, count, padding }
    }

    /// Codes the bits up to a byte boundary, which are 0 as a rule.
    pub(super) fn padding<C: Coder>(&mut self, coder: &mut C, padding: u32) -> u32 {
        if coder.bit(&mut self.padding, padding != 0) { coder.raw(padding, 7) } else { 0 }
    }

    /// Codes whether the rest of a member passes as it is.
    pub(super) fn cut<C: Coder>(&mut self, coder: &mut C, cut: bool) -> bool {
        coder.bit(&mut self.cut, cut)
    }

    /// Codes whether tokens of the block differ from here on. `after_miss`: one did already.
    pub(super) fn more_misses<C: Coder>(&mut self, coder: &mut C, after_miss: bool, more: bool) -> bool {
        coder.bit(&mut self.misses[usize::from(after_miss)], more)
    }

    /// Codes the number of tokens as predicted before the next one that differs.
    pub(super) fn run<C: Coder>(&mut self, coder: &mut C, after_miss: bool, run: u64) -> u64 {
        self.run[usize::from(after_miss)].code(coder, run)
    }

    /// Codes a token that differs from the predicted one. `byte` is the plain byte at its position.
    pub(super) fn miss<C: Coder>(&mut self, coder: &mut C, predicted: Token, actual: Token, byte: u8) -> Token {
        let expected = usize::from(predicted.is_copy());
        if !coder.bit(&mut self.is_copy[expected], actual.is_copy()) {
            return Token::literal(byte);
        }
        let same_len = predicted.is_copy() && coder.bit(&mut self.same_len, predicted.len() == actual.len());
        let len = if same_len {
            predicted.len()
        } else {
            3 + coder.tree(&mut self.len, 8, (actual.len() as u32).saturating_sub(3)) as usize
        };
        let same_distance = predicted.is_copy()
            && !same_len
            && coder.bit(&mut self.same_distance, predicted.distance() == actual.distance());
        if same_distance {
            return Token::copy(len, predicted.distance());
        }
        let code = distance_code(actual.distance().max(1));
        let symbol = coder.tree(&mut self.distance, 5, code.symbol as u32) as usize;
        let (base, bits) = distance_base(symbol.min(29));
        Token::copy(len, base + coder.raw(code.extra, bits) as usize)
    }

    /// Codes how the tokens of a block, which are known, are written; not for stored blocks.
    pub(super) fn kind<C: Coder>(
        &mut self,
        coder: &mut C,
        builder: Builder,
        tokens: &[Token],
        kind: &BlockKind,
    ) -> BlockKind {
        let counts = Counts::of(tokens);
        let predicted = predicted_lengths(builder, &counts);
        let header = Header::for_lengths(builder, &predicted.0, &predicted.1);
        let (literals, distances) = fixed_lengths();
        let fixed = bits_of(&counts, &literals, &distances);
        let dynamic = bits_of(&counts, &predicted.0, &predicted.1) + header_bits(&header);
        let expected = usize::from(fixed.div_ceil(8) <= dynamic.div_ceil(8));
        if coder.bit(&mut self.fixed[expected], *kind == BlockKind::Fixed) {
            return BlockKind::Fixed;
        }
        let none = Header::default();
        let actual = if let BlockKind::Dynamic(actual) = kind { actual } else { &none };
        BlockKind::Dynamic(Box::new(self.header(coder, builder, predicted, header, actual)))
    }

    fn header<C: Coder>(
        &mut self,
        coder: &mut C,
        builder: Builder,
        predicted: (Vec<u8>, Vec<u8>),
        header: Header,
        actual: &Header,
    ) -> Header {
        let own = actual.lengths().unwrap_or_default();
        let mut header = header;
        if !coder.bit(&mut self.lengths_same, own == predicted) {
            let literals = coder.raw((own.0.len() as u32).saturating_sub(257), 5) as usize + 257;
            let distances = coder.raw((own.1.len() as u32).saturating_sub(1), 5) as usize + 1;
            let literals = self.lengths(coder, literals, &predicted.0, &own.0);
            let distances = self.lengths(coder, distances, &predicted.1, &own.1);
            header = Header::for_lengths(builder, &literals, &distances);
        }
        if coder.bit(&mut self.symbols_same, header == *actual) {
            return header;
        }
        let mut header = Header { symbols: Vec::new(), ..header };
        header.code_lengths = (coder.raw((actual.code_lengths as u32).saturating_sub(4), 4) as usize + 4).min(19);
        for (own, given) in header.code_length_lengths.iter_mut().zip(actual.code_length_lengths) {
            *own = coder.raw(u32::from(given), 3) as u8;
        }
        let mut count = 0;
        while count < header.literals + header.distances {
            let given = actual.symbols.get(header.symbols.len()).copied().unwrap_or_default();
            let symbol = (coder.tree(&mut self.symbol, 5, u32::from(given.0)) as u8).min(18);
            let extra = coder.raw(u32::from(given.1), extra_bits(symbol)) as u8;
            count += run_of(symbol, extra);
            header.symbols.push((symbol, extra));
        }
        header
    }

    fn lengths<C: Coder>(&mut self, coder: &mut C, count: usize, predicted: &[u8], own: &[u8]) -> Vec<u8> {
        let at = |lengths: &[u8], index: usize| lengths.get(index).copied().unwrap_or(0);
        (0..count)
            .map(|index| {
                let probs = &mut self.length[usize::from(at(predicted, index) & 15)];
                coder.tree(probs, 4, u32::from(at(own, index))) as u8
            })
            .collect()
    }
}

/// Bits of the tokens with these lengths of codes, and the end of the block.
fn bits_of(counts: &Counts, literals: &[u8], distances: &[u8]) -> u64 {
    let sum = |counts: &[u32], lengths: &[u8]| -> u64 {
        counts.iter().zip(lengths).map(|(&count, &length)| u64::from(count) * u64::from(length)).sum()
    };
    3 + sum(&counts.literals, literals) + sum(&counts.distances, distances)
}

fn header_bits(header: &Header) -> u64 {
    let symbols: u64 = header
        .symbols
        .iter()
        .map(|&(symbol, _)| u64::from(header.code_length_lengths[usize::from(symbol)]) + u64::from(extra_bits(symbol)))
        .sum();
    14 + 3 * header.code_lengths as u64 + symbols
}
