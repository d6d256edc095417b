//! A repository that has data and lists no snapshot, or lost all that this machine has seen: it is not damaged, and
//! must not look healthy either.

use super::Session;
use super::exit::Exit;
use super::notice::RunFact;
use super::output::{note, size};
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::snapshot::bytes_without_snapshots;
use crate::repo::vanished;
use crate::store::Store;

/// What to do about it.
const ADVICE: &str = "that is right only while the first backup runs, after it was killed, and after all snapshots were \
                      forgotten; if not, look for the directory `snapshots` (moved, emptied, a share that is away) \
                      before any prune, which would delete all data";

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

/// Says it for people.
pub fn describe(bytes: u64) -> String {
    format!("there is no snapshot, but {} of data: {ADVICE}", size(bytes))
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

/// Says it for people.
pub fn describe_gone(gone: usize) -> String {
    format!(
        "the {gone} snapshots that this machine has seen were all gone at once; if nobody has forgotten them, look for \
         the directory `snapshots` (moved, emptied, a share that is away) before any prune, which would delete their \
         data; if they were forgotten, `fhrd prune --allow-no-snapshots` says so"
    )
}

/// The outcome of a verb that is `exit` otherwise, if snapshots `are_missing`.
pub fn outcome(are_missing: bool, exit: Exit) -> Exit {
    match exit {
        Exit::Fine | Exit::Late if are_missing => Exit::NoSnapshots,
        exit => exit,
    }
}
