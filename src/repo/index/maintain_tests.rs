//! Damaged, lost and replaced segments.

use std::sync::Arc;

use super::*;
use crate::repo::container::{ContainerKind, ContainerWriter, EntryFields, OperationList};
use crate::repo::index::{IndexRecord, NewSegment, write_segment};
use crate::store::{BlobKind, Durable, MemoryStore, Store, StoreExt};
use crate::types::Fingerprint;

fn print(number: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// A store, and its segments with one container of `chunks` chunks each.
struct Segments {
    memory: Arc<MemoryStore>,
    store: Arc<dyn Store>,
    chunks: u64,
    names: Vec<BlobName>,
}

impl Segments {
    fn new(chunks: u64) -> Self {
        let memory = Arc::new(MemoryStore::new());
        Segments { store: memory.clone(), memory, chunks, names: Vec::new() }
    }

    /// Stores a container and a segment that lists it.
    fn add(&mut self) -> ContainerId {
        let first = self.names.len() as u64 * self.chunks;
        let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
        let mut records = Vec::new();
        for (number, entry) in (first..first + self.chunks).zip(0..) {
            let (fingerprint, frame, literal_offset) = (print(number), 0, 0);
            let fields = EntryFields { fingerprint, raw_len: 0, frame, literal_offset, literal_len: 0, depth: 1 };
            writer.push_entry(fields, &OperationList::default(), &[]).unwrap();
            records.push(IndexRecord { fingerprint, container: 0, entry });
        }
        let sealed = writer.seal().unwrap();
        let parts: Vec<&[u8]> = sealed.parts.iter().map(AsRef::as_ref).collect();
        self.store.put_if_absent(&sealed.blob_name(), &parts).unwrap();
        self.names.push(
            write_segment(self.store.as_ref(), NewSegment::padded([7; 16]), &[sealed.id()], &[], records).unwrap(),
        );
        sealed.id()
    }

    fn listing(&self) -> ContainerListing {
        ContainerListing::take(&self.store).unwrap()
    }

    fn segments_stored(&self) -> Vec<BlobName> {
        self.store.list(BlobKind::Segment.into()).unwrap().into_iter().map(|listed| listed.name).collect()
    }

    fn flip(&self, name: &BlobName, at: usize) {
        let mut bytes = self.store.get(name, 1 << 30).unwrap();
        bytes[at] ^= 1;
        self.memory.replace(name, &bytes);
    }

    /// Fails unless a look-up finds every chunk.
    fn assert_found(&self, listing: &ContainerListing) {
        for number in 0..self.names.len() as u64 * self.chunks {
            let found = listing.search(&print(number), |container, entry| Some((container, entry))).unwrap();
            let (container, entry) = found.unwrap_or_else(|| panic!("chunk {number} is not found"));
            let fingerprints = read_fingerprints(self.store.as_ref(), &container).unwrap();
            assert_eq!(fingerprints[entry as usize], print(number));
        }
        assert_eq!(listing.search(&print(u64::MAX), |_, _| Some(())).unwrap(), None);
    }
}

#[test]
fn a_look_up_survives_damage_in_every_page_and_table_of_a_segment() {
    let mut segments = Segments::new(300);
    segments.add();
    segments.add();
    let name = segments.names[0].clone();
    let whole = segments.store.get(&name, 1 << 20).unwrap();
    for at in [0, 8, 70, 200, 5000, 9000, whole.len() - 1] {
        segments.flip(&name, at);
        segments.assert_found(&segments.listing());
        segments.memory.replace(&name, &whole);
    }
    segments.memory.replace(&name, &whole[..4000]);
    segments.assert_found(&segments.listing());
    segments.store.delete(&name, Durable::OnReturn).unwrap();
    let listing = segments.listing();
    segments.assert_found(&listing);
    assert_eq!(listing.take_orphans_used().len(), 1);
}

#[test]
fn a_segment_that_vanishes_under_a_reader_is_no_loss() {
    let mut segments = Segments::new(300);
    let first = segments.add();
    segments.add();
    let listing = segments.listing();
    segments.store.delete(&segments.names[0], Durable::OnReturn).unwrap();
    segments.assert_found(&listing);
    assert_eq!(listing.orphans(), [first]);
}

#[test]
fn verification_finds_a_damaged_page_within_its_budget_from_any_start() {
    let mut segments = Segments::new(1000);
    (0..3).for_each(|_| _ = segments.add());
    let pages: u64 = segments.listing().segments().iter().map(|segment| segment.page_count()).sum();
    assert_eq!(pages, 30);
    let damaged = segments.names[1].clone();
    segments.flip(&damaged, 80 + 48 + 4096 * 5 + 7);
    for random in 0..60 {
        let listing = segments.listing();
        verify_segments(&listing, 30, 0, random).unwrap();
        assert_eq!(listing.recovery().damaged(), std::slice::from_ref(&damaged), "start {random}");
    }
    let hits = (0..30).filter(|random| {
        let listing = segments.listing();
        verify_segments(&listing, 6, 0, *random).unwrap();
        !listing.recovery().damaged().is_empty()
    });
    assert_eq!(hits.count(), 6, "six of thirty starts reach the page with six pages");
}

#[test]
fn where_reads_are_requests_segments_of_one_read_are_verified() {
    for (pages, is_found) in [(PAGES_READ, true), (PAGES_READ + 1, false)] {
        let mut segments = Segments::new(pages * 102);
        segments.add();
        segments.flip(&segments.names[0], 80 + 48 + 4096 * 9 + 7);
        let listing = segments.listing();
        verify_small_segments(&listing, 64, 3).unwrap();
        assert_eq!(!listing.recovery().damaged().is_empty(), is_found, "{pages} pages");
    }
    let mut segments = Segments::new(1000);
    (0..5).for_each(|_| _ = segments.add());
    segments.flip(&segments.names[3], 80 + 48 + 4096 * 5 + 7);
    let is_found = |random: &u64| {
        let listing = segments.listing();
        verify_small_segments(&listing, 2, *random).unwrap();
        !listing.recovery().damaged().is_empty()
    };
    assert_eq!((0..5).filter(is_found).count(), 2, "each start verifies two of five");
}

#[test]
fn a_damaged_segment_is_replaced_and_deleted() {
    let mut segments = Segments::new(300);
    segments.add();
    segments.add();
    for _ in 0..2 {
        let name = segments.segments_stored()[0].clone();
        let listing = segments.listing();
        segments.flip(&name, 5000);
        verify_segments(&listing, 1 << 20, 64, 0).unwrap();
        assert_eq!(replace_damaged_segments(&listing).unwrap(), 1);
        let stored = segments.segments_stored();
        assert!(stored.len() == 2 && !stored.contains(&name), "{stored:?}");
        let listing = segments.listing();
        assert_eq!((listing.orphans().len(), listing.damaged.len()), (0, 0));
        verify_segments(&listing, 1 << 20, 64, 0).unwrap();
        assert!(listing.recovery().damaged().is_empty());
        segments.assert_found(&listing);
    }
}

#[test]
fn a_container_that_cannot_be_read_is_in_no_segment_that_replaces_a_damaged_one() {
    let mut segments = Segments::new(300);
    let (first, second) = (segments.add(), segments.add());
    // One segment names both.
    merge_both(&segments, &[first, second]);
    let damaged = segments.listing().segments()[0].name().clone();
    segments.flip(&damaged, 80 + 64 + 16 + 4096 + 7);
    let container = blob_name(&second);
    let whole = segments.store.get(&container, 1 << 30).unwrap();
    segments.memory.replace(&container, &whole[..100]);
    let listing = segments.listing();
    verify_segments(&listing, 1 << 20, 64, 0).unwrap();
    assert_eq!(replace_damaged_segments(&listing).unwrap(), 1);
    assert_eq!(listing.unread(), [second].into());
    // While it is unreadable, nothing says that a chunk is missing.
    let again = segments.listing();
    assert_eq!(again.orphans(), [second]);
    assert!(segments.segments_stored().contains(&damaged), "it still says what is in the container");
    assert!(again.search(&print(300), |_, _| Some(())).unwrap().is_none() && again.blind_error().is_some());
    // A merge does not bring the damaged segment back.
    for _ in 0..4 {
        segments.add();
    }
    let listing = segments.listing();
    crate::repo::index::merge_segments(&listing, &std::env::temp_dir(), &false.into()).unwrap();
    assert!(segments.listing().segments().iter().all(|segment| *segment.name() != damaged));
    segments.memory.replace(&container, &whole);
    let listing = segments.listing();
    assert!(listing.search(&print(300), |_, _| Some(())).unwrap().is_some());
    name_containers(&listing, &[second]).unwrap();
    let listing = segments.listing();
    delete_replaced_segments(&listing).unwrap();
    assert!(!segments.segments_stored().contains(&damaged), "all its containers are in other segments");
    segments.assert_found(&segments.listing());
}

/// Replaces all segments by one of `containers`.
fn merge_both(segments: &Segments, containers: &[ContainerId]) {
    let listing = segments.listing();
    name_containers(&listing, containers).unwrap();
    segments.names.iter().for_each(|name| segments.store.delete(name, Durable::OnReturn).unwrap());
}

#[test]
fn a_segment_that_lacks_records_of_a_container_is_noticed_and_replaced() {
    // One segment names two containers, and has `missing` records too few of the second one.
    for missing in [300u64, 1, 120] {
        let mut segments = Segments::new(300);
        let containers = [segments.add(), segments.add()];
        let records = (0..600 - missing).map(|number| IndexRecord {
            fingerprint: print(number),
            container: u32::from(number >= 300),
            entry: (number % 300) as u32,
        });
        let records = records.collect();
        let poor =
            write_segment(segments.store.as_ref(), NewSegment::padded([8; 16]), &containers, &segments.names, records)
                .unwrap();
        segments.names.iter().for_each(|name| segments.store.delete(name, Durable::OnReturn).unwrap());
        let listing = segments.listing();
        let last = print(599);
        assert!(listing.search(&last, |_, _| Some(())).unwrap().is_none(), "{missing}: the segment hides it");
        assert!(listing.prove_segments().unwrap() && !listing.prove_segments().unwrap());
        assert!(listing.search(&last, |_, _| Some(())).unwrap().is_some(), "{missing}: its own index is asked");
        let listing = segments.listing();
        verify_segments(&listing, 1 << 20, 64, 1).unwrap();
        assert_eq!(listing.recovery().damaged(), [poor]);
        assert_eq!(replace_damaged_segments(&listing).unwrap(), 1);
        let listing = segments.listing();
        assert!(!listing.prove_segments().unwrap());
        segments.assert_found(&listing);
    }
    // One without any record does not even open.
    let mut segments = Segments::new(10);
    let container = segments.add();
    let poor =
        write_segment(segments.store.as_ref(), NewSegment::padded([8; 16]), &[container], &segments.names, Vec::new())
            .unwrap();
    segments.store.delete(&segments.names[0], Durable::OnReturn).unwrap();
    let listing = segments.listing();
    assert_eq!((listing.damaged[0].0.as_str(), listing.orphans()), (poor.as_str(), vec![container]));
    segments.assert_found(&listing);
}

#[test]
fn a_replaced_segment_stays_while_no_other_names_its_containers() {
    let mut segments = Segments::new(10);
    let (first, second) = (segments.add(), segments.add());
    let replaced = segments.names.clone();
    let record = IndexRecord { fingerprint: print(0), container: 0, entry: 0 };
    write_segment(segments.store.as_ref(), NewSegment::padded([7; 16]), &[first], &replaced, vec![record]).unwrap();
    let listing = segments.listing();
    assert_eq!((listing.segments().len(), listing.orphans()), (1, vec![second]));
    delete_replaced_segments(&listing).unwrap();
    assert_eq!(segments.segments_stored().len(), 2, "the second segment stays");
    segments.store.delete(&blob_name(&second), Durable::OnReturn).unwrap();
    delete_replaced_segments(&listing).unwrap();
    assert_eq!(segments.segments_stored().len(), 1, "its container is gone");
}

#[test]
fn containers_whose_segment_was_lost_are_named_again_before_the_commit() {
    let mut segments = Segments::new(300);
    segments.add();
    let listing = segments.listing();
    let later = segments.add();
    segments.names.iter().for_each(|name| segments.store.delete(name, Durable::OnReturn).unwrap());
    name_all_containers(&listing, &HashSet::from([later])).unwrap();
    let again = segments.listing();
    assert_eq!((again.segments().len(), again.orphans()), (1, Vec::new()));
    segments.assert_found(&again);
    let names = segments.segments_stored();
    name_all_containers(&again, &HashSet::new()).unwrap();
    assert_eq!(segments.segments_stored(), names, "nothing to do");
    segments.store.delete(&names[0], Durable::OnReturn).unwrap();
    segments.store.delete(&blob_name(&later), Durable::OnReturn).unwrap();
    assert!(name_all_containers(&again, &HashSet::from([later])).is_err(), "no commit without the container");
    name_all_containers(&again, &HashSet::new()).unwrap();
}

#[test]
fn reading_containers_in_place_of_a_damaged_segment_stops_when_asked() {
    let mut segments = Segments::new(10);
    for _ in 0..20 {
        segments.add();
    }
    for name in &segments.names {
        let len = segments.store.head(name).unwrap().unwrap().len as usize;
        segments.flip(name, len - 100);
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let store: Arc<dyn Store> = Arc::new(crate::store::StoppingStore::new(segments.store.clone(), stop.clone()));
    let listing = ContainerListing::take(&store).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let found = listing.search(&print(7), |container, _| Some(container));
    assert!(matches!(found, Err(crate::Error::Interrupted)), "{found:?}");
    stop.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(listing.search(&print(7), |container, _| Some(container)).unwrap().is_some(), "nothing was remembered");
}
