//! Chains of earlier positions with the same hash, the base of all predictors.

use super::symbols::{MATCH_MAX, WINDOW};

/// Plain bytes around the current position, as predictors see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainView<'a> {
    /// History, then the bytes to come; its end is the end of what the compressor had when it chose.
    pub(super) data: &'a [u8],
    /// Number of the position of `data[0]`. Numbers only grow, so tables need not be cleared.
    pub(super) origin: u32,
    /// Number of the first position of the stream.
    pub(super) floor: u32,
}

/// A match that was found; a length below 3 says there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FoundMatch {
    pub(super) len: usize,
    pub(super) distance: usize,
}

/// How positions are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    /// zlib: three bytes, each shifted by `shift`, of `bits` bits.
    Shifted { bits: u32, shift: u32 },
    /// zlib-ng: four bytes, multiplied, 16 bits.
    Multiplied,
    /// Go: four bytes, the first the highest, multiplied, 17 bits.
    Go,
}

impl Hash {
    /// Bytes that are hashed.
    pub(super) fn bytes(self) -> usize {
        if matches!(self, Hash::Shifted { .. }) { 3 } else { 4 }
    }

    /// Hash of the bytes at the start of `data`.
    #[inline(always)]
    fn of(self, data: &[u8]) -> usize {
        match self {
            Hash::Shifted { bits, shift } => {
                let value = u32::from(data[0]) << (2 * shift) ^ u32::from(data[1]) << shift ^ u32::from(data[2]);
                (value & ((1 << bits) - 1)) as usize
            }
            Hash::Multiplied => {
                let value = u32::from_le_bytes([data[0], data[1], data[2], data[3]]);
                (value.wrapping_mul(2_654_435_761) >> 16) as usize
            }
            Hash::Go => {
                let value = u32::from_le_bytes([data[3], data[2], data[1], data[0]]);
                (value.wrapping_mul(0x1E35_A7BD) >> 15) as usize
            }
        }
    }
}

/// Entries of the table of latest positions.
const HEADS: usize = 1 << 17;

/// Bytes that positions of one long chain have in common.
pub(super) const LONG: usize = 5;
/// Entries of the table of latest positions of long chains.
const LONG_HEADS: usize = 1 << 16;

/// Tables of positions by number: the latest by hash, and before each the one with the same hash.
///
/// Long chains only speed up: they hold the positions of a chain with more equal bytes, and the rank of each in
/// its chain says whether the compressor came so far.
#[derive(Debug)]
pub(super) struct Chains {
    head: Box<[u32; HEADS]>,
    prev: Box<[u32; WINDOW]>,
    hash: Hash,
    long: Option<Box<LongChains>>,
}

/// Chains of positions with [`LONG`] equal bytes.
#[derive(Debug)]
struct LongChains {
    head: Box<[u32; LONG_HEADS]>,
    prev: Box<[u32; WINDOW]>,
    /// Positions of each chain of the compressor so far, and of each position those before it.
    counts: Box<[u32; LONG_HEADS]>,
    ranks: Box<[u32; WINDOW]>,
    /// First position that is not in the long chains.
    next: u32,
    is_used: bool,
}

impl Chains {
    pub(super) fn new(hash: Hash) -> Self {
        Chains { head: boxed(), prev: boxed(), hash, long: None }
    }

    /// Uses another hash from now on. Call only at the start of a stream, whose first position has this number.
    /// `has_long`: all positions will be inserted, and searched with long chains.
    pub(super) fn start(&mut self, hash: Hash, floor: u32, has_long: bool) {
        self.hash = hash;
        if has_long && self.long.is_none() {
            let long =
                LongChains { head: boxed(), prev: boxed(), counts: boxed(), ranks: boxed(), next: 0, is_used: false };
            self.long = Some(Box::new(long));
        }
        if let Some(long) = &mut self.long {
            long.next = floor;
            long.is_used = has_long;
        }
    }

    /// Forgets all positions.
    pub(super) fn clear(&mut self) {
        self.head.fill(0);
        self.prev.fill(0);
        self.long = None;
    }

