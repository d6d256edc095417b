//! Differences of floats as tokens and extra bits: the distance from the base, counted in representable values.
//!
//! 1. An element and its base become integers in the order of the values: all bits of a negative one but its sign are
//!    flipped.
//! 2. Their wrapping difference is folded so that small magnitudes are small: 0, -1, 1, -2, …
//! 3. A folded difference below 16 is its own token. Otherwise let n be the position of its leading one: the token is
//!    `16 + 4 (n - 4)` plus the two bits below the leading one, and the other n - 2 bits are *extra bits*. The extra
//!    bits of all elements are packed, the lowest bit of the first byte first.
//! 4. An element's context is the exponent of its base below `top`: `top - exponent`, in 0 to [`CONTEXTS`] - 1.
//!
//! Every bit pattern has a position in this order, so a difference exists for every pair of elements.

use super::dispatch::dispatch;
use super::lanes::{Lanes, ShiftedLanes};

/// Contexts of tokens.
pub const CONTEXTS: usize = 16;
/// Slots of a context in [`TokenCounts`]: at least one for each token.
pub const SLOTS: usize = 128;
/// Elements processed at a time.
const BLOCK: usize = 256;
/// Bytes that [`encode`] may write after the last extra bit.
pub const SLACK_BYTES: usize = BUFFER_BYTES;
/// Bytes for the extra bits of a block, and for one access of eight bytes after them.
const BUFFER_BYTES: usize = BUFFER_MASK + 1 + 8;
/// Mask of the byte offsets of a block's extra bits.
const BUFFER_MASK: usize = 4 * BLOCK - 1;
/// Tables of counts. Adjacent tokens are counted in different ones, so that equal tokens do not wait for each other.
pub const TABLES: usize = 4;
/// Tokens below this are the folded difference itself.
const LITERALS: u8 = 16;
/// Position in an FP32 number of the lower of the two bits below its leading one.
const TOKEN_SHIFT: u32 = 21;
/// Bits of an FP32 number from [`TOKEN_SHIFT`] on, less its token: exponent 4 has token 16.
const TOKEN_BIAS: u32 = (127 + 4) * 4 - LITERALS as u32;

/// Number of occurrences of each token in each context, context 0 first.
pub type TokenCounts = [u32; CONTEXTS * SLOTS];

/// Position of an element's exponent, and the exponent of context 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exponent {
    /// Bits below the exponent.
    pub shift: u32,
    /// Mask of the exponent after the shift.
    pub mask: u32,
    /// The exponent of context 0. Larger exponents have context 0 too.
    pub top: u8,
}

/// Elements of 2 or 4 bytes as unsigned integers.
trait DeltaElement: Copy {
    /// The bytes of an element, the lowest first.
    type Item: Copy;
    fn each(bytes: &[u8]) -> &[Self::Item];
    fn each_mut(bytes: &mut [u8]) -> &mut [Self::Item];
    fn of(bytes: Self::Item) -> Self;
    fn bytes(self) -> Self::Item;
    /// The context of an element with this base.
    fn context(self, exponent: Exponent) -> u8;
    fn fold(self, base: Self) -> Self;
    fn unfold(self, base: Self) -> Self;
    fn token(self) -> u8;
    /// Mask of the `count` lowest bits.
    fn lowest(count: u8) -> Self;
    /// The folded difference of a token with `count` extra bits.
    fn folded(token: u8, count: u8, extra: Self) -> Self;
}

