//! The index over several runs: what it finds, what it reads, and how it treats damaged files.

use std::io::{Read, Seek};
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::crypto::SecretKey;
use crate::repo::container::{ContainerKind, ContainerWriter, EntryFields, OperationList, StoredFrame};
use crate::store::{BlobKind, CountingStore, MemoryStore};
use crate::types::Fingerprint;

const ENTRIES: u64 = 40;

/// A repository of containers, with the directory of its index.
struct TestIndex {
    store: Arc<CountingStore<MemoryStore>>,
    directory: tempfile::TempDir,
    containers: Vec<ContainerId>,
    memory_bytes: u64,
    file_bytes: u64,
    key: Option<SecretKey>,
}

/// The eight features of entry `entry` of container `nth`.
fn features(nth: u64, entry: u64) -> Vec<u64> {
    let hash = |k: u64| xxhash_rust::xxh3::xxh3_64(&[nth, entry, k].map(u64::to_le_bytes).concat()) >> 16;
    (0..8).map(hash).collect()
}

impl TestIndex {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("makes a directory");
        let store = Arc::new(CountingStore::new(MemoryStore::new()));
        TestIndex { store, directory, containers: Vec::new(), memory_bytes: 1 << 20, file_bytes: 4 << 20, key: None }
    }

    /// Stores the next container, with `entries` entries.
    fn store(&mut self, entries: u64) -> ContainerId {
        let nth = self.containers.len() as u64;
        let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
        let frame =
            writer.push_frame(&StoredFrame { codec: 0, raw_len: 1, payload: Bytes::from_static(b"x") }).unwrap();
        for entry in 0..entries {
            let fingerprint = Fingerprint(*blake3::hash(&(nth << 32 | entry).to_le_bytes()).as_bytes());
            let fields = EntryFields { fingerprint, raw_len: 1, frame, literal_offset: 0, literal_len: 1, depth: 1 };
            writer
                .push_entry(fields, &OperationList { operations: Vec::new(), bases: Vec::new() }, &features(nth, entry))
                .unwrap();
        }
        let sealed = writer.seal().expect("seals");
        let id = sealed.store(self.store.as_ref()).expect("stores");
        self.containers.push(id);
        id
    }

    fn open(&self) -> SimilarityIndex {
        let containers = self.containers.iter().copied().collect();
        let listing = Arc::new(ContainerListing::of(&(self.store.clone() as Arc<dyn Store>), containers));
        let files = SimilarityFiles {
            directory: self.directory.path().to_path_buf(),
            repository: "id".into(),
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
            key: self.key.clone(),
        };
        SimilarityIndex::new(self.store.clone(), listing, files)
    }

    /// A successful run that stores `containers` containers.
    fn run(&mut self, containers: u64, entries: u64) {
        let mut index = self.open();
        let mut stored = Vec::new();
        for nth in 0..containers {
            let number = self.containers.len() as u64;
            (0..entries)
                .for_each(|entry| index.insert(SessionEntryNumber(nth * entries + entry), &features(number, entry)));
            let container = self.store(entries);
            stored.push(SessionContainer {
                first: SessionEntryNumber(nth * entries),
                entries: entries as u32,
                container,
            });
        }
        index.finish(&stored, std::iter::empty());
    }

    /// Percent of the features of container `nth` that lead to it.
    fn percent(&self, index: &mut SimilarityIndex, nth: usize, entries: u64) -> u64 {
        let features = (0..entries).flat_map(|entry| features(nth as u64, entry).into_iter().map(move |f| (f, entry)));
        let wanted = |entry: u64| Similar::Stored(self.containers[nth], entry as u32);
        let found = features.filter(|(feature, entry)| index.find(*feature).any(|found| found == wanted(*entry)));
        found.count() as u64 * 100 / (entries * 8)
    }

    fn check_all(&self) {
        let mut index = self.open();
        let found: Vec<u64> = (0..self.containers.len()).map(|nth| self.percent(&mut index, nth, ENTRIES)).collect();
        assert!(found.iter().all(|percent| *percent >= 98), "percent found: {found:?}");
    }

    fn reads(&self) -> u64 {
        self.store.counts().ranges
    }

    fn file(&self, at: usize) -> PathBuf {
        SimilarityFiles::paths(self.directory.path())[at].clone()
    }
}

