//! Streams for tests, made with the predictors as compressors.

use super::chains::PlainView;
use super::codes::{BlockKind, Header, predicted_lengths};
use super::deflate_writer::DeflateWriter;
use super::predictor::{Predictor, Settings};
use super::symbols::{Counts, Token};

/// Numbers that look random.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Text of about `len` bytes with words that come again.
pub(super) fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let terms: Vec<Vec<u8>> =
        (0..200).map(|_| (0..random.below(9) + 2).map(|_| b'a' + random.below(26) as u8).collect()).collect();
    let mut text = Vec::new();
    while text.len() < len {
        let kind = random.below(40);
        if kind == 0 && text.len() > 300 {
            let from = random.below(text.len() as u64 - 200) as usize;
            text.extend_from_within(from..from + 150);
        } else {
            text.extend_from_slice(&terms[(random.below(200) * random.below(200) / 200) as usize]);
            text.push(if kind == 1 { b'\n' } else { b' ' });
        }
    }
    text.truncate(len);
    text
}

/// How a made stream differs from what its compressor would do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    pub(super) settings: Settings,
    /// One token of so many is another one; 0: none.
    pub(super) odd_tokens: u64,
    /// One block of so many is stored or has fixed codes; 0: none.
    pub(super) odd_blocks: u64,
    /// Bytes of a stored block at the start; 0: there is none.
    pub(super) stored_start: u16,
    pub(super) seed: u64,
}

impl Habits {
    pub(super) fn of(settings: Settings) -> Self {
        Habits { settings, odd_tokens: 0, odd_blocks: 0, stored_start: 0, seed: 1 }
    }
}

/// A deflate stream of `plain`.
pub(super) fn deflate(plain: &[u8], habits: &Habits) -> Vec<u8> {
    let mut random = Random(habits.seed | 1);
    let mut predictor = Predictor::new();
    predictor.start(&habits.settings, 1);
    let view = PlainView { data: plain, origin: 1, floor: 1 };
    let mut writer = DeflateWriter::default();
    let mut tokens = Vec::new();
    let (mut index, mut begin) = (0, 0);
    if habits.stored_start > 0 {
        begin = usize::from(habits.stored_start);
        index = begin;
        writer.stored(false, 0, habits.stored_start);
        writer.bytes(&plain[..begin]);
        predictor.advance_stored(&view, 0, begin);
    }
    loop {
        let is_last = index == plain.len();
        if is_last || tokens.len() == habits.settings.block_tokens as usize {
            let bytes = &plain[begin..index];
            if habits.odd_blocks > 0 && random.below(habits.odd_blocks) == 0 && bytes.len() < 1 << 16 {
                writer.stored(is_last, 0, bytes.len() as u16);
                writer.bytes(bytes);
            } else {
                let is_fixed = habits.odd_blocks > 0 && random.below(habits.odd_blocks) == 0;
                writer.block(is_last, &kind(&tokens, habits, is_fixed), &tokens);
            }
            tokens.clear();
            begin = index;
            if is_last {
                break;
            }
        }
        let mut token = predictor.predict(&view, index);
        if habits.odd_tokens > 0 && random.below(habits.odd_tokens) == 0 {
            token = odd_token(token, plain[index], &mut random);
        }
        predictor.advance(&view, index, token);
        index += token.len();
        tokens.push(token);
    }
    writer.align(0);
    let mut out = Vec::new();
    writer.drain(&mut out);
    out
}

fn odd_token(token: Token, byte: u8, random: &mut Random) -> Token {
    match random.below(2) {
        0 if token.len() > 3 => Token::copy(token.len() - 1, token.distance()),
        _ => Token::literal(byte),
    }
}

fn kind(tokens: &[Token], habits: &Habits, is_fixed: bool) -> BlockKind {
    if is_fixed {
        return BlockKind::Fixed;
    }
    let builder = habits.settings.builder;
    let (literals, distances) = predicted_lengths(builder, &Counts::of(tokens));
    BlockKind::Dynamic(Box::new(Header::for_lengths(builder, &literals, &distances)))
}

/// A gzip member with a deflate stream. The trailer is no checksum: nothing looks at it.
pub(super) fn gzip(plain: &[u8], habits: &Habits) -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 8, 0, 0, 0, 0, 0, 3];
    out.extend_from_slice(b"name\0");
    out.extend(deflate(plain, habits));
    out.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    out
}
