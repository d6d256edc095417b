//! The bytes of clues, hostile ones, merges, and what readers take.

use super::*;
use crate::store::MemoryStore;
use crate::types::hex;

fn clues(nth: u8, entries: u32) -> ContainerClues {
    let clues = (0..entries).map(|entry| (entry, (u64::from(nth) << 40) | (u64::from(entry) * 3))).collect();
    ContainerClues { container: ContainerId([nth; 32]), entries, clues }
}

fn all(store: &MemoryStore) -> Vec<ContainerClues> {
    let blobs = store.list(BlobKind::Similarity.into()).unwrap();
    let mut all: Vec<_> = blobs.iter().flat_map(|blob| load(store, &blob.name).unwrap()).collect();
    all.sort_by_key(|clues| clues.container);
    all
}

#[test]
fn the_bytes_of_clues_do_not_change() {
    let two = [
        ContainerClues { container: ContainerId([1; 32]), entries: 500, clues: vec![(0, 0x0102_0304_0506), (300, 7)] },
        ContainerClues { container: ContainerId([2; 32]), entries: 0, clues: Vec::new() },
    ];
    let blob = encode(&two).unwrap();
    let payload = &blob[crate::wire::ENVELOPE_HEADER_BYTES..blob.len() - crate::wire::ENVELOPE_CHECKSUM_BYTES];
    let rows = format!("{}f401000002000000{}0000000000000000", "01".repeat(32), "02".repeat(32));
    assert_eq!(hex(payload), format!("a3005850{rows}014300ac02024c060504030201070000000000"));
    assert_eq!(decode("similarity/a", &blob).unwrap(), two);
}

#[test]
fn hostile_clues_are_damage_and_take_no_memory() {
    let sealed = |rows: Vec<u8>, positions: Vec<u8>, hashes: Vec<u8>| {
        Envelope::new(MAGIC).seal(&minicbor::to_vec(CluesPayload { rows, positions, hashes }).unwrap())
    };
    let row = |entries: u32, count: u32| [&[3; 32][..], &entries.to_le_bytes(), &count.to_le_bytes()].concat();
    let none = Vec::new;
    for (what, blob) in [
        ("four thousand million clues", sealed(row(9, u32::MAX), none(), none())),
        ("a hash and no position", sealed(row(9, 1), none(), vec![1; 6])),
        ("a position and no hash", sealed(row(9, 1), vec![1], none())),
        ("an entry that is not there", sealed(row(9, 1), vec![9], vec![1; 6])),
        ("a second entry that is not there", sealed(row(9, 2), vec![8, 1], vec![1; 12])),
        ("a position of more than 64 bits", sealed(row(9, 2), [&[1][..], &[255; 9], &[1]].concat(), vec![1; 12])),
        ("a position more", sealed(row(9, 1), vec![1, 1], vec![1; 6])),
        ("a hash more", sealed(row(9, 1), vec![1], vec![1; 12])),
        ("more entries than an index has", sealed(row(1 << 19, 1), vec![1], vec![1; 6])),
        ("more clues than an entry has", sealed(row(1, 9), vec![0; 9], vec![1; 54])),
        ("half a hash", sealed(row(9, 1), vec![1], vec![1; 7])),
        ("half a row", sealed(row(9, 1)[1..].to_vec(), vec![1], vec![1; 6])),
        ("no map", Envelope::new(MAGIC).seal(&[0x83, 0, 0, 0])),
        ("nothing", Vec::new()),
    ] {
        let error = decode("similarity/a", &blob).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
    }
}

fn visited(store: &MemoryStore, taken: &mut TakenBlobs, bytes_max: u64) -> (Vec<u8>, bool) {
    let mut found = Vec::new();
    let is_all = visit(store, taken, bytes_max, |clues| {
        found.push(clues.container.0[0]);
        true
    })
    .unwrap();
    found.sort_unstable();
    (found, is_all.expect("is listed"))
}

