//! What changes key slots: each verb is one [`KeyChange`].

use std::sync::Arc;

use super::change::KeyChange;
use super::copies::{heal_claimed, heal_slots, read_slot};
use super::slots::{self, check_slot_count};
use crate::crypto::{CipherSuite, KeySlot, Keyring, Unlock};
use crate::error::{Error, Result};
use crate::repo::marks::Marks;
use crate::repo::{Encryption, RememberedRepository, Repository};
use crate::store::{BlobKind, Reading, SealedStore, Store, StoreExt};

/// Blobs that show whether the repository is younger than a keyring: what every backup writes.
const WRITTEN: [BlobKind; 2] = [BlobKind::Snapshot, BlobKind::Segment];

/// How the repository is encrypted, for a change of its keys.
///
/// # Errors
/// [`Error::Usage`] if it is not; errors of marks that forbid writing.
fn encryption(repository: &Repository) -> Result<&Encryption> {
    // A program that knows no copies of slots must not remove slots.
    repository.check_features()?;
    Marks::read(repository.store.as_ref())?.check_writable()?;
    repository.encryption.as_ref().ok_or_else(|| Error::Usage("the repository is not encrypted".into()))
}

/// Adds a slot that `unlock` opens, and returns its id.
///
/// # Errors
/// Errors of [`KeySlot::new`] and [`KeyChange`]; [`Error::Usage`] if there are too many slots.
pub fn add(repository: &Repository, unlock: &Unlock, label: &str) -> Result<String> {
    let (encryption, store) = (encryption(repository)?, repository.store.as_ref());
    let slot = KeySlot::new(&encryption.keyring, unlock, label, encryption.suite)?;
    let change = KeyChange::begin(store, &encryption.slots, None)?;
    let id = change.or_withdraw(|| {
        check_slot_count(store)?;
        let id = change.put(&slot, unlock, &encryption.keyring)?;
        heal_claimed(repository)?;
        Ok(id)
    })?;
    change.end();
    Ok(id)
}

/// Adds a slot that `unlock` opens, and removes those that opened the repository. Returns the ids of both.
///
/// # Errors
/// Errors of [`add`].
pub fn passwd(repository: &Repository, unlock: &Unlock, label: &str) -> Result<(String, Vec<String>)> {
    let (encryption, store) = (encryption(repository)?, repository.store.as_ref());
    let slot = KeySlot::new(&encryption.keyring, unlock, label, encryption.suite)?;
    let change = KeyChange::begin(store, &encryption.slots, None)?;
    let id = change.or_withdraw(|| {
        let id = change.put(&slot, unlock, &encryption.keyring)?;
        heal_claimed(repository)?;
        remember(repository, &encryption.keyring, &id);
        encryption.slots.iter().try_for_each(|old| slots::remove(store, old))?;
        Ok(id)
    })?;
    change.end();
    Ok((id, encryption.slots.clone()))
}

/// Removes the slot whose id begins with `id`, unless the secret that opened the repository then opens no slot with all
/// keys. Others that can be read do not count: anybody can put a slot that nobody opens. Returns the whole id.
///
/// # Errors
/// [`Error::Usage`] if no slot or several have such an id, or if it is needed; errors of [`KeyChange`].
pub fn remove_slot(repository: &Repository, id: &str) -> Result<String> {
    let (encryption, store) = (encryption(repository)?, repository.store.as_ref());
    let change = KeyChange::begin(store, &encryption.slots, None)?;
    let removed = change.or_withdraw(|| {
        let names = slots::ids(store)?;
        let mut found = names.iter().filter(|name| name.starts_with(id));
        let (Some(found), None) = (found.next(), found.next()) else {
            return Err(Error::Usage(format!("`{id}` is not the beginning of exactly one id of a key slot")));
        };
        check_needless(encryption, store, found)?;
        slots::remove(store, found)?;
        Ok(found.clone())
    })?;
    change.end();
    Ok(removed)
}

