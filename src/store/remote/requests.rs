//! Requests that are tried again until they succeed, are refused, or time is up.
//!
//! Once the user asks to stop, reads end at once. Writes have one more second, in which what has begun can be finished:
//! an intent is withdrawn, a segment put.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use super::failure::RequestFailure;
use crate::error::Result;
use crate::store::{Patience, StoreOptions, runtime};

/// How often a waiting request looks whether it must stop.
const STOP_POLL: Duration = Duration::from_millis(50);
/// The time that writes have once the user has asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// It changes nothing.
    Read,
    /// It puts or deletes.
    Write,
}

/// Sends the requests of one store.
#[derive(Debug)]
pub(super) struct Requests {
    patience: Patience,
    /// The wish to stop.
    stop: Arc<AtomicBool>,
    /// Whether the server has answered a request.
    is_reached: AtomicBool,
    /// When the wish to stop was noticed.
    stopped: OnceLock<Instant>,
}

impl Requests {
    pub(super) fn new(options: &StoreOptions) -> Self {
        let (patience, stop) = (options.patience.clone(), options.stop.clone());
        Requests { patience, stop, is_reached: AtomicBool::new(false), stopped: OnceLock::new() }
    }

    /// Sends `request`, again and again, until it succeeds or cannot. The outer error is of this machine.
    pub(super) fn run<T>(
        &self,
        kind: RequestKind,
        request: impl AsyncFn() -> Result<T, RequestFailure>,
    ) -> Result<Result<T, RequestFailure>> {
        runtime::block_on(self.run_async(kind, request))
    }

    async fn run_async<T>(
        &self,
        kind: RequestKind,
        request: impl AsyncFn() -> Result<T, RequestFailure>,
    ) -> Result<T, RequestFailure> {
        let patience = &self.patience;
        let start = Instant::now();
        for tries in 1u32.. {
            let failure = match self.until_stopped(kind, request()).await {
                Ok(Ok(value)) => {
                    self.is_reached.store(true, Ordering::Relaxed);
                    return Ok(value);
                }
                Ok(Err(failure)) => failure,
                Err(stopped) => return Err(stopped),
            };
            if failure.is_answer() {
                self.is_reached.store(true, Ordering::Relaxed);
            }
            let is_reached = self.is_reached.load(Ordering::Relaxed);
            let tries_max = if is_reached { patience.tries } else { patience.first_tries };
            let wait = jittered(patience.wait.saturating_mul(1 << (tries - 1).min(16)).min(patience.wait_max));
            if !failure.is_transient() || tries >= tries_max || start.elapsed() + wait > patience.total {
                return Err(failure.after(tries));
            }
            tracing::debug!("try {tries} failed, the next one follows in {wait:?}: {failure}");
            self.until_stopped(kind, tokio::time::sleep(wait)).await?;
        }
        Err(RequestFailure::stopped())
    }

    /// Waits for `future`, but not longer than the user lets it.
    async fn until_stopped<T>(&self, kind: RequestKind, future: impl Future<Output = T>) -> Result<T, RequestFailure> {
        if self.must_stop(kind) {
            return Err(RequestFailure::stopped());
        }
        match select(pin!(future), pin!(self.stopped(kind))).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(RequestFailure::stopped()),
        }
    }

    fn must_stop(&self, kind: RequestKind) -> bool {
        if !self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let since = self.stopped.get_or_init(Instant::now);
        kind == RequestKind::Read || since.elapsed() >= STOP_GRACE
    }

    async fn stopped(&self, kind: RequestKind) {
        while !self.must_stop(kind) {
            tokio::time::sleep(STOP_POLL).await;
        }
    }
}

/// Between a half of `wait` and all of it, so that many clients do not come back at the same time.
fn jittered(wait: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random numbers, the whole wait will do.
    if getrandom::fill(&mut random).is_err() {
        return wait;
    }
    let part = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
    wait.mul_f64(0.5 + part / 2.0)
}
