//! Damaged chunks that are stored twice, and marks that appear while a backup runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::error::{Error, Result};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::HEADER_BYTES;
use fhrd::repo::marks::{Mark, MarkKind};
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, Reading, Store, StoreExt,
};

use crate::double::{Double, double_store};
use crate::input::write;
use crate::trees::{Random, assert_same, describe};

fn back_up(store: &Arc<dyn Store>, source: &Path, level: i32) -> Result<BackupReport> {
    let repository = Repository::open(store.clone()).unwrap();
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
    let mut config = Config::default();
    config.compress.level = level;
    let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![source.into()], "test") });
    backup(&repository, &config, &request, &Progress::default(), &Arc::default())
}

fn copy(store: &MemoryStore) -> MemoryStore {
    let copy = MemoryStore::new();
    for blob in store.list(BlobPrefix::All).unwrap() {
        copy.replace(&blob.name, &store.get(&blob.name, 1 << 30).unwrap());
    }
    copy
}

fn source() -> tempfile::TempDir {
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(3));
    for number in 0..6 {
        write(source.path().join(format!("{}/{number}", number % 2)), &random.text(40_000));
    }
    source
}

#[test]
fn a_sound_entry_serves_although_a_damaged_one_is_found_first() {
    let source = source();
    let store = MemoryStore::new();
    let first = Arc::new(store);
    Repository::init(first.clone(), &RepositoryConfig::default()).unwrap();
    let second = Arc::new(copy(&first));
    // Two backups at once: each chunk is stored twice.
    let id = back_up(&(first.clone() as Arc<dyn Store>), source.path(), 3).unwrap().snapshot;
    back_up(&(second.clone() as Arc<dyn Store>), source.path(), 9).unwrap();
    let of_one: Vec<BlobName> =
        first.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name).collect();
    let of_two: Vec<BlobName> =
        second.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name).collect();
    let both = copy(&second);
    for blob in first.list(BlobPrefix::All).unwrap() {
        both.replace(&blob.name, &first.get(&blob.name, 1 << 30).unwrap());
    }
    let of_both = both.list(BlobKind::Container.into()).unwrap();
    assert!(of_both.len() > of_one.len(), "{of_both:?}");
    // All frames of one backup are damaged, then all of the other one.
    for damaged_first in [true, false] {
        let store = copy(&both);
        let spared = if damaged_first { &of_two } else { &of_one };
        for blob in of_both.iter().filter(|blob| !spared.contains(&blob.name)) {
            let mut bytes = store.get(&blob.name, 1 << 30).unwrap();
            bytes[HEADER_BYTES + 32] ^= 1;
            store.replace(&blob.name, &bytes);
        }
        let repository = Repository::open(Arc::new(store)).unwrap();
        let named = snapshot::find(repository.store.as_ref(), &id).unwrap();
        let target = tempfile::tempdir().unwrap();
        let target = target.path().join("restored");
        let config = Config::default();
        let report = restore(&repository, &config, &named, &target, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!((report.damaged, report.problems), (0, 0), "{damaged_first}");
        let restored = target.join(source.path().file_name().unwrap());
        assert_same(&describe(source.path()), &describe(&restored), "restored");
    }
}

/// A store in which a mark appears with the first container.
struct Marked(MemoryStore);

double_store!(Marked);

impl Double for Marked {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        if name.starts_with("containers/") && self.0.list(BlobKind::Mark.into())?.is_empty() {
            Mark::new(MarkKind::ReadOnly, "enough").save(&self.0)?;
        }
        self.0.put_if_absent(name, parts)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.0.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.0.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.0.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.0.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.0.delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        "marked".into()
    }
}

#[test]
fn a_mark_that_appears_during_a_backup_stops_its_commit() {
    let (source, store) = (source(), Arc::new(Marked(MemoryStore::new())));
    let store: Arc<dyn Store> = store;
    Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
    let outcome = back_up(&store, source.path(), 3);
    assert!(matches!(&outcome, Err(Error::ReadOnly { .. })), "{outcome:?}");
    assert!(snapshot::list(store.as_ref()).unwrap().0.is_empty());
}
