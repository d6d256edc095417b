//! Choice of segments to merge, the merge itself, and faults during it.

use super::*;
use crate::repo::index::{NewSegment, write_segment};
use crate::store::{BlobKind, BlobName, FaultyStore, InjectedFault, MemoryStore, StoppingStore};

fn print(number: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn container(number: u64) -> ContainerId {
    ContainerId(print(number + (1 << 40)).0)
}

/// Puts a segment of container `number` with `records` records, of which every second is in the one before, too.
fn put(store: &dyn Store, number: u64, records: u64) -> BlobName {
    let record = |nth: u64| {
        let fingerprint = print((number - nth % 2) * 1_000_000 + nth / 2);
        IndexRecord { fingerprint, container: (nth % 2) as u32, entry: nth as u32 }
    };
    let containers = [container(number), container(number - 1)];
    write_segment(store, NewSegment::padded([7; 16]), &containers, &[], (0..records).map(record).collect()).unwrap()
}

/// All records of the active segments, with the ids of their containers.
fn all_records(listing: &ContainerListing) -> BTreeSet<(Fingerprint, ContainerId, u32)> {
    let mut all = BTreeSet::new();
    for segment in listing.segments().iter() {
        let pages: Vec<_> = segment.pages().map(Result::unwrap).collect();
        assert!(pages.iter().flatten().is_sorted_by(|one, next| one < next), "{}", segment.name());
        all.extend(
            pages
                .iter()
                .flatten()
                .map(|record| (record.fingerprint, segment.containers()[record.container as usize], record.entry)),
        );
    }
    all
}

fn run(listing: &ContainerListing) -> Result<u64> {
    merge_segments(listing, &std::env::temp_dir(), &AtomicBool::new(false))
}

#[test]
fn classes_grow_fourfold() {
    let classes = [1, 1024, 1025, 4096, 4097, 16384, 16385].map(class);
    assert_eq!(classes, [0, 0, 1, 1, 2, 2, 3]);
    assert_eq!((class(0), class(1_600_000)), (0, 6));
}

#[test]
fn ten_thousand_backups_leave_few_segments_and_rewrite_each_record_a_few_times() {
    for records in [1u64, 10, 300, 2000, 20_000] {
        let (mut sizes, mut written, mut most) = (Vec::<u64>::new(), 0u64, 0);
        let backups = 10_000.min(30_000_000 / records);
        for _ in 0..backups {
            sizes.push(records);
            loop {
                let chosen = choose(&sizes);
                if chosen.is_empty() {
                    break;
                }
                let sum: u64 = chosen.iter().map(|at| sizes[*at]).sum();
                let mut at = 0;
                sizes.retain(|_| {
                    at += 1;
                    !chosen.contains(&(at - 1))
                });
                sizes.push(sum);
                written += sum;
            }
            most = most.max(sizes.len());
        }
        assert!(most < 25, "{records} records: {most} segments");
        // Beyond the lowest class, once for each class.
        let total = backups * records;
        let lowest = backups * 2 * CLASS_RECORDS;
        assert!(written < 9 * total + lowest, "{records} records: {written} written again for {total}");
    }
}

#[test]
fn merged_segments_have_every_record_once_and_replace_their_sources() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let names: Vec<BlobName> = (1..=9).map(|number| put(store.as_ref(), number, 300 * (number % 3 + 1))).collect();
    let listing = ContainerListing::take(&store).unwrap();
    let before = all_records(&listing);
    assert!(run(&listing).unwrap() > 0);
    let stored = store.list(BlobKind::Segment.into()).unwrap();
    assert!(stored.len() < 4 && stored.iter().all(|listed| !names.contains(&listed.name)), "{stored:?}");
    let after = ContainerListing::take(&store).unwrap();
    assert_eq!(all_records(&after), before);
    assert_eq!(run(&after).unwrap(), 0, "nothing is left to merge");
}

