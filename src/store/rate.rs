//! Limits of what goes over the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Limits of the stores that share them.
#[derive(Debug, Clone, Default)]
pub struct RateLimits {
    /// Of what is sent.
    pub(super) upload: Arc<RateLimit>,
    /// Of what is received.
    pub(super) download: Arc<RateLimit>,
}

impl RateLimits {
    /// Limits of so many bytes per second. Zero would stop everything, and counts as one.
    pub fn new(upload: Option<u64>, download: Option<u64>) -> Self {
        RateLimits { upload: Arc::new(RateLimit::new(upload)), download: Arc::new(RateLimit::new(download)) }
    }
}

/// Bytes per second.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// None for no limit.
    bytes_per_second: Option<u64>,
    /// When all bytes so far have had their time.
    free_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    fn new(bytes_per_second: Option<u64>) -> Self {
        RateLimit { bytes_per_second: bytes_per_second.map(|rate| rate.max(1)), free_at: Mutex::default() }
    }

    /// Takes the time of `bytes` and returns how long the caller must wait after them.
    pub(super) fn take(&self, bytes: usize) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let now = Instant::now();
        let mut free_at = self.free_at.lock();
        let start = free_at.map_or(now, |free_at| free_at.max(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *free_at = Some(end);
        end.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_the_rate_and_an_idle_second_is_not_saved_up() {
        let limit = RateLimit::new(Some(1000));
        let first = limit.take(500);
        let second = limit.take(1000);
        assert!(first <= Duration::from_millis(500) && first > Duration::from_millis(400), "{first:?}");
        assert!(second <= Duration::from_millis(1500) && second > Duration::from_millis(1400), "{second:?}");
        let short = RateLimit::new(Some(1_000_000));
        short.take(1000);
        std::thread::sleep(Duration::from_millis(20));
        assert!(short.take(1_000_000) > Duration::from_millis(900));
        assert_eq!(RateLimit::new(None).take(usize::MAX), Duration::ZERO);
    }
}
