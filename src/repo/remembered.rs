//! What this machine remembers of the encrypted repositories that it has used.
//!
//! A store could put a configuration and a key slot of its own in place of those of a repository, and so get the next
//! backup in the clear, or under its own key. It could also bring back an old key slot, whose keys somebody else still
//! has. So a machine remembers, for each location, which keys belong there.

use std::fs;
use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Repository;
use super::paths::{create_private, remembered_repository_file};
use crate::error::{Error, Result};
use crate::store::{LocalFile, Store, StoreExt};
use crate::types::hex;
use crate::wire::read_regular;

/// Bytes of a file, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file of one location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedRepository {
    /// The location, for people who look at the file.
    location: String,
    /// Id of the repository.
    id: String,
    /// Commitment to its keys, 64 hex digits.
    keys: String,
    /// Latest generation of its master key that has sealed on this machine.
    #[serde(default)]
    generation: u32,
    /// Id of the key slot that opened last.
    #[serde(default)]
    slot: String,
    /// Ids of the key slots that its secret did not open.
    #[serde(default)]
    closed: Vec<String>,
}

/// Where the store is: its URL, or the path that was given and the real one. Both count, because somebody may put a
/// symbolic link in place of a directory.
fn locations(store: &dyn Store) -> Vec<String> {
    let Some(path) = store.local_path() else { return vec![store.location()] };
    let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    let real = fs::canonicalize(&path).unwrap_or_else(|_| absolute.clone());
    let mut paths = vec![absolute, real];
    paths.dedup();
    paths.iter().map(|path: &PathBuf| path.display().to_string()).collect()
}

fn file(location: &str) -> Result<PathBuf> {
    remembered_repository_file(location.as_bytes())
}

fn read(path: &Path) -> Result<Option<RememberedRepository>> {
    let text = match read_regular(path, FILE_BYTES_MAX) {
        Ok(text) => text,
        // A directory that nobody can enter has nothing to remember.
        Err(error) if [NotFound, NotADirectory, PermissionDenied].contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(Error::io("read", path, error)),
    };
    toml::from_slice(&text).map(Some).map_err(|error| {
        let reason = format!("what this machine remembers of it cannot be read: delete the file. {}", error.message());
        Error::Locked { location: path.display().to_string(), reason }
    })
}

/// What is remembered of the locations of a store, with the files. Nothing if the user has no home directory.
fn of(store: &dyn Store) -> Result<Vec<(PathBuf, RememberedRepository)>> {
    let paths = locations(store).into_iter().filter_map(|location| file(&location).ok());
    paths.filter_map(|path| read(&path).transpose().map(|remembered| Ok((path, remembered?)))).collect()
}

fn write(path: &Path, remembered: &RememberedRepository) -> Result<()> {
    path.parent().map_or(Ok(()), create_private)?;
    let text = toml::to_string(remembered).map_err(|error| Error::internal(error.to_string()))?;
    // It must be durable: otherwise an older slot could pass for the latest after a power cut.
    LocalFile::replace(path, text.as_bytes()).map_err(|error| Error::io("write", path, error))
}

impl RememberedRepository {
    fn new(repository: &Repository, location: String) -> Result<Option<Self>> {
        let Some(encryption) = &repository.encryption else { return Ok(None) };
        let (id, keys) = (repository.id.clone(), hex(&encryption.keyring.commitment()?));
        let (generation, slot) = (encryption.keyring.latest()?.generation, encryption.slot.clone());
        let closed = encryption.closed.clone();
        Ok(Some(RememberedRepository { location, id, keys, generation, slot, closed }))
    }

    /// Ids of the key slots that opened the repository of a store last, with those that the same secret did not open.
    /// None if what is remembered cannot be read.
    pub(super) fn slots(store: &dyn Store) -> Vec<(String, Vec<String>)> {
        of(store).into_iter().flatten().map(|(_, remembered)| (remembered.slot, remembered.closed)).collect()
    }

