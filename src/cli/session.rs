//! What a verb is given.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Options;
use super::notice::RunFacts;
use crate::config::UserProfile;

/// Options of every verb with its profile, and the flag that stops it.
pub struct Session {
    /// The options, completed by the profile.
    pub options: Options,
    /// Set once the user has asked to stop.
    pub stop: Arc<AtomicBool>,
    pub(super) profile: UserProfile,
    /// Numbers for whoever is told how the command has ended.
    pub(super) facts: RunFacts,
}

impl Session {
    /// With an empty profile and no facts.
    pub(super) fn new(options: Options, stop: Arc<AtomicBool>) -> Self {
        Session { options, stop, profile: UserProfile::default(), facts: RunFacts::default() }
    }
}
