//! A store that answers wrongly once while a backup runs: what is stored then relies on what is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::{ContainerIndex, Operation};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::paths::cache_directory;
use fhrd::store::{BlobKind, BlobName, BlobPrefix, MemoryStore, Reading, Store, StoreExt};

use crate::double::{Double, double_store};
use crate::input::write;
use crate::weights::{model, tuned, weights};

/// One read of a part of a container gives a wrong byte.
struct LiesOnce {
    inner: Arc<MemoryStore>,
    reads: AtomicU64,
    lie: u64,
}

impl Double for LiesOnce {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> fhrd::Result<Vec<u8>> {
        let mut bytes = self.inner.get_range(name, offset, len, Reading::Once)?;
        if name.kind() == BlobKind::Container && self.reads.fetch_add(1, Ordering::SeqCst) == self.lie {
            let middle = bytes.len() / 2;
            bytes.get_mut(middle..).and_then(|rest| rest.first_mut()).into_iter().for_each(|byte| *byte ^= 1);
        }
        Ok(bytes)
    }
}

double_store!(LiesOnce);

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config
}

fn back_up(repository: &Repository, source: &Path) -> fhrd::Result<()> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &config(), &request, &Progress::default(), &Arc::new(AtomicBool::new(false))).map(drop)
}

fn indexes(store: &Arc<dyn Store>) -> Vec<ContainerIndex> {
    let listing = ContainerListing::take(store).unwrap();
    listing.containers.iter().map(|id| read_container_index(store.as_ref(), id).unwrap()).collect()
}

/// Deltas of a repository. Fails unless each base that an entry names is an entry of some container.
fn deltas(store: &Arc<dyn Store>, what: &str) -> usize {
    let (indexes, mut deltas) = (indexes(store), 0);
    for index in &indexes {
        for entry in &index.entries {
            deltas += usize::from(matches!(index.operations(entry).first(), Some(Operation::Delta { .. })));
            for base in index.bases_of(entry) {
                let is_there = indexes.iter().any(|index| index.find_encoding(&base).is_some());
                assert!(is_there, "{what}: {} is made of what no container has", entry.fingerprint);
            }
        }
    }
    deltas
}

/// The values of a model, one in 32 of which is tuned, beginning with number `from`.
fn step_of(values: &[f32], from: usize) -> Vec<f32> {
    let tuned = tuned(values, 2, 0.0004);
    let both = values.iter().zip(&tuned).enumerate();
    both.map(|(at, (value, tuned))| if at % 32 == from { *tuned } else { *value }).collect()
}

#[test]
fn bases_that_cannot_be_read_once_leave_no_delta_to_what_is_not_there() {
    let source = tempfile::tempdir().unwrap();
    let first = weights(1, 1 << 17);
    write(source.path().join("first/model.safetensors"), &model(&first, &first[..1 << 16]));
    let before = Arc::new(MemoryStore::new());
    let repository = Repository::init(before.clone(), &RepositoryConfig::default()).unwrap();
    back_up(&repository, source.path()).unwrap();
    let cache = cache_directory(&repository).unwrap();
    // A step of its training, and one of that.
    let second = step_of(&first, 0);
    let third = step_of(&second, 8);
    for (name, base, values) in [("second", "first", &second), ("third", "second", &third)] {
        write(source.path().join(name).join("model.safetensors"), &model(values, &first[..1 << 16]));
        write(source.path().join(name).join("README.md"), format!("---\nbase_model: {base}\n---\n").as_bytes());
    }
    let names = before.list(BlobPrefix::All).unwrap().into_iter().map(|blob| blob.name);
    let blobs: BTreeMap<BlobName, Vec<u8>> =
        names.map(|name| (name.clone(), before.get(&name, u64::MAX).unwrap())).collect();
    let troubled = |lie| {
        let _ = fs::remove_dir_all(&cache);
        let store = Arc::new(MemoryStore::new());
        for (name, bytes) in &blobs {
            store.put_if_absent(name, &[bytes]).unwrap();
        }
        let lying = Arc::new(LiesOnce { inner: store.clone(), reads: AtomicU64::new(0), lie });
        back_up(&Repository::open(lying.clone()).unwrap(), source.path()).unwrap();
        let found = deltas(&(store as Arc<dyn Store>), &format!("read {lie}"));
        (found, lying.reads.load(Ordering::SeqCst))
    };
    let (all, reads) = troubled(u64::MAX);
    assert!(all >= 2, "{all} deltas");
    let fewer = (0..reads).filter(|lie| troubled(*lie).0 < all).count();
    assert!(fewer > 0, "no base failed");
    let _ = fs::remove_dir_all(cache);
}
