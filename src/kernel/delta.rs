//! Differences of floats as tokens and bits: how far a word lies from its base, counted in representable values.
//!
//! 1. Both words become integers in the order of the values: a negative one has all bits but its sign flipped.
//! 2. Their wrap-around difference is folded so that small magnitudes are small: 0, -1, 1, -2, …
//! 3. A folded difference below 16 is its own token. Above, with n the place of its leading one, the token is
//!    `16 + 4 (n - 4)` plus the two bits under the leading one, and the other n - 2 bits are kept as they are, each
//!    word's above the one's before, from the lowest bit of the first byte on.
//! 4. A word's context is how far its base's exponent lies below `top`, at most [`CONTEXTS`] - 1.
//!
//! Every bit pattern has its place in the order, so every word can follow every other.

use super::vector::vectorised;

/// Contexts of tokens.
pub const CONTEXTS: usize = 16;
/// Slots of a context in [`Counts`]: more than there are tokens.
pub const SLOTS: usize = 128;
/// Bytes that [`tokens`] may write beyond the last it uses.
pub const SLACK_BYTES: usize = 8;
/// Words at a time.
const BLOCK: usize = 256;
/// Words that are looked at together for bits that are kept.
const GROUP: usize = 16;
/// The first token with bits of its own.
const LITERALS: u8 = 16;
/// Place of the lowest of the two bits below the leading one in an FP32 word.
const TOKEN_SHIFT: u32 = 21;
/// What FP32 words have above [`TOKEN_SHIFT`], less their token: exponent 4 has token 16.
const TOKEN_BIAS: u32 = (127 + 4) * 4 - LITERALS as u32;

/// How often each token was seen in each context.
pub type Counts = [[u32; SLOTS]; CONTEXTS];

/// Where the exponent of a word is, and the exponent of context 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exponent {
    /// Bits below it.
    pub shift: u32,
    /// Its bits, shifted down.
    pub mask: u32,
    /// Larger ones are in context 0 too.
    pub top: u8,
}

impl Exponent {
    #[inline(always)]
    fn context(self, base: u32) -> u8 {
        let exponent = (base >> self.shift & self.mask) as i32;
        (i32::from(self.top) - exponent).clamp(0, CONTEXTS as i32 - 1) as u8
    }
}

/// Words of 2 or 4 bytes.
trait Word: Copy + Default {
    fn load(bytes: &[u8], at: usize) -> Self;
    fn store(self, bytes: &mut [u8], at: usize);
    fn wide(self) -> u32;
    fn narrow(wide: u32) -> Self;
    fn fold(self, base: Self) -> Self;
    fn unfold(self, base: Self) -> Self;
    fn token(self) -> u8;
}

macro_rules! word {
    ($word:ty, $signed:ty, $bytes:literal, $token:expr) => {
        impl Word for $word {
            #[inline(always)]
            fn load(bytes: &[u8], at: usize) -> Self {
                Self::from_le_bytes(bytes.as_chunks::<$bytes>().0[at])
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8], at: usize) {
                bytes.as_chunks_mut::<$bytes>().0[at] = self.to_le_bytes();
            }
            #[inline(always)]
            fn wide(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn narrow(wide: u32) -> Self {
                wide as $word
            }
            #[inline(always)]
            fn fold(self, base: Self) -> Self {
                let order = |word: $word| word ^ ((word as $signed >> (<$word>::BITS - 1)) as $word >> 1);
                let difference = order(self).wrapping_sub(order(base)) as $signed;
                ((difference << 1) ^ (difference >> (<$word>::BITS - 1))) as $word
            }
            #[inline(always)]
            fn unfold(self, base: Self) -> Self {
                let order = |word: $word| word ^ ((word as $signed >> (<$word>::BITS - 1)) as $word >> 1);
                let difference = (self >> 1) ^ (self & 1).wrapping_neg();
                order(order(base).wrapping_add(difference))
            }
            #[inline(always)]
            fn token(self) -> u8 {
                $token(self)
            }
        }
    };
}
word!(u16, i16, 2, |word: u16| {
    let float = f32::from(word).to_bits();
    if word < u16::from(LITERALS) { word as u8 } else { ((float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS)) as u8 }
});
word!(u32, i32, 4, |word: u32| {
    // What has more bits than a float holds is shifted down by eight: 32 tokens.
    let large = word >= 1 << 24;
    let float = ((if large { word >> 8 } else { word }) as i32 as f32).to_bits();
    let token = (float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS) + if large { 32 } else { 0 };
    if word < u32::from(LITERALS) { word as u8 } else { token as u8 }
});