#[test]
fn a_second_run_finds_the_first_without_reading_container_indexes() {
    let mut test = TestIndex::new();
    test.run(3, ENTRIES);
    assert_eq!(test.reads(), 0);
    test.check_all();
    test.run(2, ENTRIES);
    test.check_all();
    assert_eq!(test.reads(), 0);
}

#[test]
fn a_run_without_look_ups_opens_no_file() {
    let mut test = TestIndex::new();
    test.store(ENTRIES);
    test.open().finish(&[], std::iter::empty());
    assert_eq!(test.reads(), 0);
    assert!(!test.file(0).exists() && !test.file(1).exists());
}

#[test]
fn only_inserted_session_entries_are_found() {
    let mut test = TestIndex::new();
    test.run(1, ENTRIES);
    let mut index = test.open();
    index.insert(SessionEntryNumber(0), &features(7, 0));
    index.insert(SessionEntryNumber(1), &features(7, 0));
    let found: Vec<Similar> = index.find(features(7, 0)[0]).collect();
    assert_eq!(found, [1, 0].map(|number| Similar::Session(SessionEntryNumber(number))), "newest first");
}

#[test]
fn only_new_containers_are_read_and_lost_ones_are_dropped() {
    let mut test = TestIndex::new();
    test.run(2, ENTRIES);
    test.store(ENTRIES);
    let before = test.reads();
    let mut index = test.open();
    assert!(test.percent(&mut index, 2, ENTRIES) >= 98);
    let one = test.reads() - before;
    index.finish(&[], std::iter::empty());
    drop(index);
    test.check_all();
    assert_eq!(test.reads(), before + one, "the new container is read once");
    let lost = test.containers.remove(1);
    let mut index = test.open();
    let gone = (0..ENTRIES).flat_map(|entry| features(1, entry));
    let found: Vec<Similar> = gone.flat_map(|feature| index.find(feature).collect::<Vec<_>>()).collect();
    assert!(found.iter().all(|found| !matches!(found, Similar::Stored(id, _) if *id == lost)), "{found:?}");
    assert_eq!(test.reads(), before + one);
}

#[test]
fn containers_without_features_are_known_without_being_read() {
    let mut test = TestIndex::new();
    test.run(1, ENTRIES);
    let mut index = test.open();
    index.insert(SessionEntryNumber(0), &features(9, 0));
    let tree = test.store(0);
    index.finish(&[], [tree].into_iter());
    drop(index);
    test.open().find(1).count();
    assert_eq!(test.reads(), 0);
}

#[test]
fn the_numbers_of_a_failed_run_refer_to_nothing_and_are_not_used_again() {
    let mut test = TestIndex::new();
    test.memory_bytes = 1 << 16;
    test.run(1, ENTRIES);
    let mut index = test.open();
    (0..20_000).for_each(|entry| index.insert(SessionEntryNumber(entry), &features(99, entry)));
    drop(index);
    let mut index = test.open();
    let failed = (0..20_000).flat_map(|entry| features(99, entry));
    assert_eq!(failed.filter(|feature| index.find(*feature).next().is_some()).count(), 0);
    drop(index);
    test.run(1, ENTRIES);
    let mut index = test.open();
    let found = [0, 1].map(|nth| test.percent(&mut index, nth, ENTRIES));
    assert!(found[0] >= 85 && found[1] >= 98, "changed pages in memory are lost, 16 of 1024: {found:?}");
    assert_eq!(test.reads(), 0);
}

