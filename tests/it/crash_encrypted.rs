//! An encrypted repository whose store fails below the encryption, at every operation in turn.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::paths::cache_directory;
use fhrd::restore::restore;
use fhrd::store::{BlobPrefix, FaultyStore, InjectedFault, MemoryStore, Store};

use crate::trees::{Random, assert_same, describe};

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config
}

fn unlock() -> fhrd::Result<Unlock> {
    Ok(Unlock::KeyFile(SecretBytes::new(vec![9; 32])))
}

/// Opens the repository in `store`, without what an earlier run has left on this machine.
fn open(store: Arc<dyn Store>) -> fhrd::Result<Repository> {
    let repository = Repository::open_with(store, &unlock)?;
    let _ = fs::remove_dir_all(cache_directory(&repository)?);
    Ok(repository)
}

fn back_up(repository: &Repository, source: &Path) -> fhrd::Result<String> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    Ok(backup(repository, &config(), &request, &Progress::default(), &Arc::default())?.snapshot)
}

fn assert_restores(repository: &Repository, id: &str, source: &Path, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("out");
    let named = fhrd::repo::snapshot::find(repository.store.as_ref(), id).unwrap();
    let report = restore(repository, &config(), &named, &target, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), what);
}

fn copy_of(store: &MemoryStore) -> Arc<MemoryStore> {
    let copy = MemoryStore::new();
    for listed in store.list(BlobPrefix::All).unwrap() {
        copy.replace(&listed.name, &store.get(&listed.name, 1 << 30).unwrap());
    }
    Arc::new(copy)
}

#[test]
fn a_backup_cut_at_any_operation_below_the_encryption_loses_nothing() {
    let source = tempfile::tempdir().unwrap();
    let (first, second) = (source.path().join("1"), source.path().join("2"));
    let mut random = Random(5);
    for path in [&first, &second] {
        fs::create_dir(path).unwrap();
    }
    let text = random.text(200_000);
    fs::write(first.join("text"), &text).unwrap();
    fs::write(second.join("text"), [&text[..90_000], b"an insertion", &text[90_000..]].concat()).unwrap();
    fs::write(second.join("noise"), random.bytes(100_000)).unwrap();
    let start = Arc::new(MemoryStore::new());
    let unlocked = unlock().unwrap();
    let repository =
        Repository::init_encrypted(start.clone(), &RepositoryConfig::default(), None, &unlocked, "test").unwrap();
    let before = back_up(&repository, &first).unwrap();
    for number in 0.. {
        let (operation, took_effect) = (number / 2, number % 2 == 1);
        let store = copy_of(&start);
        let fault = InjectedFault::PowerCut { operation, took_effect };
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
        let cut = open(faulty.clone()).and_then(|repository| back_up(&repository, &second));
        let what = format!("cut at operation {operation}, done: {took_effect}");
        let repository = open(store).unwrap();
        if let Ok(reported) = &cut {
            assert_restores(&repository, reported, &second, &what);
        }
        assert_restores(&repository, &before, &first, &what);
        let after = back_up(&repository, &second).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_restores(&repository, &after, &second, &what);
        let report = check(&repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defects, Vec::<String>::new(), "{what}");
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        if faulty.operations() <= operation {
            cut.unwrap();
            assert!(operation > 15, "{operation}");
            break;
        }
    }
}