    /// The latest generation of the master key that has sealed on this machine what is in a store, in the repository
    /// with this commitment to its keys; 0 if none.
    pub fn generation(store: &dyn Store, commitment: &[u8; 32]) -> u32 {
        let keys = hex(commitment);
        let remembered = of(store).into_iter().flatten().filter(|(_, remembered)| remembered.keys == keys);
        remembered.map(|(_, remembered)| remembered.generation).max().unwrap_or(0)
    }

    /// Remembers the repository as it is after a change of its keys, if this machine remembers it. Whoever has opened
    /// it without [`super::open::Access`] has not used that memory, and leaves it alone.
    pub(super) fn remember_again(repository: &Repository) {
        let Ok(Some(now)) = Self::new(repository, String::new()) else { return };
        let mut remembered = of(repository.store.as_ref()).into_iter().flatten();
        if remembered.any(|(_, remembered)| remembered.keys == now.keys) {
            Self::remember(repository);
        }
    }

    /// Fails unless the repository has the keys that are remembered of its location, if any are. What is remembered of
    /// the real path counts before that of a symbolic link, which may change from one remembered repository to another.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is not encrypted, or has other keys, or only older ones, or if what is remembered does
    /// not parse. [`Error::Io`] if it cannot be read.
    pub fn check(repository: &Repository) -> Result<()> {
        let now = Self::new(repository, String::new())?;
        // All keys count: one that is about to be introduced does not seal yet.
        let generation = repository.encryption.as_ref().map_or(0, |encryption| encryption.keyring.generation_max());
        let store = repository.store.as_ref();
        let real = locations(store).pop().and_then(|real| file(&real).ok());
        let mut remembered = of(store)?;
        if remembered.iter().any(|(path, _)| Some(path) == real.as_ref()) {
            remembered.retain(|(path, _)| Some(path) == real.as_ref());
        }
        for (path, remembered) in remembered {
            let found = match &now {
                Some(now) if now.keys == remembered.keys && generation >= remembered.generation => continue,
                Some(now) if now.keys == remembered.keys => "it has only older keys now",
                Some(_) => "it has other keys now",
                None => "it is not encrypted now",
            };
            return Err(remembered.changed(repository.store.as_ref(), found, &path));
        }
        Ok(())
    }

    /// Fails if an encrypted repository was at the location of a store: one that is not encrypted must not follow it.
    ///
    /// # Errors
    /// Errors of [`Self::check`].
    pub fn check_unused(store: &dyn Store) -> Result<()> {
        match of(store)?.into_iter().next() {
            Some((path, remembered)) => Err(remembered.changed(store, "it is gone", &path)),
            None => Ok(()),
        }
    }

    fn changed(&self, store: &dyn Store, found: &str, file: &Path) -> Error {
        let reason = format!(
            "the encrypted repository {} was there when this machine used it last, but {found}. If you replaced it \
             yourself, delete {}; otherwise somebody has exchanged its files",
            self.id,
            file.display()
        );
        Error::Locked { location: store.location(), reason }
    }

    /// Remembers the repository, if it is encrypted. Failures are only warned of.
    pub fn remember(repository: &Repository) {
        let remember = |location: String| {
            let Some(remembered) = Self::new(repository, location)? else { return Ok(()) };
            let path = file(&remembered.location)?;
            let before = read(&path).ok().flatten();
            if before.as_ref() == Some(&remembered) {
                return Ok(());
            }
            match write(&path, &remembered) {
                // It will still be noticed if the keys are exchanged.
                Err(error) if before.is_some_and(|before| before.keys == remembered.keys) => {
                    tracing::debug!("{error}");
                    Ok(())
                }
                written => written,
            }
        };
        let remembered: Result<()> = locations(repository.store.as_ref()).into_iter().try_for_each(remember);
        if let Err(error) = remembered {
            tracing::warn!("this machine will not notice if the repository's keys are exchanged: {error}");
        }
    }
}