macro_rules! delta_element {
    ($element:ty, $signed:ty, $bytes:literal, $token:expr) => {
        impl DeltaElement for $element {
            type Item = [u8; $bytes];
            #[inline(always)]
            fn each(bytes: &[u8]) -> &[Self::Item] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn each_mut(bytes: &mut [u8]) -> &mut [Self::Item] {
                bytes.as_chunks_mut().0
            }
            #[inline(always)]
            fn of(bytes: Self::Item) -> Self {
                Self::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn bytes(self) -> Self::Item {
                self.to_le_bytes()
            }
            #[inline(always)]
            fn context(self, Exponent { shift, mask, top }: Exponent) -> u8 {
                let exponent = self >> shift & mask as $element;
                <$element>::from(top).saturating_sub(exponent).min(CONTEXTS as $element - 1) as u8
            }
            #[inline(always)]
            fn fold(self, base: Self) -> Self {
                let order =
                    |element: $element| element ^ ((element as $signed >> (<$element>::BITS - 1)) as $element >> 1);
                let difference = order(self).wrapping_sub(order(base)) as $signed;
                ((difference << 1) ^ (difference >> (<$element>::BITS - 1))) as $element
            }
            #[inline(always)]
            fn unfold(self, base: Self) -> Self {
                let order =
                    |element: $element| element ^ ((element as $signed >> (<$element>::BITS - 1)) as $element >> 1);
                let difference = (self >> 1) ^ (self & 1).wrapping_neg();
                order(order(base).wrapping_add(difference))
            }
            #[inline(always)]
            fn token(self) -> u8 {
                $token(self)
            }
            #[inline(always)]
            fn lowest(count: u8) -> Self {
                ((1u32 << (count & 31)) - 1) as $element
            }
            #[inline(always)]
            fn folded(token: u8, count: u8, extra: Self) -> Self {
                leading(u32::from(token), u32::from(count & 31)) as $element | extra
            }
        }
    };
}
delta_element!(u16, i16, 2, |folded: u16| {
    let float = f32::from(folded).to_bits();
    if folded < u16::from(LITERALS) { folded as u8 } else { ((float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS)) as u8 }
});
delta_element!(u32, i32, 4, |folded: u32| {
    // A float holds 24 bits exactly. A larger number is shifted right by eight bits, which is 32 tokens.
    let large = folded >= 1 << 24;
    let float = ((if large { folded >> 8 } else { folded }) as i32 as f32).to_bits();
    let token = (float >> TOKEN_SHIFT).wrapping_sub(TOKEN_BIAS) + if large { 32 } else { 0 };
    if folded < u32::from(LITERALS) { folded as u8 } else { token as u8 }
});

/// Number of a token's extra bits.
#[inline(always)]
pub fn extra_bits(token: u8) -> u8 {
    if token < LITERALS { 0 } else { (token >> 2) - 2 }
}

/// The folded difference of a token whose `count` extra bits are zero.
#[inline(always)]
fn leading(token: u32, count: u32) -> u32 {
    if token < u32::from(LITERALS) { token } else { (4 | token & 3) << count }
}

/// Bytes of the elements of a block, for the widest type.
type BlockBytes = [u8; 4 * BLOCK];

/// The number of extra bits of each group of elements.
#[inline(always)]
fn sums<const ELEMENTS: usize>(counts: &[u8; BLOCK], sums: &mut [u8]) {
    for (sum, counts) in sums.iter_mut().zip(counts.as_chunks::<ELEMENTS>().0) {
        *sum = counts.iter().sum();
    }
}

/// Packs extra bits, the lowest bit of a byte first.
#[derive(Default, Clone, Copy)]
struct ExtraBitWriter {
    /// Bytes that are full.
    at: usize,
    /// The bits after the full bytes, and their number.
    low: u64,
    filled: u32,
}

impl ExtraBitWriter {
    /// Appends the `count` lowest bits of `value`, which has no others. `count` is below 64, and below 65 together with
    /// the bits after the full bytes. `buffer` starts with the byte of the block's first bit.
    #[inline(always)]
    fn put<E: DeltaElement>(&mut self, buffer: &mut [u8; BUFFER_BYTES], value: u64, count: u32) {
        self.low |= value << self.filled;
        let filled = self.filled + count;
        // A block never fills the buffer. The mask only proves to the compiler that the slot is inside.
        if let Some(slot) = buffer[self.at & BUFFER_MASK..].first_chunk_mut() {
            *slot = self.low.to_le_bytes();
        }
        let whole = filled / 8;
        self.at += whole as usize;
        self.low = match size_of::<E>() {
            // Four elements have at most 52 extra bits.
            2 => self.low >> (filled & 0x38),
            _ if whole < 8 => self.low >> (whole * 8),
            _ => value >> (64 - self.filled),
        };
        self.filled = filled % 8;
    }

    /// Writes the last byte if it is incomplete; returns the number of bytes.
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
fn encode_loop<E: DeltaElement, L: Lanes>(
    inputs: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [TokenCounts; TABLES],
    extra: &mut [u8],
) -> usize {
    let width = size_of::<E>();
    let mut bits = ExtraBitWriter::default();
    for (number, (tokens, contexts)) in tokens.chunks_mut(BLOCK).zip(contexts.chunks_mut(BLOCK)).enumerate() {
        let len = tokens.len().min(contexts.len());
        let [raw, base] = inputs.map(|bytes| E::each(&bytes[number * BLOCK * width..][..len * width]));
        let (mut slots, mut folded): (_, BlockBytes) = ([0u16; BLOCK], [0; 4 * BLOCK]);
        let (mut own_tokens, mut own_contexts, mut extra_counts) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
        for ((folded, raw), base) in E::each_mut(&mut folded).iter_mut().zip(raw).zip(base) {
            *folded = E::of(*raw).fold(E::of(*base)).bytes();
        }
        for ((token, count), folded) in own_tokens.iter_mut().zip(&mut extra_counts).zip(E::each(&folded)) {
            *token = E::of(*folded).token();
            *count = extra_bits(*token);
        }
        for (context, base) in own_contexts.iter_mut().zip(base) {
            *context = E::of(*base).context(exponent);
        }
        for ((slot, token), context) in slots.iter_mut().zip(&own_tokens).zip(&own_contexts) {
            *slot = u16::from(*context) << SLOTS.ilog2() | u16::from(*token);
        }
        tokens.copy_from_slice(&own_tokens[..tokens.len()]);
        contexts.copy_from_slice(&own_contexts[..contexts.len()]);
        count(&slots[..len], counts);
        bits = put_extra_bits::<E, L>(&folded, &extra_counts, extra, bits);
    }
    bits.finish(extra)
}

#[inline(always)]
fn count(slots: &[u16], [first, second, third, fourth]: &mut [TokenCounts; TABLES]) {
    let (fours, rest) = slots.as_chunks::<TABLES>();
    for [a, b, c, d] in fours.iter().map(|four| four.map(|slot| usize::from(slot) % (CONTEXTS * SLOTS))) {
        first[a] += 1;
        second[b] += 1;
        third[c] += 1;
        fourth[d] += 1;
    }
    for slot in rest {
        first[usize::from(*slot) % (CONTEXTS * SLOTS)] += 1;
    }
}

/// Appends the extra bits of a block to `extra`.
#[inline(always)]
fn put_extra_bits<E: DeltaElement, L: Lanes>(
    folded: &BlockBytes,
    extra_counts: &[u8; BLOCK],
    extra: &mut [u8],
    mut bits: ExtraBitWriter,
) -> ExtraBitWriter {
    if extra_counts.iter().fold(0, |all, count| all | count) == 0 {
        return bits;
    }
    let (mut masks, mut group_bits): (BlockBytes, _) = ([0; 4 * BLOCK], [0; BLOCK / 2]);
    fill_masks::<E>(extra_counts, &mut masks);
    let before = std::mem::take(&mut bits.at);
    let Some(buffer) = extra.get_mut(before..).and_then(|rest| rest.first_chunk_mut()) else { return bits };
    let groups = folded.as_chunks().0.iter().zip(masks.as_chunks().0);
    for ((group, mask), count) in groups.zip(group_sums::<E>(extra_counts, &mut group_bits)) {
        let gathered = L::gather(u64::from_le_bytes(*group), u64::from_le_bytes(*mask));
        bits.put::<E>(buffer, gathered, u32::from(*count));
    }
    bits.at += before;
    bits
}

/// Fills `masks` with the mask of each element's extra bits.
#[inline(always)]
fn fill_masks<E: DeltaElement>(extra_counts: &[u8; BLOCK], masks: &mut BlockBytes) {
    for (mask, count) in E::each_mut(masks).iter_mut().zip(extra_counts) {
        *mask = E::lowest(*count).bytes();
    }
}

/// The number of extra bits of each eight bytes of elements.
#[inline(always)]
fn group_sums<'a, E: DeltaElement>(extra_counts: &[u8; BLOCK], sums_out: &'a mut [u8; BLOCK / 2]) -> &'a [u8] {
    let groups = &mut sums_out[..BLOCK * size_of::<E>() / 8];
    if size_of::<E>() == 2 {
        sums::<4>(extra_counts, groups)
    } else {
        sums::<2>(extra_counts, groups)
    }
    groups
}

