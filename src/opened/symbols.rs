//! Tokens of deflate, and its codes of lengths and distances.

/// Shortest match.
pub(super) const MATCH_MIN: usize = 3;
/// Longest match.
pub(super) const MATCH_MAX: usize = 258;
/// Symbol of the end of a block.
pub(super) const END_OF_BLOCK: usize = 256;
/// Number of symbols of literals and lengths that a stream may use.
pub(super) const LITERALS: usize = 286;
/// Number of symbols of distances that a stream may use.
pub(super) const DISTANCES: usize = 30;
/// Bytes of history that a match may reach.
pub(super) const WINDOW: usize = 32 << 10;

/// A literal (its byte) or a match (`distance << 16 | length`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u32);

impl Token {
    pub(super) fn literal(byte: u8) -> Self {
        Token(u32::from(byte))
    }

    pub(super) fn copy(len: usize, distance: usize) -> Self {
        Token((distance as u32) << 16 | len as u32)
    }

    pub(super) fn is_copy(self) -> bool {
        self.0 >= 1 << 16
    }

    /// Length of the match; 1 for a literal.
    pub(super) fn len(self) -> usize {
        if self.is_copy() { (self.0 & 0xFFFF) as usize } else { 1 }
    }

    pub(super) fn distance(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// Code of a length or a distance: symbol, number of extra bits, their value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    pub(super) symbol: usize,
    pub(super) extra_bits: u32,
    pub(super) extra: u32,
}

/// Code of a length of 3 to 258. The symbol counts from 257.
pub(super) fn length_code(len: usize) -> Code {
    if len == MATCH_MAX {
        return Code { symbol: 285, extra_bits: 0, extra: 0 };
    }
    let value = (len - MATCH_MIN) as u32;
    if value < 8 {
        return Code { symbol: 257 + value as usize, extra_bits: 0, extra: 0 };
    }
    let extra_bits = 29 - value.leading_zeros();
    let symbol = 257 + 4 * extra_bits as usize + (value >> extra_bits) as usize;
    Code { symbol, extra_bits, extra: value & ((1 << extra_bits) - 1) }
}

/// Code of a distance of 1 to 32,768.
pub(super) fn distance_code(distance: usize) -> Code {
    let value = (distance - 1) as u32;
    if value < 4 {
        return Code { symbol: value as usize, extra_bits: 0, extra: 0 };
    }
    let extra_bits = 30 - value.leading_zeros();
    let symbol = 2 * extra_bits as usize + (value >> extra_bits) as usize;
    Code { symbol, extra_bits, extra: value & ((1 << extra_bits) - 1) }
}

/// Smallest length and number of extra bits of a length symbol (257 to 285).
pub(super) fn length_base(symbol: usize) -> (usize, u32) {
    let index = symbol - 257;
    match index {
        0..8 => (index + MATCH_MIN, 0),
        28 => (MATCH_MAX, 0),
        _ => {
            let extra_bits = (index / 4 - 1) as u32;
            (((4 + index % 4) << extra_bits) + MATCH_MIN, extra_bits)
        }
    }
}

/// Smallest distance and number of extra bits of a distance symbol (0 to 29).
pub(super) fn distance_base(symbol: usize) -> (usize, u32) {
    if symbol < 4 {
        return (symbol + 1, 0);
    }
    let extra_bits = (symbol / 2 - 1) as u32;
    (((2 + symbol % 2) << extra_bits) + 1, extra_bits)
}

/// Lengths of the codes of a block with fixed codes.
pub(super) fn fixed_lengths() -> (Vec<u8>, Vec<u8>) {
    let mut literals = vec![8; 288];
    literals[144..256].fill(9);
    literals[256..280].fill(7);
    (literals, vec![5; 30])
}

/// How often a block uses each symbol of literals and lengths (with one end of block), and of distances.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) literals: [u32; LITERALS],
    pub(super) distances: [u32; DISTANCES],
}

impl Counts {
    pub(super) fn of(tokens: &[Token]) -> Self {
        let mut counts = Counts { literals: [0; LITERALS], distances: [0; DISTANCES] };
        for &token in tokens {
            if token.is_copy() {
                counts.literals[length_code(token.len()).symbol] += 1;
                counts.distances[distance_code(token.distance()).symbol] += 1;
            } else {
                counts.literals[token.0 as usize] += 1;
            }
        }
        counts.literals[END_OF_BLOCK] += 1;
        counts
    }
}
