//! State of a run that all its stages share: the first error and the stop flag.
//!
//! 1. [`RunState::record`] keeps the first error. A closed link is only a consequence, so a later cause replaces it.
//! 2. [`RunState::check`] fails once an error is recorded or the stop flag is set.
//! 3. [`RunState::guard`] runs the work of a stage and records its error or panic. The caller closes the stage's
//!    channels only afterwards, so a neighbour that wakes up finds the error recorded.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Neighbour, Result};

/// First error and stop flag of one run.
#[derive(Debug)]
pub(super) struct RunState {
    first: Mutex<Option<Error>>,
    failed: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl RunState {
    /// A run without an error. Setting `stop` interrupts it.
    pub(super) fn new(stop: Arc<AtomicBool>) -> Self {
        RunState { first: Mutex::new(None), failed: AtomicBool::new(false), stop }
    }

    /// Keeps `error` if it is the first one, or the first one that is not a closed link.
    pub(super) fn record(&self, error: Error) {
        let mut first = self.first.lock();
        let is_consequence = |error: &Error| matches!(error, Error::LinkClosed { .. });
        if first.as_ref().is_none_or(|recorded| is_consequence(recorded) && !is_consequence(&error)) {
            *first = Some(error);
        }
        self.failed.store(true, Ordering::Release);
    }

    /// Fails when the run must end.
    ///
    /// # Errors
    /// [`Error::LinkClosed`] with `stage` and `neighbour` if a stage has failed, [`Error::Interrupted`] if the stop
    /// flag is set.
    pub(super) fn check(&self, stage: &'static str, neighbour: Neighbour) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::LinkClosed { stage: stage.into(), neighbour });
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Runs the work of a stage and records its error or its panic.
    pub(super) fn guard(&self, stage: &'static str, work: impl FnOnce() -> Result<()>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.record(error),
            Err(payload) => self.record(panicked(stage, payload.as_ref())),
        }
    }

    /// Takes the recorded error.
    pub(super) fn take(&self) -> Option<Error> {
        self.first.lock().take()
    }
}

/// The error of a panic with this payload.
pub(super) fn panicked(stage: &str, payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Error::StagePanicked { stage: stage.into(), message: message.unwrap_or_else(|| "(no message)".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Error {
        Error::LinkClosed { stage: "b".into(), neighbour: Neighbour::Upstream }
    }

    #[test]
    fn the_first_error_wins_and_a_closed_link_gives_way() {
        let state = RunState::new(Arc::default());
        assert!(state.check("a", Neighbour::Downstream).is_ok());
        state.record(closed());
        state.record(Error::Usage("cause".into()));
        state.record(closed());
        state.record(Error::Usage("later".into()));
        assert!(matches!(state.check("a", Neighbour::Downstream), Err(Error::LinkClosed { .. })));
        assert_eq!(state.take().map(|error| error.to_string()).as_deref(), Some("cause"));
    }

    #[test]
    fn the_stop_flag_interrupts_but_does_not_hide_an_error() {
        let stop = Arc::new(AtomicBool::new(true));
        let state = RunState::new(stop);
        assert!(matches!(state.check("a", Neighbour::Downstream), Err(Error::Interrupted)));
        state.record(Error::Usage("cause".into()));
        state.record(Error::Interrupted);
        assert_eq!(state.take().map(|error| error.to_string()).as_deref(), Some("cause"));
    }
}
