//! Near versions on a machine that has no similarity index: what it stores, and what it reads to get there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fhrd::backup::{BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::Config;
use fhrd::inspect::check::CheckReport;
use fhrd::keep::{forget, prune};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::index::similarity::clues::{self, ContainerClues, delete_damaged_clues};
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot;
use fhrd::store::{
    BlobKind, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, ObservedStore, Store, StoreCall, StoreObserver,
};
use fhrd::types::ContainerId;

use crate::far::scene::{Place, run};
use crate::flips::run_check;
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

/// Files of noise, each of about a container.
fn source(files: usize, bytes: usize) -> (tempfile::TempDir, Random) {
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(11));
    for number in 0..files {
        write(source.path().join(number.to_string()), &random.bytes(bytes));
    }
    (source, random)
}

/// A near version: bytes of some files are others.
fn edit(source: &Path, files: std::ops::Range<usize>, random: &mut Random) {
    for number in files {
        let path = source.join(number.to_string());
        let mut bytes = std::fs::read(&path).unwrap();
        for start in (0..bytes.len() - 20).step_by(3000) {
            let at = start + random.below(20) as usize;
            bytes[at] ^= 0x55;
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn clue_blobs(place: &Place) -> Vec<BlobName> {
    place.memory.list(BlobKind::Similarity.into()).unwrap().into_iter().map(|blob| blob.name).collect()
}

/// Deletes what is not among `before`.
fn take_back(place: &Place, before: &[ListedBlob]) {
    for blob in place.memory.list(BlobPrefix::All).unwrap() {
        if before.iter().all(|other| other.name != blob.name) {
            place.memory.delete(&blob.name, Durable::OnReturn).unwrap();
        }
    }
}

#[test]
fn a_new_machine_finds_near_versions_by_clues() {
    let mut ratios = Vec::new();
    for is_encrypted in [false, true, false, true, false] {
        let (source, mut random) = source(100, 256 << 10);
        let here = Place::new(is_encrypted);
        here.back_up(source.path());
        assert_eq!(clue_blobs(&here).len(), 1);
        // A near version of a few files, elsewhere.
        for number in (0..100).filter(|number| !(40..45).contains(number)) {
            std::fs::remove_file(source.path().join(number.to_string())).unwrap();
        }
        edit(source.path(), 40..45, &mut random);
        let before = here.memory.list(BlobPrefix::All).unwrap();
        let (_, known) = here.back_up(source.path());
        take_back(&here, &before);
        let (report, new) = here.other().back_up(source.path());
        let there = here.other();
        there.assert_restores(&report.snapshot, source.path());
        assert_eq!(run_check(&there.open().0).defects, [""; 0]);
        take_back(&here, &before);
        clue_blobs(&here).iter().for_each(|name| here.memory.delete(name, Durable::OnReturn).unwrap());
        let (_, without) = here.other().back_up(source.path());
        assert!(known.bytes_written < 500_000, "versions are near: {known:?}");
        ratios.push(new.bytes_written as f64 / known.bytes_written as f64);
        assert!(new.ranges + 60 < without.ranges, "{new:?} {without:?}");
        // The near files, the indexes of what is met, and all clues: not the other files.
        assert!(new.bytes_read < known.bytes_read + (4 << 20), "{new:?} {known:?}");
        // Who had to read all indexes stores what is in them.
        let names = clue_blobs(&here);
        let containers: usize = names.iter().map(|name| load(&here.open().0, name).len()).sum();
        assert!(containers > 100, "{containers} in {names:?}");
    }
    // With a key in twenty, none of the first chunks of a file is in the sample of one feature of eight.
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] <= 1.05, "{ratios:?}");
}

#[test]
fn clues_do_not_depend_on_the_number_of_workers() {
    let (source, mut random) = source(12, 256 << 10);
    let first = Place::new(false);
    let places: Vec<(usize, Place)> =
        [1, 2, 8, 64].into_iter().map(|workers| (workers, Place::with(false, copied(&first.memory), false))).collect();
    for version in 0..3 {
        let mut expected = None;
        for (workers, place) in &places {
            let mut config = Config::default();
            config.pipeline.workers = *workers;
            let tree = TreeSource { bare: true, ..TreeSource::new(vec![source.path().into()], "test") };
            let request = BackupRequest::new(TreeSource { parents: ParentChoice::Nothing, ..tree });
            // Each run is on a new machine, which knows what the clues say.
            let repository = Repository { salts: Salts::fixed(version), ..place.other().open().0 };
            backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
            let kinds = [BlobKind::Container, BlobKind::Segment, BlobKind::Similarity];
            let names = kinds.iter().flat_map(|kind| names(place, *kind));
            let stored: BTreeMap<String, Vec<u8>> =
                names.map(|name| (name.as_str().into(), place.memory.get(&name, 1 << 26).unwrap())).collect();
            assert!(stored.keys().filter(|name| name.starts_with("similarity/")).count() as u64 > version.min(1));
            assert!(expected.get_or_insert_with(|| stored.clone()) == &stored, "version {version}, {workers} workers");
        }
        edit(source.path(), 2..9, &mut random);
    }
}

/// A store with the same blobs.
fn copied(from: &MemoryStore) -> Arc<MemoryStore> {
    let to = MemoryStore::default();
    for blob in from.list(BlobPrefix::All).unwrap() {
        to.replace(&blob.name, &from.get(&blob.name, 1 << 26).unwrap());
    }
    Arc::new(to)
}

#[test]
fn a_local_repository_has_no_clues() {
    let (source, _) = source(3, 50_000);
    let place = Place::new(false);
    let repository = Repository::open(place.memory.clone()).unwrap();
    run(&repository, source.path()).unwrap();
    assert!(clue_blobs(&place).is_empty());
}

#[test]
fn clues_that_are_lost_damaged_or_lie_cost_only_reads() {
    let (source, mut random) = source(40, 256 << 10);
    let here = Place::new(false);
    here.back_up(source.path());
    let name = clue_blobs(&here).swap_remove(0);
    let bytes = here.memory.get(&name, 1 << 24).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    for (what, damaged) in [
        ("lost", Vec::new()),
        ("flipped", flipped),
        ("cut", bytes[..bytes.len() / 2].to_vec()),
        ("of another kind", here.memory.get(&names(&here, BlobKind::Segment)[0], 1 << 24).unwrap()),
    ] {
        here.memory.delete(&name, Durable::OnReturn).unwrap();
        if !damaged.is_empty() {
            here.memory.replace(&name, &damaged);
        }
        edit(source.path(), 0..9, &mut random);
        let there = here.other();
        let report = back_up_and_compare(&there, source.path());
        let is_noted = report.notes.iter().any(|note| note.contains(name.as_str()));
        assert_eq!(is_noted, !damaged.is_empty(), "{what}: {:?}", report.notes);
        delete_damaged_clues(&there.open().0).unwrap();
        assert!(!clue_blobs(&here).contains(&name), "{what}");
        here.memory.replace(&name, &bytes);
    }
}

#[test]
fn forged_clues_cost_only_ratio() {
    let (source, mut random) = source(40, 256 << 10);
    let here = Place::new(false);
    here.back_up(source.path());
    let name = clue_blobs(&here).swap_remove(0);
    let right = load(&here.open().0, &name);
    here.memory.delete(&name, Durable::OnReturn).unwrap();
    let hashes: Vec<u64> = right.iter().flat_map(|one| one.clues.iter().map(|(_, hash)| *hash)).collect();
    // Entries that are not there, those of other containers, and containers that are not there.
    let forged = right.iter().map(|one| {
        let entries = one.entries.max(1) * 100;
        let hash = |random: &mut Random| hashes[random.below(hashes.len() as u64) as usize];
        let clue = |_| (random.below(u64::from(entries)) as u32, hash(&mut random));
        let mut clues: Vec<_> = (0..200).map(clue).collect();
        clues.sort_unstable();
        ContainerClues { entries, clues, ..one.clone() }
    });
    let mut forged: Vec<_> = forged.collect();
    forged.push(ContainerClues { container: ContainerId([7; 32]), ..forged[0].clone() });
    clues::put(here.memory.as_ref(), forged).unwrap();
    edit(source.path(), 0..9, &mut random);
    let (there, forged) = (here.other(), clue_blobs(&here).swap_remove(0));
    let reads = Arc::new(AtomicUsize::new(0));
    let observed = ObservedStore::with(there.far.clone(), ReadsOf(forged, reads.clone()));
    let stored = run(&there.open_over(observed), source.path()).unwrap();
    assert!(reads.load(Ordering::SeqCst) > 0);
    there.assert_restores(&stored.snapshot, source.path());
    assert_eq!(run_check(&there.open().0).defects, [""; 0]);
}

/// Counts the reads of a blob.
struct ReadsOf(BlobName, Arc<AtomicUsize>);

impl StoreObserver for ReadsOf {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_read = matches!(call, StoreCall::Get | StoreCall::GetRange) && name == self.0.as_str();
        self.1.fetch_add(usize::from(is_read), Ordering::SeqCst);
        Ok(0)
    }
}

