//! A key that is older than the repository: somebody else has made a new master key, and one blob in turn is encrypted
//! with it. No verb that meets the blob takes it for damaged or absent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fhrd::Result;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{KeySlot, Keyring};
use fhrd::error::ErrorKind;
use fhrd::inspect::check::{ReadData, check};
use fhrd::keep::{Copier, RewriteRequest, prune, rewrite};
use fhrd::metrics::Progress;
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::repo::{Repository, keys};
use fhrd::restore::restore;
use fhrd::store::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, MemoryStore, NewName, OtherCopy,
    PutBlob, PutOptions, ReadTwice, Reading, SealedStore, Sealing, Store, StoreProperties, Thawing,
};

use super::scene::{Blobs, P, Q, blobs_of, open, store_with};
use crate::interleavings::scene::no_grace;
use crate::trees::{Random, assert_same, describe};

/// Seals put number `newer` with the new key, and all others with the old one.
struct OneNewer {
    old: SealedStore,
    new: SealedStore,
    newer: u64,
    puts: AtomicU64,
}

impl OneNewer {
    fn to_put(&self) -> &SealedStore {
        if self.puts.fetch_add(1, Ordering::SeqCst) == self.newer { &self.new } else { &self.old }
    }
}

impl Store for OneNewer {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        self.to_put().put(name, parts, options)
    }
    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        self.to_put().put_stream(name, len, content)
    }
    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.to_put().overwrite(name, parts, options)
    }
    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.new.get(name, bytes_max)
    }
    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        self.new.get_range(name, offset, len, reading)
    }
    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.new.head(name)
    }
    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        self.new.len_of(name)
    }
    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.new.list(prefix)
    }
    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.new.delete(name, durable)
    }
    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.new.sync_deletions(names)
    }
    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        self.new.other_copy(name)
    }
    fn properties(&self) -> StoreProperties {
        StoreProperties { location: "keys".into(), ..self.new.properties() }
    }
    fn cold_state(&self) -> Option<&ColdState> {
        self.new.cold_state()
    }
    fn thawing(&self) -> Option<&dyn Thawing> {
        self.new.thawing()
    }
    fn locks(&self) -> Option<&dyn Locks> {
        self.new.locks()
    }
    fn sealing(&self) -> Option<&dyn Sealing> {
        self.new.sealing()
    }
    fn is_unused(&self) -> Result<bool> {
        self.new.is_unused()
    }
    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.new.puts_exclusively(name)
    }
    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.new.make_directories(dry_run)
    }
    fn clean_temporaries(&self) -> Result<usize> {
        self.new.clean_temporaries()
    }
}

pub fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 0;
    config
}

pub fn clear_cache(repository: &Repository) {
    let _ = fs::remove_dir_all(cache_directory(repository).unwrap());
}

pub fn back_up(repository: &Repository, source: &Path) -> Result<()> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &config(), &request, &Progress::default(), &Arc::default()).map(drop)
}

/// A repository of two backups, whose put number `newer` was under the new key: its blobs, the repository as whoever
/// has all keys opens it, and whether there was such a put.
fn divided(source: &Path, newer: u64) -> (Blobs, Repository, bool) {
    let inner = Arc::new(MemoryStore::new());
    let config = RepositoryConfig::default();
    let unlock = super::scene::secret(P);
    let first = Repository::init_encrypted(inner.clone(), &config, None, &unlock, "p").unwrap();
    clear_cache(&first);
    let encryption = first.encryption.clone().unwrap();
    let mut keyring = Keyring::clone(&encryption.keyring);
    keyring.rotate().unwrap();
    // Somebody else has it.
    keys::put(inner.as_ref(), &KeySlot::new(&keyring, &super::scene::secret(Q), "q", encryption.suite).unwrap())
        .unwrap();
    let seal = |keyring: Arc<Keyring>| SealedStore::new(inner.clone(), encryption.suite, keyring);
    let (old, new) = (seal(encryption.keyring.clone()), seal(Arc::new(keyring)));
    let both = Arc::new(OneNewer { old, new, newer, puts: AtomicU64::default() });
    let repository = Repository { store: both.clone(), ..first };
    let mut random = Random(5);
    for version in 0..2 {
        fs::write(source.join(format!("noise-{version}")), random.bytes(200_000)).unwrap();
        fs::write(source.join(format!("text-{version}")), random.text(100_000)).unwrap();
        back_up(&repository, source).unwrap();
    }
    clear_cache(&repository);
    (blobs_of(&inner), repository, both.puts.load(Ordering::SeqCst) > newer)
}

