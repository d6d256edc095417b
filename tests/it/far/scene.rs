//! A store that is far away, and machines that use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytesize::ByteSize;
use fhrd::Result;
use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::metrics::Progress;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{Repository, snapshot};
use fhrd::restore::{RestoreReport, restore};
use fhrd::store::{
    BlobMetadata, BlobName, BlobPrefix, CachedStore, CountingStore, Durable, ListedBlob, MemoryStore, Reading, Store,
    StoreCounts, StoreExt,
};

use crate::double::{Double, double_store};
use crate::input::write;
use crate::trees::{Random, assert_same, describe};

/// A store whose requests take time and may overlap.
pub struct FarStore {
    pub inner: Arc<MemoryStore>,
    pub location: String,
    pub latency: Duration,
    /// Puts in flight now, and at most so far.
    pub puts: AtomicUsize,
    pub puts_most: AtomicUsize,
    /// Puts of containers that wait longer, so that they end in another order than they began.
    pub uneven: bool,
}

impl FarStore {
    fn wait(&self) {
        thread::sleep(self.latency);
    }
}

double_store!(FarStore);

impl Double for FarStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        let now = self.puts.fetch_add(1, Ordering::SeqCst) + 1;
        self.puts_most.fetch_max(now, Ordering::SeqCst);
        self.wait();
        if self.uneven && name.starts_with("containers/") {
            thread::sleep(Duration::from_millis(u64::from(name.as_bytes()[11] % 8) * 5));
        }
        let done = self.inner.put_if_absent(name, parts);
        self.puts.fetch_sub(1, Ordering::SeqCst);
        done
    }
    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.wait();
        self.inner.get(name, bytes_max)
    }
    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.wait();
        self.inner.get_range(name, offset, len, Reading::Once)
    }
    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.wait();
        self.inner.head(name)
    }
    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.wait();
        self.inner.list(prefix)
    }
    fn delete(&self, name: &BlobName) -> Result<()> {
        self.wait();
        self.inner.delete(name, Durable::OnReturn)
    }
    fn location(&self) -> String {
        self.location.clone()
    }
    fn requests_max(&self) -> usize {
        8
    }
}

pub type Counted = Arc<CountingStore<Arc<FarStore>>>;

/// A bucket, and the cache of one machine.
pub struct Place {
    pub memory: Arc<MemoryStore>,
    pub directory: tempfile::TempDir,
    pub far: Arc<FarStore>,
    pub encrypted: bool,
    pub uneven: bool,
}

/// Milliseconds of each request, for measurements.
pub fn latency() -> u64 {
    std::env::var("FHRD_LATENCY_MS").map_or(0, |text| text.parse().unwrap())
}

pub fn unlock() -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![7; 40]))
}

impl Place {
    pub fn new(encrypted: bool) -> Self {
        Self::with(encrypted, Arc::default(), false)
    }

    pub fn with(encrypted: bool, memory: Arc<MemoryStore>, uneven: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let far = Arc::new(FarStore {
            inner: memory.clone(),
            location: format!("far://{}", directory.path().display()),
            latency: Duration::from_millis(latency()),
            puts: AtomicUsize::new(0),
            puts_most: AtomicUsize::new(0),
            uneven,
        });
        if memory.list(BlobPrefix::All).unwrap().is_empty() {
            let config = RepositoryConfig::default();
            match encrypted {
                false => Repository::init(memory.clone(), &config).unwrap(),
                true => Repository::init_encrypted(memory.clone(), &config, None, &unlock(), "one").unwrap(),
            };
        }
        Place { memory, directory, far, encrypted, uneven }
    }

    /// Another machine, with a cache of its own.
    pub fn other(&self) -> Self {
        Self::with(self.encrypted, self.memory.clone(), self.uneven)
    }

    pub fn blobs(&self) -> PathBuf {
        self.directory.path().join("blobs")
    }

    /// The repository as a new process opens it, and what it asks of the bucket.
    pub fn open(&self) -> (Repository, Counted) {
        let counted = Arc::new(CountingStore::new(self.far.clone()));
        (self.open_over(counted.clone()), counted)
    }

    pub fn open_over(&self, store: impl Store + 'static) -> Repository {
        let recent = self.blobs().with_file_name("recent");
        let cached = Arc::new(CachedStore::new(store, self.blobs(), 1 << 30).keeping_containers(recent, 1 << 28));
        Repository::open_with(cached, &|| Ok(unlock())).unwrap()
    }

    pub fn back_up(&self, source: &Path) -> (BackupReport, StoreCounts) {
        let (repository, counted) = self.open();
        let report = run(&repository, source).unwrap();
        (report, counted.counts())
    }

    pub fn restore(&self, id: &str) -> (tempfile::TempDir, RestoreReport, StoreCounts) {
        let (repository, counted) = self.open();
        let named = snapshot::find(repository.store.as_ref(), id).unwrap();
        let target = tempfile::tempdir().unwrap();
        let (into, stop) = (target.path().join("restored"), Arc::default());
        let report = restore(&repository, &config(), &named, into.as_path(), &Progress::default(), &stop).unwrap();
        (target, report, counted.counts())
    }

    /// Restores a snapshot and compares it with `source`.
    pub fn assert_restores(&self, id: &str, source: &Path) -> StoreCounts {
        let (target, report, counts) = self.restore(id);
        assert_eq!((report.problems, report.damaged), (0, 0));
        let restored = target.path().join("restored").join(source.file_name().unwrap());
        assert_same(&describe(source), &describe(&restored), "restored");
        counts
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(directory) = cache_directory(&self.open().0) {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

pub fn config() -> Config {
    let mut config = Config::default();
    config.container.bytes_target = ByteSize::kib(256);
    config.read.recheck_seconds = 0;
    config
}

pub fn run(repository: &Repository, source: &Path) -> Result<BackupReport> {
    let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![source.into()], "test") });
    backup(repository, &config(), &request, &Progress::default(), &Arc::default())
}

/// A tree of `kilobytes` kB of noise, in files of different lengths.
pub fn tree(kilobytes: u64, seed: u64) -> tempfile::TempDir {
    let (directory, mut random) = (tempfile::tempdir().unwrap(), Random(seed));
    let mut rest = kilobytes * 1000;
    for number in 0.. {
        if rest == 0 {
            break;
        }
        let len = rest.min(1 + random.below(if number % 7 == 0 { 900_000 } else { 20_000 }));
        write(directory.path().join(format!("{}/{number}", number % 5)), &random.bytes(len as usize));
        rest -= len;
    }
    // Times must differ from that of the backup, or the files are read again.
    thread::sleep(Duration::from_millis(1100));
    directory
}
