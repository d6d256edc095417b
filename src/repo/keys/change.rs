//! A change of the key slots that nobody else makes at the same time.
//!
//! 1. Before a change, a *claim* is put below `key-changes/`. Then the claims are listed. If there is another one, the
//!    own one is deleted and the change is refused. Each side puts before it looks, so of two changes at the same time
//!    at most one goes on.
//! 2. Then the slots are listed: if one that opened the repository is gone, somebody has changed the keys meanwhile.
//! 3. A claim on a new master key names the slot that will have it. Whoever opens that slot beside an older one does
//!    not encrypt with the new key as long as the claim is there. Once the older one is gone, they do. So the claim of
//!    a killed process is no obstacle for a rotation by whoever can open that slot, and stays one for all others: they
//!    would make another key of the same generation, and delete the first one.
//! 4. A claim counts as dead when it is an hour older than the own one by the clock of the store. So does one that does
//!    not open, which anybody can put. Of very many claims, only some are read.
//! 5. After the own slot is put, claim and slots are looked at again, for programs that know no claims, and for a
//!    process that was stopped for an hour. Then the slot is read back and opened, before others are removed. If
//!    something is wrong, the own slot is deleted.

use std::cell::Cell;
use std::time::Duration;

use minicbor::{Decode, Encode};

use super::copies::read_slot;
use super::slots;
use crate::crypto::{KeySlot, Keyring, Unlock};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::salts::Salts;
use crate::store::{BlobKind, BlobName, Durable, Store, StoreExt};
use crate::wire::Envelope;

const MAGIC: [u8; 8] = *b"FHRDKCHG";
const BYTES_LIMIT: u64 = 1 << 16;
/// Claims that are read, at most.
const CLAIMS_MAX: usize = 64;
/// Hex digits of the name of a claim.
const NAME_DIGITS: usize = 32;
/// Age of the claim of a process that counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(3600);

/// The blob: a CBOR map with integer keys in an envelope of type `FHRDKCHG`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct KeyChangeRecord {
    /// When it was put, nanoseconds since 1970, by the clock of its owner. Only shown to users.
    #[n(0)]
    time_ns: i64,
    /// Machine of its owner.
    #[n(1)]
    host: String,
    /// Id of the slot that will have a new master key.
    #[n(2)]
    slot: Option<String>,
    /// Ids of the slots that opened the repository. A rotation removes them last.
    #[n(3)]
    base: Vec<String>,
}

/// See the module.
pub struct KeyChange<'a> {
    store: &'a dyn Store,
    name: BlobName,
    /// Slots that must still be there.
    base: Vec<String>,
    /// Whether it makes a new master key.
    is_rotation: bool,
    /// Claims of dead processes, which end with this one.
    dead: Vec<BlobName>,
    /// Whether the own slot may be there although the change has failed.
    leaves_slot: Cell<bool>,
}

impl<'a> KeyChange<'a> {
    /// Claims a change in `store`, which was opened with the slots `base`. If it makes a new master key, `new_master`
    /// is the slot that will have it.
    ///
    /// # Errors
    /// [`Error::Usage`] if somebody else changes the keys or has changed them; errors of the store.
    pub fn begin(store: &'a dyn Store, base: &[String], new_master: Option<&KeySlot>) -> Result<Self> {
        let random = Salts::default().draw()?;
        let slot = new_master.map(slots::id_of).transpose()?;
        let record = KeyChangeRecord {
            time_ns: jiff::Timestamp::now().as_nanosecond() as i64,
            host: hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            slot,
            base: base.to_vec(),
        };
        let payload = minicbor::to_vec(&record);
        let payload = payload.map_err(|error| Error::internal(format!("cannot encode a claim: {error}")))?;
        let name = BlobName::random(BlobKind::KeyChange, &random);
        let mut change = KeyChange {
            store,
            name,
            base: base.to_vec(),
            is_rotation: new_master.is_some(),
            dead: Vec::new(),
            leaves_slot: Cell::new(false),
        };
        let put = store.put_if_absent(&change.name, &[&Envelope::new(MAGIC).seal(&payload)]);
        let looked = put.and_then(|_| change.look());
        match looked {
            Ok(()) => Ok(change),
            Err(error) => {
                change.withdraw_claim();
                Err(error)
            }
        }
    }

