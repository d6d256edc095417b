//! Damage that a small repository in memory does not have: pages of long segments, lengths that are wrong, sectors that
//! a device cannot read.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fhrd::config::RepositoryConfig;
use fhrd::inspect::check::check;
use fhrd::inspect::status::status;
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repair::quarantine;
use fhrd::repo::Repository;
use fhrd::repo::heal::{HealReport, heal};
use fhrd::repo::marks::Marks;
use fhrd::repo::naming::SnapshotFilter;
use fhrd::repo::parity::{add, set};
use fhrd::repo::paths::cache_directory;
use fhrd::store::{BlobKind, BlobName, BlobPrefix, MemoryStore, Store, StoreExt};

use crate::flips::{back_up, config};
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::parity::{assert_protected, lost_files, run_check, share};
use crate::trees::Random;
use crate::unreadable::BadSectors;

/// A local repository with parity, and the source of its only snapshot.
struct Place {
    directory: tempfile::TempDir,
    snapshot: String,
}

impl Place {
    /// `files` of `len` bytes that do not compress.
    fn new(files: usize, len: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random(5);
        for number in 0..files {
            write(directory.path().join(format!("source/{number}")), &random.bytes(len));
        }
        let repository = Repository::init_at(directory.path().join("repository"), &config().repository).unwrap();
        set(&repository, share()).unwrap();
        let snapshot = back_up(&repository, &directory.path().join("source"));
        Place { directory, snapshot }
    }

    fn open(&self) -> Repository {
        let repository = Repository::open_at(self.directory.path().join("repository")).unwrap();
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        repository
    }

    fn longest(&self, kind: BlobKind) -> BlobName {
        let listed = self.open().store.list(BlobPrefix::from(kind)).unwrap();
        listed.into_iter().max_by_key(|blob| blob.len).unwrap().name
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.directory.path().join("repository").join(name.as_str())
    }

    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    /// Fails unless everything comes back while `name` holds the `damaged` bytes, and it is healed.
    fn assert_heals(&self, name: &BlobName, damaged: &[u8], what: &str) {
        let whole = fs::read(self.path(name)).unwrap();
        fs::write(self.path(name), damaged).unwrap();
        assert_eq!(lost_files(&self.open(), &self.snapshot, &self.source(), what), [""; 0], "{what}");
        let repository = self.open();
        let report = run_check(&repository);
        assert_eq!((report.defects.clone(), report.bad.is_empty()), (Vec::new(), true), "{what}: {report:#?}");
        let healed = heal(&repository, &report.healable).unwrap();
        assert_eq!(healed, HealReport { short_blobs: 1, ..HealReport::default() }, "{what}");
        assert!(fs::read(self.path(name)).unwrap() == whole, "{what}");
        let again = run_check(&self.open());
        assert_eq!((again.defect_count, again.short_blobs_healed), (0, 0), "{what}: {again:#?}");
    }
}

#[test]
fn a_long_segment_heals_wherever_it_is_damaged() {
    let place = Place::new(400, 100);
    let name = place.longest(BlobKind::Segment);
    let bytes = fs::read(place.path(&name)).unwrap();
    assert!(bytes.len() > 4 * 4096, "several pages: {}", bytes.len());
    for at in (30..bytes.len()).step_by(3001).chain([bytes.len() - 1]) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        place.assert_heals(&name, &flipped, &format!("byte {at}"));
    }
    for len in [0, 1, 100, bytes.len() / 2, bytes.len() - 1] {
        place.assert_heals(&name, &bytes[..len], &format!("cut to {len}"));
    }
    for more in [1, 5000] {
        place.assert_heals(&name, &[&bytes[..], &vec![0; more]].concat(), &format!("{more} bytes more"));
    }
}

#[test]
fn a_snapshot_that_grew_past_every_limit_heals_after_a_prune() {
    let place = Place::new(3, 1000);
    let name = place.longest(BlobKind::Snapshot);
    let whole = fs::read(place.path(&name)).unwrap();
    let mut long = whole.clone();
    long.resize(40 << 20, 0);
    fs::write(place.path(&name), &long).unwrap();
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    fs::write(place.path(&name), &whole).unwrap();
    place.assert_heals(&name, &long, "40 MiB");
    assert_protected(&place.open(), "40 MiB");
}

#[test]
fn as_many_unreadable_shards_as_parity_has_heal() {
    // 75 shards and three for recovery. The last one is not full.
    let place = Place::new(1, 300_000);
    let name = place.longest(BlobKind::Container);
    let inner = fhrd::store::LocalStore::open(&place.directory.path().join("repository")).unwrap();
    let sectors = Arc::new(BadSectors { inner: Arc::new(inner), hidden: Mutex::default(), bad: Mutex::default() });
    for (first, shards, is_healed) in [(10, 3, true), (0, 3, true), (10, 4, false)] {
        *sectors.bad.lock().unwrap() = BTreeMap::from([(name.to_string(), first * 4096..(first + shards) * 4096)]);
        let repository = Repository::open(sectors.clone() as Arc<dyn Store>).unwrap();
        let lost = || lost_files(&repository, &place.snapshot, &place.source(), "unreadable").is_empty();
        assert_eq!(lost(), is_healed, "{shards} shards from {first}");
    }
}

#[test]
fn the_mark_of_a_quarantine_is_protected() {
    let place = Place::new(1, 300_000);
    let path = place.path(&place.longest(BlobKind::Container));
    let mut bytes = fs::read(&path).unwrap();
    bytes[1000..100_000].fill(0);
    fs::write(&path, bytes).unwrap();
    let repository = place.open();
    let before = Marks::read(repository.store.as_ref()).unwrap();
    let report = check(&repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(quarantine::record(&repository, &before, &report).unwrap().marks_written, 1);
    assert_protected(&place.open(), "a quarantine");
}

#[test]
fn a_container_too_long_for_parity_is_said_to_be_unprotected() {
    let store = Arc::new(MemoryStore::new());
    let repository = Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
    set(&repository, share()).unwrap();
    let name = BlobName::hashed(BlobKind::Container, &[7; 32]);
    store.put_if_absent(&name, &[&vec![0; (256 << 20) + 1]]).unwrap();
    let added = add(&repository, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((added.containers_too_long, added.containers, added.damaged), (1, 0, 0), "{added:?}");
    let parity = status(&repository, &SnapshotFilter::default()).unwrap().parity;
    assert_eq!((parity.containers_without, parity.containers_too_long), (1, 1), "{parity:?}");
}
