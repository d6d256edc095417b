//! Cached chunks come back unchanged until their block is evicted, and memory stays within the limit.

use super::*;
use crate::error::Error;
use crate::repo::container::SessionEntryNumber;

fn number(entry: u64) -> EntryNumber {
    EntryNumber::session(SessionEntryNumber(entry))
}

fn chunk(entry: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + entry * 7) as u8).collect()
}

#[test]
fn the_latest_chunks_are_cached_within_the_limit() {
    // Four blocks and the memory of their entries.
    let bytes_max = (8 << 20) + 200 * ENTRY_BYTES;
    let mut cache = BaseCache::new(bytes_max);
    for entry in 0..400 {
        let bytes = chunk(entry, 50_000 + entry as usize * 11);
        cache.insert(number(entry), &bytes).expect("inserts");
        assert!(cache.bytes <= bytes_max);
        assert_eq!(cache.get(number(entry)), Some(&*bytes));
    }
    let cached: Vec<u64> = (0..400).filter(|entry| cache.contains(number(*entry))).collect();
    assert!(cached.len() > 100 && cached == (400 - cached.len() as u64..400).collect::<Vec<_>>(), "{cached:?}");
    assert!(
        cached.iter().all(|entry| cache.get(number(*entry)) == Some(&*chunk(*entry, 50_000 + *entry as usize * 11)))
    );
    assert_eq!(cache.chunks.len(), cached.len());
    let entries = cache.blocks.back().map_or(0, |block| block.entries.len());
    cache.limit(BLOCK_BYTES + entries * ENTRY_BYTES);
    assert!(cache.contains(number(399)) && cache.bytes == BLOCK_BYTES + entries * ENTRY_BYTES);
    cache.limit(0);
    assert_eq!((cache.get(number(399)), cache.chunks.len(), cache.bytes), (None, 0, 0));
    cache.insert(number(7), b"too large").expect("skips it");
    assert!(!cache.contains(number(7)));
}

#[test]
fn a_chunk_longer_than_a_block_has_a_block_of_its_own() {
    let mut cache = BaseCache::new(16 << 20);
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        cache.insert(number(entry), &chunk(entry, len)).expect("inserts");
    }
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        assert_eq!(cache.get(number(entry)), Some(&*chunk(entry, len)));
    }
    assert!(!cache.fill(number(5), 17 << 20, |_| Ok(())).expect("allocates nothing"));
    assert!((0..5).all(|entry| cache.contains(number(entry))));
}

#[test]
fn short_chunks_count_with_their_overhead() {
    let mut cache = BaseCache::new(8 << 20);
    for entry in 0..200_000 {
        cache.insert(number(entry), &[entry as u8]).expect("inserts");
    }
    assert!(cache.bytes <= 8 << 20 && cache.chunks.len() * size_of::<LoggedChunk>() < 8 << 20, "{}", cache.bytes);
    assert!(cache.contains(number(199_999)));
}

#[test]
fn a_chunk_that_could_not_be_filled_is_not_cached() {
    let mut cache = BaseCache::new(4 << 20);
    cache.insert(number(1), b"before").expect("inserts");
    let failed = cache.fill(number(2), 100, |space| {
        space.fill(1);
        Err(Error::corrupt("frame", 0, "bytes", "none"))
    });
    assert!(failed.is_err() && !cache.contains(number(2)));
    cache.insert(number(3), b"behind").expect("inserts");
    assert_eq!(
        (cache.get(number(1)), cache.get(number(2)), cache.get(number(3))),
        (Some(&b"before"[..]), None, Some(&b"behind"[..]))
    );
}
