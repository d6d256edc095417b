//! The filter in portable code: a byte looked up once adds to its own position and the seven after it.
//!
//! The values of eight positions are the bytes of one word. Each byte's entry, its eight maps side by side, is shifted
//! to its position and combined by exclusive or; what runs over the word's end belongs to the next. Bytes of the word
//! that are zero are positions that pass.

use super::{Maps, STRIP_BYTES, Words, each_word, of_each_byte};

const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The maps of every byte, the last position's in the lowest byte.
#[derive(Debug, Clone)]
pub(super) struct Portable {
    entries: Box<[u64; 256]>,
}

impl Portable {
    pub(super) fn new(maps: &Maps) -> Self {
        let maps = of_each_byte(maps);
        let entry = |byte: usize| u64::from_le_bytes(maps.each_ref().map(|map| map[byte]));
        Portable { entries: Box::new(std::array::from_fn(entry)) }
    }

    pub(super) fn masks(&self, block: &[u8], words: &mut Words) -> u64 {
        each_word(block, words, |strip| self.word(strip))
    }

    fn word(&self, strip: &[u8; STRIP_BYTES]) -> u64 {
        let entry = |byte: u8| self.entries[usize::from(byte)];
        let [a, b, c, d, e, f, g, rest @ ..] = strip;
        let [a, b, c, d, e, f, g] = [a, b, c, d, e, f, g].map(|byte| entry(*byte));
        // What the bytes before a group of eight add to it.
        let run_over = |b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64| {
            b >> 56 ^ c >> 48 ^ d >> 40 ^ e >> 32 ^ f >> 24 ^ g >> 16 ^ h >> 8
        };
        let mut carry = run_over(a, b, c, d, e, f, g);
        let mut word = 0;
        for (number, eight) in rest.as_chunks::<8>().0.iter().enumerate() {
            let [a, b, c, d, e, f, g, h] = eight.map(entry);
            let front = a ^ b << 8 ^ c << 16 ^ d << 24 ^ e << 32;
            let values = carry ^ front ^ f << 40 ^ g << 48 ^ h << 56;
            carry = run_over(b, c, d, e, f, g, h);
            // Not zero for a byte that is zero, and now and then where there is none.
            if values.wrapping_sub(0x0101_0101_0101_0101) & !values & !LOW_BITS != 0 {
                word |= zero_bytes(values) << (8 * number);
            }
        }
        word
    }
}

/// Bit `i` for each byte `i` that is zero.
pub(super) fn zero_bytes(values: u64) -> u64 {
    let tops = !((values & LOW_BITS).wrapping_add(LOW_BITS) | values | LOW_BITS);
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
