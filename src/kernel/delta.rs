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
/// Tables that take turns in counting, so that runs of one token do not wait for their own count.
pub const TABLES: usize = 4;
/// The first token with bits of its own.
const LITERALS: u8 = 16;
/// Place of the lowest of the two bits below the leading one in an FP32 word.
const TOKEN_SHIFT: u32 = 21;
/// What FP32 words have above [`TOKEN_SHIFT`], less their token: exponent 4 has token 16.
const TOKEN_BIAS: u32 = (127 + 4) * 4 - LITERALS as u32;

/// How often each token was seen in each context: those of context 0 first.
pub type Counts = [u32; CONTEXTS * SLOTS];

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
    fn fold(self, base: Self) -> Self;
    fn unfold(self, base: Self) -> Self;
    fn token(self) -> u8;
    /// The bits that the words of each group leave over, one word's above the one's before.
    fn pack(folded: &[Self; BLOCK], kept: &[u8; BLOCK], groups: &mut Groups);
    /// Inverse of `pack`, given the tokens.
    fn unpack(groups: &Groups, kept: &[u8; BLOCK], tokens: &[u8; BLOCK], folded: &mut [Self; BLOCK]);
}

macro_rules! word {
    ($word:ty, $signed:ty, $bytes:literal, $pack:path, $unpack:path, $token:expr) => {
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
            #[inline(always)]
            fn pack(folded: &[Self; BLOCK], kept: &[u8; BLOCK], groups: &mut Groups) {
                $pack(folded, kept, groups)
            }
            #[inline(always)]
            fn unpack(groups: &Groups, kept: &[u8; BLOCK], tokens: &[u8; BLOCK], folded: &mut [Self; BLOCK]) {
                $unpack(groups, kept, tokens, folded)
            }
        }
    };
}
word!(u16, i16, 2, pack_16, unpack_16, |word: u16| {
    let float = f32::from(word).to_bits();
    if word < u16::from(LITERALS) { word as u8 } else { ((float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS)) as u8 }
});
word!(u32, i32, 4, pack_32, unpack_32, |word: u32| {
    // What has more bits than a float holds is shifted down by eight: 32 tokens.
    let large = word >= 1 << 24;
    let float = ((if large { word >> 8 } else { word }) as i32 as f32).to_bits();
    let token = (float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS) + if large { 32 } else { 0 };
    if word < u32::from(LITERALS) { word as u8 } else { token as u8 }
});

/// Bits that a token leaves over.
#[inline(always)]
pub fn kept_bits(token: u8) -> u8 {
    if token < LITERALS { 0 } else { (token >> 2) - 2 }
}

/// The folded difference of a token whose own bits, `kept` of them, are zero.
#[inline(always)]
fn leading(token: u32, kept: u32) -> u32 {
    if token < u32::from(LITERALS) { token } else { (4 | token & 3) << kept }
}

/// Bits of the words of a block that share eight bytes: four of two bytes, two of four bytes.
type Groups = [u64; BLOCK / 2];

/// The lowest `count` bits, which are fewer than all.
#[inline(always)]
fn mask_32(count: u32) -> u32 {
    (1 << count) - 1
}
#[inline(always)]
fn mask_64(count: u64) -> u64 {
    (1 << count) - 1
}

#[inline(always)]
fn pack_16(folded: &[u16; BLOCK], kept: &[u8; BLOCK], groups: &mut Groups) {
    let mut pairs = [[0u32; 2]; BLOCK / 4];
    let words = folded.as_chunks::<2>().0.iter().zip(kept.as_chunks::<2>().0);
    for (pair, (words, kept)) in pairs.as_flattened_mut().iter_mut().zip(words) {
        let ([low, high], [low_bits, high_bits]) = (words.map(u32::from), kept.map(u32::from));
        *pair = low & mask_32(low_bits) | (high & mask_32(high_bits)) << low_bits;
    }
    for ((group, [low, high]), kept) in groups.iter_mut().zip(pairs).zip(kept.as_chunks::<4>().0) {
        *group = u64::from(low) | u64::from(high) << (kept[0] + kept[1]);
    }
}

#[inline(always)]
fn unpack_16(groups: &Groups, kept: &[u8; BLOCK], tokens: &[u8; BLOCK], folded: &mut [u16; BLOCK]) {
    let mut pairs = [[0u32; 2]; BLOCK / 4];
    for ((group, pair), kept) in groups.iter().zip(&mut pairs).zip(kept.as_chunks::<4>().0) {
        *pair = [*group as u32, (group >> (kept[0] + kept[1])) as u32];
    }
    let details = kept.as_chunks::<2>().0.iter().zip(tokens.as_chunks::<2>().0);
    let words = folded.as_chunks_mut::<2>().0.iter_mut().zip(pairs.as_flattened());
    for ((words, pair), (kept, tokens)) in words.zip(details) {
        let ([low_bits, high_bits], tokens) = (kept.map(u32::from), tokens.map(u32::from));
        let low = pair & mask_32(low_bits) | leading(tokens[0], low_bits);
        let high = pair >> low_bits & mask_32(high_bits) | leading(tokens[1], high_bits);
        *words = [low as u16, high as u16];
    }
}

