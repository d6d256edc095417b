//! Claims: short-lived blobs by which writers and prunes see each other, without locks and without clocks.
//!
//! A writer puts an *intent* before it commits: the containers that its snapshot relies on. A prune puts a *pending
//! entry* before it decides: the containers that it may delete. Each side stores before it looks, so of a writer and a
//! prune at least one sees the other:
//!
//! - A writer puts its intent, then lists the pending entries, then the containers. What is pending or gone, it stores
//!   again. Then it commits.
//! - A prune puts its pending entry, then lists the intents, then the snapshots, then the containers. It deletes only
//!   what none of them needs.
//!
//! A writer that may not delete puts a note beside its intent instead: that the intent is *released*, or that the
//! snapshot under it is *withdrawn*. The next prune deletes both. A prune that takes a writer for dead puts the note
//! that its intent is *broken*: it holds no container any more. The intent itself stays for a while, because its writer
//! may only be stopped, just before its snapshot: nobody has reported that one, whatever it lacks.
//!
//! What a prune deletes of what a broken intent names, it records beside that: a segment that the writer puts later may
//! name it, and that is no damage.
//!
//! Anybody who may put can forge such a note, so it loses nothing by itself: a writer looks for the note before its
//! commit, and at its containers behind it.

use std::collections::HashSet;

use minicbor::{Decode, Encode};

use super::salts::Salt;
use super::seen::SeenNames;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobKind, BlobName, Store, StoreExt};
use crate::types::{ContainerId, hex};
use crate::wire::{Envelope, WireReader};

const MAGIC: [u8; 8] = *b"FHRDCLAM";
/// Enough for two million containers.
const BYTES_LIMIT: u64 = 64 << 20;
const ID_BYTES: usize = 32;

/// What a claim says about its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// A writer relies on them.
    Intent,
    /// A prune may delete them.
    Pending,
}

impl ClaimKind {
    /// What such claims are in the store.
    pub fn blob_kind(self) -> BlobKind {
        match self {
            ClaimKind::Intent => BlobKind::Intent,
            ClaimKind::Pending => BlobKind::Pending,
        }
    }
}

/// The blob: a CBOR map with integer keys in an envelope of type `FHRDCLAM`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct ClaimRecord {
    /// When it was put, nanoseconds since 1970, by the clock of its owner. Only shown to users.
    #[n(0)]
    time_ns: i64,
    /// Machine of its owner.
    #[n(1)]
    host: String,
    /// Ids of the containers, one after another.
    #[cbor(n(2), with = "minicbor::bytes")]
    containers: Vec<u8>,
}

/// What the name of a record of deleted containers has behind that of the broken intent that names them, before digits
/// of its own.
const PRUNED_SUFFIX: &str = ".pruned-";

/// A claim in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerClaim {
    /// Store name.
    pub name: BlobName,
    /// Machine of its owner.
    pub host: String,
    /// Its containers, ascending.
    pub containers: Vec<ContainerId>,
}

/// Claims, and the names of those that cannot be read, with the reason.
pub type ListedClaims = (Vec<ContainerClaim>, Vec<(BlobName, Error)>);

/// Store name of the claim `id`.
pub fn claim_name(kind: ClaimKind, id: &Salt) -> BlobName {
    BlobName::random(kind.blob_kind(), id)
}

/// What is said about an intent, by an empty blob beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentNote {
    /// A writer that may not delete: the snapshot is reported, or there is none.
    Released,
    /// A writer that may not delete: the snapshot is not reported and never will be.
    Withdrawn,
    /// A prune that takes the writer for dead: the intent holds nothing.
    Broken,
}

impl IntentNote {
    /// Store name of this note about the intent with the store name `intent`.
    pub fn name(self, intent: &BlobName) -> BlobName {
        intent.with_suffix(self.suffix())
    }

    /// What the name of a note has behind that of its intent.
    pub fn suffix(self) -> &'static str {
        match self {
            IntentNote::Released => ".released",
            IntentNote::Withdrawn => ".withdrawn",
            IntentNote::Broken => ".broken",
        }
    }

    /// Puts the note.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put(self, store: &dyn Store, intent: &BlobName) -> Result<()> {
        store.put_if_absent(&self.name(intent), &[]).map(drop)
    }

    /// Whether `name` is that of a note of any kind, or of a record beside an intent.
    pub fn is_note(name: &str) -> bool {
        name.contains('.')
    }

    /// The intent beside which a prune has put `name`, or `None` if that is no such name.
    pub fn intent_of_prune(name: &BlobName) -> Option<BlobName> {
        let is_of_prune = name.ends_with(IntentNote::Broken.suffix()) || name.contains(PRUNED_SUFFIX);
        let (intent, _) = name.split_once('.').filter(|_| is_of_prune)?;
        BlobName::parse(intent).ok()
    }

    /// The intent that a note of this kind with the store name `name` is about, or `None` if that is no such note.
    pub fn intent_of(self, name: &BlobName) -> Option<BlobName> {
        name.strip_suffix(self.suffix()).and_then(|intent| BlobName::parse(intent).ok())
    }
}

