//! What is kept comes back until its block is dropped, and memory stays within its bound.

use super::*;
use crate::error::Error;
use crate::repo::container::SessionEntryNumber;

fn number(entry: u64) -> EntryNumber {
    EntryNumber::session(SessionEntryNumber(entry))
}

fn content(entry: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + entry * 7) as u8).collect()
}

#[test]
fn the_latest_are_kept_as_they_were_within_the_bound() {
    // Four blocks, and what their entries take.
    let bytes_max = (8 << 20) + 200 * ENTRY_BYTES;
    let mut base_cache = BaseCache::new(bytes_max);
    for entry in 0..400 {
        let bytes = content(entry, 50_000 + entry as usize * 11);
        base_cache.keep(number(entry), &bytes, None).expect("keeps");
        assert!(base_cache.bytes <= bytes_max);
        assert_eq!(base_cache.get(number(entry)), Some(&*bytes));
    }
    let kept: Vec<u64> = (0..400).filter(|entry| base_cache.contains(number(*entry))).collect();
    assert!(kept.len() > 100 && kept == (400 - kept.len() as u64..400).collect::<Vec<_>>(), "{kept:?}");
    assert!(
        kept.iter()
            .all(|entry| base_cache.get(number(*entry)) == Some(&*content(*entry, 50_000 + *entry as usize * 11)))
    );
    assert_eq!(base_cache.places.len(), kept.len());
    let entries = base_cache.blocks.back().map_or(0, |block| block.entries.len());
    base_cache.limit(BLOCK_BYTES + entries * ENTRY_BYTES);
    assert!(base_cache.contains(number(399)) && base_cache.bytes == BLOCK_BYTES + entries * ENTRY_BYTES);
    base_cache.limit(0);
    assert_eq!((base_cache.get(number(399)), base_cache.places.len(), base_cache.bytes), (None, 0, 0));
    base_cache.keep(number(7), b"no room", None).expect("leaves it");
    assert!(!base_cache.contains(number(7)));
}

#[test]
fn a_content_longer_than_a_block_has_one_of_its_own() {
    let mut base_cache = BaseCache::new(16 << 20);
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        base_cache.keep(number(entry), &content(entry, len), None).expect("keeps");
    }
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        assert_eq!(base_cache.get(number(entry)), Some(&*content(entry, len)));
    }
    assert!(!base_cache.fill(number(5), 17 << 20, |_| Ok(())).expect("asks for nothing"));
    assert!((0..5).all(|entry| base_cache.contains(number(entry))));
}

#[test]
fn many_short_contents_count_for_more_than_their_bytes() {
    let mut base_cache = BaseCache::new(8 << 20);
    for entry in 0..200_000 {
        base_cache.keep(number(entry), &[entry as u8], None).expect("keeps");
    }
    assert!(
        base_cache.bytes <= 8 << 20 && base_cache.places.len() * size_of::<Place>() < 8 << 20,
        "{}",
        base_cache.bytes
    );
    assert!(base_cache.contains(number(199_999)));
}

#[test]
fn what_could_not_be_filled_is_not_there() {
    let mut base_cache = BaseCache::new(4 << 20);
    base_cache.keep(number(1), b"before", None).expect("keeps");
    let failed = base_cache.fill(number(2), 100, |space| {
        space.fill(1);
        Err(Error::corrupt("frame", 0, "bytes", "none"))
    });
    assert!(failed.is_err() && !base_cache.contains(number(2)));
    base_cache.keep(number(3), b"behind", None).expect("keeps");
    assert_eq!(
        (base_cache.get(number(1)), base_cache.get(number(2)), base_cache.get(number(3))),
        (Some(&b"before"[..]), None, Some(&b"behind"[..]))
    );
}

#[test]
fn anchors_are_tabulated_once_and_count_as_memory() {
    let anchors = |hash| vec![Anchor { position: 40, hash }; 1000];
    let mut base_cache = BaseCache::new(4 << 20);
    base_cache.keep(number(1), &[1; 100], Some(anchors(5))).expect("keeps");
    assert!(base_cache.bytes >= BLOCK_BYTES + 16_000 && base_cache.tabulated(number(1)).is_none());
    assert!(base_cache.tabulate(number(1), |_, _| panic!("they are known")));
    assert!(base_cache.tabulate(number(1), |_, _| panic!("they are in a table")));
    base_cache.keep(number(2), &[2; 100], None).expect("keeps");
    assert!(base_cache.tabulate(number(2), |bytes, found| {
        assert_eq!(bytes, [2; 100]);
        *found = anchors(6);
    }));
    let found = |entry, hash| base_cache.tabulated(number(entry)).and_then(|(_, table)| table.find(hash));
    assert_eq!((found(1, 5), found(1, 6), found(2, 6)), (Some(40), None, Some(40)));
    assert_eq!(base_cache.tabulated(number(2)).map(|found| found.0), Some(&[2; 100][..]));
    assert!(!base_cache.tabulate(number(3), |_, _| panic!("it is not there")));
    base_cache.limit(0);
    assert_eq!(base_cache.bytes, 0);
}
