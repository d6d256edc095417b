//! Matches between a chunk and its bases: at their edges, through anchors, and in the gaps between matches.

use super::Match;
use super::aligned::Aligned;
use super::anchor_table::AnchorTable;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::kernel::sieve::Anchor;
use crate::repo::container::EntryNumber;

/// A chunk is nearly covered if at most one in this many of its bytes is in no match, ...
const UNCOVERED_SHARE: usize = 32;
/// ... and no gap between matches is longer than this.
const UNCOVERED_BYTES_MAX: usize = 1 << 10;

/// A base in memory.
pub struct LoadedBase<'a> {
    pub entry: EntryNumber,
    pub bytes: &'a [u8],
    pub anchors: &'a AnchorTable,
}

/// Compares `chunk` with `base` from the first bytes forward, then from the last bytes back.
pub fn edge_matches(chunk: &[u8], base: &[u8], entry: EntryNumber, bytes_min: usize) -> Vec<Match> {
    let len = chunk.len();
    let mut matches = Vec::new();
    let heads = Match { position: 0, base: entry, offset: 0, len: 0 };
    Aligned::new(chunk, base, &heads, bytes_min).forward(0..len, &mut matches);
    let end = matches.last().map_or(0, |last| (last.position + last.len) as usize);
    let tails = Match { position: len as u32, base: entry, offset: base.len() as u32, len: 0 };
    Aligned::new(chunk, base, &tails, bytes_min).backward(end..len, &mut matches);
    matches
}

/// Whether `matches`, in ascending order, cover nearly all of a chunk of `len` bytes.
pub fn is_nearly_covered(len: usize, matches: &[Match]) -> bool {
    let ends = std::iter::once(0).chain(matches.iter().map(|found| found.position + found.len));
    let starts = matches.iter().map(|found| found.position).chain([len as u32]);
    let gaps = ends.zip(starts).map(|(end, start)| (start - end) as usize);
    gaps.clone().sum::<usize>() * UNCOVERED_SHARE <= len && gaps.max().is_none_or(|gap| gap <= UNCOVERED_BYTES_MAX)
}

/// Finds the matches through the anchors of `chunk`, of at least `bytes_min` bytes, and fills the gaps between them.
pub fn anchor_matches(chunk: &[u8], anchors: &[Anchor], bases: &[LoadedBase<'_>], bytes_min: usize) -> Vec<Match> {
    let mut matches: Vec<Match> = Vec::new();
    let mut covered = 0;
    for anchor in anchors {
        if anchor.position as usize <= covered || bases.is_empty() {
            continue;
        }
        let Some((found, base)) = longest(chunk, covered, anchor, bases) else { continue };
        if (found.len as usize) < bytes_min {
            continue;
        }
        matches.push(found);
        let end = (found.position + found.len) as usize;
        Aligned::new(chunk, base, &found, bytes_min).forward(end..chunk.len(), &mut matches);
        covered = matches.last().map_or(end, |last| (last.position + last.len) as usize);
    }
    fill_gaps(chunk, &matches, bases, bytes_min)
}

/// The longest match through an anchor, not before `covered`, and the bytes of its base.
fn longest<'a>(chunk: &[u8], covered: usize, anchor: &Anchor, bases: &[LoadedBase<'a>]) -> Option<(Match, &'a [u8])> {
    let position = anchor.position as usize;
    let (before, after) = (chunk.get(covered..position)?, chunk.get(position..)?);
    let mut best: Option<(Match, &[u8])> = None;
    for base in bases {
        let Some(at) = base.anchors.find(anchor.hash as u32) else { continue };
        let Some((base_before, base_after)) = base.bytes.split_at_checked(at as usize) else { continue };
        let back = common_suffix_len(before, base_before) as u32;
        let len = back + common_prefix_len(after, base_after) as u32;
        if best.as_ref().is_none_or(|best| len > best.0.len) {
            let found = Match { position: anchor.position - back, base: base.entry, offset: at - back, len };
            best = Some((found, base.bytes));
        }
    }
    best
}