#[test]
fn a_merge_may_fail_at_every_operation() {
    let filled = || {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        (1..=5).for_each(|number| drop(put(store.as_ref(), number, 250)));
        store
    };
    let before = all_records(&ContainerListing::take(&filled()).unwrap());
    let mut failed = 0;
    for kind in 0..4 {
        for operation in 0.. {
            let inner = filled();
            let took_effect = kind % 2 == 1;
            let fault = match kind {
                0 | 1 => InjectedFault::PowerCut { operation, took_effect },
                _ => InjectedFault::Fail { operation, took_effect },
            };
            let faulty = Arc::new(FaultyStore::new(inner.clone(), fault));
            let store: Arc<dyn Store> = faulty.clone();
            let result = ContainerListing::take(&store).and_then(|listing| run(&listing));
            failed += u32::from(result.is_err());
            let listing = ContainerListing::take(&inner).unwrap();
            assert_eq!(all_records(&listing), before, "{fault:?}");
            run(&listing).unwrap();
            let listing = ContainerListing::take(&inner).unwrap();
            assert_eq!(all_records(&listing), before, "{fault:?}");
            assert!(inner.list(BlobKind::Segment.into()).unwrap().len() <= 2, "{fault:?}");
            if faulty.operations() <= operation {
                break;
            }
        }
    }
    assert!(failed > 40, "{failed} failed");
}

#[test]
fn a_merged_segment_that_was_stored_in_half_replaces_nothing() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let names: Vec<BlobName> = (1..=4).map(|number| put(inner.as_ref(), number, 250)).collect();
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new(inner.clone(), InjectedFault::Truncate { put: 0 }));
    assert!(run(&ContainerListing::take(&store).unwrap()).is_err());
    let stored = inner.list(BlobKind::Segment.into()).unwrap();
    assert!(names.iter().all(|name| stored.iter().any(|listed| listed.name == *name)));
}

#[test]
fn two_merges_at_once_lose_nothing() {
    for _ in 0..20 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        (1..=12).for_each(|number| drop(put(store.as_ref(), number, 100)));
        let before = all_records(&ContainerListing::take(&store).unwrap());
        std::thread::scope(|scope| {
            for number in 20..23 {
                let store = store.clone();
                scope.spawn(move || {
                    let listing = ContainerListing::take(&store).unwrap();
                    run(&listing).unwrap();
                    put(store.as_ref(), number, 100);
                    run(&ContainerListing::take(&store).unwrap()).unwrap();
                });
            }
        });
        let after = all_records(&ContainerListing::take(&store).unwrap());
        assert!(before.is_subset(&after));
        assert_eq!(after.len(), before.len() + 300);
    }
}

#[test]
fn a_merge_stops_at_once_and_a_later_one_is_whole() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    // Large enough for a scratch file.
    (1..=4).for_each(|number| drop(put(inner.as_ref(), number, 60_000)));
    let before = all_records(&ContainerListing::take(&inner).unwrap());
    let mut interrupted = 0;
    for milliseconds in [0, 1, 3, 10, 30, 60, 100, 150, 200] {
        let stop = Arc::<AtomicBool>::default();
        let store: Arc<dyn Store> = Arc::new(StoppingStore::new(inner.clone(), stop.clone()));
        let listing = ContainerListing::take(&store).unwrap();
        let (merged, waited) = std::thread::scope(|scope| {
            let merge = scope.spawn(|| merge_segments(&listing, &std::env::temp_dir(), &stop));
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            stop.store(true, Ordering::Relaxed);
            let stopped = std::time::Instant::now();
            (merge.join().unwrap(), stopped.elapsed())
        });
        assert!(waited.as_secs_f64() < 10.0, "{waited:?} after {milliseconds} ms");
        assert!(merged.is_ok() || matches!(merged, Err(Error::Interrupted)), "{merged:?}");
        interrupted += u32::from(merged.is_err());
        assert_eq!(all_records(&ContainerListing::take(&inner).unwrap()), before);
    }
    assert!(interrupted > 0);
    run(&ContainerListing::take(&inner).unwrap()).unwrap();
    let listing = ContainerListing::take(&inner).unwrap();
    assert_eq!((all_records(&listing), listing.segments().len()), (before, 1));
}

