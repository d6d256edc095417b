//! The one door to a repository. The program and the Python package open and create here, so that the rules against a
//! store that exchanges a repository hold for both:
//!
//! 1. If this machine has used an encrypted repository at the location before, it must be the same one.
//! 2. A password or key file that is given belongs to an encrypted repository. One that is not encrypted is refused,
//!    wherever it is: somebody may have put it there, and would get the next backup in the clear.
//! 3. A new repository is encrypted if a password or key file is given.

use std::sync::Arc;

use super::blob_cache::BlobCache;
use super::remembered::RememberedRepository;
use super::repository::{AskUnlock, Repository};
use crate::config::RepositoryConfig;
use crate::crypto::Unlock;
use crate::error::{Error, Result};
use crate::store::{Store, StoreExt};

/// Who wants to open a repository, and what they have and allow.
pub struct Access<'a> {
    /// Says what opens an encrypted repository.
    pub ask: AskUnlock<'a>,
    /// Whether a password or key file is given, from wherever.
    pub has_secret: bool,
    /// Whether the user has said that the repository may be without encryption although a secret is given.
    pub allows_unencrypted: bool,
    /// How the user says that, as in "say `--option`".
    pub how_to_allow: &'static str,
}

impl Access<'_> {
    /// Opens the repository in a store, by the rules of the module, and remembers it.
    ///
    /// # Errors
    /// [`Error::Locked`] if a rule forbids it; errors of [`Repository::open_cached`].
    pub fn open(&self, store: Arc<dyn Store>, cache: BlobCache) -> Result<Repository> {
        let repository = Repository::open_cached(store, self.ask, cache)?;
        RememberedRepository::check(&repository)?;
        if repository.encryption.is_none() && self.has_secret && !self.allows_unencrypted {
            let reason = format!(
                "a password or key file is given, but the repository is not encrypted. If it shall not be, give none, \
                 or {}; otherwise somebody has exchanged its files",
                self.how_to_allow
            );
            return Err(Error::Locked { location: repository.store.location(), reason });
        }
        RememberedRepository::remember(&repository);
        Ok(repository)
    }
}

/// The first key slot of a new repository.
pub struct FirstSlot<'a> {
    /// What opens it.
    pub unlock: &'a Unlock,
    /// What it is called.
    pub label: &'a str,
    /// Whether the user has asked for encryption. Otherwise the new repository must not follow an encrypted one that
    /// this machine remembers there.
    pub is_explicit: bool,
}

/// Creates a repository in a store that holds nothing: with the key and chunker of `like`, if given. It is encrypted if
/// there is a `first` slot.
///
/// # Errors
/// [`Error::Locked`] if this machine remembers an encrypted repository there; errors of [`Repository::init`] and
/// [`Repository::init_encrypted`].
pub fn create(
    store: Arc<dyn Store>,
    config: &RepositoryConfig,
    like: Option<&Repository>,
    first: Option<&FirstSlot<'_>>,
) -> Result<Repository> {
    if first.is_none_or(|first| !first.is_explicit) {
        RememberedRepository::check_unused(store.as_ref())?;
    }
    let config = like.map_or(config, |like| &like.config);
    let repository = match (first, like) {
        (Some(first), _) => {
            let key = like.map(|like| &like.key);
            Repository::init_encrypted(store, config, key, first.unlock, first.label)?
        }
        (None, Some(like)) => Repository::init_like(store, like)?,
        (None, None) => Repository::init(store, config)?,
    };
    RememberedRepository::remember(&repository);
    Ok(repository)
}
