//! Default locations: the embedded repository in the user's data directory, and caches in the user's cache directory.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use rustix::fs::OFlags;

use super::Repository;
use crate::error::{Error, Result};
use crate::store::StoreExt;
use crate::types::hex;

fn directories() -> Result<impl BaseStrategy> {
    etcetera::choose_base_strategy()
        .map_err(|_| Error::Usage("no home directory: set HOME, or give a repository with --repo".into()))
}

/// A path below the home directory. With a relative `HOME`, it would be another place from each directory.
fn lasting(path: PathBuf) -> Result<PathBuf> {
    match path.is_absolute() {
        true => Ok(path),
        false => Err(Error::Usage(format!(
            "HOME must be an absolute path, but {} is below it: set HOME, or give a repository with --repo",
            path.display()
        ))),
    }
}

/// Path of the embedded default repository.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn default_repository() -> Result<PathBuf> {
    lasting(directories()?.data_dir().join("fhrd").join("repository"))
}

/// File in which this machine remembers an encrypted repository at `location`.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn remembered_repository_file(location: &[u8]) -> Result<PathBuf> {
    let directories = directories()?;
    let state = directories.state_dir().unwrap_or_else(|| directories.data_dir());
    let name = format!("{}.toml", blake3::hash(location).to_hex().get(..16).unwrap_or_default());
    lasting(state.join("fhrd").join("repositories").join(name))
}

/// The home directory of the user.
///
/// # Errors
/// [`Error::Usage`] if the user has none.
pub fn home_directory() -> Result<PathBuf> {
    Ok(directories()?.home_dir().to_path_buf())
}

/// File of the profile `name`: `fhrd/NAME.toml` in the user's configuration directory. A name with a slash is a path.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn profile_file(name: &Path) -> Result<PathBuf> {
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Ok(name.to_path_buf());
    }
    let mut file = directories()?.config_dir().join("fhrd").join(name).into_os_string();
    file.push(".toml");
    lasting(file.into())
}

/// What a profile is called: the name that the user gives, or that of its file without the ending.
pub fn profile_name(profile: &Path) -> &OsStr {
    match profile.as_os_str().as_encoded_bytes().contains(&b'/') {
        true => profile.file_stem().unwrap_or_default(),
        false => profile.as_os_str(),
    }
}

/// The cache directory of a user without a home directory: nothing can be created there, so nothing is cached.
const NOWHERE: &str = "/dev/null/no home directory (set HOME to an absolute path)";

/// The cache directory of a [`Repository`] that shall have no caches: nothing can be created there.
pub const NO_CACHE: &str = "/dev/null/without/any/cache";

/// Directory of the local caches of `repository`. Nothing can be created in it if the user has no home directory.
///
/// # Errors
/// None now.
pub fn cache_directory(repository: &Repository) -> Result<PathBuf> {
    if let Some(directory) = &repository.cache_directory {
        return Ok(directory.to_path_buf());
    }
    match repository.store.local_path() {
        Some(path) => local_cache_directory(&path, &repository.id),
        None => named_cache_directory(repository.store.location().as_bytes(), &repository.id),
    }
}

/// Directories that a backup into `repository` leaves out: the store, and its local caches, which are in `cache`. Those
/// of a rehearsal are in a directory of their own in the usual one, which is left out as well.
pub fn own_directories(repository: &Repository, cache: &Path) -> Vec<PathBuf> {
    let usual = repository.cache_directory.as_deref().and_then(|own| own.ancestors().nth(2));
    let caches = [Some(cache), usual].into_iter().flatten().map(Path::to_path_buf);
    repository.store.local_path().into_iter().chain(caches).collect()
}

/// How a file of the cache is opened to write: without waiting for who reads a pipe, and not what a link leads to.
pub const NO_WAITING: i32 = (OFlags::NONBLOCK.bits() | OFlags::NOFOLLOW.bits()) as i32;

/// Removes what is at `path`, unless it is a regular file: nobody but this program puts something there.
pub fn remove_irregular(path: &Path) {
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        // What cannot be removed cannot be opened either.
        let _ = std::fs::remove_file(path);
    }
}

/// Opens a file of the cache to read and write, creates it if need be, and locks it for as long as it is open. `None`
/// if another process has locked it.
///
/// # Errors
/// Errors of the system.
pub fn lock_cache_file(path: &Path) -> io::Result<Option<File>> {
    remove_irregular(path);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_WAITING);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Directory of the local caches of the repository `id` in a remote store.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn remote_cache_directory(location: &str, id: &str) -> Result<PathBuf> {
    named_cache_directory(location.as_bytes(), id)
}

/// Directory of the local caches of the repository `id` at `path`.
///
/// The caches of the embedded default repository are beside it. Those of others are in the user's cache directory.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn local_cache_directory(path: &Path, id: &str) -> Result<PathBuf> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let default = default_repository()
        .and_then(|path| std::fs::canonicalize(&path).map_err(|error| Error::io("find", path, error)));
    if default.is_ok_and(|default| default == real)
        && let Some(parent) = real.parent()
    {
        return Ok(parent.join("cache"));
    }
    named_cache_directory(real.as_os_str().as_encoded_bytes(), id)
}

/// Directory for the temporary repositories of estimates.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn estimate_directory() -> Result<PathBuf> {
    lasting(directories()?.cache_dir().join("fhrd").join("estimates"))
}

/// The name has the id and the location, because a copied repository has the same id but its own containers.
fn named_cache_directory(location: &[u8], id: &str) -> Result<PathBuf> {
    let [first, second, third, fourth, ..] = *blake3::hash(location).as_bytes();
    let location = hex(&[first, second, third, fourth]);
    let caches = directories().and_then(|directories| lasting(directories.cache_dir()));
    let caches = caches.unwrap_or_else(|_| NOWHERE.into());
    Ok(caches.join("fhrd").join(format!("{id}-{location}")))
}

/// Creates a directory and its parents, accessible by the owner only.
///
/// # Errors
/// [`Error::Io`].
pub fn create_private(directory: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| Error::io("create directory", directory, error))
}