    /// Looks at the claims of others, then at the slots.
    fn look(&mut self) -> Result<()> {
        let mut claims = claims(self.store)?;
        claims.retain(|claim| *claim != self.name);
        for claim in claims.iter().take(CLAIMS_MAX) {
            if self.pass(claim)? {
                self.dead.push(claim.clone());
            }
        }
        if claims.len() > CLAIMS_MAX {
            // So that the next attempt sees others.
            self.dead.drain(..).try_for_each(|dead| self.store.delete(&dead, Durable::OnReturn))?;
            return Err(Error::Usage(format!(
                "{} changes of the keys seem to be under way: nothing was changed. Delete what is below key-changes/ if \
                 none is, or try again, which deletes up to {CLAIMS_MAX} claims that are older than an hour",
                claims.len()
            )));
        }
        self.check_base()
    }

    /// Fails if the claim of another change is an obstacle. Returns whether it is dead and can go.
    fn pass(&self, claim: &BlobName) -> Result<bool> {
        let record = match load(self.store, claim) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) if does_not_open(&error) && self.is_dead(claim)? => return Ok(true),
            Err(error) if error.is_unreadable() || does_not_open(&error) => {
                return Err(Error::Usage(format!(
                    "cannot tell which change of the keys is under way: {error}. If none is, delete {claim}, or wait \
                     an hour"
                )));
            }
            record => record?,
        };
        let has_slot = record.slot.as_ref().map_or(Ok(false), |id| self.has_slot(id))?;
        let opens_slot = has_slot && record.slot.as_ref().is_some_and(|id| self.base.contains(id));
        let is_over = !has_slot
            || record
                .base
                .iter()
                .map(|id| self.has_slot(id))
                .try_fold(true, |all_gone, has| Ok::<_, Error>(all_gone && !has?))?;
        let is_dead = self.is_dead(claim)?;
        if is_dead && is_over {
            return Ok(true);
        }
        if opens_slot && self.is_rotation {
            return Ok(is_dead);
        }
        let time = jiff::Timestamp::from_nanosecond(record.time_ns.into());
        let time = time.map(|time| format!("{time:.0}")).unwrap_or_default();
        if !is_dead {
            return Err(Error::Usage(format!(
                "another change of the keys is under way, on {} since {time}: nothing was changed. Try again later. If \
                 it was interrupted, wait an hour, or delete {claim}",
                record.host
            )));
        }
        Err(Error::Usage(format!(
            "a `fhrd key rotate` on {} of {time} was interrupted after its new master key could be used: nothing was \
             changed. Run it again with the password or key file of the slot {}",
            record.host,
            record.slot.as_deref().and_then(|id| id.get(..8)).unwrap_or_default()
        )))
    }

    fn is_dead(&self, claim: &BlobName) -> Result<bool> {
        let (own, other) = (self.store.head(&self.name)?, self.store.head(claim)?);
        let (Some(own), Some(other)) = (own, other) else { return Ok(other.is_none()) };
        Ok(own.modified.duration_since(other.modified).is_ok_and(|age| age >= DEAD_AFTER))
    }

    fn has_slot(&self, id: &str) -> Result<bool> {
        Ok(self.store.head(&slots::name_of(BlobKind::Key, id)?)?.is_some())
    }

    /// Fails if a slot that opened the repository is gone.
    fn check_base(&self) -> Result<()> {
        for id in &self.base {
            if !self.has_slot(id)? {
                return Err(changed_meanwhile());
            }
        }
        Ok(())
    }

    /// Puts a slot, looks again at claim and slots, and reads it back: what `unlock` opens must be `keyring`. So
    /// whoever then removes other slots has one that opens. Returns its id. If something is wrong, the slot is deleted.
    ///
    /// # Errors
    /// [`Error::Usage`] if somebody else has changed the keys meanwhile; errors of the store and of [`KeySlot::open`];
    /// [`Error::Internal`] if the slot does not open, or not with these keys.
    pub fn put(&self, slot: &KeySlot, unlock: &Unlock, keyring: &Keyring) -> Result<String> {
        if self.store.head(&self.name)?.is_none() {
            return Err(changed_meanwhile());
        }
        let id = slots::id_of(slot)?;
        let looked = slots::put(self.store, slot).and_then(|_| match self.store.head(&self.name)? {
            Some(_) => self.check_base().and_then(|()| self.prove(&id, unlock, keyring)),
            None => Err(changed_meanwhile()),
        });
        match looked {
            Ok(()) => Ok(id),
            Err(error) => {
                if let Err(second) = slots::remove(self.store, &id) {
                    tracing::warn!("the key slot {id} may stay: {second}");
                    self.leaves_slot.set(true);
                }
                Err(error)
            }
        }
    }

    /// Fails unless `unlock` opens the stored slot, and it has these keys.
    fn prove(&self, id: &str, unlock: &Unlock, keyring: &Keyring) -> Result<()> {
        let slot = read_slot(self.store, id).map_err(|error| match error.kind() {
            ErrorKind::NotFound => changed_meanwhile(),
            _ => error,
        })?;
        match slot.open(&slots::name_of(BlobKind::Key, id)?, unlock)? {
            Some(opened) if opened.encode()? == keyring.encode()? => Ok(()),
            _ => Err(Error::internal("a new key slot does not open with its secret, so the keys stay as they were")),
        }
    }

    /// Ends the change, and deletes the claims of dead processes.
    pub fn end(self) {
        for name in self.dead.iter().chain([&self.name]) {
            if let Err(error) = self.store.delete(name, Durable::OnReturn) {
                tracing::warn!("{name} stays, and lets other changes of the keys wait for an hour: {error}");
            }
        }
    }

    fn withdraw_claim(&self) {
        if let Err(error) = self.store.delete(&self.name, Durable::OnReturn) {
            tracing::warn!("{} stays, and lets other changes of the keys wait for an hour: {error}", self.name);
        }
    }

    /// What `work` returns. If it fails, the claim is deleted, unless the own slot may be there: the claim then keeps
    /// others from a key of the same generation.
    ///
    /// # Errors
    /// Errors of `work`.
    pub fn or_withdraw<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        work().inspect_err(|_| {
            if !self.leaves_slot.get() {
                self.withdraw_claim();
            }
        })
    }
}

