//! Upload: what clients send to a server becomes snapshots.
//!
//! 1. `objects` are large files, each a snapshot of its own, with the tag `upload`, until it expires. `xet`
//!    makes them of what newer clients send.
//! 2. `lines` of a commit become `operations`: what it adds to the files of a name, and takes away.
//! 3. `commit` stores all files of a name as one snapshot and publishes it. Then it deletes that snapshot, because the
//!    publication refers to the same content. Files that the repository has are referred to, not read.
//!
//! So a server that is killed at any moment leaves either no commit or a whole one, and every prune keeps what was
//! acknowledged. An object counts for the name alone for which it was uploaded: whoever knows a hash does not have its
//! bytes.

mod commit;
mod fault;
mod lines;
mod objects;
mod operations;
pub mod xet;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use commit::CommitTarget;
pub use fault::CommitFault;
pub use lines::{CommitLines, INLINE_MAX, LINE_BYTES_MAX};
pub use objects::{ObjectKey, owner, sha256_of};
pub use operations::{CommitContent, CommitFiles, CommitOperations, WantedObject};

use super::forget;
use crate::backup::{BackupRequest, MemoryFile, MemorySource, ParentChoice, SnapshotLabels, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::features::{self, Feature};
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing;
use crate::repo::upload::{StoredUpload, TAG};
use crate::types::SnapshotId;

/// Length of an object, bytes, at most. Clients get no longer ones by the ways that a server here has.
pub const OBJECT_BYTES_MAX: u64 = 50_000_000_000;
/// What errors say of a file that a body goes into: where it is, because that disk may be full.
pub const SPOOLED: &str = "a file of an upload in the cache directory";
/// Time after which an upload that no commit has taken expires, nanoseconds.
const UPLOAD_TIME_NS: i64 = 7 * 24 * 3600 * 1_000_000_000;

/// A repository that takes uploads. Only one thread may store at a time.
pub struct UploadStore {
    /// The repository.
    pub repository: Repository,
    /// Try again at once beside a prune.
    pub without_pauses: bool,
    config: Config,
    /// Host of the snapshots.
    host: String,
    stop: Arc<AtomicBool>,
}

impl UploadStore {
    /// Readies a repository for uploads, whose snapshots are of `host`. Runs end once `stop` is set.
    ///
    /// # Errors
    /// [`Error::Usage`] if older versions could take an upload for a backup; errors of the store.
    pub fn new(repository: Repository, config: Config, host: String, stop: Arc<AtomicBool>) -> Result<Self> {
        repository.check_writable()?;
        if !features::has(&repository, Feature::Derivations)? {
            return Err(Error::Usage("--writable: run `fhrd upgrade` first".into()));
        }
        Ok(UploadStore { repository, without_pauses: false, config, host, stop })
    }

    /// When what is uploaded now expires, nanoseconds since 1970.
    fn expiry_ns(&self) -> i64 {
        self.repository.clock.now_ns().saturating_add(UPLOAD_TIME_NS)
    }

    /// Stores files as a snapshot that expires.
    fn store(&self, files: Vec<MemoryFile>, upload: StoredUpload) -> Result<NamedSnapshot> {
        self.store_with(files, upload, self.without_pauses)
    }

    fn store_with(&self, files: Vec<MemoryFile>, upload: StoredUpload, without_pauses: bool) -> Result<NamedSnapshot> {
        let (tags, host) = (vec![TAG.into()], self.host.clone());
        let labels = SnapshotLabels { tags, host, upload: Some(upload), ..SnapshotLabels::default() };
        // The same files are the same commit, whenever they come.
        let source = MemorySource { files, labels, parents: ParentChoice::Nothing, file_time_ns: Some(0) };
        let request = BackupRequest { without_pauses, ..BackupRequest::new(source) };
        let progress = Progress::default();
        let report = backup(&self.repository, &self.config, &request, &progress, &self.stop)?;
        let id = SnapshotId::parse(&report.snapshot).ok_or_else(|| Error::internal("a backup has no snapshot"))?;
        Ok(NamedSnapshot { id, snapshot: Snapshot::load(self.repository.store.as_ref(), &id)? })
    }

    /// Deletes uploads whose time is over.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn expire(&self) -> Result<()> {
        let now_ns = self.repository.clock.now_ns();
        let snapshots = snapshot_listing::list(&self.repository)?.snapshots;
        let is_over =
            |named: &NamedSnapshot| StoredUpload::of(&named.snapshot).is_some_and(|own| own.expires_ns < now_ns);
        let expired: Vec<SnapshotId> = snapshots.iter().filter(|named| is_over(named)).map(|named| named.id).collect();
        if expired.is_empty() { Ok(()) } else { forget(&self.repository, &expired) }
    }
}
