//! The threads that drive the requests of remote stores.
//!
//! A [`Store`](super::Store) blocks its caller. Stores whose clients are asynchronous share one small runtime: its
//! threads move bytes, and callers wait here for their request. The number of requests in flight is the number of
//! callers.

use std::future::Future;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// Threads of the runtime. They encrypt and copy what goes over the network, which two cores do faster than it flows.
const THREADS: usize = 2;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Runs `future` to its end and returns its result. Must not be called from a future.
///
/// # Errors
/// [`Error::Io`] if the system refuses the threads.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    Ok(runtime()?.block_on(future))
}

fn runtime() -> Result<&'static Runtime> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = STARTING.lock();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread().worker_threads(THREADS).thread_name("remote").enable_all().build();
    let built = built.map_err(|error| Error::io("start", "the threads of remote stores", error))?;
    Ok(RUNTIME.get_or_init(|| built))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use tokio::sync::Barrier;

    use super::*;

    #[test]
    fn callers_wait_side_by_side() {
        // Each waits until all are there: callers that wait one after the other never meet.
        let all = Barrier::new(20);
        let meet = || async { tokio::time::timeout(Duration::from_secs(60), all.wait()).await };
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| block_on(meet()).expect("runs").expect("one after the other"));
            }
        });
    }
}