#[test]
fn eight_blobs_of_a_length_become_one() {
    let store = MemoryStore::new();
    (1..=7).for_each(|nth| drop(put(&store, vec![clues(nth, 5)]).unwrap()));
    assert_eq!(merge(&store).unwrap(), 0);
    put(&store, vec![clues(8, 5)]).unwrap();
    put(&store, (9..60).map(|nth| clues(nth, 500)).collect()).unwrap();
    assert_eq!(merge(&store).unwrap(), 8);
    assert_eq!(store.list(BlobKind::Similarity.into()).unwrap().len(), 2);
    let wanted: Vec<_> = (1..60).map(|nth| clues(nth, if nth < 9 { 5 } else { 500 })).collect();
    assert!(all(&store) == wanted);
    assert_eq!(merge(&store).unwrap(), 0);
}

#[test]
fn a_merge_takes_in_no_damaged_blob_and_deletes_none() {
    let store = MemoryStore::new();
    let names: Vec<_> = (1..=8).flat_map(|nth| put(&store, vec![clues(nth, 5)]).unwrap()).collect();
    let mut damaged = store.get(&names[2], 1 << 20).unwrap();
    damaged[70] ^= 1;
    store.replace(&names[2], &damaged);
    assert_eq!(merge(&store).unwrap(), 7);
    assert!(store.get(&names[2], 1 << 20).unwrap() == damaged);
    let mut taken = TakenBlobs::default();
    assert_eq!(visited(&store, &mut taken, u64::MAX), (vec![1, 2, 4, 5, 6, 7, 8], true));
    assert_eq!(taken.done.len(), 1, "a damaged one is tried again");
}

#[test]
fn a_reader_takes_the_shortest_blobs_up_to_its_bound_and_goes_on_where_it_ended() {
    let store = MemoryStore::new();
    let long = put(&store, vec![clues(1, 1000)]).unwrap();
    put(&store, vec![clues(2, 10)]).unwrap();
    let bytes_max = store.len_of(&long[0]).unwrap().unwrap();
    let gone = HashSet::from([[9; 32]]);
    let mut taken = TakenBlobs { done: gone.clone(), partly: gone };
    assert_eq!(visited(&store, &mut taken, bytes_max), (vec![2], false));
    assert_eq!((taken.done.len(), taken.partly.len()), (1, 0), "what is gone is not taken any more");
    assert_eq!(visited(&store, &mut taken, bytes_max), (vec![1], true));
    assert_eq!(visited(&store, &mut taken, bytes_max), (vec![], true));
}

#[test]
fn very_many_blobs_are_merged_in_parts() {
    let store = MemoryStore::new();
    for nth in 0..BLOBS_MAX as u32 + 9 {
        let mut one = clues(1, 2);
        one.container.0[..4].copy_from_slice(&nth.to_le_bytes());
        put(&store, vec![one]).unwrap();
    }
    assert_eq!(merge(&store).unwrap(), BLOBS_MAX);
    assert_eq!(merge(&store).unwrap(), 9);
}

#[test]
fn a_blob_of_containers_that_are_not_listed_is_read_once_more() {
    let store = MemoryStore::new();
    put(&store, vec![clues(1, 5), clues(2, 5)]).unwrap();
    let mut taken = TakenBlobs::default();
    let mut read = |listed: &[u8]| {
        let mut count = 0;
        let mut each = |clues: ContainerClues| {
            count += 1;
            listed.contains(&clues.container.0[0])
        };
        visit(&store, &mut taken, u64::MAX, &mut each).unwrap();
        count
    };
    assert_eq!(read(&[1]), 2, "the run that stores the other container is at work");
    assert_eq!(read(&[1]), 2, "it may be listed now");
    assert_eq!(read(&[1]), 0, "it is gone");

    let mut taken = TakenBlobs::default();
    visit(&store, &mut taken, u64::MAX, |clues| clues.container.0[0] == 1).unwrap();
    assert_eq!((taken.done.len(), taken.partly.len()), (0, 1));
    visit(&store, &mut taken, u64::MAX, |_| true).unwrap();
    assert_eq!((taken.done.len(), taken.partly.len()), (1, 0), "the run has ended");
}