/// Bits that each token leaves over.
const KEPT_BITS: [u8; 256] = {
    let mut bits = [0; 256];
    let mut token = LITERALS as usize;
    while token < SLOTS {
        bits[token] = (token / 4 - 2) as u8;
        token += 1;
    }
    bits
};
/// The folded difference of each token, its own bits being zero.
const LEADING: [u32; 256] = {
    let mut leading = [0; 256];
    let mut token = 0;
    while token < SLOTS {
        leading[token] =
            if token < LITERALS as usize { token as u32 } else { (4 + token as u32 % 4) << KEPT_BITS[token] };
        token += 1;
    }
    leading
};

/// Bits that a token leaves over.
pub fn kept_bits(token: u8) -> u32 {
    u32::from(KEPT_BITS[usize::from(token)])
}

/// Fills the lowest bits first.
struct Bits<'a> {
    bytes: &'a mut [u8],
    at: usize,
    low: u64,
    filled: u32,
}

impl Bits<'_> {
    #[inline(always)]
    fn put(&mut self, value: u32, count: u32) {
        self.low |= (u64::from(value) & ((1 << count) - 1)) << self.filled;
        self.filled += count;
        if let Some(slot) = self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            *slot = self.low.to_le_bytes();
        }
        let whole = self.filled / 8;
        self.at += whole as usize;
        self.low >>= whole * 8;
        self.filled %= 8;
    }
}

#[inline(always)]
fn tokens_of<W: Word>(
    words: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [Counts; 2],
    kept: &mut [u8],
) -> usize {
    let width = size_of::<W>();
    let mut bits = Bits { bytes: kept, at: 0, low: 0, filled: 0 };
    let mut folded = [W::default(); BLOCK];
    for (number, (tokens, contexts)) in tokens.chunks_mut(BLOCK).zip(contexts.chunks_mut(BLOCK)).enumerate() {
        let len = tokens.len().min(contexts.len());
        let (tokens, contexts) = (&mut tokens[..len], &mut contexts[..len]);
        let [raw, base] = words.map(|words| &words[number * BLOCK * width..][..len * width]);
        for (at, folded) in folded[..len].iter_mut().enumerate() {
            *folded = W::load(raw, at).fold(W::load(base, at));
        }
        for (token, folded) in tokens.iter_mut().zip(&folded) {
            *token = folded.token();
        }
        for (at, context) in contexts.iter_mut().enumerate() {
            *context = exponent.context(W::load(base, at).wide());
        }
        for (tokens, contexts) in tokens.chunks(2).zip(contexts.chunks(2)) {
            for ((token, context), counts) in tokens.iter().zip(contexts).zip(counts.iter_mut()) {
                counts[usize::from(*context) % CONTEXTS][usize::from(*token) % SLOTS] += 1;
            }
        }
        for (tokens, folded) in tokens.chunks(GROUP).zip(folded.chunks(GROUP)) {
            if tokens.iter().fold(0, |all, token| all | token) < LITERALS {
                continue;
            }
            for (token, folded) in tokens.iter().zip(folded) {
                bits.put(folded.wide(), u32::from(KEPT_BITS[usize::from(*token)]));
            }
        }
    }
    bits.at + usize::from(bits.filled > 0)
}

#[inline(always)]
fn contexts_of<W: Word>(base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
    for (at, context) in contexts.iter_mut().enumerate() {
        *context = exponent.context(W::load(base, at).wide());
    }
}

