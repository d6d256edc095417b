//! What is kept comes back until its block is dropped, and memory stays within its bound.

use super::*;
use crate::error::Error;

fn content(entry: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + entry * 7) as u8).collect()
}

#[test]
fn the_latest_are_kept_as_they_were_within_the_bound() {
    // Four blocks, and what their entries take.
    let bytes_max = (8 << 20) + 200 * ENTRY_BYTES;
    let mut contents = Contents::new(bytes_max);
    for entry in 0..400 {
        let bytes = content(entry, 50_000 + entry as usize * 11);
        contents.keep(entry, &bytes, None).expect("keeps");
        assert!(contents.bytes <= bytes_max);
        assert_eq!(contents.get(entry), Some(&*bytes));
    }
    let kept: Vec<u64> = (0..400).filter(|entry| contents.contains(*entry)).collect();
    assert!(kept.len() > 100 && kept == (400 - kept.len() as u64..400).collect::<Vec<_>>(), "{kept:?}");
    assert!(kept.iter().all(|entry| contents.get(*entry) == Some(&*content(*entry, 50_000 + *entry as usize * 11))));
    assert_eq!(contents.places.len(), kept.len());
    let entries = contents.blocks.back().map_or(0, |block| block.entries.len());
    contents.limit(BLOCK_BYTES + entries * ENTRY_BYTES);
    assert!(contents.contains(399) && contents.bytes == BLOCK_BYTES + entries * ENTRY_BYTES);
    contents.limit(0);
    assert_eq!((contents.get(399), contents.places.len(), contents.bytes), (None, 0, 0));
    contents.keep(7, b"no room", None).expect("leaves it");
    assert!(!contents.contains(7));
}

#[test]
fn a_content_longer_than_a_block_has_one_of_its_own() {
    let mut contents = Contents::new(16 << 20);
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        contents.keep(entry, &content(entry, len), None).expect("keeps");
    }
    for (entry, len) in [(0, 100), (1, 3 << 20), (2, 0), (3, 1 << 20), (4, 5 << 20)] {
        assert_eq!(contents.get(entry), Some(&*content(entry, len)));
    }
    assert!(!contents.fill(5, 17 << 20, |_| Ok(())).expect("asks for nothing"));
    assert!((0..5).all(|entry| contents.contains(entry)));
}

#[test]
fn many_short_contents_count_for_more_than_their_bytes() {
    let mut contents = Contents::new(8 << 20);
    for entry in 0..200_000 {
        contents.keep(entry, &[entry as u8], None).expect("keeps");
    }
    assert!(contents.bytes <= 8 << 20 && contents.places.len() * size_of::<Place>() < 8 << 20, "{}", contents.bytes);
    assert!(contents.contains(199_999));
}

#[test]
fn what_could_not_be_filled_is_not_there() {
    let mut contents = Contents::new(4 << 20);
    contents.keep(1, b"before", None).expect("keeps");
    let failed = contents.fill(2, 100, |space| {
        space.fill(1);
        Err(Error::corrupt("frame", 0, "bytes", "none"))
    });
    assert!(failed.is_err() && !contents.contains(2));
    contents.keep(3, b"behind", None).expect("keeps");
    assert_eq!((contents.get(1), contents.get(2), contents.get(3)), (Some(&b"before"[..]), None, Some(&b"behind"[..])));
}

#[test]
fn anchors_are_tabulated_once_and_count_as_memory() {
    let anchors = |hash| vec![Anchor { position: 40, hash }; 1000];
    let mut contents = Contents::new(4 << 20);
    contents.keep(1, &[1; 100], Some(anchors(5))).expect("keeps");
    assert!(contents.bytes >= BLOCK_BYTES + 16_000 && contents.tabulated(1).is_none());
    assert!(contents.tabulate(1, |_, _| panic!("they are known")));
    assert!(contents.tabulate(1, |_, _| panic!("they are in a table")));
    contents.keep(2, &[2; 100], None).expect("keeps");
    assert!(contents.tabulate(2, |bytes, found| {
        assert_eq!(bytes, [2; 100]);
        *found = anchors(6);
    }));
    let found = |entry, hash| contents.tabulated(entry).and_then(|(_, table)| table.find(hash));
    assert_eq!((found(1, 5), found(1, 6), found(2, 6)), (Some(40), None, Some(40)));
    assert_eq!(contents.tabulated(2).map(|found| found.0), Some(&[2; 100][..]));
    assert!(!contents.tabulate(3, |_, _| panic!("it is not there")));
    contents.limit(0);
    assert_eq!(contents.bytes, 0);
}