/// The slots whose new master keys are not to be used yet, because somebody is still putting them.
#[derive(Debug, Default)]
pub(in crate::repo) struct Unconfirmed {
    /// Each with the claim on it.
    slots: Vec<(String, BlobName)>,
    /// Whether there are so many claims that some were not read. They may be on any slot.
    has_more: bool,
}

impl Unconfirmed {
    /// Name of the claim on a slot, or where it may be.
    pub(in crate::repo) fn claim_on(&self, slot: &str) -> Option<&str> {
        let claim = self.slots.iter().find(|(id, _)| id == slot).map(|(_, claim)| claim.as_str());
        claim.or(self.has_more.then_some(BlobKind::KeyChange.directory()))
    }
}

/// The slots whose new master keys are not to be used yet.
///
/// # Errors
/// Errors of the store. A claim that does not open counts for nothing here.
pub(in crate::repo) fn unconfirmed_slots(store: &dyn Store) -> Result<Unconfirmed> {
    let claims = claims(store)?;
    let mut unconfirmed = Unconfirmed { has_more: claims.len() > CLAIMS_MAX, ..Unconfirmed::default() };
    if unconfirmed.has_more {
        tracing::warn!("{} blobs below key-changes/: only {CLAIMS_MAX} of them are read. Delete them", claims.len());
    }
    for claim in claims.into_iter().take(CLAIMS_MAX) {
        match load(store, &claim) {
            Ok(record) => unconfirmed.slots.extend(record.slot.map(|slot| (slot, claim))),
            Err(error) if error.is_unreadable() || does_not_open(&error) => {
                tracing::warn!("ignoring a claim on a change of the keys: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(unconfirmed)
}

/// The names of all claims. Other blobs below the directory are none.
fn claims(store: &dyn Store) -> Result<Vec<BlobName>> {
    let is_claim = |name: &BlobName| {
        let digits = name.strip_prefix(BlobKind::KeyChange.directory()).and_then(|rest| rest.strip_prefix('/'));
        digits.is_some_and(|digits| digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    Ok(store.list(BlobKind::KeyChange.into())?.into_iter().map(|listed| listed.name).filter(is_claim).collect())
}

/// Whether no key makes a claim of what was read, now or later, or none that this program has.
fn does_not_open(error: &Error) -> bool {
    error.is_proven_damage() || matches!(error.kind(), ErrorKind::Locked | ErrorKind::Unsupported)
}

fn load(store: &dyn Store, claim: &BlobName) -> Result<KeyChangeRecord> {
    let blob = store.get(claim, BYTES_LIMIT)?;
    let (_, payload) = Envelope::open(MAGIC, claim, &blob)?;
    minicbor::decode(payload).map_err(|error| Error::corrupt(claim, 0, "a claim", error.to_string()))
}

fn changed_meanwhile() -> Error {
    Error::Usage("somebody has changed the keys at the same time, so nothing was changed: try again".into())
}
