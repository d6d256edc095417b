//! The key slots of a repository: blobs below `keys/`.

use crate::crypto::{KeySlot, Keyring, Unlock};
use crate::error::{Error, Result};
use crate::repo::KnownRepository;
use crate::store::{Store, get_hashed};
use crate::types::hex;

/// Directory of the slots.
pub const PREFIX: &str = "keys";
/// Bytes of a slot, at most. Most of them are generations of the key.
const BYTES_LIMIT: u64 = 1 << 20;
/// Slots that are tried, at most: each password costs memory and time.
const SLOTS_MAX: usize = 64;
/// Blobs that are read to find them, at most. Whoever may put can put what is no slot.
const BLOBS_MAX: usize = 256;

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
/// Those of the store.
pub fn put(store: &dyn Store, slot: &KeySlot) -> Result<String> {
    store.put_hashed(blob_name, &[&slot.encode()?]).map(|hash| hex(&hash))
}

/// Fails if the repository has so many slots that another one may not be tried.
///
/// # Errors
/// [`Error::Usage`]; those of listing the store.
pub fn check_slot_count(store: &dyn Store) -> Result<()> {
    if list(store)?.len() >= SLOTS_MAX {
        return Err(Error::Usage(format!("a repository has at most {SLOTS_MAX} key slots: remove one first")));
    }
    Ok(())
}

/// The slots that can be read, oldest first. The others are warned of. Of too many, the slot that this machine used
/// last is among those that are read.
///
/// # Errors
/// Those of listing the store.
pub fn list(store: &dyn Store) -> Result<Vec<NamedSlot>> {
    let mut slots = Vec::new();
    let mut listed = store.list(PREFIX)?;
    if listed.len() > SLOTS_MAX {
        let used: Vec<String> = KnownRepository::slots(store).into_iter().map(|id| format!("{PREFIX}/{id}")).collect();
        listed.sort_by_key(|blob| !used.contains(&blob.name));
        tracing::warn!(
            "{} blobs below {PREFIX}/: at most {SLOTS_MAX} of them are looked at. Delete those that are no key slots",
            listed.len()
        );
    }
    for listed in listed.into_iter().take(BLOBS_MAX) {
        if slots.len() == SLOTS_MAX {
            break;
        }
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

/// Opens the latest slot that `unlock` opens and whose keyring `is_right` accepts. Returns its id, too. If it has older
/// keys than this machine has seen, the slots before it are tried for newer ones.
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
    // The latest first: after a change of keys, only that one has all of them. Somebody may have put costly slots.
    slots.reverse();
    slots.sort_by_key(|named| named.slot.is_costly());
    let (mut is_foreign, mut older, seen) = (false, None, KnownRepository::generation(store));
    for NamedSlot { id, slot } in slots {
        match slot.open(&format!("{PREFIX}/{id}"), unlock) {
            Ok(Some(keyring)) if is_right(&keyring)? => {
                if keyring.latest()?.generation >= seen {
                    return Ok((id, keyring));
                }
                older.get_or_insert((id, keyring));
            }
            Ok(Some(_)) => is_foreign = true,
            Ok(None) => {}
            Err(error) => tracing::warn!("a key slot does not open: {error}"),
        }
    }
    if let Some(older) = older {
        return Ok(older);
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
