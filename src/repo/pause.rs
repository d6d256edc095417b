//! Pauses before something is tried again because another process is in the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::crypto::any_number;
use crate::error::{Error, Result};

/// Time between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for `time`.
///
/// # Errors
/// [`Error::Interrupted`] once `stop` is set.
pub fn pause(time: Duration, stop: &AtomicBool) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else {
            return Ok(());
        };
        std::thread::sleep(rest.min(LOOK));
    }
}

/// Half of `time` to all of it, so that two processes do not always meet.
pub fn jittered(time: Duration) -> Duration {
    time / 2 + time * u32::from(any_number() as u8) / 512
}