    /// Inserts the positions with indices from `from` to `last`, as far as enough bytes follow. Gives the first
    /// one that is not inserted.
    #[inline]
    pub(super) fn insert(&mut self, view: &PlainView<'_>, from: usize, last: usize) -> usize {
        let end = (last + 1).min((view.data.len() + 1).saturating_sub(self.hash.bytes()));
        if from >= end {
            return from;
        }
        let first = view.origin + from as u32;
        match self.hash {
            Hash::Shifted { .. } => {
                let hash = self.hash;
                let mut long = self.long.as_mut().filter(|long| long.is_used);
                for (position, bytes) in (first..).zip(view.data[from..end + 2].windows(3)) {
                    let hash = hash.of(bytes);
                    if let Some(long) = &mut long {
                        let count = &mut long.counts[hash % LONG_HEADS];
                        long.ranks[position as usize % WINDOW] = *count;
                        *count += 1;
                    }
                    let head = &mut self.head[hash % HEADS];
                    self.prev[position as usize % WINDOW] = *head;
                    *head = position;
                }
                if let Some(long) = long {
                    long.insert(view, view.origin + end as u32);
                }
            }
            Hash::Multiplied | Hash::Go => {
                for (position, bytes) in (first..).zip(view.data[from..end + 3].windows(4)) {
                    self.put(position, self.hash.of(bytes));
                }
            }
        }
        end
    }

    #[inline]
    fn put(&mut self, position: u32, hash: usize) {
        let head = &mut self.head[hash % HEADS];
        self.prev[position as usize % WINDOW] = *head;
        *head = position;
    }

    /// The position before this one in its chain.
    #[inline]
    pub(super) fn before(&self, position: u32) -> u32 {
        self.prev[position as usize % WINDOW]
    }

    /// The latest position with the hash of the bytes at `index`; 0 without enough bytes.
    pub(super) fn latest(&self, view: &PlainView<'_>, index: usize) -> u32 {
        view.data.get(index..index + self.hash.bytes()).map_or(0, |bytes| self.head[self.hash.of(bytes) % HEADS])
    }
}

impl LongChains {
    /// Inserts the positions before `end`, as far as enough bytes follow.
    #[inline]
    fn insert(&mut self, view: &PlainView<'_>, end: u32) {
        let from = (self.next - view.origin) as usize;
        let end = ((end - view.origin) as usize).min((view.data.len() + 1).saturating_sub(LONG));
        if from >= end {
            return;
        }
        for (position, bytes) in (self.next..).zip(view.data[from..end + LONG - 1].windows(LONG)) {
            let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let hash = (low ^ u32::from(bytes[4]) << 13).wrapping_mul(0x9E37_79B1) >> 16;
            let head = &mut self.head[hash as usize];
            self.prev[position as usize % WINDOW] = *head;
            *head = position;
        }
        self.next = view.origin + end as u32;
    }
}

/// The long chain of a position.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongChain<'a> {
    prev: &'a [u32; WINDOW],
    ranks: &'a [u32; WINDOW],
    rank: u32,
}

impl LongChain<'_> {
    /// The position before this one in its long chain.
    #[inline]
    pub(super) fn before(&self, position: u32) -> u32 {
        self.prev[position as usize % WINDOW]
    }

    /// Steps in the chain of the compressor from the position of the search to this one, if they share it.
    #[inline]
    pub(super) fn steps(&self, position: u32) -> u32 {
        self.rank.wrapping_sub(self.ranks[position as usize % WINDOW])
    }
}

impl Chains {
    /// The long chain of a position, if it is in one.
    #[inline]
    pub(super) fn long(&self, position: u32) -> Option<LongChain<'_>> {
        let long = self.long.as_deref().filter(|long| long.is_used && position < long.next)?;
        let rank = long.ranks[position as usize % WINDOW];
        Some(LongChain { prev: &long.prev, ranks: &long.ranks, rank })
    }
}

fn boxed<const N: usize>() -> Box<[u32; N]> {
    vec![0; N].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; N]))
}

/// Number of equal bytes at two indices of `data`, at most 258; `later` is the greater index.
#[inline]
pub(super) fn match_len(data: &[u8], source: usize, later: usize) -> usize {
    let end = data.len().min(later + MATCH_MAX);
    let one = &data[source..source + (end - later)];
    let other = &data[later..end];
    let mut len = 0;
    for (left, right) in one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + one[len..].iter().zip(&other[len..]).take_while(|(left, right)| left == right).count()
}
