//! The decoder: look-ups of several symbols, in several streams side by side.

use super::{LENGTH_MAX, LENGTHS_BYTES, PrefixCode, STREAMS, SYMBOLS, segment_len};
use crate::kernel::vector::up_to_avx2;

/// Entries of a table.
const ENTRIES: usize = 1 << LENGTH_MAX;
/// Symbols of an entry, at most.
const ENTRY_SYMBOLS: usize = 6;
/// Where in an entry the symbols are; below is the number of bits.
const SYMBOLS_AT: u32 = 8;
/// Where in an entry the number of symbols is, in its highest byte.
const COUNT_AT: u32 = 56;
/// The symbols of an entry.
const SYMBOLS_MASK: u64 = (1 << COUNT_AT) - (1 << SYMBOLS_AT);

/// Look-ups with each word of 64 bits: what is left of one behind 7 bits has as many words of the greatest length.
const LOOK_UPS: usize = 5;
/// Stands in the highest place of a word: how far down it comes tells how many bits were taken.
const MARK: u64 = 1 << 63;
/// Bytes that are read or stored at once.
const ACCESS_BYTES: usize = size_of::<u64>();
/// Bytes of a stream that a round takes at most.
const ROUND_BYTES: usize = (LOOK_UPS * LENGTH_MAX as usize).div_ceil(8);
/// Symbols that a round gives at most.
const ROUND_SYMBOLS: usize = LOOK_UPS * ENTRY_SYMBOLS;
const _: () = assert!(7 + LOOK_UPS * (LENGTH_MAX as usize) < 64, "a word is enough for a round");

/// Fills `out` from an encoding of as many symbols with the same code. False where `payload` is none: a stream ends
/// early or late, or in bits that are not zero; what is in `out` is then of no meaning.
pub fn decode(payload: &[u8], code: &PrefixCode, out: &mut [u8]) -> bool {
    let Some((lengths, streams)) = payload.split_at_checked(LENGTHS_BYTES) else { return false };
    let mut places = [Place { bit: 0, end_bit: 0, position: 0, end: 0 }; STREAMS];
    let (mut from, segment) = (0, segment_len(out.len()));
    for (number, place) in places.iter_mut().enumerate() {
        let length = lengths.as_chunks().0.get(number).map(|length| u32::from_le_bytes(*length) as usize);
        let to = length.map_or(streams.len(), |length| length.saturating_add(from));
        if to > streams.len() {
            return false;
        }
        let position = (number * segment).min(out.len());
        *place = Place { bit: 8 * from, end_bit: 8 * to, position, end: (position + segment).min(out.len()) };
        from = to;
    }
    let mut words = [(0, 0); SYMBOLS];
    let mut used = 0;
    for (symbol, _, length) in code.codes() {
        words[used] = (symbol, length);
        used += 1;
    }
    let table = table_of(&words[..used], code.lengths());
    decode_streams(streams, &table, code.lengths(), &mut places, out);
    places.iter().all(|place| place.ends_well(streams))
}

/// What the next [`LENGTH_MAX`] bits are: no entry has more than [`ENTRY_SYMBOLS`] symbols or [`LENGTH_MAX`] bits.
struct Table([u64; ENTRIES]);

/// The numbers of [`LENGTH_MAX`] bits, their bits in reverse.
static REVERSED: [u16; ENTRIES] = {
    let (mut reversed, mut number) = ([0; ENTRIES], 0);
    while number < ENTRIES {
        reversed[number] = (number as u16).reverse_bits() >> (u16::BITS - LENGTH_MAX);
        number += 1;
    }
    reversed
};

up_to_avx2! {
    fn table_of(words: &[(u8, u32)], lengths: &[u8; SYMBOLS]) -> Table = Table::new
}

