//! The fault of a run: the first recorded error wins, and everybody can see that there is one.
//!
//! 1. [`Fault::record`] keeps the first error; a closed link is only ever a consequence and gives way to a cause.
//! 2. [`Fault::check`] fails once an error is recorded or the stop flag is set.
//! 3. [`Fault::guard`] runs a stage's body and records how it failed, panics included. It returns before the caller
//!    closes the stage's channels, so whoever wakes by the closing finds the error recorded.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Neighbour, Result};

/// Shared by all stages of one run.
#[derive(Debug)]
pub(super) struct Fault {
    first: Mutex<Option<Error>>,
    failed: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl Fault {
    /// No error yet; `stop` asks the run to end.
    pub(super) fn new(stop: Arc<AtomicBool>) -> Self {
        Fault { first: Mutex::new(None), failed: AtomicBool::new(false), stop }
    }

    /// Keeps `error` if it is the first, or the first that is not a closed link.
    pub(super) fn record(&self, error: Error) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let consequence = |error: &Error| matches!(error, Error::LinkClosed { .. });
        if first.as_ref().is_none_or(|kept| consequence(kept) && !consequence(&error)) {
            *first = Some(error);
        }
        self.failed.store(true, Ordering::Release);
    }

    /// Fails when the run is to end: [`Error::Interrupted`], or [`Error::LinkClosed`] naming `stage` when another
    /// stage has failed.
    pub(super) fn check(&self, stage: &'static str, neighbour: Neighbour) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::LinkClosed { stage: stage.into(), neighbour });
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Runs the body of a stage; records its error or its panic.
    pub(super) fn guard(&self, stage: &'static str, body: impl FnOnce() -> Result<()>) {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.record(error),
            Err(payload) => self.record(panicked(stage, payload.as_ref())),
        }
    }

    /// The recorded error, if there is one.
    pub(super) fn take(&self) -> Option<Error> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
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
        let fault = Fault::new(Arc::default());
        assert!(fault.check("a", Neighbour::Downstream).is_ok());
        fault.record(closed());
        fault.record(Error::Usage("cause".into()));
        fault.record(closed());
        fault.record(Error::Usage("later".into()));
        assert!(matches!(fault.check("a", Neighbour::Downstream), Err(Error::LinkClosed { .. })));
        assert_eq!(fault.take().map(|error| error.to_string()).as_deref(), Some("cause"));
    }

    #[test]
    fn the_stop_flag_interrupts_but_does_not_hide_an_error() {
        let stop = Arc::new(AtomicBool::new(true));
        let fault = Fault::new(stop);
        assert!(matches!(fault.check("a", Neighbour::Downstream), Err(Error::Interrupted)));
        fault.record(Error::Usage("cause".into()));
        fault.record(Error::Interrupted);
        assert_eq!(fault.take().map(|error| error.to_string()).as_deref(), Some("cause"));
    }
}
