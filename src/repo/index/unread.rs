//! Containers that a run could not read although they are listed. Nothing may take them for empty, absent or replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::listing::ContainerListing;
use crate::error::{Error, ErrorKind};
use crate::repo::marks::BadParts;
use crate::types::ContainerId;

/// The containers that a run could not read.
#[derive(Default)]
pub(super) struct UnreadContainers {
    /// Whether there are any. Saves the lock.
    is_any: AtomicBool,
    /// Whether one of them may be sound: the device or the server could not give its bytes.
    may_come_back: AtomicBool,
    ids: Mutex<BTreeSet<ContainerId>>,
}

impl UnreadContainers {
    /// Adds a container that could not be read because of `error`.
    pub(super) fn insert(&self, id: ContainerId, error: &Error) {
        self.may_come_back.fetch_or(!error.is_proven_damage(), Ordering::AcqRel);
        self.ids.lock().insert(id);
        self.is_any.store(true, Ordering::Release);
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(super) fn may_come_back(&self) -> bool {
        self.may_come_back.load(Ordering::Acquire)
    }

    pub(super) fn ids(&self) -> BTreeSet<ContainerId> {
        self.ids.lock().clone()
    }
}

impl ContainerListing {
    /// Records that a listed container could not be read. Whoever deletes must not take it for empty, and a run says
    /// so at its end. One that a mark gives up does not count, nor one that is gone.
    pub fn note_unread(&self, id: &ContainerId, error: &Error) {
        let is_known = self.quarantine().of(id) == Some(&BadParts::Whole);
        if !is_known && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted) {
            self.recovery().unread.insert(*id, error);
        }
    }

    /// Listed containers that could not be read so far and that no mark gives up.
    pub fn unread(&self) -> BTreeSet<ContainerId> {
        let quarantine = self.quarantine();
        self.recovery().unread.ids().into_iter().filter(|id| quarantine.of(id) != Some(&BadParts::Whole)).collect()
    }

    /// Number of containers, and of directories of them, that could not be read or are lost, without a mark that says
    /// so.
    pub fn unread_count(&self) -> u64 {
        (self.unread().len() + self.lost + self.unlistable.count()) as u64
    }

    /// Directories of containers that could not be listed so far, with the reason.
    pub fn unlistable(&self) -> BTreeMap<String, Error> {
        self.unlistable.all()
    }

    /// Whether a container, or a directory of containers, could not be read that may be sound, and come back.
    pub fn may_come_back(&self) -> bool {
        self.recovery().unread.may_come_back() || self.unlistable.count() > 0
    }

    /// Whether an entry of a listed container may lack what it copies from: something is known to be bad or missing, or
    /// could not be read.
    pub fn is_doubtful(&self) -> bool {
        self.lost + self.pruned > 0
            || self.unlistable.count() > 0
            || self.recovery().unread.is_any()
            || !self.quarantine().is_empty()
    }

    /// Why a chunk that no look-up has found may still be stored: a container that may have it could not be read,
    /// or a directory of them not be listed.
    pub(super) fn blind_error(&self) -> Option<Error> {
        let quarantine = self.quarantine();
        let unread = self.recovery().blind_error(|id| quarantine.of(id) == Some(&BadParts::Whole));
        unread.or_else(|| self.unlistable.error())
    }
}
