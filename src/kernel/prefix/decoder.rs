//! The decoder: each look-up gives several symbols, and several streams are decoded side by side.

use super::{LENGTH_MAX, LENGTHS_BYTES, PrefixCode, STREAMS, SYMBOLS, segment_len};
use crate::kernel::dispatch::dispatch;

/// Entries of a table.
const ENTRIES: usize = 1 << LENGTH_MAX;
/// Most symbols of an entry.
const ENTRY_SYMBOLS: usize = 6;
/// Position in an entry of the symbols. The number of bits is below.
const SYMBOLS_AT: u32 = 8;
/// Position in an entry of the number of symbols: the highest byte.
const COUNT_AT: u32 = 56;
/// Mask of the symbols of an entry.
const SYMBOLS_MASK: u64 = (1 << COUNT_AT) - (1 << SYMBOLS_AT);

/// Look-ups for each read of 64 bits: after up to 7 used bits, the others contain five codes of the greatest length.
const LOOK_UPS: usize = 5;
/// Set in the highest bit of a window: its shift is the number of bits taken.
const MARK: u64 = 1 << 63;
/// Bytes of a read or a store.
const ACCESS_BYTES: usize = size_of::<u64>();
/// Most bytes of a stream that a round takes.
const ROUND_BYTES: usize = (LOOK_UPS * LENGTH_MAX as usize).div_ceil(8);
/// Most symbols that a round gives.
const ROUND_SYMBOLS: usize = LOOK_UPS * ENTRY_SYMBOLS;
const _: () = assert!(7 + LOOK_UPS * (LENGTH_MAX as usize) < 64, "one window is enough for a round");

/// Fills `out` from the encoding of its symbols with the same code.
///
/// False if `payload` is no such encoding: a stream ends early or late, or in bits that are not zero. Then the bytes of
/// `out` are unspecified.
pub fn decode(payload: &[u8], code: &PrefixCode, out: &mut [u8]) -> bool {
    let Some((lengths, streams)) = payload.split_at_checked(LENGTHS_BYTES) else { return false };
    let mut cursors = [StreamCursor { bit: 0, end_bit: 0, position: 0, end: 0 }; STREAMS];
    let (mut from, segment) = (0, segment_len(out.len()));
    for (number, cursor) in cursors.iter_mut().enumerate() {
        let length = lengths.as_chunks().0.get(number).map(|length| u32::from_le_bytes(*length) as usize);
        let to = length.map_or(streams.len(), |length| length.saturating_add(from));
        if to > streams.len() {
            return false;
        }
        let position = (number * segment).min(out.len());
        *cursor = StreamCursor { bit: 8 * from, end_bit: 8 * to, position, end: (position + segment).min(out.len()) };
        from = to;
    }
    let mut codes = [(0, 0); SYMBOLS];
    let mut used = 0;
    for (symbol, _, length) in code.codes() {
        codes[used] = (symbol, length);
        used += 1;
    }
    let table = lookup_table(&codes[..used], code.lengths());
    decode_streams(streams, &table, code.lengths(), &mut cursors, out);
    cursors.iter().all(|cursor| cursor.ends_well(streams))
}

/// The symbols of each [`LENGTH_MAX`] bits. No entry has more than [`ENTRY_SYMBOLS`] symbols or [`LENGTH_MAX`] bits.
struct LookupTable([u64; ENTRIES]);

/// The numbers of [`LENGTH_MAX`] bits with their bits reversed.
static REVERSED: [u16; ENTRIES] = {
    let (mut reversed, mut number) = ([0; ENTRIES], 0);
    while number < ENTRIES {
        reversed[number] = (number as u16).reverse_bits() >> (u16::BITS - LENGTH_MAX);
        number += 1;
    }
    reversed
};

dispatch! {
    fn lookup_table(codes: &[(u8, u32)], lengths: &[u8; SYMBOLS]) -> LookupTable {
        AVX2 | PORTABLE => LookupTable::new,
    }
}

impl LookupTable {
    /// Makes the table from the first bit on: a table for each number of bits `b`, each from the previous ones.
    ///
    /// The table for `b` bits has `1 << b` entries and starts at `1 << b`. The first bit is the highest of an index, so
    /// the entries with the same first symbol are adjacent, in the order of the codes. Each entry is that symbol,
    /// followed by the entry for the bits after its code.
    #[inline(always)]
    fn new(codes: &[(u8, u32)], lengths: &[u8; SYMBOLS]) -> LookupTable {
        let mut tables = [0u64; 2 * ENTRIES];
        let may_overflow = codes.first().is_some_and(|(_, length)| *length == 1);
        for bits in 1..=LENGTH_MAX {
            let (shorter, table) = tables.split_at_mut(1 << bits);
            let mut from = 0;
            for (symbol, length) in codes.iter().take_while(|(_, length)| *length <= bits) {
                let len = 1 << (bits - length);
                let (own, rest) = (&mut table[from..from + len], &shorter[len..2 * len]);
                let first = 1 << COUNT_AT | u64::from(*symbol) << SYMBOLS_AT | u64::from(*length);
                for (own, rest) in own.iter_mut().zip(rest) {
                    *own = ((rest & SYMBOLS_MASK) << 8 & SYMBOLS_MASK) + (rest & !SYMBOLS_MASK) + first;
                }
                if may_overflow {
                    own.iter_mut().zip(rest).for_each(|(own, rest)| *own -= excess(*rest, lengths));
                }
                from += len;
            }
        }
        let mut table = LookupTable([0; ENTRIES]);
        for (reversed, entry) in REVERSED.iter().zip(&tables[ENTRIES..]) {
            table.0[usize::from(*reversed) % ENTRIES] = *entry;
        }
        table
    }