impl Table {
    /// Makes the tables for all numbers of bits, the one for none first. That of `b` bits is at `1 << b` and has as
    /// many entries, by bits of which the first is the highest: there, entries that begin with the same symbol follow
    /// each other, in the order of the words. Each is that symbol and what there is for the bits behind its word.
    #[inline(always)]
    fn new(words: &[(u8, u32)], lengths: &[u8; SYMBOLS]) -> Table {
        let mut tables = [0u64; 2 * ENTRIES];
        let may_overflow = words.first().is_some_and(|(_, length)| *length == 1);
        for bits in 1..=LENGTH_MAX {
            let (shorter, table) = tables.split_at_mut(1 << bits);
            let mut from = 0;
            for (symbol, length) in words.iter().take_while(|(_, length)| *length <= bits) {
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
        let mut table = Table([0; ENTRIES]);
        for (reversed, entry) in REVERSED.iter().zip(&tables[ENTRIES..]) {
            table.0[usize::from(*reversed) % ENTRIES] = *entry;
        }
        table
    }

    #[inline(always)]
    fn entry(&self, word: u64) -> u64 {
        self.0[word as usize % ENTRIES]
    }
}

/// What an entry has too much that is a symbol and those of `rest`: one symbol less is counted, without its bits.
fn excess(rest: u64, lengths: &[u8; SYMBOLS]) -> u64 {
    if rest >> COUNT_AT < ENTRY_SYMBOLS as u64 {
        return 0;
    }
    let last = (rest >> (COUNT_AT - 8)) as u8;
    1 << COUNT_AT | u64::from(lengths[usize::from(last)])
}

/// Where a stream is decoded.
#[derive(Clone, Copy)]
struct Place {
    /// The next bit of all streams, and where this one ends.
    bit: usize,
    end_bit: usize,
    /// Where the next symbol goes, and where the segment ends.
    position: usize,
    end: usize,
}

impl Place {
    /// Rounds that neither read behind all streams nor write behind the segment or `out`.
    #[inline(always)]
    fn rounds(&self, streams: &[u8], out: &[u8]) -> usize {
        let bytes = streams.len().saturating_sub(self.bit / 8).saturating_sub(ACCESS_BYTES);
        let symbols = self.end.min(out.len()).saturating_sub(self.position).saturating_sub(ACCESS_BYTES);
        (bytes / ROUND_BYTES).min(symbols / ROUND_SYMBOLS)
    }

    /// Whether all symbols were decoded from all bits but those that fill the last byte.
    fn ends_well(&self, streams: &[u8]) -> bool {
        let filled = self.end_bit.wrapping_sub(self.bit);
        let last = streams.get(self.bit / 8).map_or(0, |byte| byte >> (self.bit % 8));
        self.position == self.end && (filled == 0 || (filled < 8 && last == 0))
    }
}

up_to_avx2! {
    fn decode_streams(streams: &[u8], table: &Table, lengths: &[u8; SYMBOLS], places: &mut [Place; STREAMS],
        out: &mut [u8]) = decode_side_by_side
}

#[inline(always)]
fn decode_side_by_side(
    streams: &[u8],
    table: &Table,
    lengths: &[u8; SYMBOLS],
    places: &mut [Place; STREAMS],
    out: &mut [u8],
) {
    while run(streams, table, places, out) {}
    for place in places {
        while run(streams, table, std::array::from_mut(place), out) {}
        finish(streams, table, lengths, place, out);
    }
}

/// As many rounds as there may be of all these streams; false where that is none.
#[expect(unsafe_code, reason = "checks in each look-up cost a third of the speed")]
#[inline(always)]
fn run<const N: usize>(streams: &[u8], table: &Table, places: &mut [Place; N], out: &mut [u8]) -> bool {
    let rounds = places.iter().map(|place| place.rounds(streams, out)).min().unwrap_or(0);
    let mut bits = places.each_ref().map(|place| place.bit);
    let mut positions = places.each_ref().map(|place| place.position);
    for _ in 0..rounds {
        let mut words = bits.map(|bit| {
            // SAFETY: a round takes at most `ROUND_BYTES` bytes of a stream, as no entry has more than `LENGTH_MAX`
            // bits; behind as many for each of the rounds there are `ACCESS_BYTES` more.
            let word = unsafe { streams.as_ptr().add(bit / 8).cast::<[u8; ACCESS_BYTES]>().read() };
            u64::from_le_bytes(word) >> (bit % 8) | MARK
        });
        for _ in 0..LOOK_UPS {
            for (word, position) in words.iter_mut().zip(&mut positions) {
                let entry = table.entry(*word);
                // The number of bits comes to stand behind the symbols, where the next store overwrites it.
                let symbols = entry.rotate_right(SYMBOLS_AT).to_le_bytes();
                // SAFETY: a round gives at most `ROUND_SYMBOLS` symbols of a stream, as no entry has more than
                // `ENTRY_SYMBOLS`; behind as many for each of the rounds there are `ACCESS_BYTES` more.
                unsafe { out.as_mut_ptr().add(*position).cast::<[u8; ACCESS_BYTES]>().write(symbols) };
                *position += (entry >> COUNT_AT) as usize;
                *word >>= entry & 63;
            }
        }
        for (bit, word) in bits.iter_mut().zip(words) {
            *bit += word.leading_zeros() as usize;
        }
    }
    for ((place, bit), position) in places.iter_mut().zip(bits).zip(positions) {
        (place.bit, place.position) = (bit, position);
    }
    rounds > 0
}

/// What is left of a stream, one symbol after the other.
fn finish(streams: &[u8], table: &Table, lengths: &[u8; SYMBOLS], place: &mut Place, out: &mut [u8]) {
    while place.position < place.end && place.bit < place.end_bit {
        let mut bytes = [0; ACCESS_BYTES];
        let rest = streams.get(place.bit / 8..).unwrap_or_default();
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let symbol = (table.entry(u64::from_le_bytes(bytes) >> (place.bit % 8)) >> SYMBOLS_AT) as u8;
        out[place.position] = symbol;
        place.position += 1;
        place.bit += usize::from(lengths[usize::from(symbol)]);
    }
}
