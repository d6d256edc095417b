//! The database against the segments over random histories, and files that are damaged, foreign, locked or full.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::checked_file::tests::{allow_changes, changes_left};
use super::super::checked_file::{PAGE_BYTES, SLOT_BYTES};
use super::*;
use crate::repo::container::blob_name;
use crate::repo::index::{IndexRecord, NewSegment, merge_segments, write_segment};
use crate::store::{Durable, MemoryStore, Store, StoreExt};

fn print(n: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
}

fn container(n: u64) -> ContainerId {
    ContainerId(print(n + (1 << 40)).0)
}

/// Segments in a store, and a directory of caches. Containers are names without content.
struct Fixture {
    store: Arc<dyn Store>,
    cache: tempfile::TempDir,
    segments: u64,
    prints: BTreeSet<u64>,
}

impl Fixture {
    fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        // In memory where that can be, because redb waits for the disk at each commit.
        let cache = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Fixture { store, cache, segments: 0, prints: BTreeSet::new() }
    }

    fn location(&self) -> DatabaseFile {
        let directory = self.cache.path().to_path_buf();
        DatabaseFile { directory, repository: "a".into(), cache_bytes: 1 << 20, key: None }
    }

    fn file(&self) -> PathBuf {
        self.location().path()
    }

    /// Adds a segment of chunks in a new container.
    fn put(&mut self, numbers: impl Iterator<Item = u64>) {
        self.segments += 1;
        let (id, salt) = (container(self.segments), [self.segments as u8; 16]);
        self.store.put_if_absent(&blob_name(&id), &[b"container"]).unwrap();
        let numbers: Vec<u64> = numbers.collect();
        let record = |(n, entry): (&u64, u32)| IndexRecord { fingerprint: print(*n), container: 0, entry };
        let records = numbers.iter().zip(0..).map(record).collect();
        write_segment(self.store.as_ref(), NewSegment::padded(salt), &[id], &[], records).unwrap();
        self.prints.extend(numbers);
    }

    fn listing(&self) -> ContainerListing {
        ContainerListing::take(&self.store).unwrap()
    }

    fn open(&self) -> ChunkDatabase {
        let mut database = ChunkDatabase::new(self.location());
        database.open(&self.listing()).unwrap();
        database
    }

    /// Compares the answers for all chunks that were ever stored. Returns how many have a row that counts.
    fn compare(&self, database: &mut ChunkDatabase) -> usize {
        let (listing, mut rows) = (self.listing(), 0);
        for n in &self.prints {
            let stored = |container, entry| Some((container, entry));
            let mut found = Vec::new();
            listing
                .search(&print(*n), |container, entry| {
                    found.extend(stored(container, entry));
                    None::<()>
                })
                .unwrap();
            if let Some(row) = database.find(&print(*n)).filter(|(container, _)| listing.has(container)) {
                assert!(found.contains(&row), "chunk {n}: {row:?} is not among {found:?}");
                rows += 1;
            }
        }
        assert!((1 << 50..(1 << 50) + 50).all(|n| database.find(&print(n)).is_none()));
        rows
    }

    /// Chunks that the segments have in listed containers.
    fn stored(&self) -> usize {
        let listing = self.listing();
        self.prints.iter().filter(|n| listing.search(&print(**n), |_, _| Some(())).unwrap().is_some()).count()
    }

    fn assert_whole(&self, what: &str) {
        let mut database = self.open();
        assert!(database.open(&self.listing()).unwrap(), "{what}: without a database");
        assert_eq!(self.compare(&mut database), self.stored(), "{what}: not every chunk has a row");
    }
}

/// A step of a history.
#[derive(Debug, Clone)]
enum Step {
    Put(u64, u64),
    Merge,
    DeleteContainer(u64),
    DeleteSegment(u64),
    Open,
    /// The process ends after so many changes of the file.
    Kill(u32),
    Damage(u64, u8),
    Truncate(u64),
    Remove,
    Keep,
    PutBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4000u64, 1..600u64).prop_map(|(first, count)| Step::Put(first, count)),
        2 => Just(Step::Merge),
        2 => any::<u64>().prop_map(Step::DeleteContainer),
        1 => any::<u64>().prop_map(Step::DeleteSegment),
        3 => Just(Step::Open),
        2 => (0..60u32).prop_map(Step::Kill),
        2 => (any::<u64>(), any::<u8>()).prop_map(|(at, bit)| Step::Damage(at, bit)),
        1 => any::<u64>().prop_map(Step::Truncate),
        1 => Just(Step::Remove),
        1 => Just(Step::Keep),
        1 => Just(Step::PutBack),
    ];
    prop::collection::vec(step, 1..24)
}