#[test]
fn an_encrypted_index_answers_the_same_and_shows_nothing() {
    let mut clear = TestIndex::new();
    let mut test = TestIndex { key: Some(SecretKey::new([5; 32])), ..TestIndex::new() };
    clear.run(3, ENTRIES);
    test.run(3, ENTRIES);
    test.check_all();
    assert_eq!(test.reads(), 0, "pages are read back");
    // Empty slots are zeros in a page in the clear.
    let zeros = |test: &TestIndex| {
        let bytes = std::fs::read(test.file(0)).expect("reads");
        let written = bytes.chunks(4096).filter(|page| page[..8] != [0; 8]);
        let slots = written.flat_map(|page| page[64..].chunks(8));
        slots.fold((0, 0), |(zero, all), slot| (zero + u32::from(slot == [0; 8]), all + 1))
    };
    let (zero, all) = zeros(&clear);
    assert!(zero > 0 && all > zero, "{zero} of {all}");
    assert_eq!(zeros(&test).0, 0);
    // Another key finds no page.
    test.key = Some(SecretKey::new([6; 32]));
    let mut index = test.open();
    assert_eq!(test.percent(&mut index, 0, ENTRIES), 0);
}

#[test]
fn lost_truncated_and_foreign_files_are_rebuilt() {
    let faults: [fn(&TestIndex); 6] = [
        |test| std::fs::remove_file(test.file(0)).expect("removes"),
        |test| std::fs::remove_file(test.file(1)).expect("removes"),
        |test| File::options().write(true).open(test.file(0)).and_then(|f| f.set_len(5000)).expect("truncates"),
        |test| File::options().write(true).open(test.file(1)).and_then(|f| f.set_len(50)).expect("truncates"),
        |test| std::fs::write(test.file(1), b"").expect("writes"),
        |test| {
            let numbers = NumberMap::load(&test.file(1), "id").expect("loads").expect("is there");
            numbers.save(&test.file(1), "another").expect("saves");
        },
    ];
    for fault in faults {
        let mut test = TestIndex::new();
        test.run(3, ENTRIES);
        fault(&test);
        test.check_all();
        assert!(test.reads() > 0, "the container indexes were read");
        test.run(1, ENTRIES);
        let before = test.reads();
        test.check_all();
        assert_eq!(test.reads(), before, "nothing is read again");
    }
}

#[test]
fn a_flipped_byte_costs_at_most_a_page_or_a_rebuild() {
    let mut test = TestIndex::new();
    test.run(3, ENTRIES);
    let [pages, numbers] = [0, 1].map(|at| std::fs::read(test.file(at)).expect("reads"));
    for (at, whole) in [(0, &pages), (1, &numbers)] {
        for position in (0..whole.len()).step_by(whole.len() / 40) {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x55;
            std::fs::write(test.file(at), &damaged).expect("writes");
            let mut index = test.open();
            let found: u64 = (0..3).map(|nth| test.percent(&mut index, nth, ENTRIES)).sum();
            assert!(found >= 3 * 85, "byte {position} of file {at}: {found} of 300");
            drop(index);
            std::fs::write(test.file(0), &pages).expect("writes");
            std::fs::write(test.file(1), &numbers).expect("writes");
        }
    }
}

