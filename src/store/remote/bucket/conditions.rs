//! How a server takes the condition that a key is free.

use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Conditions {
    /// Nothing yet.
    Unknown,
    /// Nothing yet, and it is asked, or has not said.
    Asked,
    /// It obeys the condition.
    Obeyed,
    /// It puts the object all the same.
    Ignored,
    /// It refuses such requests.
    Refused,
}

/// What is known of the server of a bucket.
#[derive(Debug, Default)]
pub(super) struct KnownConditions(AtomicU8);

impl KnownConditions {
    pub fn get(&self) -> Conditions {
        use Conditions::{Asked, Ignored, Obeyed, Refused, Unknown};
        let known = [Unknown, Asked, Obeyed, Ignored, Refused];
        known.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Conditions::Unknown)
    }

    /// Whether nothing is known yet and nobody has asked. From now on, somebody has.
    pub fn take_unknown(&self) -> bool {
        let (unknown, asked) = (Conditions::Unknown as u8, Conditions::Asked as u8);
        self.0.compare_exchange(unknown, asked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn set(&self, conditions: Conditions) {
        self.0.store(conditions as u8, Ordering::Relaxed);
    }
}
