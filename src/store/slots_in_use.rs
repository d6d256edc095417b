//! The key slots that have opened, and whether somebody may have keys that they lack.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{BlobKind, BlobName, Store, get_hashed};
use crate::crypto::KeySlot;

/// Key slots and their copies.
const SLOTS: [BlobKind; 2] = [BlobKind::Key, BlobKind::KeyCopy];
/// Bytes of a slot, at most.
const SLOT_BYTES_MAX: u64 = 1 << 20;
/// Slots that did not open and that are read, at most. If there are more, one of them counts as sound.
const SLOTS_MAX: usize = 64;
/// How often the slots are looked at, at most: a hostile store may have very many blobs that name a later key.
const LOOKS_MAX: usize = 64;

/// The slots whose keys a keyring has.
pub(super) struct SlotsInUse {
    ids: Vec<String>,
    looks: AtomicUsize,
    /// Whether others were found.
    has_others: AtomicBool,
}

impl SlotsInUse {
    /// Slots by their ids.
    pub(super) fn new(ids: &[String]) -> Self {
        SlotsInUse { ids: ids.to_vec(), looks: AtomicUsize::new(0), has_others: AtomicBool::new(false) }
    }

    /// Whether somebody may have keys that these slots lack: another slot is there, or one of them is gone.
    pub(super) fn may_lack_keys(&self, store: &dyn Store) -> bool {
        if self.looks.fetch_add(1, Ordering::Relaxed) < LOOKS_MAX && self.look(store) {
            self.has_others.store(true, Ordering::Relaxed);
        }
        self.has_others.load(Ordering::Relaxed)
    }

    fn look(&self, store: &dyn Store) -> bool {
        // What cannot be read is not absent.
        let Ok(listed) = store.list(BlobKind::Key.into()) else { return true };
        let ids: HashSet<&str> = listed.iter().filter_map(|blob| blob.name.split('/').nth(1)).collect();
        if self.ids.iter().any(|id| !ids.contains(id.as_str())) {
            return true;
        }
        let mut others = ids.into_iter().filter(|id| !self.ids.iter().any(|own| own == id));
        others.by_ref().take(SLOTS_MAX).any(|id| may_be_slot(store, id)) || others.next().is_some()
    }
}

/// Whether somebody may be able to open the slot `id`. Its copy serves if it is damaged.
fn may_be_slot(store: &dyn Store, id: &str) -> bool {
    SLOTS.into_iter().any(|kind| {
        let Ok(name) = BlobName::parse(&format!("{kind}/{id}")) else { return false };
        let slot = get_hashed(store, &name, SLOT_BYTES_MAX).and_then(|blob| KeySlot::parse(&name, &blob));
        slot.map_or_else(|error| !error.is_proven_damage(), |_| true)
    })
}
