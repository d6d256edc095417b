//! Calls of the engine: they run on a thread of their own, without the GIL, while the calling thread waits and looks
//! for signals and reports progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use fhrd::metrics::Progress;
use fhrd::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// What a running call shows and obeys.
#[derive(Default)]
pub struct Call {
    /// Called now and then with a dictionary of counters.
    pub report: Option<Py<PyAny>>,
    /// Counters of the run.
    pub progress: Progress,
    /// Stops the run.
    pub stop: Arc<AtomicBool>,
    /// Whether this call set `stop`, which others may share.
    stopped: AtomicBool,
}

impl Call {
    /// A call that `report` is told about.
    pub fn new(report: Option<Py<PyAny>>) -> Self {
        Call { report, ..Call::default() }
    }

    /// A call that sets `stop`, which others may obey, too.
    pub fn stopping(stop: &Arc<AtomicBool>) -> Self {
        Call { stop: stop.clone(), ..Call::default() }
    }

    /// Whether a signal handler or `report` raised.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn show(&self, py: Python<'_>) -> PyResult<()> {
        let Some(report) = &self.report else { return Ok(()) };
        let counters = PyDict::new(py);
        let progress = &self.progress;
        counters.set_item("files_done", progress.files_done.get())?;
        counters.set_item("bytes_read", progress.bytes_read.get())?;
        counters.set_item("bytes_new", progress.bytes_new.get())?;
        counters.set_item("bytes_stored", progress.bytes_stored.get())?;
        counters.set_item("errors", progress.errors.get())?;
        report.call1(py, (counters,)).map(drop)
    }

    /// Runs `work` to its end. A signal handler or a `report` that raises stops it, and its exception is the result,
    /// unless the work was complete before it noticed.
    pub fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Progress) -> Result<T> + Send) -> PyResult<T> {
        let mut raised = None;
        let progress = &self.progress;
        // What the calling thread needs while the other one works. Both end before this function does.
        let result = py.detach(|| {
            let (done, finished) = sync_channel(1);
            std::thread::scope(|scope| {
                let worker = std::thread::Builder::new().name("fhrd".into()).spawn_scoped(scope, move || {
                    let _ = done.send(work(progress));
                });
                let worker = worker.map_err(|error| Error::io("start", "a thread", error))?;
                let result = loop {
                    match finished.recv_timeout(LOOK) {
                        Ok(result) => break Some(result),
                        Err(RecvTimeoutError::Disconnected) => break None,
                        Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                            let looked = Python::attach(|py| py.check_signals().and_then(|()| self.show(py)));
                            if let Err(error) = looked {
                                self.stopped.store(true, Ordering::Relaxed);
                                self.stop.store(true, Ordering::Relaxed);
                                raised = Some(error);
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                    }
                };
                let joined = worker.join();
                match (result, joined) {
                    (Some(result), _) => result,
                    (None, Err(panic)) => {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
                        Err(Error::internal(text.unwrap_or_else(|| "a call panicked".into())))
                    }
                    (None, Ok(())) => Err(Error::internal("a call ended without a result")),
                }
            })
        });
        match (result, raised) {
            (Ok(result), None) => self.show(py).map(|()| result),
            // It is complete, and reported as such. The signal comes after it.
            (Ok(_), Some(error)) | (Err(Error::Interrupted), Some(error)) => Err(error),
            (Err(error), _) => Err(exception(&error)),
        }
    }
}
