//! Required marks: one that is damaged stops nobody as long as its bytes can be known, and no copy outlives it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::config::RepositoryConfig;
use fhrd::error::{Error, ErrorKind};
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::features::{Feature, bits, upgrade};
use fhrd::repo::heal::heal;
use fhrd::repo::marks::{Mark, MarkKind, Marks, check_writable};
use fhrd::repo::sweep::sweep;
use fhrd::repo::{cold, parity};
use fhrd::store::{BlobKind, BlobName, BlobPrefix, Durable, MemoryStore, Store};

use crate::flips::back_up;
use crate::input::write;
use crate::parity::{open, run_check, share, unlock};
use crate::trees::Random;

type Blobs = BTreeMap<BlobName, Vec<u8>>;

fn blobs_of(store: &MemoryStore) -> Blobs {
    let listed = store.list(BlobPrefix::All).unwrap();
    listed.into_iter().map(|blob| (blob.name.clone(), store.get(&blob.name, 1 << 30).unwrap())).collect()
}

fn store_of(blobs: &Blobs) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(name, bytes));
    Arc::new(store)
}

fn parity_name(mark: &BlobName) -> BlobName {
    BlobName::parity_of(&mark.hash().unwrap())
}

/// Repositories with one required mark each.
fn scenes(is_encrypted: bool) -> Vec<(BlobName, Blobs)> {
    let put: [fn(&Repository); 3] = [
        |repository| assert!(!cold::set(repository, true).unwrap()),
        |repository| assert!(parity::set(repository, share()).unwrap().is_none()),
        |repository| {
            let kind = MarkKind::WriterFeatures(bits(&[Feature::ShortPages]));
            Mark::new(kind, "enabled").save(repository.store.as_ref()).unwrap();
        },
    ];
    let scene = |put: fn(&Repository)| {
        let store = Arc::new(MemoryStore::new());
        let created = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &RepositoryConfig::default(), None, &unlock(), "test"),
            false => Repository::init(store.clone(), &RepositoryConfig::default()),
        };
        let repository = created.unwrap();
        put(&repository);
        let source = tempfile::tempdir().unwrap();
        write(source.path().join("file"), &Random(5).bytes(5000));
        back_up(&repository, source.path());
        let mark = store.list(BlobKind::RequiredMark.into()).unwrap().remove(0).name;
        (mark, blobs_of(&store))
    };
    put.into_iter().map(scene).collect()
}

/// Fails unless everybody may write although `blobs` are damaged, and `repair index` makes them `whole`.
fn assert_heals(blobs: &Blobs, mark: &BlobName, whole: &Blobs, what: &str) {
    let store = store_of(blobs);
    let marks = Marks::read(open(&store).store.as_ref()).unwrap();
    let before = Marks::read(open(&store_of(whole)).store.as_ref()).unwrap();
    assert_eq!((marks.is_cold(), marks.parity()), (before.is_cold(), before.parity()), "{what}");
    check_writable(&open(&store)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(store.get(mark, 1 << 20).ok() == blobs.get(mark).cloned(), "{what}: a reader has written");
    let report = repair_index(&open(&store), &Arc::default()).unwrap();
    assert_eq!(report.marks_healed, u64::from(blobs[mark] != whole[mark]), "{what}");
    let after = blobs_of(&store);
    for name in [mark.clone(), parity_name(mark)] {
        assert!(after.get(&name) == whole.get(&name), "{what}: {name}");
    }
}

#[test]
fn a_damaged_mark_stops_nobody_and_is_written_again() {
    for is_encrypted in [false, true] {
        for (mark, whole) in scenes(is_encrypted) {
            let right = whole[&mark].clone();
            assert!(whole.contains_key(&parity_name(&mark)), "a required mark has parity without a share");
            for at in (0..right.len()).step_by(13) {
                let mut blobs = whole.clone();
                blobs.get_mut(&mark).unwrap()[at] ^= 1 << (at % 8);
                assert_heals(&blobs, &mark, &whole, &format!("{mark}, byte {at}, with parity"));
                // A mark of an earlier program.
                blobs.remove(&parity_name(&mark));
                assert_heals(&blobs, &mark, &whole, &format!("{mark}, byte {at}, without parity"));
                blobs.insert(mark.clone(), right[..at].to_vec());
                blobs.insert(parity_name(&mark), whole[&parity_name(&mark)].clone());
                assert_heals(&blobs, &mark, &whole, &format!("{mark}, cut at {at}"));
            }
        }
    }
}

#[test]
fn a_check_writes_a_mark_again_and_says_which_have_no_parity() {
    for (mark, whole) in scenes(false) {
        let mut blobs = whole.clone();
        blobs.get_mut(&mark).unwrap()[30] ^= 4;
        let store = store_of(&blobs);
        let repository = open(&store);
        let report = run_check(&repository);
        assert_eq!((report.defect_count, report.short_blobs_healed), (0, 1), "{report:#?}");
        assert_eq!(heal(&repository, &report.healable).unwrap().short_blobs, 1);
        assert!(blobs_of(&store)[&mark] == whole[&mark]);
        store.delete(&parity_name(&mark), Durable::OnReturn).unwrap();
        let says = |notes: &[String]| notes.iter().any(|note| note.contains("required marks have no parity"));
        assert!(says(&run_check(&open(&store)).notes));
        upgrade(&open(&store), false).unwrap();
        assert!(
            !says(&run_check(&open(&store)).notes)
                && blobs_of(&store)[&parity_name(&mark)] == whole[&parity_name(&mark)]
        );
    }
}

#[test]
fn a_mark_that_nothing_gives_back_stops_writers_and_the_error_names_the_way_out() {
    for (mark, mut blobs) in scenes(true) {
        blobs.insert(mark.clone(), vec![0; blobs[&mark].len()]);
        blobs.remove(&parity_name(&mark));
        let store = store_of(&blobs);
        let error = check_writable(&open(&store)).unwrap_err();
        assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("\"A damaged mark\""), "{error}");
        assert!(matches!(repair_index(&open(&store), &Arc::default()), Err(Error::Corrupt { .. })));
        assert!(blobs_of(&store) == blobs, "nothing is written");
        // As the document says.
        store.delete(&mark, Durable::OnReturn).unwrap();
        check_writable(&open(&store)).unwrap();
    }
}

#[test]
fn no_copy_of_a_mark_outlives_it() {
    for (mark, whole) in scenes(false) {
        let store = store_of(&whole);
        let repository = open(&store);
        repository.store.delete(&mark, Durable::OnReturn).unwrap();
        assert!(store.head(&parity_name(&mark)).unwrap().is_none(), "{mark}: the copy goes with it");

        // Whoever does not know parity leaves it, and nobody reads it.
        let store = store_of(&whole);
        let before = open(&store);
        assert!(Marks::read(before.store.as_ref()).unwrap().damaged.is_empty());
        store.delete(&mark, Durable::OnReturn).unwrap();
        for repository in [&before, &open(&store)] {
            let marks = Marks::read(repository.store.as_ref()).unwrap();
            assert!(!marks.is_cold() && marks.parity().is_none() && marks.names.is_empty());
            assert_eq!(repair_index(repository, &Arc::default()).unwrap().marks_healed, 0);
        }
        sweep(&open(&store), &AtomicBool::new(false)).unwrap();
        assert!(store.head(&parity_name(&mark)).unwrap().is_none(), "a prune sweeps it");
        assert!(store.head(&mark).unwrap().is_none());
    }
}
