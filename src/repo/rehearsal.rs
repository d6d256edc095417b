//! A rehearsal: a repository that reads from another one, and whose writes go into a directory that goes with it.
//!
//! A backup into it runs whole, so it says what a backup would store, to the byte. The local caches are copied, because
//! what a rehearsal adds to them names containers that nobody else has. Blocks of a remote store that are cached stay
//! where they are: below, they are the same. What an encrypted repository would seal is sealed here, too.

use std::path::Path;
use std::sync::Arc;

use super::Repository;
use super::paths::{cache_directory, create_private};
use super::scratch::ScratchDirectory;
use crate::error::{Error, Result};
use crate::store::{self, OverlayStore, SealedStore, Store};

/// See the module.
pub struct Rehearsal {
    /// The repository to write into.
    pub repository: Repository,
    _directory: ScratchDirectory,
}

impl Rehearsal {
    /// A rehearsal for `repository`. It needs as much space in the cache directory as is written.
    ///
    /// # Errors
    /// Errors of the cache directory.
    pub fn of(repository: &Repository) -> Result<Self> {
        let cache = cache_directory(repository)?;
        create_private(&cache)?;
        let failed = |error| Error::io("create a directory in", &cache, error);
        let directory = ScratchDirectory::create(&cache, "rehearsal-").map_err(failed)?;
        let own_cache = directory.path().join("cache");
        create_private(&own_cache)?;
        copy_files(&cache, &own_cache).map_err(failed)?;
        let own = store::create(directory.path().join("store"))?;
        let own: Arc<dyn Store> = match &repository.encryption {
            Some(it) => Arc::new(SealedStore::new(own, it.suite, it.keyring.clone())),
            None => own,
        };
        let store = Arc::new(OverlayStore::new(repository.store.clone(), own));
        let repository = Repository { store, cache_directory: Some(own_cache.into()), ..repository.clone() };
        Ok(Rehearsal { repository, _directory: directory })
    }
}

/// Copies the files of a directory, but none of directories in it.
fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
