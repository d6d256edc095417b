//! What this machine remembers of the encrypted repositories that it has used.
//!
//! A store could put a configuration and a key slot of its own in place of those of a repository, and so get the next
//! backup in the clear, or under its own key. So a machine remembers, for each location, which keys belong there.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Repository;
use super::paths::{create_private, known_repository_file};
use crate::error::{Error, Result};
use crate::types::hex;

/// The file of one location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRepository {
    /// The location, for people who look at the file.
    location: String,
    /// Id of the repository.
    id: String,
    /// Commitment to its keys, 64 hex digits.
    keys: String,
}

fn location(repository: &Repository) -> String {
    let local = repository.store.local_path();
    let real = local.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()));
    real.map_or_else(|| repository.store.location(), |path| path.display().to_string())
}

fn file(location: &str) -> Result<PathBuf> {
    known_repository_file(location.as_bytes())
}

impl KnownRepository {
    fn new(repository: &Repository) -> Result<Option<Self>> {
        let Some(encryption) = &repository.encryption else { return Ok(None) };
        let keys = hex(&encryption.keyring.commitment()?);
        Ok(Some(KnownRepository { location: location(repository), id: repository.id.clone(), keys }))
    }

    /// What is remembered of the repository's location. `None` also if the user has no home directory.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Corrupt`] if it does not parse.
    pub fn of(repository: &Repository) -> Result<Option<Self>> {
        let Ok(path) = file(&location(repository)) else { return Ok(None) };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path, error)),
        };
        let parsed = toml::from_str(&text);
        let expected = "what this machine remembers of an encrypted repository";
        parsed.map(Some).map_err(|error| Error::corrupt(path.display().to_string(), 0, expected, error.to_string()))
    }

    /// Fails unless the repository has the remembered keys.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is not encrypted, or has other keys.
    pub fn check(&self, repository: &Repository) -> Result<()> {
        let now = Self::new(repository)?;
        if now.as_ref().is_some_and(|now| now.keys == self.keys) {
            return Ok(());
        }
        let found = if now.is_some() { "it has other keys now" } else { "it is not encrypted now" };
        let file = file(&location(repository)).map_or_else(|_| String::new(), |path| path.display().to_string());
        let reason = format!(
            "repository {} was there when this machine used it last, but {found}. If you replaced it yourself, delete \
             {file}; otherwise somebody has exchanged its files",
            self.id
        );
        Err(Error::Locked { location: repository.store.location(), reason })
    }

    /// Remembers the repository, if it is encrypted. Failures are only warned of.
    pub fn remember(repository: &Repository) {
        let remember = || {
            let Some(known) = Self::new(repository)? else { return Ok(()) };
            let Ok(path) = file(&known.location) else { return Ok(()) };
            if path.exists() {
                return Ok(());
            }
            path.parent().map_or(Ok(()), create_private)?;
            let text = toml::to_string(&known).map_err(|error| Error::internal(error.to_string()))?;
            let temporary = path.with_extension(format!("{}.new", std::process::id()));
            let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
            written.map_err(|error| Error::io("write", &path, error))
        };
        if let Err(error) = remember() {
            tracing::warn!("this machine will not notice if the repository's keys are exchanged: {error}");
        }
    }
}