/// Backs up, restores and compares, and checks that there is no defect.
fn back_up_and_compare(place: &Place, source: &Path) -> CheckReport {
    let (stored, _) = place.back_up(source);
    place.assert_restores(&stored.snapshot, source);
    let report = run_check(&place.open().0);
    assert_eq!(report.defects, [""; 0]);
    report
}

/// All clues of a blob.
fn load(repository: &Repository, name: &BlobName) -> Vec<ContainerClues> {
    clues::load(repository.store.as_ref(), name).unwrap()
}

#[test]
fn a_prune_leaves_no_clues_of_what_it_deleted() {
    let (source, mut random) = source(10, 256 << 10);
    let here = Place::new(false);
    here.back_up(source.path());
    for number in 0..10 {
        write(source.path().join(number.to_string()), &random.bytes(256 << 10));
    }
    here.back_up(source.path());
    assert_eq!(clue_blobs(&here).len(), 2);
    let repository = here.open().0;
    let ids: Vec<_> = snapshot::list(repository.store.as_ref()).unwrap().0.iter().map(|named| named.id).collect();
    forget(&repository, &ids[..1]).unwrap();
    prune(&here.open().0, &no_grace(), &Default::default()).unwrap();
    assert_eq!(clue_blobs(&here).len(), 1);
    forget(&here.open().0, &ids[1..]).unwrap();
    prune(&here.open().0, &no_grace(), &Default::default()).unwrap();
    assert!(clue_blobs(&here).is_empty());
}

fn names(place: &Place, kind: BlobKind) -> Vec<BlobName> {
    place.memory.list(kind.into()).unwrap().into_iter().map(|blob| blob.name).collect()
}
