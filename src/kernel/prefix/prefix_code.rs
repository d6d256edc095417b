//! Prefix codes: the lengths of the codes, made of counts by package-merge (Larmore, Hirschberg 1990).

use super::{LENGTH_MAX, SYMBOLS};

/// The whole code space, counted in codes of the greatest length.
const SPACE: u32 = 1 << LENGTH_MAX;
/// Nodes of a level of package-merge: leaves, and packages of two nodes.
const NODES: usize = 2 * SYMBOLS;

/// A canonical prefix code: the lengths of its codes. The codes fill the code space, so there are at least two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixCode {
    lengths: [u8; SYMBOLS],
}

impl PrefixCode {
    /// The code that encodes symbols of these counts in the fewest bits, with at most [`LENGTH_MAX`] bits per symbol.
    /// If fewer than two symbols occur, the lowest symbols that do not occur get codes too.
    pub fn of_counts(counts: &[u32; SYMBOLS]) -> PrefixCode {
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
        PrefixCode { lengths: package_merge(leaves) }
    }

    /// The code with these lengths, 0 for symbols without a code. `None` if its codes do not fill the code space
    /// exactly or are too long.
    pub fn of_lengths(lengths: [u8; SYMBOLS]) -> Option<PrefixCode> {
        let used = lengths.iter().filter(|length| **length > 0);
        let space = used.clone().map(|length| SPACE.checked_shr(u32::from(*length)).unwrap_or(0)).sum::<u32>();
        let is_short = used.clone().all(|length| u32::from(*length) <= LENGTH_MAX);
        (is_short && space == SPACE).then_some(PrefixCode { lengths })
    }

    /// Bits of the encoding of symbols with these counts. Every symbol that is counted must have a code.
    pub fn cost_bits(&self, counts: &[u32; SYMBOLS]) -> u64 {
        let costs = self.lengths.iter().zip(counts);
        costs.map(|(length, count)| u64::from(*length) * u64::from(*count)).sum()
    }

    /// Bits of each symbol's code, 0 for a symbol without one.
    pub fn lengths(&self) -> &[u8; SYMBOLS] {
        &self.lengths
    }

    /// Symbol, code and length of each code, shortest codes first. A code's first bit is its lowest.
    pub(super) fn codes(&self) -> impl Iterator<Item = (u8, u32, u32)> {
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
            let code = move |number: usize| (first >> (LENGTH_MAX - length)) + number as u32;
            (0..count).map(move |number| (row[number], code(number).reverse_bits() >> (32 - length), length))
        })
    }
}

/// The code lengths for these leaves: weight and symbol, at least two, the lightest first.
///
/// From the greatest length up, each level merges the leaves with packages of two nodes of the previous level. The
/// lightest `2 n - 2` nodes of the last level are taken, with all nodes in their packages. A symbol's length is the
/// number of its leaves among them.
fn package_merge(leaves: &[(u64, u8)]) -> [u8; SYMBOLS] {
    let mut is_leaf = [[false; NODES]; LENGTH_MAX as usize];
    let (mut previous, mut weights) = ([0u64; NODES], [0u64; NODES]);
    let mut nodes = 0;
    for is_leaf in &mut is_leaf {
        std::mem::swap(&mut previous, &mut weights);
        let mut packages = previous[..nodes].as_chunks::<2>().0.iter().map(|[a, b]| a + b).peekable();
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