impl ContainerClaim {
    /// Puts a claim on `containers`. Its id must be new.
    ///
    /// # Errors
    /// Errors of the store, and [`Error::Usage`] for more containers than a claim holds.
    pub fn put(
        store: &dyn Store,
        kind: ClaimKind,
        id: &Salt,
        containers: &HashSet<ContainerId>,
    ) -> Result<ContainerClaim> {
        Self::put_named(store, claim_name(kind, id), containers.iter().copied().collect())
    }

    /// Records that a prune deletes `containers`, which the broken intent called `intent` names. `id` must be new.
    ///
    /// # Errors
    /// Errors of [`Self::put`].
    pub fn put_pruned(store: &dyn Store, intent: &BlobName, id: &Salt, containers: Vec<ContainerId>) -> Result<()> {
        let name = intent.with_suffix(&format!("{PRUNED_SUFFIX}{}", hex(id)));
        Self::put_named(store, name, containers).map(drop)
    }

    /// The containers that prunes have deleted although a broken intent names them. A record that cannot be read says
    /// nothing.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn pruned(store: &dyn Store) -> Result<HashSet<ContainerId>> {
        let mut containers = HashSet::new();
        for listed in store.list(BlobKind::Intent.into())? {
            if !listed.name.contains(PRUNED_SUFFIX) {
                continue;
            }
            match ContainerClaim::load(store, &listed.name) {
                Ok(claim) => containers.extend(claim.containers),
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => tracing::debug!("skipping {}: {error}", listed.name),
            }
        }
        Ok(containers)
    }

    fn put_named(store: &dyn Store, name: BlobName, mut containers: Vec<ContainerId>) -> Result<ContainerClaim> {
        containers.sort_unstable();
        let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let record = ClaimRecord {
            time_ns: jiff::Timestamp::now().as_nanosecond() as i64,
            host: host.clone(),
            containers: containers.iter().flat_map(|id| id.0).collect(),
        };
        let payload = minicbor::to_vec(&record);
        let payload = payload.map_err(|error| Error::internal(format!("cannot encode a claim: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        if blob.len() as u64 > BYTES_LIMIT {
            return Err(Error::Usage(format!("{} containers are too many for one claim", containers.len())));
        }
        // A server may call a name taken that this very put has just taken.
        if !store.put_if_absent(&name, &[&blob])? && store.get(&name, BYTES_LIMIT)? != blob {
            return Err(Error::internal(format!("{name} exists already")));
        }
        Ok(ContainerClaim { name, host, containers })
    }

    /// Reads the claim called `name`.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for a damaged one.
    pub fn load(store: &dyn Store, name: &BlobName) -> Result<ContainerClaim> {
        let blob = store.get(name, BYTES_LIMIT)?;
        let (_, payload) = Envelope::open(MAGIC, name, &blob)?;
        let record: ClaimRecord =
            minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "a claim", error.to_string()))?;
        let len = record.containers.len();
        if !len.is_multiple_of(ID_BYTES) {
            return Err(Error::corrupt(name, 0, "ids of 32 bytes", format!("{len} bytes")));
        }
        let mut reader = WireReader::new(name, 0, &record.containers);
        let containers = (0..len / ID_BYTES).map(|_| Ok(ContainerId(reader.array()?))).collect::<Result<_>>()?;
        Ok(ContainerClaim { name: name.clone(), host: record.host, containers })
    }

    /// Whether a prune has announced itself. One listing may lack its entry, so only a second one says that there is
    /// none.
    ///
    /// # Errors
    /// Errors of listing the store.
    pub fn is_any_pending(store: &dyn Store) -> Result<bool> {
        let is_listed = || Ok(!store.list(BlobKind::Pending.into())?.is_empty());
        Ok(is_listed()? || is_listed()?)
    }

    /// Calls `found` with each claim of a kind, without broken intents. Returns those that cannot be read, with the
    /// reason. If one vanishes before it is read, its owner may have put another one in its place before that, so they
    /// are listed again.
    ///
    /// # Errors
    /// Errors of the store.
    fn visit(
        store: &dyn Store,
        kind: ClaimKind,
        seen: &mut SeenNames,
        mut found: impl FnMut(ContainerClaim),
    ) -> Result<Vec<(BlobName, Error)>> {
        let (mut damaged, mut asked) = (Vec::new(), HashSet::new());
        loop {
            let mut has_vanished = false;
            let listed = seen.list(store, kind.blob_kind())?;
            let broken: HashSet<BlobName> =
                listed.iter().filter_map(|listed| IntentNote::Broken.intent_of(&listed.name)).collect();
            for listed in listed {
                let is_claim = !IntentNote::is_note(&listed.name) && !broken.contains(&listed.name);
                if !is_claim || !asked.insert(listed.name.clone()) {
                    continue;
                }
                match ContainerClaim::load(store, &listed.name) {
                    Ok(claim) => found(claim),
                    Err(error) if error.kind() == ErrorKind::NotFound => has_vanished = true,
                    Err(error) if error.is_unreadable() => damaged.push((listed.name, error)),
                    Err(error) => return Err(error),
                }
            }
            if !has_vanished {
                return Ok(damaged);
            }
        }
    }

    /// All claims of a kind, and those that cannot be read, with the reason.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn list_with_damaged(store: &dyn Store, kind: ClaimKind) -> Result<ListedClaims> {
        Self::list_with_seen(store, kind, &mut SeenNames::default())
    }

    /// Like [`Self::list_with_damaged`]. Adds their names to `seen`.
    ///
    /// # Errors
    /// Errors of the store. [`Error::Unreadable`] if the listing lacks one that was seen before and is there.
    pub fn list_with_seen(store: &dyn Store, kind: ClaimKind, seen: &mut SeenNames) -> Result<ListedClaims> {
        let mut claims = Vec::new();
        let damaged = Self::visit(store, kind, seen, |claim| claims.push(claim))?;
        Ok((claims, damaged))
    }

    /// All claims of a kind. One that vanishes meanwhile is left out.
    ///
    /// # Errors
    /// Errors of the store. A damaged claim is an error, because it may name any container.
    pub fn list(store: &dyn Store, kind: ClaimKind) -> Result<Vec<ContainerClaim>> {
        let (claims, damaged) = Self::list_with_damaged(store, kind)?;
        fail_if_any(damaged).map(|()| claims)
    }

    /// The containers of all claims of a kind.
    ///
    /// # Errors
    /// Errors of [`Self::list`].
    pub fn containers_of(store: &dyn Store, kind: ClaimKind) -> Result<HashSet<ContainerId>> {
        Self::containers_of_seen(store, kind, &mut SeenNames::default())
    }

    /// Like [`Self::containers_of`]. Adds the names of the claims to `seen`.
    ///
    /// # Errors
    /// Errors of [`Self::list`]. [`Error::Unreadable`] if the listing lacks one that was seen before and is there.
    pub fn containers_of_seen(
        store: &dyn Store,
        kind: ClaimKind,
        seen: &mut SeenNames,
    ) -> Result<HashSet<ContainerId>> {
        // One after another: the intents of one long run list the same containers again and again.
        let mut containers = HashSet::new();
        let damaged = Self::visit(store, kind, seen, |claim| containers.extend(claim.containers))?;
        fail_if_any(damaged).map(|()| containers)
    }
}