#[inline(always)]
fn contexts_loop<E: DeltaElement>(base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
    for (context, base) in contexts.iter_mut().zip(E::each(base)) {
        *context = E::of(*base).context(exponent);
    }
}

#[inline(always)]
fn decode_loop<E: DeltaElement, L: Lanes>(tokens: &[u8], extra: &[u8], elements: &mut [u8]) -> bool {
    let width = size_of::<E>();
    let (mut position, mut seen) = (0, 0);
    let (mut bits, mut masks, mut group_bits): (BlockBytes, BlockBytes, _) =
        ([0; 4 * BLOCK], [0; 4 * BLOCK], [0; BLOCK / 2]);
    let mut padded = [0; BUFFER_BYTES];
    for (tokens, elements) in tokens.chunks(BLOCK).zip(elements.chunks_mut(BLOCK * width)) {
        let (mut block, mut extra_counts) = ([0; BLOCK], [0; BLOCK]);
        block[..tokens.len()].copy_from_slice(tokens);
        for (count, token) in extra_counts.iter_mut().zip(&block) {
            // Unknown tokens are refused at the end. Until then the mask limits their extra bits.
            *count = extra_bits(*token & (width * SLOTS / 4 - 1) as u8);
            seen |= token;
        }
        fill_masks::<E>(&extra_counts, &mut masks);
        let mut at = position % 8;
        let buffer = extra.get(position / 8..).unwrap_or_default();
        let buffer = buffer.first_chunk().unwrap_or_else(|| {
            padded[..buffer.len()].copy_from_slice(buffer);
            padded[buffer.len()..].fill(0);
            &padded
        });
        position -= at;
        let groups = bits.as_chunks_mut().0.iter_mut().zip(masks.as_chunks().0);
        for ((bits, mask), count) in groups.zip(group_sums::<E>(&extra_counts, &mut group_bits)) {
            let next = window::<E>(buffer, at, u32::from(*count));
            *bits = L::spread(next, u64::from_le_bytes(*mask)).to_le_bytes();
            at += usize::from(*count);
        }
        position += at;
        let details = E::each(&bits).iter().zip(block.iter().zip(&extra_counts));
        for (element, (own, (token, count))) in E::each_mut(elements).iter_mut().zip(details) {
            *element = E::folded(*token, *count, E::of(*own)).unfold(E::of(*element)).bytes();
        }
    }
    // Elements of four bytes have tokens below `SLOTS`, those of two bytes below half of it.
    let known = usize::from(seen) < width * SLOTS / 4;
    let left = (extra.len() * 8).checked_sub(position);
    known && left.is_some_and(|left| left < 8) && unused_are_zero(extra, position)
}

