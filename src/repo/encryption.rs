//! How an open repository is encrypted, and which of its master keys seals.
//!
//! 1. The keys are those of all slots that opened, merged.
//! 2. A new master key that somebody is about to introduce does not seal yet: a claim names its slot, and an older slot
//!    is still there ([`keys::KeyChange`]).
//! 3. A store can bring back an old slot and an old claim to get the older key used again. So what seals is never older
//!    than what has sealed on this machine before. A machine that remembers nothing looks, before it writes, whether
//!    something is stored under a later key: then the key has been introduced, and nothing is written.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::RememberedRepository;
use super::keys::{self, OpenedSlots};
use crate::crypto::{CipherSuite, Keyring};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobKind, SealedStore, StoppingStore, Store, StoreExt};

/// How an open repository is encrypted.
#[derive(Debug, Clone)]
pub struct Encryption {
    /// The cipher for new blobs.
    pub suite: CipherSuite,
    /// Its keys.
    pub keyring: Arc<Keyring>,
    /// Id of the key slot that opened: the latest one with the latest master key.
    pub slot: String,
    /// Ids of all key slots that opened.
    pub slots: Vec<String>,
    /// Ids of those that have every key by themselves.
    pub whole: Vec<String>,
    /// Ids of key slots that the same secret does not open.
    pub closed: Vec<String>,
    /// What keeps the latest master key from sealing, if something does.
    pub held_back: Option<HeldBack>,
}

impl Encryption {
    /// What opened, as it is used.
    pub(super) fn of(store: &Arc<dyn Store>, suite: CipherSuite, opened: OpenedSlots) -> Result<Self> {
        let OpenedSlots { slots, generations, whole, closed, mut keyring } = opened;
        let held_back = if generations.iter().any(|generation| generations.first() != Some(generation)) {
            hold_back(store, suite, &mut keyring, &slots, &generations)?
        } else {
            None
        };
        let slot = slots.first().cloned().unwrap_or_default();
        Ok(Encryption { suite, keyring: Arc::new(keyring), slot, slots, whole, closed, held_back })
    }

    /// The same, whose reads fail once `stop` is set.
    pub(super) fn stopped_by(&self, stop: &Arc<AtomicBool>) -> Self {
        let held_back = self.held_back.clone().map(|held_back| {
            let older: Arc<dyn Store> = Arc::new(StoppingStore::new(held_back.older, stop.clone()));
            HeldBack { older, ..held_back }
        });
        Encryption { held_back, ..self.clone() }
    }
}

/// Lets `keyring` seal with no key that claims hold back. Returns what holds it back.
fn hold_back(
    store: &Arc<dyn Store>,
    suite: CipherSuite,
    keyring: &mut Keyring,
    slots: &[String],
    generations: &[u32],
) -> Result<Option<HeldBack>> {
    let unconfirmed = keys::unconfirmed_slots(&SealedStore::new(store.clone(), suite, Arc::new(keyring.clone())))?;
    let opened = || slots.iter().zip(generations);
    // The slots with the oldest keys are no news, whatever claims say.
    let oldest = generations.iter().min();
    let is_old = |generation: &u32| Some(generation) == oldest;
    let confirmed = opened().filter(|(id, generation)| is_old(generation) || unconfirmed.claim_on(id).is_none());
    let Some((old_slot, generation)) = confirmed.max_by_key(|(_, generation)| **generation) else { return Ok(None) };
    let later = opened().filter(|(_, other)| *other > generation);
    let claim = later.clone().find_map(|(id, _)| unconfirmed.claim_on(id));
    let (Some(claim), true) = (claim, *generation < keyring.generation_max()) else { return Ok(None) };
    let remembered = RememberedRepository::generation(store.as_ref(), &keyring.commitment()?);
    if remembered > *generation {
        tracing::warn!(
            "the key slot {PREFIX}/{old_slot} is older than what this machine has used, and a claim holds back the \
             later one: {claim}. They are not obeyed. If nobody else changes the keys now, delete both, or run \
             `fhrd key rotate`, which does",
            PREFIX = BlobKind::Key
        );
    }
    let generation = remembered.max(*generation);
    if generation >= keyring.generation_max() {
        return Ok(None);
    }
    keyring.seal_at_most_with(generation);
    let older = Arc::new(SealedStore::new(store.clone(), suite, Arc::new(keyring.up_to(generation))));
    Ok(Some(HeldBack { claim: claim.into(), old_slot: old_slot.clone(), older }))
}

/// Why the latest master key does not seal.
#[derive(Clone)]
pub struct HeldBack {
    /// Name of the claim on the slot that has it.
    claim: String,
    /// Id of the latest slot without it.
    old_slot: String,
    /// The store as whoever has only the keys that seal.
    older: Arc<dyn Store>,
}

impl fmt::Debug for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBack").field("claim", &self.claim).field("old_slot", &self.old_slot).finish()
    }
}

impl HeldBack {
    /// Fails if something is stored under a later master key than the one that seals.
    ///
    /// # Errors
    /// [`Error::Locked`] with what to do; errors of listing the store.
    pub(super) fn check(&self) -> Result<()> {
        let is_current = keys::check_is_current(self.older.as_ref());
        is_current.map_err(|error| match error.kind() {
            ErrorKind::Locked => Error::Locked { location: self.older.location(), reason: self.reason() },
            _ => error,
        })
    }

    fn reason(&self) -> String {
        format!(
            "an older master key would encrypt, although something is stored under a later one: {claim} holds the later \
             one back, and the old key slot {PREFIX}/{slot} is there. Nothing was written. Try again, because somebody \
             may just have changed the keys. If it comes again, both were brought back after a `fhrd key rotate`: run \
             that again, which removes them, or delete both",
            claim = self.claim,
            slot = self.old_slot,
            PREFIX = BlobKind::Key
        )
    }
}
