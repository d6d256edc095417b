//! A repository that has data and lists no snapshot, or lost all that this machine has seen: it is not damaged, and
//! must not look healthy either.

use super::Session;
use super::exit::Exit;
use super::notice::RunFact;
use super::output::note;
use crate::error::Result;
pub use crate::overview::texts::{describe, describe_gone};
use crate::repo::Repository;
use crate::repo::snapshot::bytes_without_snapshots;
use crate::repo::vanished;
use crate::store::Store;

/// Bytes of data without any snapshot, as [`bytes_without_snapshots`] counts them. A warning names them, also with
/// `--quiet`, and the metrics have them.
///
/// # Errors
/// Errors of listing the store.
pub fn warn(session: &Session, store: &dyn Store) -> Result<u64> {
    let bytes = bytes_without_snapshots(store)?;
    if bytes > 0 {
        session.facts.add(RunFact::WithoutSnapshotsBytes, bytes);
    }
    say(bytes);
    Ok(bytes)
}

/// The warning, if there are such bytes.
pub fn say(bytes: u64) {
    if bytes > 0 {
        note(&format!("warning: {}", describe(bytes)));
    }
}

/// Whether snapshots that this machine has seen were [all gone at once](vanished). A warning names their number.
pub fn are_gone(repository: &Repository) -> bool {
    let gone = vanished::count_or_warn(repository);
    say_gone(gone);
    gone > 0
}

/// The warning, if there are any.
pub fn say_gone(gone: usize) {
    if gone > 0 {
        note(&format!("warning: {}", describe_gone(gone)));
    }
}

/// The outcome of a verb that is `exit` otherwise, if snapshots `are_missing`.
pub fn outcome(are_missing: bool, exit: Exit) -> Exit {
    match exit {
        Exit::Fine | Exit::Late if are_missing => Exit::NoSnapshots,
        exit => exit,
    }
}