#[inline(always)]
fn words_of<W: Word>(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool {
    let width = size_of::<W>();
    let mut place = 0;
    let mut folded = [W::default(); BLOCK];
    let mut seen = 0;
    for (number, tokens) in tokens.chunks(BLOCK).enumerate() {
        for (tokens, folded) in tokens.chunks(GROUP).zip(folded.chunks_mut(GROUP)) {
            let any = tokens.iter().fold(0, |all, token| all | token);
            seen |= any;
            if any < LITERALS {
                folded.iter_mut().zip(tokens).for_each(|(folded, token)| *folded = W::narrow(u32::from(*token)));
                continue;
            }
            for (folded, token) in folded.iter_mut().zip(tokens) {
                let token = usize::from(*token);
                let count = u32::from(KEPT_BITS[token]);
                let value = window(kept, place / 8) >> (place % 8) & ((1 << count) - 1);
                *folded = W::narrow(LEADING[token] | value as u32);
                place += count as usize;
            }
        }
        let bytes = number * BLOCK * width..number * BLOCK * width + tokens.len() * width;
        let (base, out) = (&base[bytes.clone()], &mut out[bytes]);
        for (at, folded) in folded[..tokens.len()].iter().enumerate() {
            folded.unfold(W::load(base, at)).store(out, at);
        }
    }
    // Tokens from `SLOTS` on, or beyond those of two bytes, have no meaning.
    let known = usize::from(seen) < SLOTS && (width > 2 || usize::from(seen) < SLOTS / 2);
    let left = (kept.len() * 8).checked_sub(place);
    known && left.is_some_and(|left| left < 8) && unused_are_zero(kept, place)
}

/// Whether the last byte has no bits from `place` on.
#[inline(always)]
fn unused_are_zero(kept: &[u8], place: usize) -> bool {
    place.is_multiple_of(8) || kept.last().is_none_or(|last| last >> (place % 8) == 0)
}

/// The eight bytes from `at` on; what is not there is zero.
#[inline(always)]
fn window(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => rest.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    }
}

vectorised! {
    fn tokens_16(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [Counts; 2], kept: &mut [u8]) -> usize = tokens_of::<u16>
}
vectorised! {
    fn tokens_32(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [Counts; 2], kept: &mut [u8]) -> usize = tokens_of::<u32>
}
vectorised! {
    fn contexts_16(base: &[u8], exponent: Exponent, contexts: &mut [u8]) = contexts_of::<u16>
}
vectorised! {
    fn contexts_32(base: &[u8], exponent: Exponent, contexts: &mut [u8]) = contexts_of::<u32>
}
vectorised! {
    fn words_16(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool = words_of::<u16>
}
vectorised! {
    fn words_32(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool = words_of::<u32>
}

/// Tells the words of `width` bytes (2 or 4) of `raw` by those of `base`: a token and a context for each, as many as
/// `tokens` and `contexts` hold and both have words; adds to `counts` (the sum of both is what counts), and gives the
/// bytes of kept bits at the front of `kept`, which has room for all bytes of `raw` and [`SLACK_BYTES`] more.
pub fn tokens(
    width: usize,
    [raw, base]: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [Counts; 2],
    kept: &mut [u8],
) -> usize {
    let words = tokens.len().min(contexts.len()).min(raw.len() / width.max(1)).min(base.len() / width.max(1));
    let (tokens, contexts) = (&mut tokens[..words], &mut contexts[..words]);
    match width {
        2 => tokens_16([raw, base], exponent, tokens, contexts, counts, kept),
        4 => tokens_32([raw, base], exponent, tokens, contexts, counts, kept),
        _ => 0,
    }
}

/// The contexts of the words of `base`, as many as `contexts` holds.
pub fn contexts(width: usize, base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
    let words = contexts.len().min(base.len() / width.max(1));
    match width {
        2 => contexts_16(base, exponent, &mut contexts[..words]),
        4 => contexts_32(base, exponent, &mut contexts[..words]),
        _ => {}
    }
}

/// Inverse of [`tokens`]: the words of `out` from those of `base`; `false` where a token has no meaning, `kept` is not
/// exactly the bits that the tokens leave over, or lengths differ.
pub fn words(width: usize, tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool {
    if out.len() != tokens.len() * width || base.len() < out.len() {
        return false;
    }
    match width {
        2 => words_16(tokens, kept, base, out),
        4 => words_32(tokens, kept, base, out),
        _ => false,
    }
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
