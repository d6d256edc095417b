//! Import: snapshots of another backup program, stored as this one would have stored them.
//!
//! 1. The other program restores one snapshot after another, oldest first, into an empty directory. So the room of the
//!    largest snapshot is needed, and nothing else.
//! 2. Each is backed up with its own time, host, paths and tags. The snapshot records where it comes from, so a later
//!    import goes on with those that are missing.
//! 3. Then it is compared: with the listing of the other program by names and metadata, and with the directory by
//!    fingerprints. One that differs, or that something of could not be read, does not stay. The last one of a run that
//!    was killed is compared by the next run.

mod compare;
mod importer;
mod restic;

pub use importer::{Importer, default_directory};
pub use restic::{ForeignSnapshot, Restic};
