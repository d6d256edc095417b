//! Labels: what the caller says about the new snapshot of a source that has none of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::WorkShare;
use crate::error::{Error, Result};
use crate::repo::checkpoint::Checkpoint;
use crate::repo::share_record::{ShareOrigin, ShareRecord};
use crate::repo::snapshot::{IMPORTED_FROM_KEY, STARTED_KEY, Snapshot};
use crate::repo::upload::StoredUpload;

/// The share of the work that a snapshot is.
#[derive(Debug, Clone)]
pub struct ShareLabel {
    /// Which share.
    pub share: WorkShare,
    /// Name of the group.
    pub group: String,
    origin: Arc<Mutex<Option<ShareOrigin>>>,
}

impl ShareLabel {
    /// This share of the group called `group`, from a listing that is not taken yet.
    pub fn new(share: WorkShare, group: &str) -> Self {
        ShareLabel { share, group: group.into(), origin: Arc::default() }
    }

    /// Like [`ShareLabel::new`], if `group` is a name.
    ///
    /// # Errors
    /// Errors of [`ShareRecord::new`].
    pub fn named(share: WorkShare, group: &str) -> Result<Self> {
        ShareRecord::new(group, share, ShareOrigin::default()).map(|_| Self::new(share, group))
    }

    /// Says from which listing the share was computed. The last one that is said counts: a run may start again.
    pub fn computed_from(&self, origin: ShareOrigin) {
        *self.origin.lock() = Some(origin);
    }

    /// Whether all files fell to the same shares for a snapshot, as far as both know them.
    pub(super) fn is_split_as(&self, snapshot: &Snapshot) -> bool {
        let split = self.origin.lock().map(|origin| origin.split);
        ShareRecord::of(snapshot).is_some_and(|record| split == Some(*record.split))
    }

    fn record(&self) -> Result<ShareRecord> {
        let unknown = || Error::internal("the listing of a share was never taken");
        ShareRecord::new(&self.group, self.share, self.origin.lock().ok_or_else(unknown)?)
    }
}

/// Labels of a new snapshot.
#[derive(Debug, Clone, Default)]
pub struct SnapshotLabels {
    /// Tags.
    pub tags: Vec<String>,
    /// Host name to record.
    pub host: String,
    /// Time to record, nanoseconds since 1970. By default it is the start of the backup.
    pub time_ns: Option<i64>,
    /// The step of a training run that the snapshot is, if it is one.
    pub checkpoint: Option<Checkpoint>,
    /// The program and snapshot that it was imported from, if it was.
    pub imported_from: Option<String>,
    /// The share of the work that the snapshot is, if it is one.
    pub share: Option<ShareLabel>,
    /// What a server has accepted of an upload, if it is that.
    pub upload: Option<StoredUpload>,
}

impl SnapshotLabels {
    /// Only the name of the host.
    pub fn of_host(host: &str) -> Self {
        SnapshotLabels { host: host.into(), ..SnapshotLabels::default() }
    }

    /// What decides about parents: the host, and the share that is stored.
    pub(super) fn parents_of(&self) -> (&str, Option<WorkShare>) {
        (&self.host, self.share.as_ref().map(|label| label.share))
    }

    /// The time to record for a backup that began at `started_ns`.
    pub fn time_ns(&self, started_ns: i64) -> i64 {
        self.time_ns.unwrap_or(started_ns)
    }

    /// What the snapshot of a backup that began at `started_ns` says about itself.
    ///
    /// # Errors
    /// Errors of encoding.
    pub fn description(&self, started_ns: i64) -> Result<Snapshot> {
        let mut extra = BTreeMap::new();
        if self.time_ns.is_some() {
            extra.insert(STARTED_KEY.into(), started_ns.to_le_bytes().to_vec().into());
        }
        if let Some(origin) = &self.imported_from {
            extra.insert(IMPORTED_FROM_KEY.into(), origin.clone().into_bytes().into());
        }
        self.checkpoint.as_ref().map_or(Ok(()), |checkpoint| checkpoint.attach(&mut extra))?;
        if let Some(label) = &self.share {
            label.record()?.attach(&mut extra)?;
        }
        self.upload.as_ref().map_or(Ok(()), |upload| upload.attach(&mut extra))?;
        Ok(Snapshot {
            time_ns: self.time_ns(started_ns),
            host: self.host.clone(),
            user: uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            tags: self.tags.clone(),
            extra,
            ..Snapshot::default()
        })
    }
}

/// What was left out, as a snapshot records it: an option and its value each.
///
/// # Errors
/// Errors of encoding.
pub fn encoded(excludes: &[String]) -> Result<Vec<u8>> {
    minicbor::to_vec(excludes).map_err(|error| Error::internal(error.to_string()))
}
