//! Key slots as blobs below `keys/`: listing them, and opening all that a secret opens.

use super::copies::read_slot;
use crate::crypto::{KeySlot, Keyring, Unlock};
use crate::error::{Error, Result};
use crate::repo::RememberedRepository;
use crate::store::{BlobKind, BlobName, Durable, Store, StoreExt, is_slot_id};
use crate::types::hex;

/// Bytes of a slot, at most. Most of them are generations of the key.
pub(super) const BYTES_LIMIT: u64 = 1 << 20;
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

/// Store name of the slot, or of its copy, with an id.
///
/// # Errors
/// [`Error::Usage`] if it is no id.
pub(super) fn name_of(kind: BlobKind, id: &str) -> Result<BlobName> {
    BlobName::parse(&format!("{kind}/{id}"))
}

/// Stores a slot and returns its id.
///
/// # Errors
/// Errors of the store.
pub fn put(store: &dyn Store, slot: &KeySlot) -> Result<String> {
    store.put_hashed(BlobKind::Key, &[&slot.encode()?]).map(|name| name.last().into())
}

/// The id that a slot has once it is stored.
///
/// # Errors
/// [`Error::Internal`] if it does not encode.
pub fn id_of(slot: &KeySlot) -> Result<String> {
    Ok(hex(blake3::hash(&slot.encode()?).as_bytes()))
}

/// The ids of all blobs below `keys/` that have the name of a slot.
///
/// # Errors
/// Errors of listing the store.
pub fn ids(store: &dyn Store) -> Result<Vec<String>> {
    Ok(store.list(BlobKind::Key.into())?.into_iter().filter_map(|blob| slot_id(&blob.name)).collect())
}

/// The id of the slot that has the name `name`.
fn slot_id(name: &str) -> Option<String> {
    let id = name.strip_prefix(BlobKind::Key.directory())?.strip_prefix('/')?;
    is_slot_id(id).then(|| id.into())
}

pub(super) fn id_in(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().into()
}

/// Fails if the repository has so many slots that another one may not be tried.
///
/// # Errors
/// [`Error::Usage`]; errors of listing the store.
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
/// Errors of listing the store.
pub fn list(store: &dyn Store) -> Result<Vec<NamedSlot>> {
    let mut slots = Vec::new();
    let mut listed = ids(store)?;
    if listed.len() > SLOTS_MAX {
        let used: Vec<String> = RememberedRepository::slots(store).into_iter().map(|(id, _)| id).collect();
        listed.sort_by_key(|id| !used.contains(id));
        tracing::warn!(
            "{} blobs below keys/: at most {SLOTS_MAX} of them are looked at. Delete those that are no key slots",
            listed.len()
        );
    }
    for id in listed.into_iter().take(BLOBS_MAX) {
        if slots.len() == SLOTS_MAX {
            break;
        }
        match read_slot(store, &id) {
            Ok(slot) => slots.push(NamedSlot { id, slot }),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => tracing::warn!("skipping a key slot: {error}"),
        }
    }
    slots.sort_by(|a, b| (a.slot.time_ns, &a.id).cmp(&(b.slot.time_ns, &b.id)));
    Ok(slots)
}

/// What opened.
#[derive(Debug)]
pub struct OpenedSlots {
    /// Ids of the slots, at least one: first the latest one with the latest master key.
    pub slots: Vec<String>,
    /// The latest generation of the master key in each of them.
    pub generations: Vec<u32>,
    /// Ids of those slots that have every key of the keyring.
    pub whole: Vec<String>,
    /// Ids of slots that the secret does not open.
    pub closed: Vec<String>,
    /// The keys of all of them.
    pub keyring: Keyring,
}

