//! `fhrd mount`: snapshots as a read-only file system, until Ctrl-C or `umount`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::Session;
use super::args::MountArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{note, print_json};
use super::outputs::is_inside;
use crate::error::{Error, Result};
use crate::mount::{MountOptions, SnapshotFiles, mount};
use crate::repo::{Repository, snapshot_listing};
use crate::store::StoreExt;

/// How old the listing of snapshots may be when somebody reads a directory of them.
const LISTING_AGE_MAX: Duration = Duration::from_secs(10);
/// How often the end of the mount is looked for.
const POLL: Duration = Duration::from_millis(100);

/// Mounts the snapshots and waits for the end.
///
/// # Errors
/// Errors of the repository and of mounting. [`Error::Usage`] if the mount would hide the repository.
pub fn run(session: &Session, arguments: &MountArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let directory = &arguments.directory;
    let real = directory.canonicalize().map_err(|error| Error::io("find", directory, error))?;
    check_directory(&repository, &real)?;
    let (snapshots, exit) = choice::snapshots(&repository, &arguments.filter)?;
    let count = snapshots.len();
    let (asked, filter) = (repository.clone(), choice::filter(&arguments.filter)?);
    let list = move || {
        let mut snapshots = snapshot_listing::list(&asked)?.snapshots;
        snapshots.retain(|named| filter.passes(&named.snapshot));
        Ok(snapshots)
    };
    let files = SnapshotFiles::new(&repository, snapshots)?.with_newer(Box::new(list), LISTING_AGE_MAX);
    let files = Arc::new(files);
    let mounted = mount(files, &real, MountOptions { allow_other: arguments.allow_other })?;
    if session.options.json {
        print_json(&json!({"mounted": real.to_string_lossy(), "snapshots": count}))?;
    } else if !session.options.quiet {
        note(&format!("{count} snapshots are mounted at {}; Ctrl-C or umount ends this", real.display()));
    }
    while !session.stop.load(Ordering::Relaxed) && !mounted.is_finished() {
        std::thread::sleep(POLL);
    }
    mounted.unmount(&real)?;
    Ok(exit)
}

/// Refuses a directory whose mount would hide the repository, or that is part of it.
fn check_directory(repository: &Repository, directory: &Path) -> Result<()> {
    let Some(store) = repository.store.local_path().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    if store.starts_with(directory) || is_inside(directory, &store) {
        let message = format!("cannot mount at {}: the repository is there", directory.display());
        return Err(Error::Usage(message));
    }
    Ok(())
}