/// Fails if the secret that opened the repository opens no slot with all keys without the slot `id`.
fn check_needless(encryption: &Encryption, store: &dyn Store, id: &str) -> Result<()> {
    if !encryption.slots.iter().any(|slot| slot == id) {
        return Ok(());
    }
    for other in encryption.whole.iter().filter(|other| *other != id) {
        match read_slot(store, other) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    let text = "your password or key file opens no other key slot that has all keys, so this one stays. Open the \
                repository with another password or key file to remove it, or use `fhrd key passwd`, which replaces it";
    Err(Error::Usage(text.into()))
}

/// What [`rotate`] did.
pub struct Rotated {
    /// Id of the new slot.
    pub added: String,
    /// Ids of the slots that were there before.
    pub removed: Vec<String>,
    /// Generation of the new master key.
    pub generation: u32,
}

/// Makes a new master key and a slot for it that `unlock` opens, and removes all other slots.
///
/// # Errors
/// Errors of [`add`]; [`Error::Locked`] if what is stored is younger than the keyring.
pub fn rotate(repository: &Repository, unlock: &Unlock) -> Result<Rotated> {
    let (encryption, store) = (encryption(repository)?, repository.store.as_ref());
    let mut keyring = Keyring::clone(&encryption.keyring);
    keyring.rotate()?;
    let generation = keyring.latest()?.generation;
    let before = slots::list(store)?;
    let label = before.iter().find(|slot| slot.id == encryption.slot).map_or("", |slot| slot.slot.label.as_str());
    let slot = KeySlot::new(&keyring, unlock, label, encryption.suite)?;
    let change = KeyChange::begin(store, &encryption.slots, Some(&slot))?;
    let (added, before) = change.or_withdraw(|| {
        check_is_current(store)?;
        let mut before = slots::ids(store)?;
        // Those of the user last: until then, the new key is not used.
        before.sort_by_key(|id| encryption.slots.contains(id));
        Ok((change.put(&slot, unlock, &keyring)?, before))
    })?;
    // From here on the new key may be in use. If the rest fails, the claim stays, so that nobody makes another one.
    heal_claimed(repository)?;
    remember(repository, &encryption.keyring, &added);
    before.iter().try_for_each(|old| slots::remove(store, old))?;
    remember(repository, &keyring, &added);
    if !slots::ids(store)?.contains(&added) {
        change.end();
        return Err(Error::Usage("somebody has removed the new key slot at the same time".into()));
    }
    change.end();
    Ok(Rotated { added, removed: before, generation })
}

/// Fails if something is stored under a later generation than the keyring of `store` has. Another new key would get the
/// number of one that is in use.
pub(in crate::repo) fn check_is_current(store: &dyn Store) -> Result<()> {
    for kind in WRITTEN {
        for blob in store.list(kind.into())? {
            match store.get_range(&blob.name, 0, 0, Reading::Again) {
                // Somebody may have a key of that number.
                Err(error) if error.is_newer() => {
                    let reason = format!("cannot tell which master key is in use: {error}. Delete it if it is forged");
                    return Err(Error::Locked { location: store.location(), reason });
                }
                Err(error) if !error.is_unreadable() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Adds a slot that `unlock` opens for a keyring that comes from outside of the repository. Returns its id.
///
/// # Errors
/// [`Error::Locked`] if the keyring is of another repository; [`Error::Usage`] if it is older than what this machine
/// has used; errors of [`KeyChange`].
pub fn import(store: &Arc<dyn Store>, keyring: Keyring, unlock: &Unlock, label: &str) -> Result<String> {
    Repository::check_keyring(store.as_ref(), &keyring)?;
    if keyring.latest()?.generation < RememberedRepository::generation(store.as_ref(), &keyring.commitment()?) {
        let text = "these keys are older than those that this machine has used: use a later export";
        return Err(Error::Usage(text.into()));
    }
    let suite = CipherSuite::of_this_machine();
    let slot = KeySlot::new(&keyring, unlock, label, suite)?;
    let keyring = Arc::new(keyring);
    let sealed = SealedStore::new(store.clone(), suite, keyring.clone());
    let change = KeyChange::begin(&sealed, &[], None)?;
    let id = change.or_withdraw(|| {
        check_is_current(&sealed)?;
        change.put(&slot, unlock, &keyring)
    })?;
    change.end();
    // Without the password of another slot, this is the one that opens.
    heal_slots(&Repository::open_with(store.clone(), &|| Ok(unlock.clone()))?)?;
    Ok(id)
}

/// Remembers on this machine that the slot `id` opens `keyring` from now on.
fn remember(repository: &Repository, keyring: &Keyring, id: &str) {
    let Some(before) = &repository.encryption else { return };
    let encryption = Encryption {
        suite: before.suite,
        keyring: Arc::new(keyring.clone()),
        slot: id.into(),
        slots: vec![id.into()],
        whole: vec![id.into()],
        closed: Vec::new(),
        held_back: None,
    };
    RememberedRepository::remember_again(&Repository { encryption: Some(encryption), ..repository.clone() });
}
