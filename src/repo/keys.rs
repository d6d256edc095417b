//! The key slots of a repository: blobs below `keys/`.

use crate::crypto::{KeySlot, Keyring, Unlock};
use crate::error::{Error, Result};
use crate::store::{Store, get_hashed};
use crate::types::hex;

/// Directory of the slots.
pub const PREFIX: &str = "keys";
/// Bytes of a slot, at most. Most of them are generations of the key.
const BYTES_LIMIT: u64 = 1 << 20;
/// Slots that are tried, at most: each password costs memory and time.
const SLOTS_MAX: usize = 64;

/// A slot with its name.
#[derive(Debug, Clone)]
pub struct NamedSlot {
    /// Id of the slot, 64 hex digits.
    pub id: String,
    /// The slot.
    pub slot: KeySlot,
}

fn blob_name(hash: &[u8; 32]) -> String {
    format!("{PREFIX}/{}", hex(hash))
}

/// Stores a slot and returns its id.
///
/// # Errors
/// Those of the store; [`Error::Usage`] if the repository has too many slots.
pub fn put(store: &dyn Store, slot: &KeySlot) -> Result<String> {
    if store.list(PREFIX)?.len() >= SLOTS_MAX {
        return Err(Error::Usage(format!("a repository has at most {SLOTS_MAX} key slots: remove one first")));
    }
    store.put_hashed(blob_name, &[&slot.encode()?]).map(|hash| hex(&hash))
}

/// All slots that can be read, oldest first. The others are warned of.
///
/// # Errors
/// Those of listing the store.
pub fn list(store: &dyn Store) -> Result<Vec<NamedSlot>> {
    let mut slots = Vec::new();
    let listed = store.list(PREFIX)?;
    if listed.len() > SLOTS_MAX {
        tracing::warn!("{} key slots: only {SLOTS_MAX} of them are looked at", listed.len());
    }
    for listed in listed.into_iter().take(SLOTS_MAX) {
        let read = get_hashed(store, &listed.name, BYTES_LIMIT).and_then(|blob| KeySlot::parse(&listed.name, &blob));
        match read {
            Ok(slot) => slots.push(NamedSlot { id: listed.name.rsplit('/').next().unwrap_or_default().into(), slot }),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => tracing::warn!("skipping a key slot: {error}"),
        }
    }
    slots.sort_by(|a, b| (a.slot.time_ns, &a.id).cmp(&(b.slot.time_ns, &b.id)));
    Ok(slots)
}

/// Opens the latest slot that `unlock` opens and whose keyring `is_right` accepts. Returns its id, too.
///
/// # Errors
/// [`Error::Locked`] if there is none; those of listing the store and of `is_right`.
pub fn open(
    store: &dyn Store,
    unlock: &Unlock,
    is_right: impl Fn(&Keyring) -> Result<bool>,
) -> Result<(String, Keyring)> {
    let locked = |reason: &str| Error::Locked { location: store.location(), reason: reason.into() };
    let mut slots = list(store)?;
    if slots.is_empty() {
        return Err(locked("it has no key slot that can be read; `fhrd key import` adds one from an exported key"));
    }
    // The latest first: after a change of keys, only that one has all of them.
    slots.reverse();
    let mut is_foreign = false;
    for NamedSlot { id, slot } in slots {
        match slot.open(&format!("{PREFIX}/{id}"), unlock) {
            Ok(Some(keyring)) if is_right(&keyring)? => return Ok((id, keyring)),
            Ok(Some(_)) => is_foreign = true,
            Ok(None) => {}
            Err(error) => tracing::warn!("a key slot does not open: {error}"),
        }
    }
    Err(locked(match (is_foreign, unlock) {
        (true, _) => "the key slot that opens has the keys of another repository: somebody exchanged files",
        (_, Unlock::Password(_)) => "no key slot opens with this password",
        (_, Unlock::KeyFile(_)) => "no key slot opens with this key file",
    }))
}

/// Removes the slot `id`.
///
/// # Errors
/// Those of the store.
pub fn remove(store: &dyn Store, id: &str) -> Result<()> {
    store.delete(&format!("{PREFIX}/{id}"))
}
