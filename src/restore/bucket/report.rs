//! What a restore into a bucket has done.

use serde::Serialize;

/// What a restore into a bucket has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BucketRestoreReport {
    /// Snapshot id, 64 hex digits.
    pub snapshot: String,
    /// URL of the target.
    pub target: String,
    /// Whether nothing was written, as requested.
    pub dry_run: bool,
    /// Files that are complete in the target.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files among them that were there already.
    pub unchanged: u64,
    /// Bytes of the objects that were written.
    pub bytes_written: u64,
    /// Other objects that were there already and were left alone.
    pub left_alone: u64,
    /// Links and special files, which no bucket can have.
    pub left_out: u64,
    /// Files with bytes that cannot be read, and listings. Each was logged.
    pub damaged: u64,
    /// Files that could not be written. Each was logged.
    pub problems: u64,
}
