//! The repository and the configuration of a command.

use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "serve")]
use std::sync::atomic::AtomicBool;

use jiff::tz::TimeZone;

use super::Session;
use super::args::Options;
use super::process;
use super::secrets;
use crate::config::{Config, UserProfile};
use crate::error::{Error, Result};
use crate::repo::open::{self, FirstSlot};
use crate::repo::paths::{create_private, default_repository, home_directory, profile_file};
use crate::repo::{AskUnlock, BlobCache, Repository};
use crate::store::{self, NO_DIRECTORY, RateLimits, StorageClass, Store, StoreExt};

/// Completes the options of the command, and tells remote stores what holds for all of them.
///
/// # Errors
/// Errors of the profile.
pub fn prepare(session: &mut Session) -> Result<()> {
    read_profile(session)?;
    let options = &mut session.options;
    secrets::warn_of_empty(options);
    if std::env::var_os("TZ").is_some_and(|zone| !zone.is_empty()) && TimeZone::try_system().is_err() {
        tracing::warn!("TZ names no time zone that is known here, so local times are those of UTC");
    }
    let [upload, download] = [options.limit_upload, options.limit_download].map(|limit| limit.map(|limit| limit.0));
    (options.limits, options.stop) = (RateLimits::new(upload, download), session.stop.clone());
    Ok(())
}

/// Reads the profile of `--profile`, and takes from it the options that neither the command line nor the environment
/// gives.
///
/// # Errors
/// Errors of [`UserProfile::load`]; [`Error::Usage`] for a class of storage, or a tag, that is none.
fn read_profile(session: &mut Session) -> Result<()> {
    let Some(name) = &session.options.profile else { return Ok(()) };
    session.profile = UserProfile::load(&profile_file(name)?, &home_directory()?, &session.stop)?;
    let (options, profile) = (&mut session.options, &session.profile);
    options.repo = options.repo.take().or_else(|| profile.repo.clone());
    options.config = options.config.take().or_else(|| profile.config.clone());
    options.memory = options.memory.or(profile.memory);
    options.endpoint = options.endpoint.take().or_else(|| profile.endpoint.clone());
    if options.storage_classes.is_empty() {
        let classes = profile.storage_class.iter().map(|text| text.parse());
        options.storage_classes = classes.collect::<Result<Vec<StorageClass>>>()?;
    }
    if options.data_tag.is_none() {
        options.data_tag = profile.data_tag.as_deref().map(str::parse).transpose()?;
    }
    options.limit_upload = options.limit_upload.or(profile.limit_upload);
    options.limit_download = options.limit_download.or(profile.limit_download);
    Ok(())
}

/// The configuration of `--config`, or the defaults, for the memory of `--memory`.
///
/// # Errors
/// Errors of [`Config::load`].
pub fn config(options: &Options) -> Result<Config> {
    let load = |path: &Path| Config::load_unless(path, options.memory, process::stop());
    let default = || Ok(options.memory.map_or_else(Config::default, Config::within));
    let mut config = options.config.as_deref().map_or_else(default, load)?;
    if let Some(threads) = options.threads.filter(|_| config.pipeline.workers == 0) {
        config.pipeline.workers = threads.into();
    }
    Ok(config)
}

/// Opens the repository of `--repo`, or the default one. Its reads fail once the user has asked to stop.
///
/// # Errors
/// [`Error::NoRepository`] with the command that creates it; errors of [`Repository::open_at`].
pub fn open(session: &Session) -> Result<Repository> {
    Ok(open_unstopped(&session.options, BlobCache::Lasting)?.stopped_by(&session.stop))
}

/// Like [`open()`], for a verb that must see what is stored, not what the cache holds.
///
/// # Errors
/// Errors of [`open()`].
pub fn open_fresh(session: &Session) -> Result<Repository> {
    Ok(open_unstopped(&session.options, BlobCache::Fresh)?.stopped_by(&session.stop))
}

/// Like [`open()`], for a verb that ends what it does once the user has asked to stop: its reads fail once `halt` is
/// set.
///
/// # Errors
/// Errors of [`open()`].
#[cfg(feature = "serve")]
pub fn open_until(session: &Session, halt: &Arc<AtomicBool>) -> Result<Repository> {
    let options = Options { stop: halt.clone(), ..session.options.clone() };
    Ok(open_unstopped(&options, BlobCache::Lasting)?.stopped_by(halt))
}

/// Opens the repository at `location`.
///
/// # Errors
/// Errors of [`open()`].
pub fn open_at(session: &Session, location: &Path) -> Result<Repository> {
    let ask: AskUnlock<'_> = &|| secrets::other(location);
    let (options, given) = (session.options.for_other(), secrets::is_other_given());
    Ok(open_given(&options, location, ask, given, BlobCache::Lasting)?.stopped_by(&session.stop))
}

/// Opens a local repository without asking for a password: for completions.
///
/// # Errors
/// Errors of [`open()`]. [`Error::Locked`] if somebody would have to be asked; [`Error::Usage`] for a remote
/// repository.
pub fn open_unasked(options: &Options) -> Result<Repository> {
    if is_remote(options) {
        return Err(Error::Usage("a remote repository is not opened".into()));
    }
    let (location, given) = (path(options)?, secrets::is_given(options));
    let ask: AskUnlock<'_> = &|| match given {
        true => secrets::existing(options, &location),
        false => Err(Error::Locked { location: location.display().to_string(), reason: "nobody is asked".into() }),
    };
    open_by_rules(options, &location, ask, given, BlobCache::Lasting)
}