/// Whether the bits of the last byte from bit `position` on are zero.
#[inline(always)]
fn unused_are_zero(extra: &[u8], position: usize) -> bool {
    position.is_multiple_of(8) || extra.last().is_none_or(|last| last >> (position % 8) == 0)
}

/// At least the `count` bits (fewer than 64) from bit `at` of a block's extra bits on.
#[inline(always)]
fn window<E: DeltaElement>(buffer: &[u8; BUFFER_BYTES], at: usize, count: u32) -> u64 {
    let (byte, shift) = ((at / 8) & BUFFER_MASK, at as u32 % 8);
    let first = buffer[byte..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    // Four elements of two bytes have at most 52 extra bits.
    if size_of::<E>() == 2 || shift + count <= 64 {
        return first >> shift;
    }
    first >> shift | u64::from(buffer[byte + 8]) << (64 - shift)
}

dispatch! {
    fn encode_16(inputs: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [TokenCounts; TABLES], extra: &mut [u8]) -> usize {
        AVX512_PEXT | AVX2_PEXT => encode_loop::<u16, super::lanes::pext::PextLanes>,
        AVX512 | AVX2 | PORTABLE => encode_loop::<u16, ShiftedLanes>,
    }
}
dispatch! {
    fn encode_32(inputs: [&[u8]; 2], exponent: Exponent, tokens: &mut [u8], contexts: &mut [u8],
        counts: &mut [TokenCounts; TABLES], extra: &mut [u8]) -> usize {
        AVX512_PEXT | AVX2_PEXT => encode_loop::<u32, super::lanes::pext::PextLanes>,
        AVX512 | AVX2 | PORTABLE => encode_loop::<u32, ShiftedLanes>,
    }
}
dispatch! {
    fn contexts_16(base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => contexts_loop::<u16>,
    }
}
dispatch! {
    fn contexts_32(base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => contexts_loop::<u32>,
    }
}
dispatch! {
    fn decode_16(tokens: &[u8], extra: &[u8], elements: &mut [u8]) -> bool {
        AVX512_PEXT | AVX2_PEXT => decode_loop::<u16, super::lanes::pext::PextLanes>,
        AVX512 | AVX2 | PORTABLE => decode_loop::<u16, ShiftedLanes>,
    }
}
dispatch! {
    fn decode_32(tokens: &[u8], extra: &[u8], elements: &mut [u8]) -> bool {
        AVX512_PEXT | AVX2_PEXT => decode_loop::<u32, super::lanes::pext::PextLanes>,
        AVX512 | AVX2 | PORTABLE => decode_loop::<u32, ShiftedLanes>,
    }
}

/// Encodes the elements of `raw` as differences from those of `base`; `width` is 2 or 4 bytes.
///
/// Writes a token and a context for each element, up to the shortest of `tokens`, `contexts`, `raw` and `base`. Adds
/// the tokens to `counts`, whose tables are to be summed. Writes the packed extra bits to the front of `extra`, which
/// has the length of `raw` plus [`SLACK_BYTES`], and returns their bytes.
pub fn encode(
    width: usize,
    [raw, base]: [&[u8]; 2],
    exponent: Exponent,
    tokens: &mut [u8],
    contexts: &mut [u8],
    counts: &mut [TokenCounts; TABLES],
    extra: &mut [u8],
) -> usize {
    let elements = tokens.len().min(contexts.len()).min(raw.len() / width.max(1)).min(base.len() / width.max(1));
    let (tokens, contexts) = (&mut tokens[..elements], &mut contexts[..elements]);
    match width {
        2 => encode_16([raw, base], exponent, tokens, contexts, counts, extra),
        4 => encode_32([raw, base], exponent, tokens, contexts, counts, extra),
        _ => 0,
    }
}

/// Fills `contexts` with the contexts of the elements of `base`, up to the shortest.
pub fn contexts(width: usize, base: &[u8], exponent: Exponent, contexts: &mut [u8]) {
    let elements = contexts.len().min(base.len() / width.max(1));
    match width {
        2 => contexts_16(base, exponent, &mut contexts[..elements]),
        4 => contexts_32(base, exponent, &mut contexts[..elements]),
        _ => {}
    }
}

/// Inverse of [`encode`], in place: `elements` are those of the base before, and those with these differences from them
/// afterwards.
///
/// Returns false if a token is unknown, unless `extra` is exactly the extra bits of the tokens, or if lengths differ.
pub fn decode(width: usize, tokens: &[u8], extra: &[u8], elements: &mut [u8]) -> bool {
    if elements.len() != tokens.len() * width {
        return false;
    }
    match width {
        2 => decode_16(tokens, extra, elements),
        4 => decode_32(tokens, extra, elements),
        _ => false,
    }
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
