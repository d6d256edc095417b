//! Bases of session entries that have left the ring are found, whether their names are remembered or not.

use bytes::Bytes;

use super::*;
use crate::config::IndexConfig;
use crate::repo::container::{
    ContainerKind, ContainerRange, ContainerWriter, EntryFields, Extent, OperationList, SessionEntryNumber,
    SessionFrameNumber, SessionOperations, StoredFrame,
};
use crate::repo::index::{ContainerIndexes, ContainerListing};
use crate::similar::ring::SessionEntry;
use crate::store::{MemoryStore, Store};
use crate::types::ContainerId;

const WHOLE: Fingerprint = Fingerprint([1; 32]);
const COPIED: Fingerprint = Fingerprint([2; 32]);

/// A container with a chunk of 10 literal bytes.
fn whole() -> ContainerWriter {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[0; 16]);
    let frame = StoredFrame { codec: 0, raw_len: 10, payload: Bytes::from_static(b"0123456789") };
    let frame = writer.push_frame(&frame).expect("adds");
    let fields = EntryFields { fingerprint: WHOLE, raw_len: 10, frame, literal_offset: 0, literal_len: 10, depth: 1 };
    writer.push_entry(fields, &OperationList { bases: Vec::new(), operations: Vec::new() }, &[]).expect("adds");
    writer
}

/// A container with a chunk that copies 5 bytes of `base`.
fn copying(number: u8, base: Base) -> ContainerWriter {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[number; 16]);
    let frame = StoredFrame { codec: 0, raw_len: 10, payload: Bytes::from_static(b"0123456789") };
    let frame = writer.push_frame(&frame).expect("adds");
    let operations = vec![Operation::Copy { base: 0, offset: 3, len: 5 }, Operation::Add { len: 5 }];
    let fields = EntryFields { fingerprint: COPIED, raw_len: 10, frame, literal_offset: 0, literal_len: 5, depth: 2 };
    writer.push_entry(fields, &OperationList { bases: vec![base], operations }, &[]).expect("adds");
    writer
}

fn run() -> (Entries, Arc<Mutex<ChunkIndex>>, Base) {
    run_in(Arc::new(MemoryStore::new()))
}

/// A run that has stored two containers: one with a whole chunk, one with a chunk that copies 5 bytes of it. Both have
/// left the ring.
fn run_in(store: Arc<dyn Store>) -> (Entries, Arc<Mutex<ChunkIndex>>, Base) {
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let container_indexes = || ContainerIndexes::new(store.clone(), 8, 1 << 20);
    let index = ChunkIndex::new(store.clone(), listing.clone(), container_indexes(), &IndexConfig::default(), None);
    let (index, in_flight) = (Arc::new(Mutex::new(index)), Arc::new(FramesInFlight::default()));
    let resolver = Resolver::new(Locator::new(listing.clone(), container_indexes()).sound_only());
    let entries = Entries::new(resolver, in_flight.clone(), index.clone(), 8 << 20);

    let mut base = Base { fingerprint: WHOLE, digest: 0 };
    for number in 0..2u8 {
        let (fingerprint, writer) = if number == 0 { (WHOLE, whole()) } else { (COPIED, copying(number, base)) };
        let sealed = writer.seal().expect("seals");
        let container = sealed.store(store.as_ref()).expect("stores");
        let mut chunks = index.lock();
        assert!(!chunks.contains_or_claim(&fingerprint).expect("claims"));
        let container_index = Arc::new(sealed.container_index);
        base.digest = if number == 0 { container_index.digest(&container_index.entries[0]) } else { base.digest };
        chunks.add_container(container, container_index).expect("adds");
        in_flight.seal(ContainerRange {
            first_frame: SessionFrameNumber(number.into()),
            frames: 1,
            first_entry: SessionEntryNumber(number.into()),
            entries: 1,
            container,
        });
    }
    let long = OperationList { operations: vec![Operation::Add { len: 1 }; 600_000], bases: Vec::new() };
    let operations = [Arc::default(), Arc::new(SessionOperations { list: long, entries: Vec::new() })];
    for number in 0..4 {
        entries.ring.push(SessionEntry {
            name: Base { fingerprint: Fingerprint([number; 32]), digest: 0 },
            raw_len: 10,
            frame: FrameNumber::session(SessionFrameNumber(number.into())),
            literal_offset: 0,
            literal_len: 10,
            depth: 1,
            features: Vec::new(),
            operations: operations[usize::from(number > 1)].clone(),
        });
    }
    assert!(entries.ring.view(SessionEntryNumber(1)).is_none(), "it is no longer in the ring");
    (entries, index, base)
}

fn session(number: u64) -> EntryNumber {
    EntryNumber::session(SessionEntryNumber(number))
}

/// Container, offset and length of each extent of the second chunk.
fn extents(entries: &mut Entries) -> Vec<(ContainerId, u32, u32)> {
    let extent_map = entries.extent_map(session(1)).expect("finds the base");
    let location = |extent: Extent| match entries.frame_reference(extent.frame).expect("is stored") {
        Some(FrameReference::Stored(container, _)) => (container, extent.offset, extent.len),
        other => panic!("{other:?}"),
    };
    extent_map.extents().map(location).collect()
}

#[test]
fn a_base_is_found_after_its_name_is_forgotten() {
    let (mut entries, _, base) = run();
    assert_eq!(entries.name(session(0)).expect("has a name"), base);
    let remembered = extents(&mut entries);
    assert_eq!(remembered.iter().map(|(_, offset, len)| (*offset, *len)).collect::<Vec<_>>(), [(3, 5), (0, 5)]);
    for is_in_segment in [false, true] {
        let (mut entries, index, _) = run();
        if is_in_segment {
            index.lock().finish().expect("writes a segment");
        }
        assert_eq!(extents(&mut entries), remembered);
        assert_eq!(entries.names().get(&base), Some(&session(0)), "it is remembered from now on");
    }
}

#[test]
fn another_encoding_of_a_chunk_is_not_taken_for_its_base() {
    let (mut entries, _, base) = run();
    let other = Base { digest: base.digest ^ 1, ..base };
    assert_eq!(entries.own_base(&base).expect("looks"), Some(session(0)));
    assert_eq!(entries.own_base(&other).expect("looks"), None);
    assert_eq!(entries.own_base(&Base { fingerprint: Fingerprint([9; 32]), ..base }).expect("looks"), None);
}

#[test]
fn what_a_previous_run_stored_builds_on_nothing_of_this_one_for_workers() {
    let (_, _, base) = run();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    // Its base was damaged, and this run stores the chunk again.
    let previous = copying(9, base).seal().expect("seals").store(store.as_ref()).expect("stores");
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let (mut entries, index, _) = run_in(store.clone());
    let locator = Locator::new(listing, ContainerIndexes::new(store, 8, 1 << 20)).sound_only();
    let mut worker = entries.sharing(locator, ExtentCache::new(1 << 20));
    for is_remembered in [false, true] {
        if is_remembered {
            assert_eq!(entries.name(session(0)).expect("has a name"), base);
        }
        let number = worker.resolver.entry_number(previous, 0);
        let found = worker.extent_map(number);
        assert!(matches!(found, Err(Error::ChunkMissing { .. })), "{found:?}");
        worker.extent_map(session(1)).expect("an entry of the run finds its base");
    }
    index.lock().finish().expect("writes a segment");
    let number = entries.resolver.entry_number(previous, 0);
    entries.extent_map(number).expect("the owner finds what it has stored");
}