/// Compares the gaps between `matches`, in ascending order, at the distance of the match after each gap, from its end
/// back. Returns the given and the added matches.
fn fill_gaps(chunk: &[u8], matches: &[Match], bases: &[LoadedBase<'_>], bytes_min: usize) -> Vec<Match> {
    let mut out = Vec::with_capacity(matches.len());
    let mut end = 0;
    for next in matches {
        let position = next.position as usize;
        if position - end >= bytes_min
            && let Some(base) = bases.iter().find(|base| base.entry == next.base)
        {
            Aligned::new(chunk, base.bytes, next, bytes_min).backward(end..position, &mut out);
        }
        out.push(*next);
        end = position + next.len as usize;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;
    use proptest::prelude::*;

    /// Bytes without long repetitions.
    fn noise(len: usize, seed: u8) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn entry() -> EntryNumber {
        EntryNumber::stored(ContainerNumber(0), 7)
    }

    fn uncovered(chunk: &[u8], base: &[u8]) -> usize {
        let matches = edge_matches(chunk, base, entry(), 32);
        let mut end = 0;
        for found in &matches {
            let (position, offset, len) = (found.position as usize, found.offset as usize, found.len as usize);
            assert!(position >= end && len >= 32 && found.base == entry());
            assert_eq!(chunk[position..position + len], base[offset..offset + len]);
            end = position + len;
        }
        assert!(end <= chunk.len());
        chunk.len() - matches.iter().map(|found| found.len as usize).sum::<usize>()
    }

    #[test]
    fn edges_leave_only_new_bytes_after_overwrites_and_one_change_of_length() {
        let base = noise(20_000, 1);
        assert_eq!(uncovered(&base, &base), 0);
        for (range, new) in [(0..0, 300), (9000..9000, 700), (9000..9700, 0), (400..500, 40), (19_800..20_000, 100)] {
            let mut chunk = base.clone();
            chunk.splice(range, noise(new, 2));
            assert_eq!(uncovered(&chunk, &base), new);
            for at in [100, 5000, chunk.len() - 100] {
                chunk[at..at + 20].iter_mut().for_each(|byte| *byte ^= 1);
            }
            assert!(uncovered(&chunk, &base) <= new + 60 + 2 * 32);
        }
        let mut twice = base.clone();
        twice.splice(15_000..15_000, noise(600, 3));
        twice.splice(5000..5000, noise(600, 4));
        assert!(uncovered(&twice, &base) > 10_000);
    }

    #[test]
    fn nearly_covered_means_few_bytes_in_all_and_in_each_gap() {
        let found = |ranges: &[(u32, u32)]| -> Vec<Match> {
            let of = |(start, end): &(u32, u32)| Match { position: *start, base: entry(), offset: 9, len: end - start };
            ranges.iter().map(of).collect()
        };
        assert!(is_nearly_covered(64_000, &found(&[(0, 64_000)])));
        for (start, end) in [(0, 1024), (9000, 10_024), (62_976, 64_000)] {
            assert!(is_nearly_covered(64_000, &found(&[(0, start), (end, 64_000)])));
            assert!(!is_nearly_covered(
                64_000,
                &found(&[(0, start.saturating_sub(1)), ((end + 1).min(64_000), 64_000)])
            ));
        }
        assert!(is_nearly_covered(64_000, &found(&[(1000, 20_000), (21_000, 64_000)])));
        assert!(!is_nearly_covered(64_000, &found(&[(1000, 20_000), (21_001, 64_000)])));
        assert!(!is_nearly_covered(64_000, &[]) && !is_nearly_covered(1000, &found(&[(0, 968)])));
        assert!(is_nearly_covered(1000, &found(&[(0, 969)])));
    }

    proptest! {
        #[test]
        fn edge_matches_are_equal_ranges_in_ascending_order(
            parts in prop::collection::vec((0usize..3, 0usize..900, 0usize..900), 0..12),
            others in prop::collection::vec((0usize..3, 0usize..900, 0usize..900), 0..12),
        ) {
            let pools = [noise(900, 5), vec![0; 900], b"abc".repeat(300)];
            let bytes = |parts: &[(usize, usize, usize)]| -> Vec<u8> {
                parts.iter().flat_map(|(pool, from, to)| pools[*pool][*from.min(to)..*from.max(to)].to_vec()).collect()
            };
            let (chunk, base) = (bytes(&parts), bytes(&others));
            for (chunk, base) in [(&chunk, &base), (&base, &chunk), (&chunk, &chunk)] {
                uncovered(chunk, base);
            }
        }
    }
}
