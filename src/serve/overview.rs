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

use super::catalogue::Catalogue;
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
    /// What is known. `None` if it is still read for the first time, or cannot be.
    pub async fn get(self: &Arc<Self>, catalogue: &Arc<Catalogue>) -> Option<Arc<RepositoryReport>> {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        self.begin(catalogue);
        let known = self.state.lock().report.clone();
        if known.is_some() {
            return known;
        }
        // Late or in time, what is known then counts.
        let _ = timeout(WAIT, ended).await;
        self.state.lock().report.clone()
    }

    /// Begins a read, if one is needed and none runs.
    fn begin(self: &Arc<Self>, catalogue: &Arc<Catalogue>) {
        let Some(names) = catalogue.known().names else { return };
        let mut state = self.state.lock();
        let is_same = || names.backups.iter().map(|named| named.id).eq(state.snapshots.iter().copied());
        let is_needed = match state.began.map(|began| began.elapsed()) {
            None => true,
            Some(age) if age > OLD_AFTER => true,
            Some(age) => age > CHANGED_AFTER && (state.report.is_none() || !is_same()),
        };
        if state.is_reading || !is_needed {
            return;
        }
        (state.is_reading, state.began) = (true, Some(Instant::now()));
        drop(state);
        let (turn, catalogue) = (ReadingTurn(self.clone()), catalogue.clone());
        tokio::task::spawn_blocking(move || {
            // At the end of the server, its reads fail.
            match catalogue.report(&names, &AtomicBool::new(false)) {
                Ok(report) => {
                    let mut state = turn.0.state.lock();
                    state.snapshots = names.backups.iter().map(|named| named.id).collect();
                    state.report = Some(Arc::new(report));
                }
                Err(error) => tracing::error!("what pages say of the repository cannot be read: {error}"),
            }
        });
    }
}
