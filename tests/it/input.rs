//! Generated input, the same on every run, and repositories to put it in.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::paths::cache_directory;
use fhrd::store::{MemoryStore, Store};

use crate::trees::Random;

/// Creates a repository whose key, and so the boundaries of chunks, are the same in every run.
pub fn init_with_key(store: Arc<dyn Store>, config: &RepositoryConfig) -> Repository {
    let mut like = Repository::init(Arc::new(MemoryStore::default()), config).unwrap();
    like.key.0 = [1; 32];
    Repository::init_like(store, &like).unwrap()
}

/// A later version: `count` short insertions, deletions and replacements.
pub fn edit(random: &mut Random, bytes: &[u8], count: usize) -> Vec<u8> {
    let mut edited = bytes.to_vec();
    for _ in 0..count {
        let at = random.below(edited.len() as u64 - 40) as usize;
        let (removed, inserted) = (random.below(3) as usize * 10, random.below(3) as usize * 10);
        edited.splice(at..at + removed, random.bytes(inserted));
    }
    edited
}

pub fn write(path: PathBuf, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A file of `len` bytes that are holes but for a few blocks.
pub fn write_sparse(path: PathBuf, len: u64, random: &mut Random) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for part in 0..4 {
        file.write_all_at(&random.text(8192), len / 4 * part).unwrap();
    }
}

/// Names of all files below a directory, sorted.
pub fn files(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_string());
            }
        }
    }
    names.sort();
    names
}

/// Copies all files below a directory.
pub fn copy_directory(from: &Path, to: &Path) {
    for name in files(from) {
        write(to.join(&name), &fs::read(from.join(&name)).unwrap());
    }
}

/// Gives the repository in a directory, which holds nothing yet, a key that never changes.
pub fn set_known_key(repository: &Path) {
    for name in ["config", "config-copy"] {
        let path = repository.join(name);
        fs::remove_file(&path).unwrap();
        fs::write(&path, include_bytes!("../fixtures/config-with-known-key")).unwrap();
    }
}

/// A repository in a directory of its own; what backups keep in the user's cache directory goes with it.
pub struct TestRepository {
    directory: tempfile::TempDir,
}

impl TestRepository {
    /// Small containers, so that there are several.
    pub fn config() -> Config {
        let mut config = Config::default();
        config.container.bytes_target = ByteSize::mib(1);
        config
    }

    pub fn new() -> Self {
        Self::with(&RepositoryConfig::default())
    }

    /// With other things fixed at its creation.
    pub fn with(config: &RepositoryConfig) -> Self {
        let repository = TestRepository { directory: tempfile::tempdir().unwrap() };
        Repository::init_at(repository.path(), config).unwrap();
        repository
    }

    /// With a key that never changes, for tests of sizes: with one key in ten, a short block shares no feature with its
    /// base and is stored alone.
    pub fn with_known_key() -> Self {
        let repository = Self::new();
        set_known_key(&repository.path());
        repository
    }

    /// The same blobs in another place.
    pub fn copy(&self) -> Self {
        let copy = TestRepository { directory: tempfile::tempdir().unwrap() };
        copy_directory(&self.path(), &copy.path());
        copy
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    pub fn open(&self) -> Repository {
        Repository::open_at(self.path()).unwrap()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    pub fn backup(&self, source: &Path, config: &Config) -> BackupReport {
        let request = BackupRequest::new(TreeSource {
            parents: ParentChoice::Nothing,
            ..TreeSource::new(vec![source.into()], "test")
        });
        backup(&self.open(), config, &request, &Progress::default(), &Arc::default()).unwrap()
    }

    /// Names of all blobs, sorted.
    pub fn names(&self) -> Vec<String> {
        files(&self.path())
    }
}

impl Drop for TestRepository {
    fn drop(&mut self) {
        if let Ok(repository) = Repository::open_at(self.path())
            && let Ok(cache) = cache_directory(&repository)
        {
            let _ = fs::remove_dir_all(cache);
        }
    }
}