#[inline(always)]
fn pack_32(folded: &[u32; BLOCK], kept: &[u8; BLOCK], groups: &mut Groups) {
    let words = folded.as_chunks::<2>().0.iter().zip(kept.as_chunks::<2>().0);
    for (group, (words, kept)) in groups.iter_mut().zip(words) {
        let ([low, high], [low_bits, high_bits]) = (words.map(u64::from), kept.map(u64::from));
        *group = low & mask_64(low_bits) | (high & mask_64(high_bits)) << low_bits;
    }
}

#[inline(always)]
fn unpack_32(groups: &Groups, kept: &[u8; BLOCK], tokens: &[u8; BLOCK], folded: &mut [u32; BLOCK]) {
    let mut both = [[0u32; 2]; BLOCK / 2];
    for ((group, both), kept) in groups.iter().zip(&mut both).zip(kept.as_chunks::<2>().0) {
        *both = [*group as u32, (group >> kept[0]) as u32];
    }
    let details = kept.iter().zip(tokens);
    for ((word, bits), (kept, token)) in folded.iter_mut().zip(both.as_flattened()).zip(details) {
        let kept = u32::from(*kept);
        *word = bits & mask_32(kept) | leading(u32::from(*token), kept);
    }
}

/// The bits that the words of each group leave over together.
#[inline(always)]
fn sums<const WORDS: usize>(kept: &[u8; BLOCK], sums: &mut [u8]) {
    for (sum, kept) in sums.iter_mut().zip(kept.as_chunks::<WORDS>().0) {
        *sum = kept.iter().sum();
    }
}

/// Fills the lowest bits first.
#[derive(Default, Clone, Copy)]
struct Bits {
    at: usize,
    low: u64,
    filled: u32,
}

impl Bits {
    /// Puts `count` bits, above which `value` is zero: fewer than 64, and fewer than all eight bytes and one bit with
    /// those that are left.
    #[inline(always)]
    fn put(&mut self, bytes: &mut [u8], value: u64, count: u32) {
        self.low |= value << self.filled;
        let filled = self.filled + count;
        if let Some(slot) = bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            *slot = self.low.to_le_bytes();
        }
        let whole = filled / 8;
        self.at += whole as usize;
        self.low = if whole < 8 { self.low >> (whole * 8) } else { value >> (64 - self.filled) };
        self.filled = filled % 8;
    }

    /// Puts what is left over after eight full bytes and gives the number of bytes.
    fn finish(self, bytes: &mut [u8]) -> usize {
        if self.filled == 0 {
            return self.at;
        }
        if let Some(slot) = bytes.get_mut(self.at) {
            *slot = self.low as u8;
        }
        self.at + 1
    }
}

#[inline(always)]
fn tokens_of<W: Word>(
    words: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [Counts; TABLES],
    kept: &mut [u8],
) -> usize {
    let width = size_of::<W>();
    let mut bits = Bits::default();
    let mut slots = [0u16; BLOCK];
    for (number, (tokens, contexts)) in tokens.chunks_mut(BLOCK).zip(contexts.chunks_mut(BLOCK)).enumerate() {
        let len = tokens.len().min(contexts.len());
        let (tokens, contexts) = (&mut tokens[..len], &mut contexts[..len]);
        let [raw, base] = words.map(|words| &words[number * BLOCK * width..][..len * width]);
        let (mut folded, mut kept_of) = ([W::default(); BLOCK], [0; BLOCK]);
        for (at, folded) in folded[..len].iter_mut().enumerate() {
            *folded = W::load(raw, at).fold(W::load(base, at));
        }
        for ((token, kept), folded) in tokens.iter_mut().zip(&mut kept_of).zip(&folded) {
            *token = folded.token();
            *kept = kept_bits(*token);
        }
        for (at, context) in contexts.iter_mut().enumerate() {
            *context = exponent.context(W::load(base, at).wide());
        }
        for ((slot, token), context) in slots.iter_mut().zip(tokens.iter()).zip(contexts.iter()) {
            *slot = u16::from(*context) << SLOTS.ilog2() | u16::from(*token);
        }
        count(&slots[..len], counts);
        bits = keep(&folded, &kept_of, kept, bits);
    }
    bits.finish(kept)
}

