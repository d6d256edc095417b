//! Duplicate head and tail (BURST+, as FHRD describes it for comparison): what a chunk shares with both ends of one
//! similar chunk.
//!
//! 1. A chunk has two features: the hashes of its first and of its last bytes.
//! 2. Chunks with either feature are the candidates, newest first.
//! 3. The candidate with the longest common head and tail together is the base. Both are copied, exact to the byte. The
//!    bytes between them are literal.
//!
//! FHRD says that the longest duplicate head and tail against a similar chunk are found with two index entries per
//! chunk. It does not say how the similar chunk is found, nor how many are compared. Here a chunk is similar if it
//! shares the first or the last `END_BYTES`; with less there is little to copy. At most `candidates_max` chunks are
//! tried for each end. Head and tail come from one base.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bases::Bases;
use super::{HASH_MASK, Match, Strategy, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::repo::container::EntryNumber;

/// Bytes at each end of a chunk that a feature covers.
const END_BYTES: usize = 512;
/// Position code of the head.
const HEAD: u64 = 0;
/// Position code of the tail.
const TAIL: u64 = 128;

/// Finds duplicate heads and tails.
pub struct Burst {
    /// Smaller chunks are stored whole.
    chunk_bytes_min: usize,
    /// Shortest copy.
    copy_bytes_min: usize,
    /// Most similar chunks tried for each end.
    candidates_max: usize,
    /// Keys the hashes.
    seed: u64,
}

impl Burst {
    /// With the lengths of `config`; `seed` keys the hashes.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        Burst {
            chunk_bytes_min: config.chunk_bytes_min.0 as usize,
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            seed,
        }
    }
}

/// Lengths of the head and the tail that a base shares with a chunk.
struct SharedEnds {
    entry: EntryNumber,
    base_len: usize,
    head: usize,
    tail: usize,
}

impl SharedEnds {
    fn new(chunk: &[u8], entry: EntryNumber, base: &[u8]) -> Self {
        let head = common_prefix_len(chunk, base);
        let tail = common_suffix_len(chunk.get(head..).unwrap_or_default(), base);
        SharedEnds { entry, base_len: base.len(), head, tail }
    }

    fn matches(&self, len: usize, copy_bytes_min: usize) -> Vec<Match> {
        let (head, tail) = (self.head, self.tail);
        let copies = [(0, 0, head), (len - tail, self.base_len - tail, tail)];
        let long_enough = copies.into_iter().filter(|(_, _, len)| *len > 0 && *len >= copy_bytes_min);
        let found = |(position, offset, len)| Match {
            position: position as u32,
            base: self.entry,
            offset: offset as u32,
            len: len as u32,
        };
        long_enough.map(found).collect()
    }
}

impl Strategy for Burst {
    fn find(&mut self, chunk: &[u8], bases: &mut Bases) -> Result<StrategyOutput> {
        let mut found = StrategyOutput::default();
        if chunk.len() < self.chunk_bytes_min {
            return Ok(found);
        }
        let ends = [(HEAD, chunk.first_chunk::<END_BYTES>()), (TAIL, chunk.last_chunk::<END_BYTES>())];
        let hash = |end: Option<&[u8; END_BYTES]>, code: u64| {
            // A chunk shorter than an end is all of it.
            let bytes = end.map_or(chunk, <[u8; END_BYTES]>::as_slice);
            xxh3_64_with_seed(bytes, self.seed ^ code) & HASH_MASK
        };
        let mut tried = Vec::new();
        let mut best: Option<SharedEnds> = None;
        for (code, end) in ends {
            let hash = hash(end, code);
            found.features.push(code << 48 | hash);
            for entry in bases.candidates(hash, self.candidates_max) {
                if tried.contains(&entry) {
                    continue;
                }
                tried.push(entry);
                let Some(base) = bases.bytes(entry)? else { continue };
                let shared = SharedEnds::new(chunk, entry, base);
                if best.as_ref().is_none_or(|best| shared.head + shared.tail > best.head + best.tail) {
                    best = Some(shared);
                }
            }
        }
        if let Some(best) = best {
            found.matches = best.matches(chunk.len(), self.copy_bytes_min);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;

    #[test]
    fn head_and_tail_never_overlap_in_the_chunk() {
        let base = b"abcabcabcabc";
        let entry = EntryNumber::stored(ContainerNumber(0), 7);
        let ends = SharedEnds::new(b"abcabc", entry, base);
        assert_eq!(ends.matches(6, 1), [Match { position: 0, base: entry, offset: 0, len: 6 }]);
        let ends = SharedEnds::new(b"abcabcXabcabcabcabcabcabc", entry, base);
        let expected = [
            Match { position: 0, base: entry, offset: 0, len: 6 },
            Match { position: 13, base: entry, offset: 0, len: 12 },
        ];
        assert_eq!(ends.matches(25, 1), expected);
        assert_eq!(ends.matches(25, 7), expected[1..]);
    }
}
