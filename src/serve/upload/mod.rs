//! Uploads: what clients of the Hub send, stored by the ordinary pipeline.
//!
//! 1. `announce` says what a client shall send how. `objects` takes large files by git-lfs' basic transfer, each at a
//!    signed URL. `operations` reads a commit, line by line, and `commit` stores it.
//! 2. A body goes into a file without a name, so memory is bounded, and what is cut short or false stores nothing.
//! 3. What is acknowledged is a snapshot: an object is one of its own until it expires, a commit is a publication. One
//!    is stored at a time. Files that the repository has are referred to, not read.
//! 4. An object counts for the name alone for which it was uploaded: whoever knows a hash does not have its bytes.

mod announce;
mod body;
mod commit;
mod objects;
mod operations;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;

use super::turns::Turns;
use crate::backup::{BackupRequest, MemoryFile, MemorySource, ParentChoice, SnapshotLabels, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::keep::forget;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::features::{self, Feature};
use crate::repo::paths::{cache_directory, create_private};
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing;
use crate::repo::upload::{StoredUpload, TAG};
use crate::types::SnapshotId;

pub use announce::{create, preupload, valid_card};
pub use commit::commit;
pub use objects::{SignedObject, batch, object, sha256_of, verified};

/// Time after which an upload that no commit has taken expires, nanoseconds.
const UPLOAD_TIME_NS: i64 = 7 * 24 * 3600 * 1_000_000_000;
/// Bodies that are received at the same time.
const BODIES: usize = 8;

/// What a server needs to take uploads.
pub struct UploadReceiver {
    repository: Repository,
    config: Config,
    host: String,
    /// Directory of the files that bodies go into.
    spool: PathBuf,
    /// Signs URLs.
    key: [u8; 32],
    /// Turns of bodies.
    bodies: Turns,
    /// Held by who stores.
    storing: Arc<Semaphore>,
    stop: Arc<AtomicBool>,
}

impl UploadReceiver {
    /// Readies a repository for uploads, whose snapshots are of `host`. Runs end once `stop` is set.
    ///
    /// # Errors
    /// [`Error::Usage`] if older versions could take an upload for a backup; errors of the store, and of the cache
    /// directory.
    pub fn new(repository: Repository, config: Config, host: String, stop: Arc<AtomicBool>) -> Result<Self> {
        repository.check_writable()?;
        if !features::has(&repository, Feature::Derivations)? {
            return Err(Error::Usage("--writable: run `fhrd upgrade` first".into()));
        }
        let spool = cache_directory(&repository)?.join("uploads");
        create_private(&spool)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| Error::internal(format!("no random bytes: {error}")))?;
        let (bodies, storing) = (Turns::new(BODIES), Arc::new(Semaphore::new(1)));
        let uploads = UploadReceiver { repository, config, host, spool, key, bodies, storing, stop };
        uploads.expire()?;
        Ok(uploads)
    }

    /// A file for a body. It has no name, so it ends with this process.
    fn spool(&self) -> Result<File> {
        tempfile::tempfile_in(&self.spool).map_err(|error| Error::io("create a file in", &self.spool, error))
    }

    /// When what is uploaded now expires, nanoseconds since 1970.
    fn expiry_ns(&self) -> i64 {
        self.repository.clock.now_ns().saturating_add(UPLOAD_TIME_NS)
    }

    /// Stores files as a snapshot that expires.
    fn store(&self, files: Vec<MemoryFile>, upload: StoredUpload) -> Result<NamedSnapshot> {
        let (tags, host) = (vec![TAG.into()], self.host.clone());
        let labels = SnapshotLabels { tags, host, upload: Some(upload), ..SnapshotLabels::default() };
        // The same files are the same commit, whenever they come.
        let source = MemorySource { files, labels, parents: ParentChoice::Nothing, file_time_ns: Some(0) };
        let (request, progress) = (BackupRequest::new(source), Progress::default());
        let report = backup(&self.repository, &self.config, &request, &progress, &self.stop)?;
        let id = SnapshotId::parse(&report.snapshot).ok_or_else(|| Error::internal("a backup has no snapshot"))?;
        Ok(NamedSnapshot { id, snapshot: Snapshot::load(self.repository.store.as_ref(), &id)? })
    }

    /// Deletes uploads whose time is over.
    fn expire(&self) -> Result<()> {
        let now_ns = self.repository.clock.now_ns();
        let snapshots = snapshot_listing::list(&self.repository)?.snapshots;
        let is_over =
            |named: &NamedSnapshot| StoredUpload::of(&named.snapshot).is_some_and(|own| own.expires_ns < now_ns);
        let expired: Vec<SnapshotId> = snapshots.iter().filter(|named| is_over(named)).map(|named| named.id).collect();
        if expired.is_empty() { Ok(()) } else { forget(&self.repository, &expired) }
    }
}
