//! The second copies of key slots: blobs below `key-copies/` with the names and the bytes of the slots.
//!
//! 1. Only the names below `keys/` say which slots exist. A copy serves the bytes of a slot that is listed there and is
//!    damaged. Without that it is garbage, and nobody opens it.
//! 2. A copy is put after its slot, and deleted before it. So it never outlives a deletion.
//! 3. Healing writes a slot again, and must not bring back one that somebody removes: it is a [`KeyChange`].

use std::collections::BTreeSet;

use super::change::KeyChange;
use super::slots::{self, BYTES_LIMIT, name_of};
use crate::crypto::KeySlot;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::features::{self, Feature};
use crate::store::{BlobKind, BlobName, Durable, PutOptions, Store, StoreExt, get_hashed};

/// Reads a slot that is listed, or its copy if the slot itself is damaged.
///
/// # Errors
/// The error of the slot, if the copy does not help.
pub(super) fn read_slot(store: &dyn Store, id: &str) -> Result<KeySlot> {
    let error = match read(store, BlobKind::Key, id) {
        Err(error) if error.kind() == ErrorKind::Damaged => error,
        read => return read.map(|(slot, _)| slot),
    };
    match read(store, BlobKind::KeyCopy, id) {
        Ok((slot, _)) => {
            tracing::warn!("using the second copy of a key slot: {error}; `fhrd check --read-data` heals it");
            Ok(slot)
        }
        Err(second) if second.stops_reading() => Err(second),
        Err(_) => Err(error),
    }
}

fn read(store: &dyn Store, kind: BlobKind, id: &str) -> Result<(KeySlot, Vec<u8>)> {
    let name = name_of(kind, id)?;
    let blob = get_hashed(store, &name, BYTES_LIMIT)?;
    Ok((KeySlot::parse(&name, &blob)?, blob))
}

/// Deletes the copies of slots that are gone, and not only missing in a listing. Returns their number.
///
/// # Errors
/// Errors of the store.
fn delete_needless_copies(store: &dyn Store) -> Result<u64> {
    // In this order: a copy is put after its slot.
    let copies = store.list(BlobKind::KeyCopy.into())?;
    let slots: BTreeSet<String> =
        if copies.is_empty() { return Ok(0) } else { slots::ids(store)?.into_iter().collect() };
    let mut deleted = 0;
    for copy in copies {
        let id = slots::id_in(&copy.name);
        if !slots.contains(&id) && store.head(&BlobName::parse(&format!("{}/{id}", BlobKind::Key))?)?.is_none() {
            store.delete(&copy.name, Durable::OnReturn)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Deletes the copies of slots that are gone, in an encrypted repository.
///
/// # Errors
/// Errors of the store.
pub fn clean(repository: &Repository) -> Result<()> {
    match repository.encryption {
        Some(_) => delete_needless_copies(repository.store.as_ref()).map(drop),
        None => Ok(()),
    }
}

/// Writes damaged slots again from their copies, and copies that are damaged or missing from their slots. Returns how
/// many slots and copies were damaged. Does nothing while somebody changes the keys.
///
/// # Errors
/// Errors of the store.
pub fn heal_slots(repository: &Repository) -> Result<u64> {
    let Some(encryption) = &repository.encryption else { return Ok(0) };
    let store = repository.store.as_ref();
    delete_needless_copies(store)?;
    if is_whole(repository)? {
        return Ok(0);
    }
    let change = match KeyChange::begin(store, &encryption.slots, None) {
        Err(Error::Usage(reason)) => {
            tracing::warn!("key slots are not healed: {reason}");
            return Ok(0);
        }
        change => change?,
    };
    let healed = change.or_withdraw(|| heal_claimed(repository))?;
    change.end();
    Ok(healed)
}

/// Whether there is nothing to heal.
fn is_whole(repository: &Repository) -> Result<bool> {
    let store = repository.store.as_ref();
    let has_copies = features::has(repository, Feature::KeyCopies)?;
    for id in slots::ids(store)? {
        let slot = read(store, BlobKind::Key, &id).map(drop);
        let copy = if has_copies { read(store, BlobKind::KeyCopy, &id).map(drop) } else { Ok(()) };
        if slot.is_err() || copy.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Like [`heal_slots`], for whoever has claimed a change of the keys.
pub(in crate::repo) fn heal_claimed(repository: &Repository) -> Result<u64> {
    let store = repository.store.as_ref();
    let has_copies = features::has(repository, Feature::KeyCopies)?;
    delete_needless_copies(store)?;
    let mut healed = 0;
    for id in slots::ids(store)? {
        let (name, copy_name) = (name_of(BlobKind::Key, &id)?, name_of(BlobKind::KeyCopy, &id)?);
        match (read(store, BlobKind::Key, &id), read(store, BlobKind::KeyCopy, &id)) {
            (Ok((_, bytes)), Err(error)) if error.kind() == ErrorKind::Damaged => {
                healed += u64::from(written_again(store, &copy_name, &bytes, &error)?);
            }
            (Ok((_, bytes)), Err(error)) if error.kind() == ErrorKind::NotFound && has_copies => {
                store.put_if_absent(&copy_name, &[&bytes])?;
            }
            (Err(error), Ok((_, bytes))) if error.kind() == ErrorKind::Damaged => {
                healed += u64::from(written_again(store, &name, &bytes, &error)?);
            }
            (Err(error), _) | (_, Err(error)) if error.stops_reading() => return Err(error),
            _ => {}
        }
    }
    Ok(healed)
}

/// Writes one copy of a slot again with the bytes of the other one. Returns whether it was still there.
fn written_again(store: &dyn Store, name: &BlobName, bytes: &[u8], damage: &Error) -> Result<bool> {
    let is_written = store.overwrite_if_present(name, &[bytes], PutOptions::default())?;
    if is_written {
        tracing::warn!("{name} was written again from its other copy: {damage}");
    }
    Ok(is_written)
}

/// What is wrong with the key slots of a repository: damaged blobs, and what to know.
#[derive(Debug, Default)]
pub struct SlotFindings {
    /// Slots and copies that are damaged, with the damage.
    pub damaged: Vec<(String, Error)>,
    /// Hints that are no damage.
    pub hints: Vec<String>,
}

/// Looks at all key slots and their copies.
///
/// # Errors
/// Errors of the store that are not damage.
pub fn inspect_slots(repository: &Repository) -> Result<SlotFindings> {
    let (store, mut findings) = (repository.store.as_ref(), SlotFindings::default());
    if repository.encryption.is_none() {
        return Ok(findings);
    }
    let ids = slots::ids(store)?;
    for id in &ids {
        let (slot, copy) = (read(store, BlobKind::Key, id), read(store, BlobKind::KeyCopy, id));
        let copy_is_sound = copy.is_ok();
        let mut note = |kind: BlobKind, read: Result<(KeySlot, Vec<u8>)>| match read {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                findings.damaged.push((format!("{kind}/{id}"), error));
                Ok(())
            }
            Err(error) if error.is_unreadable() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        };
        note(BlobKind::Key, slot)?;
        note(BlobKind::KeyCopy, copy)?;
        if !copy_is_sound {
            let short = id.get(..8).unwrap_or_default();
            findings.hints.push(format!(
                "the key slot {short} is stored once: one bad sector loses it. `fhrd upgrade` and `fhrd repair index` \
                 store each slot twice"
            ));
        }
    }
    if ids.len() == 1 {
        let hint = "only one key slot opens the repository: whoever loses its password or key file loses the data. \
                    `fhrd key add --recovery-key` adds another";
        findings.hints.push(hint.into());
    }
    Ok(findings)
}