#[test]
fn a_large_segment_that_is_stored_in_half_replaces_nothing() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    (1..=4).for_each(|number| drop(put(inner.as_ref(), number, 20_000)));
    let before = all_records(&ContainerListing::take(&inner).unwrap());
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new(inner.clone(), InjectedFault::Truncate { put: 0 }));
    assert!(run(&ContainerListing::take(&store).unwrap()).is_err());
    assert_eq!(all_records(&ContainerListing::take(&inner).unwrap()), before);
    // The name is taken by the half until a merge finds that it is damaged.
    let mut merges = 0;
    while run(&ContainerListing::take(&inner).unwrap()).is_err() {
        merges += 1;
        assert!(merges < 3);
    }
    assert_eq!(all_records(&ContainerListing::take(&inner).unwrap()), before);
}

/// Puts the segments of `numbers` as a run does that writes them one after another, and merges them as it does.
fn write_and_merge(store: &Arc<dyn Store>, numbers: std::ops::RangeInclusive<u64>) -> Result<Vec<Arc<IndexSegment>>> {
    let listing = ContainerListing::take(store)?;
    let mut written = Vec::new();
    for number in numbers {
        let records = (0..250).map(|nth| IndexRecord {
            fingerprint: print(number * 1_000_000 + nth),
            container: 0,
            entry: nth as u32,
        });
        let (new, containers) = (NewSegment::padded([number as u8; 16]), [container(number)]);
        let name = write_segment(store.as_ref(), new, &containers, &[], records.collect())?;
        written.push(Arc::new(IndexSegment::open(store.clone(), &name)?));
        merge_written(&listing, &mut written, &std::env::temp_dir())?;
    }
    Ok(written)
}

#[test]
fn segments_of_a_run_are_merged_while_it_goes_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let written = write_and_merge(&store, 1..=60).unwrap();
    assert!(written.len() < 8, "{} of 60 segments are left", written.len());
    let listing = ContainerListing::take(&store).unwrap();
    let names = |segments: &[Arc<IndexSegment>]| {
        segments.iter().map(|segment| segment.name().clone()).collect::<BTreeSet<BlobName>>()
    };
    assert_eq!(names(&written), names(&listing.segments()));
    assert!(listing.replaced().is_empty());
    assert_eq!(all_records(&listing).len(), 60 * 250);
    for number in 1..=60 {
        let wanted = (container(number), 249);
        let found = written.iter().flat_map(|segment| segment.find(&print(number * 1_000_000 + 249)).unwrap());
        assert_eq!(found.collect::<Vec<_>>(), [wanted]);
    }
}

#[test]
fn a_merge_in_a_run_may_fail_at_every_operation() {
    let mut failed = 0;
    for took_effect in [false, true] {
        for operation in 0.. {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let fault = InjectedFault::PowerCut { operation, took_effect };
            let faulty = Arc::new(FaultyStore::new(inner.clone(), fault));
            let store: Arc<dyn Store> = faulty.clone();
            let result = write_and_merge(&store, 1..=9);
            failed += u32::from(result.is_err());
            // Each segment that was put is there, alone or in a merged one.
            let listing = ContainerListing::take(&inner).unwrap();
            let records = all_records(&listing);
            assert_eq!(records.len() % 250, 0, "{fault:?}");
            assert!(result.is_err() || records.len() == 9 * 250, "{fault:?}");
            run(&listing).unwrap();
            assert_eq!(all_records(&ContainerListing::take(&inner).unwrap()), records, "{fault:?}");
            if faulty.operations() <= operation {
                break;
            }
        }
    }
    assert!(failed > 40, "{failed} failed");
}
