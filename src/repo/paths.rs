//! Where things are by default: the embedded repository in the user's data directory, caches in the user's cache directory.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use crate::error::{Error, Result};
use crate::types::hex;

fn directories() -> Result<impl BaseStrategy> {
    etcetera::choose_base_strategy()
        .map_err(|_| Error::Usage("no home folder: set HOME, or name a repository with --repo".into()))
}

/// The embedded default repository.
pub fn default_repository() -> Result<PathBuf> {
    Ok(directories()?.data_dir().join("fhrd").join("repository"))
}

/// Folder of the local caches of the repository `id` at `path`: beside the embedded default repository, else in the
/// user's cache directory, by id and place (a copied repository has the same id but its own containers).
pub fn cache_directory(path: &Path, id: &str) -> Result<PathBuf> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let default =
        default_repository().and_then(|path| std::fs::canonicalize(&path).map_err(|e| Error::io("find", path, e)));
    if default.is_ok_and(|default| default == real)
        && let Some(beside) = real.parent()
    {
        return Ok(beside.join("cache"));
    }
    let place = blake3::hash(real.as_os_str().as_encoded_bytes());
    let place = hex(place.as_bytes().get(..4).unwrap_or_default());
    Ok(directories()?.cache_dir().join("fhrd").join(format!("{id}-{place}")))
}

/// Creates a directory for its owner only, with its parents.
pub fn create_private(directory: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| Error::io("create folder", directory, error))
}