/// Fails if a claim cannot be read.
fn fail_if_any(damaged: Vec<(BlobName, Error)>) -> Result<()> {
    match damaged.into_iter().next() {
        None => Ok(()),
        Some((name, error)) => {
            tracing::warn!("{name} cannot be read; a prune deletes it once it is older than its grace period");
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn claims_are_listed_by_kind_and_a_damaged_one_is_an_error() {
        let store = MemoryStore::new();
        let ids = |bytes: &[u8]| bytes.iter().map(|byte| ContainerId([*byte; 32])).collect::<HashSet<_>>();
        let one = ContainerClaim::put(&store, ClaimKind::Intent, &[1; 16], &ids(&[3, 1, 2])).unwrap();
        let two = ContainerClaim::put(&store, ClaimKind::Intent, &[2; 16], &ids(&[])).unwrap();
        let three = ContainerClaim::put(&store, ClaimKind::Pending, &[1; 16], &ids(&[4])).unwrap();
        assert_eq!(one.containers, [1, 2, 3].map(|byte| ContainerId([byte; 32])));
        assert_eq!(one.name, "intents/01010101010101010101010101010101");
        assert_eq!(ContainerClaim::list(&store, ClaimKind::Intent).unwrap(), [one.clone(), two]);
        assert_eq!(ContainerClaim::containers_of(&store, ClaimKind::Pending).unwrap(), ids(&[4]));
        assert!(ContainerClaim::put(&store, ClaimKind::Intent, &[1; 16], &ids(&[9])).is_err(), "an id that exists");
        let mut bytes = store.get(&three.name, 1 << 20).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        store.replace(&three.name, &bytes);
        let error = ContainerClaim::list(&store, ClaimKind::Pending).unwrap_err();
        assert!(error.to_string().contains(three.name.as_str()), "{error}");
        assert_eq!(ContainerClaim::list(&store, ClaimKind::Intent).unwrap().len(), 2);
    }
}
