//! Codes: lengths of code words made of counts, written and read.
//!
//! A code is written as bits, the lowest of a byte first, symbol after symbol, until the words of these lengths use up
//! the code space: the sum of `2^-length` is one. A length is four bits; zero stands for a run of symbols that have no
//! word, as many as the Elias gamma code that follows says.

use super::{LENGTH_MAX, SYMBOLS};
use crate::error::Result;
use crate::kernel::packed::{BitReader, BitWriter};
use crate::wire::Reader;

/// All of the code space, in words of the greatest length.
const SPACE: u32 = 1 << LENGTH_MAX;
/// Bits of a length on disk.
const LENGTH_BITS: u32 = 4;
/// Nodes of a level of package-merge: leaves, and packages of two nodes.
const NODES: usize = 2 * SYMBOLS;

/// Lengths of the code words of symbols. The words fill the code space, and there are two at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    lengths: [u8; SYMBOLS],
}

impl Code {
    /// The code of words of at most [`LENGTH_MAX`] bits that encodes symbols of these counts in the fewest bits. Where
    /// there are fewer than two, the lowest symbols that do not occur have words, too.
    pub fn of_counts(counts: &[u32; SYMBOLS]) -> Code {
        let mut leaves = [(0u64, 0u8); SYMBOLS];
        let mut used = 0;
        for (symbol, count) in (0..=u8::MAX).zip(counts).filter(|(_, count)| **count > 0) {
            leaves[used] = (u64::from(*count), symbol);
            used += 1;
        }
        let unused = (0..=u8::MAX).zip(counts).filter(|(_, count)| **count == 0);
        for (symbol, _) in unused.take(2usize.saturating_sub(used)) {
            leaves[used] = (0, symbol);
            used += 1;
        }
        let leaves = &mut leaves[..used];
        leaves.sort_unstable();
        Code { lengths: package_merge(leaves) }
    }

    /// Bits that coding these counts takes, of which each must be of a symbol that has a word.
    pub fn cost_bits(&self, counts: &[u32; SYMBOLS]) -> u64 {
        let costs = self.lengths.iter().zip(counts);
        costs.map(|(length, count)| u64::from(*length) * u64::from(*count)).sum()
    }

    /// Bits of the word of each symbol, 0 where it has none.
    pub fn lengths(&self) -> &[u8; SYMBOLS] {
        &self.lengths
    }

    /// The symbols that have a word, shortest words first, with the words: their first bit is the lowest.
    pub(super) fn words(&self) -> impl Iterator<Item = (u8, u32, u32)> {
        let mut by_length = [[0u8; SYMBOLS]; 1 + LENGTH_MAX as usize];
        let mut counts = [0; 1 + LENGTH_MAX as usize];
        for (symbol, length) in (0..=u8::MAX).zip(self.lengths) {
            let (row, count) = (&mut by_length[usize::from(length)], &mut counts[usize::from(length)]);
            row[*count] = symbol;
            *count += 1;
        }
        let mut next = 0u32;
        (1..=LENGTH_MAX).flat_map(move |length| {
            let (row, count) = (by_length[length as usize], counts[length as usize]);
            let first = next;
            next += (count as u32) << (LENGTH_MAX - length);
            let word = move |number: usize| (first >> (LENGTH_MAX - length)) + number as u32;
            (0..count).map(move |number| (row[number], word(number).reverse_bits() >> (32 - length), length))
        })
    }

    /// Appends the lengths.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut bits = BitWriter::new(out);
        let mut next = 0;
        for (symbol, length) in (0u32..).zip(self.lengths).filter(|(_, length)| *length > 0) {
            if symbol > next {
                bits.put(0, LENGTH_BITS);
                bits.put_gamma(symbol - next);
            }
            bits.put(u32::from(length), LENGTH_BITS);
            next = symbol + 1;
        }
        bits.finish();
    }

    /// Reads what [`Code::write`] wrote.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] where the lengths are of no code.
    pub fn read(reader: &mut Reader<'_>) -> Result<Code> {
        let mut lengths = [0; SYMBOLS];
        let (mut next, mut space) = (0usize, 0u32);
        let mut bits = BitReader::new(reader);
        while space < SPACE {
            let length = bits.take(LENGTH_BITS)?;
            if length == 0 {
                next += bits.take_gamma()? as usize;
                continue;
            }
            let slot = lengths.get_mut(next).filter(|_| length <= LENGTH_MAX);
            space += SPACE >> length;
            match slot.filter(|_| space <= SPACE) {
                Some(slot) => *slot = length as u8,
                None => return Err(bits.error("lengths of a prefix code", format!("{length} for symbol {next}"))),
            }
            next += 1;
        }
        Ok(Code { lengths })
    }
}

/// The lengths for these leaves, two at least, the lightest first.
///
/// Level by level, from the greatest length up, the leaves are merged with packages of two nodes each of the level
/// before. Of the last level the lightest `2 n - 2` nodes are taken, with all nodes packaged in them: a symbol's length
/// is the number of its leaves taken.
fn package_merge(leaves: &[(u64, u8)]) -> [u8; SYMBOLS] {
    let mut is_leaf = [[false; NODES]; LENGTH_MAX as usize];
    let (mut before, mut weights) = ([0u64; NODES], [0u64; NODES]);
    let mut nodes = 0;
    for is_leaf in &mut is_leaf {
        std::mem::swap(&mut before, &mut weights);
        let mut packages = before[..nodes].as_chunks::<2>().0.iter().map(|[a, b]| a + b).peekable();
        let mut own = leaves.iter().map(|(weight, _)| *weight).peekable();
        nodes = 0;
        loop {
            let takes_leaf = match (own.peek(), packages.peek()) {
                (Some(leaf), Some(package)) => leaf <= package,
                (leaf, None) => leaf.is_some(),
                (None, _) => false,
            };
            let Some(weight) = (if takes_leaf { own.next() } else { packages.next() }) else { break };
            (weights[nodes], is_leaf[nodes]) = (weight, takes_leaf);
            nodes += 1;
        }
    }
    let mut lengths = [0; SYMBOLS];
    let mut taken = 2 * leaves.len() - 2;
    for is_leaf in is_leaf.iter().rev() {
        let own = is_leaf[..taken].iter().filter(|is_leaf| **is_leaf).count();
        leaves[..own].iter().for_each(|(_, symbol)| lengths[usize::from(*symbol)] += 1);
        taken = 2 * (taken - own);
    }
    lengths
}