#[inline(always)]
fn count(slots: &[u16], [first, second, third, fourth]: &mut [Counts; TABLES]) {
    let (turns, rest) = slots.as_chunks::<TABLES>();
    for [a, b, c, d] in turns.iter().map(|turn| turn.map(|slot| usize::from(slot) % (CONTEXTS * SLOTS))) {
        first[a] += 1;
        second[b] += 1;
        third[c] += 1;
        fourth[d] += 1;
    }
    for slot in rest {
        first[usize::from(*slot) % (CONTEXTS * SLOTS)] += 1;
    }
}

/// Puts the bits that the words of a block leave over.
#[inline(always)]
fn keep<W: Word>(folded: &[W; BLOCK], kept_of: &[u8; BLOCK], kept: &mut [u8], mut bits: Bits) -> Bits {
    if kept_of.iter().fold(0, |all, kept| all | kept) == 0 {
        return bits;
    }
    let (mut groups, mut group_bits) = ([0; BLOCK / 2], [0; BLOCK / 2]);
    W::pack(folded, kept_of, &mut groups);
    let group_bits = group_sums::<W>(kept_of, &mut group_bits);
    for (group, count) in groups.iter().zip(group_bits) {
        bits.put(kept, *group, u32::from(*count));
    }
    bits
}

#[inline(always)]
fn group_sums<'a, W: Word>(kept: &[u8; BLOCK], room: &'a mut [u8; BLOCK / 2]) -> &'a [u8] {
    let groups = &mut room[..BLOCK * size_of::<W>() / 8];
    if size_of::<W>() == 2 {
        sums::<4>(kept, groups)
    } else {
        sums::<2>(kept, groups)
    }
    groups
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
    let mut seen = 0;
    for (number, tokens) in tokens.chunks(BLOCK).enumerate() {
        let (mut block, mut kept_of, mut folded) = ([0; BLOCK], [0; BLOCK], [W::default(); BLOCK]);
        block[..tokens.len()].copy_from_slice(tokens);
        for (kept, token) in kept_of.iter_mut().zip(&block) {
            // What has no meaning is refused in the end; until then it takes no more bits than may be.
            *kept = kept_bits(*token & (width * SLOTS / 4 - 1) as u8);
            seen |= token;
        }
        let (mut groups, mut group_bits) = ([0; BLOCK / 2], [0; BLOCK / 2]);
        let group_bits = group_sums::<W>(&kept_of, &mut group_bits);
        for (group, count) in groups.iter_mut().zip(group_bits) {
            *group = window(kept, place, u32::from(*count));
            place += usize::from(*count);
        }
        W::unpack(&groups, &kept_of, &block, &mut folded);
        let bytes = number * BLOCK * width..number * BLOCK * width + tokens.len() * width;
        let (base, out) = (&base[bytes.clone()], &mut out[bytes]);
        for (at, folded) in folded[..tokens.len()].iter().enumerate() {
            folded.unfold(W::load(base, at)).store(out, at);
        }
    }
    // Tokens from `SLOTS` on, or beyond those of two bytes, have no meaning.
    let known = usize::from(seen) < width * SLOTS / 4;
    let left = (kept.len() * 8).checked_sub(place);
    known && left.is_some_and(|left| left < 8) && unused_are_zero(kept, place)
}

/// Whether the last byte has no bits from `place` on.
#[inline(always)]
fn unused_are_zero(kept: &[u8], place: usize) -> bool {
    place.is_multiple_of(8) || kept.last().is_none_or(|last| last >> (place % 8) == 0)
}

/// At least `count` bits, which are fewer than 64, from `place` on; what is not there is zero.
#[inline(always)]
fn window(bytes: &[u8], place: usize, count: u32) -> u64 {
    let (rest, shift) = (bytes.get(place / 8..).unwrap_or_default(), place as u32 % 8);
    let first = match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => rest.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    };
    if shift + count <= 64 {
        return first >> shift;
    }
    first >> shift | rest.get(8).map_or(0, |byte| u64::from(*byte) << (64 - shift))
}

vectorised! {
    fn tokens_16(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [Counts; TABLES], kept: &mut [u8]) -> usize = tokens_of::<u16>
}
vectorised! {
    fn tokens_32(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [Counts; TABLES], kept: &mut [u8]) -> usize = tokens_of::<u32>
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
/// `tokens` and `contexts` hold and both have words; adds to `counts` (their sum is what counts), and gives the
/// bytes of kept bits at the front of `kept`, which has room for all bytes of `raw` and [`SLACK_BYTES`] more.
pub fn tokens(
    width: usize,
    [raw, base]: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [Counts; TABLES],
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
