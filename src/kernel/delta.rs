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

use super::lanes::{Lanes, by_lanes};
use super::vector::vectorised;

/// Contexts of tokens.
pub const CONTEXTS: usize = 16;
/// Slots of a context in [`TokenCounts`]: more than there are tokens.
pub const SLOTS: usize = 128;
/// Words at a time.
const BLOCK: usize = 256;
/// Bytes that [`encode`] may write beyond the last it uses.
pub const SLACK_BYTES: usize = ROOM_BYTES;
/// More bytes than the words of a block leave over, and some to write eight at once; the mask has the places before.
const ROOM_BYTES: usize = ROOM_MASK + 1 + 8;
const ROOM_MASK: usize = 4 * BLOCK - 1;
/// Tables that take turns in counting, so that runs of one token do not wait for their own count.
pub const TABLES: usize = 4;
/// The first token with bits of its own.
const LITERALS: u8 = 16;
/// Place of the lowest of the two bits below the leading one in an FP32 word.
const TOKEN_SHIFT: u32 = 21;
/// What FP32 words have above [`TOKEN_SHIFT`], less their token: exponent 4 has token 16.
const TOKEN_BIAS: u32 = (127 + 4) * 4 - LITERALS as u32;

/// How often each token was seen in each context: those of context 0 first.
pub type TokenCounts = [u32; CONTEXTS * SLOTS];

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
trait Word: Copy {
    /// Its bytes, the lowest first.
    type Bytes: Copy;
    fn each(bytes: &[u8]) -> &[Self::Bytes];
    fn each_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    fn of(bytes: Self::Bytes) -> Self;
    fn bytes(self) -> Self::Bytes;
    fn wide(self) -> u32;
    fn fold(self, base: Self) -> Self;
    fn unfold(self, base: Self) -> Self;
    fn token(self) -> u8;
    /// The lowest bits, `kept` of them.
    fn lowest(kept: u8) -> Self;
    /// The folded difference of a token whose own bits, `kept` of them, are in `bits`.
    fn joined(token: u8, kept: u8, bits: Self) -> Self;
}