    #[inline(always)]
    fn entry(&self, window: u64) -> u64 {
        self.0[window as usize % ENTRIES]
    }
}

/// The surplus of an entry that is one symbol and those of `rest`: the count and the bits of the seventh symbol.
fn excess(rest: u64, lengths: &[u8; SYMBOLS]) -> u64 {
    if rest >> COUNT_AT < ENTRY_SYMBOLS as u64 {
        return 0;
    }
    let last = (rest >> (COUNT_AT - 8)) as u8;
    1 << COUNT_AT | u64::from(lengths[usize::from(last)])
}

/// Decoding position of a stream.
#[derive(Clone, Copy)]
struct StreamCursor {
    /// The next bit, counted in all streams.
    bit: usize,
    /// The end of this stream.
    end_bit: usize,
    /// Position of the next symbol in the output.
    position: usize,
    /// The end of this segment.
    end: usize,
}

impl StreamCursor {
    /// Rounds that neither read past the end of all streams nor write past the end of the segment or of `out`.
    #[inline(always)]
    fn rounds(&self, streams: &[u8], out: &[u8]) -> usize {
        let bytes = streams.len().saturating_sub(self.bit / 8).saturating_sub(ACCESS_BYTES);
        let symbols = self.end.min(out.len()).saturating_sub(self.position).saturating_sub(ACCESS_BYTES);
        (bytes / ROUND_BYTES).min(symbols / ROUND_SYMBOLS)
    }

    /// Whether all symbols were decoded, and only zeros that fill the last byte are left.
    fn ends_well(&self, streams: &[u8]) -> bool {
        let filled = self.end_bit.wrapping_sub(self.bit);
        let last = streams.get(self.bit / 8).map_or(0, |byte| byte >> (self.bit % 8));
        self.position == self.end && (filled == 0 || (filled < 8 && last == 0))
    }
}

dispatch! {
    fn decode_streams(streams: &[u8], table: &LookupTable, lengths: &[u8; SYMBOLS],
        cursors: &mut [StreamCursor; STREAMS], out: &mut [u8]) {
        AVX2 | PORTABLE => decode_streams_loop,
    }
}

#[inline(always)]
fn decode_streams_loop(
    streams: &[u8],
    table: &LookupTable,
    lengths: &[u8; SYMBOLS],
    cursors: &mut [StreamCursor; STREAMS],
    out: &mut [u8],
) {
    while run(streams, table, cursors, out) {}
    for cursor in cursors {
        while run(streams, table, std::array::from_mut(cursor), out) {}
        finish(streams, table, lengths, cursor, out);
    }
}

/// Runs all safe rounds of these streams; false if there are none.
#[expect(unsafe_code, reason = "bounds checks in each look-up cost a third of the speed")]
#[inline(always)]
fn run<const N: usize>(streams: &[u8], table: &LookupTable, cursors: &mut [StreamCursor; N], out: &mut [u8]) -> bool {
    let rounds = cursors.iter().map(|cursor| cursor.rounds(streams, out)).min().unwrap_or(0);
    let mut bits = cursors.each_ref().map(|cursor| cursor.bit);
    let mut positions = cursors.each_ref().map(|cursor| cursor.position);
    for _ in 0..rounds {
        let mut windows = bits.map(|bit| {
            // SAFETY: a round takes at most `ROUND_BYTES` bytes of a stream, as no entry has more than `LENGTH_MAX`
            // bits. After these bytes of all rounds, there are `ACCESS_BYTES` more.
            let window = unsafe { streams.as_ptr().add(bit / 8).cast::<[u8; ACCESS_BYTES]>().read() };
            u64::from_le_bytes(window) >> (bit % 8) | MARK
        });
        for _ in 0..LOOK_UPS {
            for (window, position) in windows.iter_mut().zip(&mut positions) {
                let entry = table.entry(*window);
                // The number of bits moves behind the symbols, where the next store overwrites it.
                let symbols = entry.rotate_right(SYMBOLS_AT).to_le_bytes();
                // SAFETY: a round gives at most `ROUND_SYMBOLS` symbols of a stream, as no entry has more than
                // `ENTRY_SYMBOLS`. After these symbols of all rounds, there are `ACCESS_BYTES` more.
                unsafe { out.as_mut_ptr().add(*position).cast::<[u8; ACCESS_BYTES]>().write(symbols) };
                *position += (entry >> COUNT_AT) as usize;
                *window >>= entry & 63;
            }
        }
        for (bit, window) in bits.iter_mut().zip(windows) {
            *bit += window.leading_zeros() as usize;
        }
    }
    for ((cursor, bit), position) in cursors.iter_mut().zip(bits).zip(positions) {
        (cursor.bit, cursor.position) = (bit, position);
    }
    rounds > 0
}

/// Decodes the rest of a stream, one symbol at a time.
fn finish(streams: &[u8], table: &LookupTable, lengths: &[u8; SYMBOLS], cursor: &mut StreamCursor, out: &mut [u8]) {
    while cursor.position < cursor.end && cursor.bit < cursor.end_bit {
        let mut bytes = [0; ACCESS_BYTES];
        let rest = streams.get(cursor.bit / 8..).unwrap_or_default();
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let symbol = (table.entry(u64::from_le_bytes(bytes) >> (cursor.bit % 8)) >> SYMBOLS_AT) as u8;
        out[cursor.position] = symbol;
        cursor.position += 1;
        cursor.bit += usize::from(lengths[usize::from(symbol)]);
    }
}