/// A name, and what is done.
pub type Act = (&'static str, fn(&Repository, &Path) -> Result<()>);

/// What whoever has the old key may try.
pub const ACTS: [Act; 10] = [
    ("check", |repository, _| {
        let report = check(repository, &config(), ReadData::Everything, &Progress::default(), &Arc::default())?;
        assert_eq!(report.defect_count, 0, "{:?}", report.defects);
        Ok(())
    }),
    ("backup", |repository, source| back_up(repository, source)),
    ("prune", |repository, _| prune(repository, &no_grace(), &Arc::default()).map(drop)),
    ("forget and prune", |repository, _| {
        let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
        assert!(damaged.is_empty(), "{damaged:?}");
        snapshot::delete(repository.store.as_ref(), &snapshots[0].id)?;
        prune(repository, &no_grace(), &Arc::default()).map(drop)
    }),
    ("repair index", |repository, _| {
        let report = repair_index(repository, &Arc::default())?;
        assert!(report.missing.is_empty() && report.unreadable.is_empty(), "{report:?}");
        Ok(())
    }),
    ("repair containers", |repository, _| repair_containers(repository, &config(), &Arc::default()).map(drop)),
    ("repair snapshots", |repository, _| {
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let report = repair_snapshots(repository, &config(), request, &Arc::default())?;
        assert!(report.damaged.is_empty() && report.forgotten.is_empty(), "{report:?}");
        Ok(())
    }),
    ("copy", |repository, _| {
        let target = Repository::init_like(Arc::new(MemoryStore::new()), repository).unwrap();
        clear_cache(&target);
        let config = config();
        let mut copier = Copier::new(repository, &target, &config)?;
        let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
        assert!(damaged.is_empty(), "{damaged:?}");
        for named in &snapshots {
            copier.copy(named, false, &Progress::default(), &Arc::default())?;
        }
        Ok(())
    }),
    ("rewrite", |repository, _| {
        let (snapshots, _) = snapshot::list(repository.store.as_ref())?;
        let exclude = fhrd::filesystem::Patterns::default();
        let request =
            RewriteRequest { exclude, excludes: Vec::new(), forget: false, dry_run: false, allow_problems: false };
        for named in &snapshots {
            rewrite(repository, &config(), named, &request, &Progress::default(), &Arc::default())?;
        }
        Ok(())
    }),
    ("restore", |repository, _| {
        let named = snapshot::find(repository.store.as_ref(), "latest")?;
        let target = tempfile::tempdir().unwrap();
        let (progress, stop) = (Progress::default(), Arc::default());
        let report = restore(repository, &config(), &named, target.path(), &progress, &stop)?;
        assert_eq!((report.problems, report.damaged), (0, 0));
        Ok(())
    }),
];

#[test]
fn what_a_newer_key_has_encrypted_is_never_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut met: BTreeSet<&str> = BTreeSet::new();
    for newer in 0.. {
        let source = tempfile::tempdir_in(directory.path()).unwrap();
        let (blobs, all_keys, is_divided) = divided(source.path(), newer);
        if !is_divided {
            assert!(newer > 8, "{newer} puts");
            break;
        }
        let is_newer = |bytes: &[u8]| bytes.starts_with(b"FHRDSEAL") && bytes[12] == 2;
        let Some((name, bytes)) = blobs.iter().find(|(_, bytes)| is_newer(bytes)) else {
            // An intent, which is gone.
            continue;
        };
        for (act, run) in ACTS {
            let what = format!("{act}, {name} is under the new key");
            let store = store_with(&blobs);
            let repository = open(store.clone(), P).unwrap();
            clear_cache(&repository);
            let result = run(&repository, source.path());
            match &result {
                Ok(()) => assert!(!["check", "copy"].contains(&act) || !name.starts_with("containers/"), "{what}"),
                Err(error) => {
                    met.insert(act);
                    assert_eq!(error.kind(), ErrorKind::Locked, "{what}: {error}");
                    assert!(error.to_string().contains("the key is older than the repository"), "{what}: {error}");
                }
            }
            let after = blobs_of(&store);
            assert_eq!(after.get(name), Some(bytes), "{what}: {result:?}");
            assert!(!after.keys().any(|name| name.starts_with("marks/")), "{what}: a mark");
            let lost: Vec<&String> = blobs.keys().filter(|name| !after.contains_key(*name)).collect();
            assert!(result.is_ok() || lost.iter().all(|name| !name.starts_with("containers/")), "{what}: {lost:?}");
            clear_cache(&repository);
        }
        let named = snapshot::find(all_keys.store.as_ref(), "latest").unwrap();
        let target = tempfile::tempdir().unwrap();
        let (progress, stop) = (Progress::default(), Arc::default());
        let report = restore(&all_keys, &config(), &named, target.path(), &progress, &stop).unwrap();
        assert_eq!((report.problems, report.damaged), (0, 0), "{name}");
        let restored = target.path().join(source.path().strip_prefix("/").unwrap());
        assert_same(&describe(source.path()), &describe(&restored), name);
    }
    assert_eq!(met, ACTS.iter().map(|(act, _)| *act).collect(), "{met:?}");
}