impl Fixture {
    fn take(&mut self, step: &Step, saved: &mut Vec<u8>) {
        let file = self.file();
        let len = fs::metadata(&file).map_or(0, |metadata| metadata.len());
        match step {
            Step::Put(first, count) => self.put(*first..first + count),
            Step::Merge => drop(merge_segments(&self.listing(), self.cache.path(), &false.into()).unwrap()),
            Step::DeleteContainer(n) => {
                let name = blob_name(&container(n % self.segments.max(1) + 1));
                let _ = self.store.delete(&name, Durable::OnReturn);
            }
            Step::DeleteSegment(n) => {
                let segments = self.listing().segments();
                if let Some(segment) = segments.get(*n as usize % segments.len().max(1)) {
                    self.store.delete(segment.name(), Durable::OnReturn).unwrap();
                }
            }
            Step::Open => drop(self.open()),
            Step::Kill(changes) => {
                allow_changes(Some(*changes));
                drop(self.open());
                allow_changes(None);
            }
            Step::Damage(at, bit) if len > 0 => {
                let mut bytes = fs::read(&file).unwrap();
                bytes[(at % len) as usize] ^= 1 << (bit % 8);
                fs::write(&file, bytes).unwrap();
            }
            Step::Truncate(to) if len > 0 => {
                File::options().write(true).open(&file).unwrap().set_len(to % len).unwrap()
            }
            Step::Keep => *saved = fs::read(&file).unwrap_or_default(),
            Step::PutBack => fs::write(&file, &saved).unwrap(),
            Step::Damage(..) | Step::Truncate(_) | Step::Remove => drop(fs::remove_file(&file)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_the_segments_after_any_history(steps in steps()) {
        let (mut fixture, mut saved) = (Fixture::new(), Vec::new());
        for step in &steps {
            fixture.take(step, &mut saved);
            let mut database = fixture.open();
            fixture.compare(&mut database);
        }
        // Damage that the last opening did not meet is met by a look-up, which empties the file.
        fixture.compare(&mut fixture.open());
        // The row of a chunk in two containers names one. If that one is gone, the segments answer.
        let may_lack_rows = steps.iter().any(|step| matches!(step, Step::DeleteContainer(_)));
        if !may_lack_rows && fixture.listing().orphans().is_empty() {
            fixture.assert_whole("at the end");
        }
    }
}

#[test]
fn only_new_segments_are_taken_in() {
    let mut fixture = Fixture::new();
    fixture.put(0..5000);
    fixture.assert_whole("first");
    let changes = |fixture: &Fixture| {
        allow_changes(Some(u32::MAX));
        fixture.assert_whole("again");
        let left = changes_left().unwrap();
        allow_changes(None);
        u32::MAX - left
    };
    let unchanged = changes(&fixture);
    assert!(unchanged < 30, "{unchanged} changes of the file without a new segment");
    fixture.put(5000..5100);
    let of_new = changes(&fixture);
    assert!(of_new > unchanged && of_new < 300, "{of_new} changes");
    for first in [5100, 5200, 5300] {
        fixture.put(first..first + 100);
    }
    assert!(merge_segments(&fixture.listing(), fixture.cache.path(), &false.into()).unwrap() > 0);
    fixture.assert_whole("merged");
}

#[test]
fn a_file_that_was_killed_at_any_change_is_whole_again() {
    let mut fixture = Fixture::new();
    fixture.put(0..300);
    fixture.assert_whole("before");
    let before = fs::read(fixture.file()).unwrap();
    fixture.put(200..600);
    let mut is_done = false;
    for changes in 0.. {
        fs::write(fixture.file(), &before).unwrap();
        allow_changes(Some(changes));
        let mut database = fixture.open();
        fixture.compare(&mut database);
        drop(database);
        is_done = changes_left() != Some(0);
        allow_changes(None);
        fixture.assert_whole(&format!("killed after {changes} changes"));
        if is_done {
            break;
        }
    }
    assert!(is_done);
}

#[test]
fn a_full_disk_is_no_failure() {
    let mut fixture = Fixture::new();
    fixture.put(0..3000);
    for changes in [0, 1, 2, 5, 20, 40] {
        allow_changes(Some(changes));
        let mut database = fixture.open();
        assert!(!database.open(&fixture.listing()).unwrap(), "{changes}");
        assert_eq!(fixture.compare(&mut database), 0);
        drop(database);
        allow_changes(None);
        fixture.assert_whole(&format!("after {changes}"));
        fs::remove_file(fixture.file()).unwrap();
    }
}

#[test]
fn a_second_process_works_without_it() {
    let mut fixture = Fixture::new();
    fixture.put(0..100);
    let mut first = fixture.open();
    let mut second = fixture.open();
    assert!(first.open(&fixture.listing()).unwrap() && !second.open(&fixture.listing()).unwrap());
    assert_eq!((fixture.compare(&mut first), fixture.compare(&mut second)), (100, 0));
    drop(first);
    fixture.assert_whole("unlocked");
}

/// Every kind of damage to a file: flipped bits of each page, cuts, and pages of another time.
#[test]
fn a_damaged_file_is_filled_again_or_done_without() {
    let mut fixture = Fixture::new();
    fixture.put(0..400);
    fixture.assert_whole("first");
    let old = fs::read(fixture.file()).unwrap();
    fixture.put(300..900);
    fixture.assert_whole("second");
    let whole = fs::read(fixture.file()).unwrap();
    assert_eq!((whole.len() - 32) % SLOT_BYTES, 0);
    let mut damages: Vec<(String, Vec<u8>)> = [0, 1, 31, 32, 33, 32 + SLOT_BYTES, whole.len() / 2, whole.len() - 1]
        .into_iter()
        .map(|len| (format!("cut to {len}"), whole[..len].to_vec()))
        .collect();
    for page in 0..(whole.len() - 32) / SLOT_BYTES {
        let start = 32 + page * SLOT_BYTES;
        if whole[start..start + PAGE_BYTES].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut flipped = whole.clone();
        flipped[start + (page * 131) % PAGE_BYTES] ^= 1;
        damages.push((format!("page {page} flipped"), flipped));
        let mut zeros = whole.clone();
        zeros[start..start + SLOT_BYTES].fill(0);
        damages.push((format!("page {page} zeros"), zeros));
        if let Some(before) = old.get(start..start + SLOT_BYTES) {
            let mut mixed = whole.clone();
            mixed[start..start + SLOT_BYTES].copy_from_slice(before);
            damages.push((format!("page {page} of before"), mixed));
        }
    }
    damages.push(("longer".into(), [whole.as_slice(), &[0; SLOT_BYTES]].concat()));
    damages.push(("garbage".into(), whole.iter().map(|byte| byte.wrapping_mul(77) ^ 0x5a).collect()));
    damages.push(("a plain database".into(), b"redb\x1a\x0a\xa9\x0d\x0a".repeat(1000)));
    for (what, bytes) in damages {
        fs::write(fixture.file(), &bytes).unwrap();
        fixture.compare(&mut fixture.open());
        if !what.contains("of before") {
            fixture.compare(&mut fixture.open());
            fixture.assert_whole(&what);
        }
    }
}

#[test]
fn what_is_no_file_of_this_repository_is_done_without() {
    let mut fixture = Fixture::new();
    fixture.put(0..100);
    let without = |fixture: &Fixture, what: &str| {
        let mut database = fixture.open();
        assert!(!database.open(&fixture.listing()).unwrap(), "{what}");
        assert_eq!(fixture.compare(&mut database), 0, "{what}");
    };
    let file = fixture.file();
    fs::create_dir(&file).unwrap();
    without(&fixture, "a directory");
    fs::remove_dir(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fixture.assert_whole("in place of a FIFO");
    fs::remove_file(&file).unwrap();
    let target = fixture.cache.path().join("target");
    fs::write(&target, b"of somebody").unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    fixture.assert_whole("in place of a link");
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(&target).unwrap(), b"of somebody");
    fs::remove_file(&file).unwrap();
    let away = DatabaseFile { directory: fixture.cache.path().join("absent"), ..fixture.location() };
    assert!(!ChunkDatabase::new(away).open(&fixture.listing()).unwrap());
    // The file of another repository, and of one that is encrypted.
    let others = [
        DatabaseFile { repository: "b".into(), ..fixture.location() },
        DatabaseFile { key: Some(SecretKey::new([3; 32])), ..fixture.location() },
    ];
    for other in others {
        assert!(ChunkDatabase::new(other).open(&fixture.listing()).unwrap());
        fixture.assert_whole("foreign");
    }
}

#[test]
fn a_file_of_chunks_that_are_gone_is_filled_again() {
    let mut fixture = Fixture::new();
    fixture.put(0..STALE_ROWS_MAX + 10_000);
    drop(fixture.open());
    let full = fs::metadata(fixture.file()).unwrap().len();
    let segments = fixture.listing().segments();
    fixture.store.delete(segments[0].name(), Durable::OnReturn).unwrap();
    fixture.store.delete(&blob_name(&container(1)), Durable::OnReturn).unwrap();
    fixture.prints.clear();
    fixture.put(0..1000);
    fixture.assert_whole("filled again");
    assert!(fs::metadata(fixture.file()).unwrap().len() < full / 2);
}