/// Which cache a repository gets that may take so many bytes.
pub type ChooseCache = fn(u64) -> BlobCache;

fn open_given(
    options: &Options,
    location: &Path,
    ask: AskUnlock<'_>,
    given: bool,
    cache: ChooseCache,
) -> Result<Repository> {
    let hint = || format!("`fhrd init --repo {}` creates one", location.display());
    open_by_rules(options, location, ask, given, cache).map_err(|error| with_hint(error, &hint()))
}

fn open_unstopped(options: &Options, cache: ChooseCache) -> Result<Repository> {
    let given = secrets::is_given(options);
    match &options.repo {
        Some(location) => open_given(options, location, &|| secrets::existing(options, location), given, cache),
        None => {
            let location = default_repository()?;
            let ask: AskUnlock<'_> = &|| secrets::existing(options, &location);
            open_by_rules(options, &location, ask, given, cache)
                .map_err(|error| with_hint(error, "`fhrd backup` or `fhrd init` creates it; `--repo` selects another"))
        }
    }
}

/// Opens the repository at `location` by the rules of [`open::Access`], with the secret that `ask` gives. `given` says
/// whether there is one without asking the user.
fn open_by_rules(
    options: &Options,
    location: &Path,
    ask: AskUnlock<'_>,
    given: bool,
    cache: ChooseCache,
) -> Result<Repository> {
    let config = config(options)?;
    let (store, cache) = (store::open_with(location, &options.store_options())?, cache(config.cache.bytes_max.0));
    let access = open::Access {
        ask,
        has_secret: given,
        allows_unencrypted: options.allow_unencrypted,
        how_to_allow: "say `--allow-unencrypted`",
    };
    let repository = secrets::with_attempts(|| access.open(store.clone(), cache))?;
    repository.parity.set_memory(config.memory.0);
    Ok(repository)
}

/// Opens the repository for a backup, and creates the default one if it is missing and `may_create`. Also returns
/// whether it did.
///
/// # Errors
/// Like [`open()`] and [`create`].
pub fn open_for_backup(
    options: &Options,
    config: &Config,
    may_create: bool,
    cache: ChooseCache,
) -> Result<(Repository, bool)> {
    match open_unstopped(options, cache) {
        Err(Error::NoRepository { .. }) if options.repo.is_none() && may_create => {
            let unlock = encrypts(options).then(|| secrets::first(options)).transpose()?;
            let label = secrets::default_label();
            let first = unlock.as_ref().map(|unlock| FirstSlot { unlock, label: &label, is_explicit: false });
            create(options, config, None, first.as_ref()).map(|repository| (repository, true))
        }
        opened => opened.map(|repository| (repository, false)),
    }
}

/// Whether a new repository is encrypted if the user does not say: a remote one is, and one for which there is a
/// password or key file.
pub fn encrypts(options: &Options) -> bool {
    is_remote(options) || (secrets::is_given(options) && !options.allow_unencrypted)
}

/// Whether `--repo` is a URL of a remote store.
pub fn is_remote(options: &Options) -> bool {
    options.repo.as_deref().is_some_and(|location| store::is_remote(location.as_os_str()))
}

/// Creates the repository of `--repo`, or the default one, which only its owner can read. It is encrypted if there is a
/// `first` key slot. With `like`, it gets the key and the chunker of that one.
///
/// # Errors
/// Errors of [`store::create_with`] and [`open::create`].
pub fn create(
    options: &Options,
    config: &Config,
    like: Option<&Repository>,
    first: Option<&FirstSlot<'_>>,
) -> Result<Repository> {
    open::create(new_store(options)?, &config.repository, like, first)
}

/// Path or URL of the repository of `--repo`, or of the default one.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn path(options: &Options) -> Result<PathBuf> {
    options.repo.clone().map_or_else(default_repository, Ok)
}

/// The store of the repository, which is not opened.
///
/// # Errors
/// Errors of [`store::open_with`].
pub fn store(options: &Options) -> Result<Arc<dyn Store>> {
    store::open_with(path(options)?, &options.store_options())
}

/// The store of a repository that is to be created.
fn new_store(options: &Options) -> Result<Arc<dyn Store>> {
    let location = options.repo.clone().map_or_else(private_default, Ok)?;
    store::create_with(location, &options.store_options())
}

/// Path of the default repository. Creates its parent directory.
fn private_default() -> Result<PathBuf> {
    let path = default_repository()?;
    path.parent().map_or(Ok(()), create_private)?;
    Ok(path)
}

/// Location of a repository for messages: an absolute path, or the URL of a remote store.
pub fn of_repository(repository: &Repository) -> String {
    let store = &repository.store;
    store.local_path().map_or_else(|| store.location(), |path| shown(&path))
}

/// Absolute path for messages.
pub fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Appends a hint for this command to the error of a missing repository. Where a file is, none can be created.
fn with_hint(error: Error, hint: &str) -> Error {
    match error {
        Error::NoRepository { location, reason } if reason != NO_DIRECTORY => {
            Error::NoRepository { location, reason: format!("{reason}; {hint}") }
        }
        error => error,
    }
}
