//! Where commands write files: never into a repository, past its store.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::Session;
use super::args::{KeyVerb, Verb};
use super::location;
use crate::error::{Error, Result};
use crate::store;

/// The option of metrics.
const METRICS: &str = "--metrics-file";

/// Fails if `verb` names an output in a repository that the command works with. A restore looks itself, because its
/// target may not be around the repository either.
///
/// # Errors
/// [`Error::Usage`] that names the option.
pub(super) fn check(session: &Session, verb: &Verb) -> Result<()> {
    output(verb).map_or(Ok(()), |(option, path)| check_path(session, option, path, other_repository(verb)))
}

/// Fails if `path`, which `option` names, is in the repository of the session, or in the `other` one.
///
/// # Errors
/// [`Error::Usage`] that names the option.
pub fn check_path(session: &Session, option: &str, path: &Path, other: Option<&Path>) -> Result<()> {
    let own = location::path(&session.options).ok();
    let repositories = own.iter().map(PathBuf::as_path).chain(other);
    for repository in repositories.filter_map(|location| store::local_path(location.as_os_str())) {
        if is_inside(path, &repository) {
            let (path, shown) = (path.display(), location::shown(&repository));
            return Err(Error::Usage(format!(
                "{option} {path}: nothing is written there, it is in the repository {shown}"
            )));
        }
    }
    Ok(())
}

/// Whether `path`, or where it would be created, is `directory` or below it, also behind links, `..` and mounts.
pub fn is_inside(path: &Path, directory: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let Some(outer) = identity(directory) else { return false };
    real_path(path).ancestors().any(|above| identity(above) == Some(outer))
}

/// The path without links and `..`, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    let mut real = PathBuf::new();
    for component in std::path::absolute(path).unwrap_or_else(|_| path.into()).components() {
        match component {
            Component::ParentDir => _ = real.pop(),
            other => real.push(other),
        }
        real = real.canonicalize().unwrap_or(real);
    }
    real
}

/// The repository of `--from-repo`.
fn other_repository(verb: &Verb) -> Option<&Path> {
    match verb {
        Verb::Copy(arguments) => Some(&arguments.from_repo),
        _ => None,
    }
}

/// The option that names what the command writes, and the path.
fn output(verb: &Verb) -> Option<(&'static str, &Path)> {
    let (option, path) = match verb {
        Verb::Backup(arguments) => (METRICS, arguments.metrics.metrics_file.as_ref()),
        Verb::Check(arguments) => (METRICS, arguments.metrics.metrics_file.as_ref()),
        Verb::Verify(arguments) => (METRICS, arguments.metrics.metrics_file.as_ref()),
        Verb::Prune(arguments) => (METRICS, arguments.metrics.metrics_file.as_ref()),
        Verb::Copy(arguments) => (METRICS, arguments.metrics.metrics_file.as_ref()),
        Verb::Import(arguments) => ("--directory", arguments.directory.as_ref()),
        Verb::Report(arguments) => ("--out", arguments.out.as_ref().filter(|path| path.as_os_str() != "-")),
        Verb::Dump(arguments) => ("--output", arguments.output.as_ref()),
        Verb::Trace(arguments) => ("--output", arguments.output.as_ref()),
        Verb::Schedule(arguments) => ("--directory", arguments.directory.as_ref()),
        Verb::Restore(arguments) if arguments.tensor.is_some() && arguments.output.is_none() => {
            return Some(("the current directory", Path::new(".")));
        }
        Verb::Restore(arguments) => ("--output", arguments.output.as_ref()),
        Verb::Key(KeyVerb::Export { file }) => ("key export", Some(file)),
        Verb::Man(arguments) => ("man", Some(&arguments.directory)),
        _ => return None,
    };
    path.map(|path| (option, path.as_path()))
}
