//! What a backup is asked to do.

use super::source::BackupSource;

/// A backup that is to be made.
#[derive(Debug, Clone)]
pub struct BackupRequest {
    /// What to store.
    pub source: BackupSource,
    /// Read everything that a backup would read, count what is new, and store nothing.
    pub dry_run: bool,
    /// Do not wait before the backup starts again because a prune is in the way: for tests.
    pub without_pauses: bool,
    /// Count entries that cannot be read without naming them: another run over the same source does.
    pub without_names: bool,
}

impl BackupRequest {
    /// A backup of `source`.
    pub fn new(source: impl Into<BackupSource>) -> Self {
        BackupRequest { source: source.into(), dry_run: false, without_pauses: false, without_names: false }
    }
}