macro_rules! word {
    ($word:ty, $signed:ty, $bytes:literal, $token:expr) => {
        impl Word for $word {
            type Bytes = [u8; $bytes];
            #[inline(always)]
            fn each(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn each_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
            #[inline(always)]
            fn of(bytes: Self::Bytes) -> Self {
                Self::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
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
            fn lowest(kept: u8) -> Self {
                ((1u32 << (kept & 31)) - 1) as $word
            }
            #[inline(always)]
            fn joined(token: u8, kept: u8, bits: Self) -> Self {
                leading(u32::from(token), u32::from(kept & 31)) as $word | bits
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

/// Bytes of as many words of the widest type as a block has.
type Bytes = [u8; 4 * BLOCK];

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
    /// Whole bytes that are full.
    at: usize,
    low: u64,
    filled: u32,
}

impl Bits {
    /// Puts `count` bits, above which `value` is zero: fewer than 64, and fewer than all eight bytes and one bit with
    /// those that are left. `room` starts with the byte that the block's first bits went to.
    #[inline(always)]
    fn put<W: Word>(&mut self, room: &mut [u8; ROOM_BYTES], value: u64, count: u32) {
        self.low |= value << self.filled;
        let filled = self.filled + count;
        // A block never fills the room, so the mask changes nothing but that the slot lies in it for certain.
        if let Some(slot) = room[self.at & ROOM_MASK..].first_chunk_mut() {
            *slot = self.low.to_le_bytes();
        }
        let whole = filled / 8;
        self.at += whole as usize;
        self.low = match size_of::<W>() {
            // Four words leave 52 bits over at most.
            2 => self.low >> (filled & 0x38),
            _ if whole < 8 => self.low >> (whole * 8),
            _ => value >> (64 - self.filled),
        };
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
fn encode_of<W: Word, L: Lanes>(
    words: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [TokenCounts; TABLES],
    kept: &mut [u8],
) -> usize {
    let width = size_of::<W>();
    let mut bits = Bits::default();
    for (number, (tokens, contexts)) in tokens.chunks_mut(BLOCK).zip(contexts.chunks_mut(BLOCK)).enumerate() {
        let len = tokens.len().min(contexts.len());
        let [raw, base] = words.map(|words| W::each(&words[number * BLOCK * width..][..len * width]));
        let (mut slots, mut folded): (_, Bytes) = ([0u16; BLOCK], [0; 4 * BLOCK]);
        let (mut own_tokens, mut own_contexts, mut kept_of) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
        for ((folded, raw), base) in W::each_mut(&mut folded).iter_mut().zip(raw).zip(base) {
            *folded = W::of(*raw).fold(W::of(*base)).bytes();
        }
        for ((token, kept), folded) in own_tokens.iter_mut().zip(&mut kept_of).zip(W::each(&folded)) {
            *token = W::of(*folded).token();
            *kept = kept_bits(*token);
        }
        for (context, base) in own_contexts.iter_mut().zip(base) {
            *context = exponent.context(W::of(*base).wide());
        }
        for ((slot, token), context) in slots.iter_mut().zip(&own_tokens).zip(&own_contexts) {
            *slot = u16::from(*context) << SLOTS.ilog2() | u16::from(*token);
        }
        tokens.copy_from_slice(&own_tokens[..tokens.len()]);
        contexts.copy_from_slice(&own_contexts[..contexts.len()]);
        count(&slots[..len], counts);
        bits = keep::<W, L>(&folded, &kept_of, kept, bits);
    }
    bits.finish(kept)
}

#[inline(always)]
fn count(slots: &[u16], [first, second, third, fourth]: &mut [TokenCounts; TABLES]) {
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
fn keep<W: Word, L: Lanes>(folded: &Bytes, kept_of: &[u8; BLOCK], kept: &mut [u8], mut bits: Bits) -> Bits {
    if kept_of.iter().fold(0, |all, kept| all | kept) == 0 {
        return bits;
    }
    let (mut masks, mut group_bits): (Bytes, _) = ([0; 4 * BLOCK], [0; BLOCK / 2]);
    fill_masks::<W>(kept_of, &mut masks);
    let before = std::mem::take(&mut bits.at);
    let Some(room) = kept.get_mut(before..).and_then(|rest| rest.first_chunk_mut()) else { return bits };
    let groups = folded.as_chunks().0.iter().zip(masks.as_chunks().0);
    for ((word, mask), count) in groups.zip(group_sums::<W>(kept_of, &mut group_bits)) {
        let gathered = L::gather(u64::from_le_bytes(*word), u64::from_le_bytes(*mask));
        bits.put::<W>(room, gathered, u32::from(*count));
    }
    bits.at += before;
    bits
}

/// Which bits each word of a block leaves over.
#[inline(always)]
fn fill_masks<W: Word>(kept_of: &[u8; BLOCK], masks: &mut Bytes) {
    for (mask, kept) in W::each_mut(masks).iter_mut().zip(kept_of) {
        *mask = W::lowest(*kept).bytes();
    }
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
    for (context, base) in contexts.iter_mut().zip(W::each(base)) {
        *context = exponent.context(W::of(*base).wide());
    }
}

#[inline(always)]
fn decode_of<W: Word, L: Lanes>(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool {
    let width = size_of::<W>();
    let (mut place, mut seen) = (0, 0);
    let (mut bits, mut masks, mut group_bits): (Bytes, Bytes, _) = ([0; 4 * BLOCK], [0; 4 * BLOCK], [0; BLOCK / 2]);
    let bytes = base.chunks(BLOCK * width).zip(out.chunks_mut(BLOCK * width));
    for (tokens, (base, out)) in tokens.chunks(BLOCK).zip(bytes) {
        let (mut block, mut kept_of) = ([0; BLOCK], [0; BLOCK]);
        block[..tokens.len()].copy_from_slice(tokens);
        for (kept, token) in kept_of.iter_mut().zip(&block) {
            // What has no meaning is refused in the end; until then it takes no more bits than may be.
            *kept = kept_bits(*token & (width * SLOTS / 4 - 1) as u8);
            seen |= token;
        }
        fill_masks::<W>(&kept_of, &mut masks);
        let (mut padded, mut at) = ([0; ROOM_BYTES], place % 8);
        let room = kept.get(place / 8..).unwrap_or_default();
        let room = room.first_chunk().unwrap_or_else(|| {
            padded[..room.len()].copy_from_slice(room);
            &padded
        });
        place -= at;
        let groups = bits.as_chunks_mut().0.iter_mut().zip(masks.as_chunks().0);
        for ((bits, mask), count) in groups.zip(group_sums::<W>(&kept_of, &mut group_bits)) {
            let next = window::<W>(room, at, u32::from(*count));
            *bits = L::spread(next, u64::from_le_bytes(*mask)).to_le_bytes();
            at += usize::from(*count);
        }
        place += at;
        let details = W::each(&bits).iter().zip(block.iter().zip(&kept_of));
        for ((out, base), (own, (token, kept))) in W::each_mut(out).iter_mut().zip(W::each(base)).zip(details) {
            *out = W::joined(*token, *kept, W::of(*own)).unfold(W::of(*base)).bytes();
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

/// At least the `count` bits, which are fewer than 64, of a group of words from the bit `at` on, which is one of those
/// that a block leaves over.
#[inline(always)]
fn window<W: Word>(room: &[u8; ROOM_BYTES], at: usize, count: u32) -> u64 {
    let (byte, shift) = ((at / 8) & ROOM_MASK, at as u32 % 8);
    let first = room[byte..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    // Four words of two bytes leave 52 bits over at most.
    if size_of::<W>() == 2 || shift + count <= 64 {
        return first >> shift;
    }
    first >> shift | u64::from(room[byte + 8]) << (64 - shift)
}

by_lanes! {
    fn encode_16(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [TokenCounts; TABLES], kept: &mut [u8]) -> usize = encode_of::<u16>
}
by_lanes! {
    fn encode_32(words: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [TokenCounts; TABLES], kept: &mut [u8]) -> usize = encode_of::<u32>
}
vectorised! {
    fn contexts_16(base: &[u8], exponent: Exponent, contexts: &mut [u8]) = contexts_of::<u16>
}
vectorised! {
    fn contexts_32(base: &[u8], exponent: Exponent, contexts: &mut [u8]) = contexts_of::<u32>
}
by_lanes! {
    fn decode_16(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool = decode_of::<u16>
}
by_lanes! {
    fn decode_32(tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool = decode_of::<u32>
}

/// Tells the words of `width` bytes (2 or 4) of `raw` by those of `base`: a token and a context for each, as many as
/// `tokens` and `contexts` hold and both have words; adds to `counts` (their sum is what counts), and gives the
/// bytes of kept bits at the front of `kept`, which has room for all bytes of `raw` and [`SLACK_BYTES`] more.
pub fn encode(
    width: usize,
    [raw, base]: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [TokenCounts; TABLES],
    kept: &mut [u8],
) -> usize {
    let words = tokens.len().min(contexts.len()).min(raw.len() / width.max(1)).min(base.len() / width.max(1));
    let (tokens, contexts) = (&mut tokens[..words], &mut contexts[..words]);
    match width {
        2 => encode_16([raw, base], exponent, tokens, contexts, counts, kept),
        4 => encode_32([raw, base], exponent, tokens, contexts, counts, kept),
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

/// Inverse of [`encode`]: the words of `out` from those of `base`; `false` where a token has no meaning, `kept` is not
/// exactly the bits that the tokens leave over, or lengths differ.
pub fn decode(width: usize, tokens: &[u8], kept: &[u8], base: &[u8], out: &mut [u8]) -> bool {
    if out.len() != tokens.len() * width || base.len() < out.len() {
        return false;
    }
    match width {
        2 => decode_16(tokens, kept, base, out),
        4 => decode_32(tokens, kept, base, out),
        _ => false,
    }
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
