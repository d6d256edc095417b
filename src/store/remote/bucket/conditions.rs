//! How a server takes the condition that a key is free.

use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Conditions {
    /// Nothing yet.
    Unknown,
    /// It obeys the condition.
    Obeyed,
    /// It puts the object all the same, as far as known.
    Ignored,
    /// It refuses such requests.
    Refused,
}

/// What is known of the server of a bucket.
#[derive(Debug, Default)]
pub(super) struct KnownConditions(AtomicU8);

impl KnownConditions {
    pub fn get(&self) -> Conditions {
        let known = [Conditions::Unknown, Conditions::Obeyed, Conditions::Ignored, Conditions::Refused];
        known.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Conditions::Unknown)
    }

    /// Whether nothing is known yet. From now on, the condition counts as ignored.
    pub fn take_unknown(&self) -> bool {
        let (unknown, ignored) = (Conditions::Unknown as u8, Conditions::Ignored as u8);
        self.0.compare_exchange(unknown, ignored, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn set(&self, conditions: Conditions) {
        self.0.store(conditions as u8, Ordering::Relaxed);
    }
}