#[test]
fn a_second_process_works_in_memory_and_does_not_change_the_files() {
    let mut test = TestIndex::new();
    test.run(2, ENTRIES);
    let mut first = test.open();
    first.find(1).count();
    let files = || [0, 1].map(|at| std::fs::read(test.file(at)).expect("reads"));
    let before = files();
    let mut second = test.open();
    assert!(test.percent(&mut second, 1, ENTRIES) >= 98);
    assert!(test.reads() > 0, "it reads the container indexes");
    second.insert(SessionEntryNumber(0), &features(5, 0));
    second.finish(&[], std::iter::empty());
    assert!(files() == before);
    assert!(test.percent(&mut first, 1, ENTRIES) >= 98);
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_index_in_memory() {
    let mut test = TestIndex::new();
    test.run(1, ENTRIES);
    std::fs::remove_file(test.file(0)).expect("removes");
    std::fs::create_dir(test.file(0)).expect("makes a directory instead");
    test.check_all();
}

#[test]
fn memory_and_file_keep_their_bounds_and_the_oldest_containers_are_dropped_first() {
    let mut test = TestIndex::new();
    (test.memory_bytes, test.file_bytes) = (128 << 10, 512 << 10);
    let per_run = 2_000;
    for _ in 0..10 {
        test.run(2, per_run);
        let len = std::fs::metadata(test.file(0)).expect("is there").len();
        assert!(len <= 512 << 10, "{len} bytes");
    }
    let mut index = test.open();
    let percent: Vec<u64> = (0..20).map(|nth| test.percent(&mut index, nth, per_run)).collect();
    assert!(percent[19] >= 95 && percent[..8].iter().all(|found| *found < 10), "{percent:?}");
    let memory = index.open.as_mut().expect("is open").table.pages().memory_bytes();
    assert!(memory <= 128 << 10, "{memory} bytes of memory");
    assert_eq!(test.reads(), 0);
}

#[test]
fn a_smaller_bound_makes_a_smaller_file() {
    let mut test = TestIndex::new();
    test.run(4, 4_000);
    test.file_bytes = 64 << 10;
    test.open().find(1).count();
    assert_eq!(std::fs::metadata(test.file(0)).expect("is there").len(), 64 << 10);
}

/// The index of another machine, which is far from the store.
fn far_index(test: &TestIndex, directory: &std::path::Path) -> SimilarityIndex {
    let mut index = test.open();
    index.files.directory = directory.to_path_buf();
    index.session_clues = Some(SessionClues::new(1 << 20, directory.to_path_buf()));
    index
}

#[test]
fn another_machine_reads_clues_and_the_indexes_of_what_it_meets() {
    let mut test = TestIndex::new();
    let containers = 60u64;
    let mut index = far_index(&test, test.directory.path());
    let mut stored = Vec::new();
    for nth in 0..containers {
        (0..ENTRIES).for_each(|entry| index.insert(SessionEntryNumber(nth * ENTRIES + entry), &features(nth, entry)));
        let first = SessionEntryNumber(nth * ENTRIES);
        stored.push(SessionContainer { first, entries: ENTRIES as u32, container: test.store(ENTRIES) });
    }
    index.finish(&stored, std::iter::empty());
    drop(index);
    // Nothing is stored before the run says so.
    assert!(test.store.list(BlobKind::Similarity.into()).unwrap().is_empty());
    let mut index = far_index(&test, test.directory.path());
    index.insert(SessionEntryNumber(0), &features(99, 0));
    index.finish(&[], std::iter::empty());
    assert_eq!(index.share_clues(true).unwrap(), 0, "a run without containers has no clues");
    clues::put(test.store.as_ref(), session_clues(&stored)).unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut index = far_index(&test, other.path());
    let before = test.reads();
    index.find(1).count();
    let opened = test.reads() - before;
    assert!(opened <= 3 * INDEXES_READ_MIN as u64, "{opened} reads");
    let open = index.open.as_ref().unwrap();
    let partial: Vec<usize> =
        (0..containers as usize).filter(|nth| open.numbers.is_partial(&test.containers[*nth])).collect();
    assert!(partial.len() >= containers as usize - INDEXES_READ_MIN, "{partial:?}");
    assert_eq!(test.percent(&mut index, partial[0], ENTRIES), 100, "the first clue leads to all");
    let met = test.reads() - before - opened;
    assert!((1..=3).contains(&met), "{met} reads");
    index.finish(&[], std::iter::empty());
    drop(index);
    // What was met stays, and so does what was not.
    let mut index = far_index(&test, other.path());
    let before = test.reads();
    assert_eq!(test.percent(&mut index, partial[0], ENTRIES), 100);
    assert_eq!(test.reads(), before);
    assert_eq!(test.percent(&mut index, partial[1], ENTRIES), 100);
    assert!(test.reads() > before);
}

#[test]
fn clues_of_few_containers_do_not_hide_the_others() {
    let mut test = TestIndex::new();
    let stored: Vec<SessionContainer> = (0..40)
        .map(|nth| {
            let first = SessionEntryNumber(nth * ENTRIES);
            SessionContainer { first, entries: ENTRIES as u32, container: test.store(ENTRIES) }
        })
        .collect();
    let found = |count: usize| {
        clues::put(test.store.as_ref(), session_clues(&stored[..count])).unwrap();
        let other = tempfile::tempdir().unwrap();
        let mut index = far_index(&test, other.path());
        index.find(1).count();
        let before = test.reads();
        let found = (0..40).filter(|nth| test.percent(&mut index, *nth, ENTRIES) >= 98).count();
        (found, test.reads() - before)
    };
    let (all, few) = found(5);
    assert!(all == 40 && few <= 3 * 5, "{all} found by {few} reads");
    let (all, many) = found(35);
    assert!(all >= 35 && many > few, "{all} found by {many} reads");
}

/// The clues of containers that were stored with the features of this test.
fn session_clues(stored: &[SessionContainer]) -> Vec<ContainerClues> {
    let mut session = SessionClues::new(1 << 20, PathBuf::new());
    for (container, nth) in stored.iter().zip(0u64..) {
        let entries = u64::from(container.entries);
        (0..entries).for_each(|entry| session.insert(container.first.plus(entry), &features(nth, entry)));
    }
    all_of(session, stored, &[])
}

/// All clues of a session.
fn all_of(session: SessionClues, stored: &[SessionContainer], others: &[ContainerId]) -> Vec<ContainerClues> {
    let (mut all, mut parts) = (Vec::new(), 0);
    let count = session.of_containers(stored, others, 10_000, |mut part| {
        assert!(part.iter().map(|one| one.clues.len()).sum::<usize>() < 11_000);
        parts += 1;
        all.append(&mut part);
        Ok(())
    });
    assert_eq!(count.unwrap(), all.len());
    assert!(parts >= all.iter().map(|one| one.clues.len()).sum::<usize>() / 11_000, "{parts} parts");
    all
}

/// A session of 100 containers with 1000 entries each, whose clues take more than its memory.
fn long_session(directory: PathBuf) -> Vec<ContainerClues> {
    let mut session = SessionClues::new(0, directory);
    (0..100_000).for_each(|number| session.insert(SessionEntryNumber(number), &features(number / 1000, number % 1000)));
    let first = |nth: u32| SessionEntryNumber(u64::from(nth) * 1000);
    let stored: Vec<_> = (0..100)
        .map(|nth| SessionContainer { first: first(nth), entries: 1000, container: ContainerId([nth as u8; 32]) })
        .collect();
    let containers = all_of(session, &stored, &[ContainerId([200; 32])]);
    assert_eq!(containers.len(), 101);
    for container in containers.iter().take(100) {
        let nth = u64::from(container.container.0[0]);
        let is_first = |(position, hash): &(u32, u64)| features(nth, u64::from(*position))[0] == *hash;
        assert!(container.clues.iter().all(is_first));
    }
    containers
}

#[test]
fn clues_of_a_long_session_go_through_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let containers = long_session(directory.path().to_path_buf());
    assert!(containers.iter().take(100).all(|container| container.clues.len() == 1000));
    assert!(containers[100].clues.is_empty());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_file_of_clues_shows_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut session = SessionClues::new(0, directory.path().to_path_buf());
    (0..5_000).for_each(|number| session.insert(SessionEntryNumber(number), &features(0, number)));
    let (mut bytes, file) = (Vec::new(), session.file().unwrap());
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 14 * 4_000);
    for number in 0..4_000 {
        let hash = &features(0, number)[0].to_le_bytes()[..6];
        assert!(!bytes.windows(6).any(|window| window == hash), "{number}");
    }
}

#[test]
fn a_long_session_without_a_directory_has_fewer_clues() {
    let containers = long_session(PathBuf::from("/dev/null/nowhere"));
    let count: usize = containers.iter().map(|container| container.clues.len()).sum();
    assert!((512..=1024).contains(&count), "{count} clues");
    assert!(containers.iter().take(100).all(|container| container.clues.len() >= 4), "all containers have some");
}

#[test]
fn clues_that_cannot_be_read_again_are_none_and_say_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut session = SessionClues::new(0, directory.path().to_path_buf());
    (0..5_000).for_each(|number| session.insert(SessionEntryNumber(number), &features(0, number)));
    session.file().unwrap().set_len(20).unwrap();
    let stored = [0, 4_000].map(|first| SessionContainer {
        first: SessionEntryNumber(first),
        entries: 1_000,
        container: ContainerId([first as u8; 32]),
    });
    let mut all = Vec::new();
    session
        .of_containers(&stored, &[], 10_000, |mut part| {
            all.append(&mut part);
            Ok(())
        })
        .unwrap();
    assert!(all.iter().all(|one| !one.clues.is_empty()), "a container is not said to have no features: {all:?}");
}
