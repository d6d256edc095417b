//! Headers of blocks with dynamic codes: their parts, and how common writers fill them.

use super::huffman::{Builder, limited_lengths};
use super::symbols::Counts;

/// Order in which the lengths of the code of code lengths are written.
pub(super) const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// How the tokens of a block are coded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum BlockKind {
    #[default]
    Stored,
    Fixed,
    Dynamic(Box<Header>),
}

/// Header of a block with dynamic codes, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Lengths of literals and lengths that are written: 257 to 286.
    pub(super) literals: usize,
    /// Lengths of distances that are written: 1 to 32.
    pub(super) distances: usize,
    /// Lengths of the code of code lengths that are written: 4 to 19.
    pub(super) code_lengths: usize,
    pub(super) code_length_lengths: [u8; 19],
    /// Symbols of code lengths with the values of their extra bits.
    pub(super) symbols: Vec<(u8, u8)>,
}

/// Extra bits of a symbol of code lengths.
pub(super) fn extra_bits(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

/// Number of lengths that a symbol of code lengths stands for.
pub(super) fn run_of(symbol: u8, extra: u8) -> usize {
    usize::from(extra)
        + match symbol {
            16 | 17 => 3,
            18 => 11,
            _ => 1,
        }
}

impl Header {
    /// Lengths of the codes of literals and distances; `None` if the symbols do not give them.
    pub(super) fn lengths(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut lengths = Vec::with_capacity(self.literals + self.distances);
        for &(symbol, extra) in &self.symbols {
            let value = match symbol {
                0..16 => symbol,
                16 => *lengths.last()?,
                _ => 0,
            };
            lengths.extend(std::iter::repeat_n(value, run_of(symbol, extra)));
        }
        if lengths.len() != self.literals + self.distances {
            return None;
        }
        let distances = lengths.split_off(self.literals);
        Some((lengths, distances))
    }

    /// The header that a writer with `builder` makes for these lengths of codes.
    pub(super) fn for_lengths(builder: Builder, literals: &[u8], distances: &[u8]) -> Header {
        let mut header = Header { literals: literals.len(), distances: distances.len(), ..Header::default() };
        if builder.runs_cross() {
            let all: Vec<u8> = literals.iter().chain(distances).copied().collect();
            push_runs(&all, &mut header.symbols);
        } else {
            push_runs(literals, &mut header.symbols);
            push_runs(distances, &mut header.symbols);
        }
        let mut counts = [0u32; 19];
        for &(symbol, _) in &header.symbols {
            counts[usize::from(symbol)] += 1;
        }
        header.code_length_lengths.copy_from_slice(&limited_lengths(builder, &counts, 7));
        header.code_lengths =
            ORDER.iter().rposition(|&symbol| header.code_length_lengths[symbol] != 0).map_or(4, |at| at.max(3) + 1);
        header
    }
}

/// Lengths of literals and distances that a writer with `builder` makes for a block, without unused ones at the end.
pub(super) fn predicted_lengths(builder: Builder, counts: &Counts) -> (Vec<u8>, Vec<u8>) {
    let mut literals = limited_lengths(builder, &counts.literals, 15);
    let mut distances = limited_lengths(builder, &counts.distances, 15);
    trim(&mut literals, 257);
    trim(&mut distances, 1);
    (literals, distances)
}

fn trim(lengths: &mut Vec<u8>, at_least: usize) {
    while lengths.len() > at_least && lengths.last() == Some(&0) {
        lengths.pop();
    }
}

/// Writes lengths as symbols: runs of zeros by 138, other runs by 6 after the first.
fn push_runs(lengths: &[u8], symbols: &mut Vec<(u8, u8)>) {
    let mut rest = lengths;
    while let Some(&value) = rest.first() {
        let mut run = rest.iter().take_while(|&&other| other == value).count();
        rest = &rest[run..];
        if value == 0 {
            while run >= 11 {
                let part = run.min(138);
                symbols.push((18, (part - 11) as u8));
                run -= part;
            }
            if run >= 3 {
                symbols.push((17, (run - 3) as u8));
                run = 0;
            }
        } else {
            symbols.push((value, 0));
            run -= 1;
            while run >= 3 {
                let part = run.min(6);
                symbols.push((16, (part - 3) as u8));
                run -= part;
            }
        }
        symbols.extend(std::iter::repeat_n((value, 0), run));
    }
}
