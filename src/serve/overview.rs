//! What pages say of the whole repository: read in the background, because that can take minutes.
//!
//! 1. It is read when somebody asks, by one thread, and again when snapshots have changed or when it is old.
//! 2. Whoever asks gets what was read before. The first ones wait a little.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::catalogue::{Catalogue, PublishedNames};
use crate::inspect::report::RepositoryReport;
use crate::types::SnapshotId;

/// Time that somebody waits for what was never read.
const WAIT: Duration = Duration::from_secs(5);
/// Time after which it is read again if snapshots have changed, or if it could not be read.
const CHANGED_AFTER: Duration = Duration::from_secs(60);
/// Time after which it is read again.
const OLD_AFTER: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub struct Overview {
    state: Mutex<OverviewState>,
    /// Wakes who waits, once a read has ended.
    ended: Notify,
}

#[derive(Default)]
struct OverviewState {
    report: Option<Arc<RepositoryReport>>,
    /// The snapshots that it is of.
    snapshots: Vec<SnapshotId>,
    /// When the last read began.
    began: Option<Instant>,
    is_reading: bool,
    /// The last read failed, so the report is of an older one.
    has_failed: bool,
}

/// What is known of the repository.
#[derive(Default)]
pub struct KnownOverview {
    /// `None` if it is still read for the first time, or could not be.
    pub report: Option<Arc<RepositoryReport>>,
    /// Whether the last read failed, so that the report is old.
    pub has_failed: bool,
}

/// A read that runs. Its end is noted even if it panics.
struct ReadingTurn(Arc<Overview>);

impl Drop for ReadingTurn {
    fn drop(&mut self) {
        self.0.state.lock().is_reading = false;
        self.0.ended.notify_waiters();
    }
}

impl Overview {
    /// What is known, with the snapshots as they have just been listed.
    pub async fn get(self: &Arc<Self>, catalogue: &Arc<Catalogue>, names: Arc<PublishedNames>) -> KnownOverview {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        self.begin(catalogue, names);
        let known = self.known();
        if known.report.is_some() || known.has_failed {
            return known;
        }
        // Late or in time, what is known then counts.
        let _ = timeout(WAIT, ended).await;
        self.known()
    }

    fn known(&self) -> KnownOverview {
        let state = self.state.lock();
        KnownOverview { report: state.report.clone(), has_failed: state.has_failed }
    }

    /// Begins a read, if one is needed and none runs.
    fn begin(self: &Arc<Self>, catalogue: &Arc<Catalogue>, names: Arc<PublishedNames>) {
        let mut state = self.state.lock();
        let is_same = || names.backups.iter().map(|named| named.id).eq(state.snapshots.iter().copied());
        let is_needed = match state.began.map(|began| began.elapsed()) {
            None => true,
            Some(age) if age > OLD_AFTER => true,
            Some(age) => age > CHANGED_AFTER && (state.has_failed || !is_same()),
        };
        if state.is_reading || !is_needed {
            return;
        }
        (state.is_reading, state.began) = (true, Some(Instant::now()));
        drop(state);
        let (turn, catalogue) = (ReadingTurn(self.clone()), catalogue.clone());
        tokio::task::spawn_blocking(move || {
            // At the end of the server, its reads fail.
            let report = catalogue.report(&names, &AtomicBool::new(false));
            let mut state = turn.0.state.lock();
            state.has_failed = report.is_err();
            match report {
                Ok(report) => {
                    state.snapshots = names.backups.iter().map(|named| named.id).collect();
                    state.report = Some(Arc::new(report));
                }
                Err(error) => tracing::error!("what pages say of the repository cannot be read: {error}"),
            }
        });
    }
}
