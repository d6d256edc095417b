//! Estimates what a first backup would store, by real backups of a sample into nothing.
//!
//! 1. A source that is small enough is read whole, if half of the time suffices. There is nothing to estimate.
//! 2. Otherwise a sample is drawn in clusters: small files with their directory, large ones by their names, and
//!    directories and names that differ in digits only together. So versions and copies meet in the sample, and small
//!    files are compressed with their neighbours, as in a backup (`sample`). Parts of large files are files.
//! 3. The clusters are cut into groups that are like each other (`units`). Each is backed up into one temporary
//!    repository, and into a second one that knows exact chunks and zstd only, until the time is over or as much was
//!    read as a sample may have. A group that is not whole by then does not count: a file may have no end.
//! 4. The more is stored, the less a group adds. What the rest would take follows from how much less (`extrapolate`).
//!
//! Duplicates among files with different names, one of which is outside the sample, are not seen: a large source with
//! many of them takes less than estimated. So does one with models that are too large to be read whole: a part of a
//! model has no base.

mod extrapolate;
mod run;
mod sample;
#[cfg(test)]
mod tests;
mod units;

use serde::Serialize;

pub use run::{EstimateLimits, EstimateSource, estimate};
pub use sample::FileSample;

/// What a first backup would store.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BackupEstimate {
    /// Files of the source.
    pub files: u64,
    /// Their bytes, without holes.
    pub bytes: u64,
    /// Files that were read.
    pub files_read: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Whether everything was read. Then the sizes are those of a backup.
    pub whole: bool,
    /// Bytes that a backup would store.
    pub stored: EstimatedBytes,
    /// Bytes that exact chunks of about 1 MiB, compressed with zstd, would take.
    pub exact_chunks: EstimatedBytes,
    /// Of the bytes read, the share that repeats an earlier chunk.
    pub duplicate: f64,
    /// The share that is copied from similar chunks, or stored as a delta.
    pub near_duplicate: f64,
    /// The share in files that hold models, by their names.
    pub models: f64,
    /// The share in chunks that no codec makes smaller.
    pub incompressible: f64,
    /// Entries that could not be read, or changed while they were read. Each one was logged.
    pub problems: u64,
}

/// A size, and how far it may be off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct EstimatedBytes {
    /// The size, bytes.
    pub bytes: u64,
    /// With a probability of about 95 %, the true size differs by at most so many bytes. 0 if it is no estimate.
    pub error: u64,
}