/// Opens all slots that `unlock` opens and whose keyring `is_right` accepts, and merges their keys: one may lack what
/// another has. Slots that this machine has tried in vain with the secret of a slot are not tried again with it.
///
/// # Errors
/// [`Error::Locked`] if there is none; errors of listing the store and of `is_right`.
pub fn open(store: &dyn Store, unlock: &Unlock, is_right: impl Fn(&Keyring) -> Result<bool>) -> Result<OpenedSlots> {
    let locked = |reason: &str| Error::Locked { location: store.location(), reason: reason.into() };
    let mut slots = list(store)?;
    if slots.is_empty() {
        return Err(locked("it has no key slot that can be read; `fhrd key import` adds one from an exported key"));
    }
    let known = RememberedRepository::slots(store);
    let is_known = |id: &String| known.iter().any(|(slot, _)| slot == id);
    slots.reverse();
    // Somebody may have put costly slots.
    slots.sort_by_key(|named| (named.slot.is_costly(), !is_known(&named.id)));
    let (mut is_foreign, mut closed) = (false, Vec::new());
    let mut opened: Vec<(NamedSlot, Keyring)> = Vec::new();
    for named in slots {
        // What opens a slot is what opened it before.
        let mut vain = known.iter().filter(|(slot, _)| opened.iter().any(|(named, _)| named.id == *slot));
        if vain.any(|(_, closed)| closed.contains(&named.id)) {
            closed.push(named.id);
            continue;
        }
        if named.slot.is_costly() && !opened.is_empty() {
            continue;
        }
        match named.slot.open(&format!("keys/{}", named.id), unlock) {
            Ok(Some(keyring)) if is_right(&keyring)? => opened.push((named, keyring)),
            Ok(Some(_)) => is_foreign = true,
            Ok(None) => closed.push(named.id),
            Err(error) => tracing::warn!("a key slot does not open: {error}"),
        }
    }
    opened = fitting(opened, is_known);
    if let Some(opened) = merged(opened, closed)? {
        return Ok(opened);
    }
    Err(locked(match (is_foreign, unlock) {
        (true, _) => "the key slot that opens has the keys of another repository: somebody exchanged files",
        (_, Unlock::Password(_)) => "no key slot opens with this password",
        (_, Unlock::KeyFile(_)) => "no key slot opens with this key file",
    }))
}

/// The slots whose keys fit into one keyring. Those that this machine used last come first, then those with the fewest
/// keys, so that no slot with very many keys of its own keeps others out.
fn fitting(mut opened: Vec<(NamedSlot, Keyring)>, is_known: impl Fn(&String) -> bool) -> Vec<(NamedSlot, Keyring)> {
    opened.sort_by_key(|(named, keyring)| (!is_known(&named.id), keyring.count()));
    let mut all: Option<Keyring> = None;
    opened.retain(|(named, keyring)| match all.get_or_insert_with(|| keyring.clone()).merge(keyring) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("skipping the key slot keys/{}: {error}. Remove it, unless you know it", named.id);
            false
        }
    });
    opened
}

/// The keys of all slots that opened. Of two keys of one generation, the one in the latest slot counts for what is
/// written from now on.
fn merged(mut opened: Vec<(NamedSlot, Keyring)>, mut closed: Vec<String>) -> Result<Option<OpenedSlots>> {
    let latest = |keyring: &Keyring| keyring.latest().map_or(0, |master| master.generation);
    let order = |(named, keyring): &(NamedSlot, Keyring)| (latest(keyring), named.slot.time_ns, named.id.clone());
    opened.sort_by_key(|opened| std::cmp::Reverse(order(opened)));
    let (slots, generations) = opened.iter().map(|(named, keyring)| (named.id.clone(), latest(keyring))).unzip();
    let mut keyrings = opened.iter().map(|(_, keyring)| keyring);
    let Some(mut keyring) = keyrings.next().cloned() else { return Ok(None) };
    keyrings.try_for_each(|other| keyring.merge(other))?;
    let is_whole = |(_, own): &&(NamedSlot, Keyring)| own.has_all_of(&keyring);
    let whole = opened.iter().filter(is_whole).map(|(named, _)| named.id.clone()).collect();
    closed.sort_unstable();
    Ok(Some(OpenedSlots { slots, generations, whole, closed, keyring }))
}

/// Removes the slot `id`, its copy first.
///
/// # Errors
/// Errors of the store.
pub fn remove(store: &dyn Store, id: &str) -> Result<()> {
    store.delete(&name_of(BlobKind::KeyCopy, id)?, Durable::OnReturn)?;
    store.delete(&name_of(BlobKind::Key, id)?, Durable::OnReturn)
}
