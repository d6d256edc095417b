//! Restores files as the objects of a bucket.
//!
//! 1. The target is listed once (`known`). An object with the key and the length of a file is the same if it has the
//!    ETag that these bytes get if this writes them: the MD5 of the content, or of the MD5s of its parts. So what was
//!    written before is not written again, and no record of it is needed. The stored ETag counts, too, where it is
//!    as long as a hash, or where the target is the source and the object is as old.
//! 2. Other files are written, several at a time, the large ones in parts (`put`, `parts`). An object appears whole or
//!    not at all.
//! 3. Keys, types of content and what users have noted come back as they were stored. Directories that were objects are
//!    written as such. Links and special files are left out, and counted. Two files never become one object (`key`).

mod key;
mod known;
mod parts;
mod put;
mod report;
mod run;

pub use report::BucketRestoreReport;
pub use run::restore_into_bucket;
