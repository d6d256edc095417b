//! What a restore into a bucket has done.

use serde::Serialize;

use crate::error::Error;
use crate::restore::lost::is_damage;

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
    /// Files that could not be written, or that only a newer version can read. Each was logged.
    pub problems: u64,
}

impl BucketRestoreReport {
    /// Counts what could not be restored.
    pub(super) fn count(&mut self, error: &Error) {
        let count = if is_damage(error) { &mut self.damaged } else { &mut self.problems };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_new_is_no_damage() {
        let mut report = BucketRestoreReport::default();
        report.count(&Error::unsupported("x", "codec 9"));
        report.count(&Error::corrupt("x", 0, "y", "z"));
        report.count(&Error::Usage("no key".into()));
        assert_eq!((report.damaged, report.problems), (1, 2));
    }
}
