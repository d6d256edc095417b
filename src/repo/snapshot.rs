//! Snapshots: named roots. Putting the snapshot into the store commits the backup.

use std::collections::{BTreeMap, HashSet};

use minicbor::{Decode, Encode};

use crate::error::{Error, ErrorKind, Result};
use crate::repo::claims::{ClaimKind, ContainerClaim, IntentNote, claim_name};
use crate::repo::clock::{Clock, latest};
use crate::repo::recipe::{ContentReference, unknown_variant};
use crate::repo::salts::Salt;
use crate::repo::tree::{NewerParts, Node, look_at_node};
use crate::repo::unknown_keys::UnknownKeys;
use crate::store::{BlobKind, BlobName, Durable, Store, StoreExt, check_hash, read_again};
use crate::types::{SnapshotId, hex};
use crate::wire::Envelope;

const MAGIC: [u8; 8] = *b"FHRDSNAP";
/// The name of the last snapshot, or of the last step of a run.
pub const LATEST: &str = "latest";
/// Key of [`Snapshot::extra`]: start of the backup if it differs from the snapshot's time, 8 bytes, little-endian.
pub const STARTED_KEY: &str = "started";
/// Key of [`Snapshot::extra`]: what the user left out, a CBOR array of texts.
pub const EXCLUDES_KEY: &str = "excludes";
/// Key of [`Snapshot::extra`]: what tells the server of the bucket that was stored from others, 16 bytes.
pub const SERVER_KEY: &str = "server";
/// Key of [`Snapshot::extra`]: id of the snapshot of another repository from which this one was copied, 32 bytes.
pub const COPIED_FROM_KEY: &str = "copied-from";
/// Key of [`Snapshot::extra`]: id of the snapshot that this one replaces without some entries, 32 bytes.
pub const REWRITTEN_FROM_KEY: &str = "rewritten-from";
/// Key of [`Snapshot::extra`]: the program and its snapshot that this one was imported from, such as `restic:` and an
/// id.
pub const IMPORTED_FROM_KEY: &str = "imported-from";
/// Key of [`Snapshot::extra`]: an entry without file flags had none. Without this key they were not read. Empty.
pub const FLAGS_RECORDED_KEY: &str = "file-flags";
/// Name in [`Snapshot::statistics`]: entries that could not be read, or changed while they were read.
pub const PROBLEMS: &str = "problems";
pub(super) const BYTES_LIMIT: u64 = 64 << 20;
/// The greatest key of a [`Snapshot`] that this version knows, and those of its root.
const KEY_MAX: u64 = 11;
const ROOT_KEY: u64 = 4;
const ROOT_NODE_KEY: u64 = 10;

/// One backup: a CBOR map with integer keys in an envelope of type `FHRDSNAP`.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Snapshot {
    /// Start of the backup, nanoseconds since 1970 (UTC).
    #[n(0)]
    pub time_ns: i64,
    /// Name of the machine.
    #[n(1)]
    pub host: String,
    /// Name of the user who ran the backup.
    #[n(2)]
    pub user: String,
    /// Absolute paths of the backup, as bytes.
    #[n(3)]
    pub paths: Vec<minicbor::bytes::ByteVec>,
    /// Listing of the root directory. `None` if it is empty.
    #[n(4)]
    pub root: Option<ContentReference>,
    /// Previous snapshot, whose unchanged files were not read again.
    #[n(5)]
    pub parent: Option<SnapshotId>,
    /// Labels.
    #[n(6)]
    pub tags: Vec<String>,
    /// Program that wrote the snapshot, with its version.
    #[n(7)]
    pub program: String,
    /// Counters of the backup, by name.
    #[n(8)]
    pub statistics: BTreeMap<String, u64>,
    /// Fields of later versions. Programs preserve those that they do not know.
    #[n(9)]
    pub extra: BTreeMap<String, minicbor::bytes::ByteVec>,
    /// Metadata of the root, if a path of the backup was the root itself (`.` or `/`).
    #[cbor(n(10), encode_with = "encode_root_node", is_nil = "Option::is_none")]
    pub root_node: Option<Node>,
    /// Id of the intent under which it was written, 16 bytes. While that is in the store, the backup has not reported
    /// the snapshot, and may withdraw it.
    #[cbor(n(11), with = "minicbor::bytes")]
    pub intent: Option<Vec<u8>>,
    /// Keys that this version does not know. They stay when it writes the snapshot again.
    #[cbor(skip)]
    pub unknown: UnknownKeys,
}

/// A snapshot with its id.
#[derive(Debug, Clone)]
pub struct NamedSnapshot {
    /// Id of the snapshot.
    pub id: SnapshotId,
    /// The snapshot itself.
    pub snapshot: Snapshot,
}

/// The first eight digits of a snapshot's id.
pub fn short_id(named: &NamedSnapshot) -> String {
    hex(&named.id.0[..4])
}

/// Store name of a snapshot.
pub fn blob_name(id: &SnapshotId) -> BlobName {
    BlobName::hashed(BlobKind::Snapshot, &id.0)
}

/// Bytes of the containers of a repository that lists no snapshot; 0 if it lists one, or has no data. It is no damage:
/// a first backup may run or have been killed, or all snapshots are forgotten. But it is also what a lost directory of
/// snapshots looks like, or an empty mount point in its place. A snapshot that cannot be read is listed.
///
/// # Errors
/// Errors of listing the store.
pub fn bytes_without_snapshots(store: &dyn Store) -> Result<u64> {
    if store.list(BlobKind::Snapshot.into())?.iter().any(|blob| parse_name(&blob.name).is_some()) {
        return Ok(0);
    }
    Ok(store.list(BlobKind::Container.into())?.iter().map(|blob| blob.len).sum())
}

/// Id of the snapshot with this store name.
pub fn parse_name(name: &str) -> Option<SnapshotId> {
    name.rsplit('/').next().and_then(SnapshotId::parse)
}

impl Snapshot {
    /// Start of the backup, nanoseconds since 1970, even if the user gave the snapshot another time. A start that
    /// cannot be read is long ago: then no file counts as older.
    pub fn started_ns(&self) -> i64 {
        match self.extra.get(STARTED_KEY) {
            None => self.time_ns,
            Some(bytes) => bytes.as_slice().try_into().map_or(i64::MIN, i64::from_le_bytes),
        }
    }

    /// What the user left out, an option and its value each; empty if nothing, or if it cannot be read.
    pub fn excludes(&self) -> Vec<String> {
        self.extra.get(EXCLUDES_KEY).and_then(|bytes| minicbor::decode(bytes).ok()).unwrap_or_default()
    }

    /// The program and snapshot that it was imported from.
    pub fn imported_from(&self) -> Option<String> {
        self.extra.get(IMPORTED_FROM_KEY).map(|origin| String::from_utf8_lossy(origin).into_owned())
    }

    /// Whether a node without file flags says that the entry had none.
    pub fn records_flags(&self) -> bool {
        self.extra.contains_key(FLAGS_RECORDED_KEY)
    }

    /// Entries that it lacks, or that changed while they were read. Of a copy, those that were not copied.
    pub fn problems(&self) -> u64 {
        self.statistics.get(PROBLEMS).copied().unwrap_or(0)
    }

    /// Stores the snapshot, which commits the backup.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn save(&self, store: &dyn Store) -> Result<SnapshotId> {
        let payload =
            minicbor::to_vec(self).map_err(|error| Error::internal(format!("cannot store the snapshot: {error}")))?;
        let payload = self.unknown.added_to(payload);
        let payload = payload.map_err(|error| Error::internal(format!("cannot store the snapshot: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        let name = store.put_hashed(BlobKind::Snapshot, &[&blob])?;
        parse_name(&name).ok_or_else(|| Error::internal(format!("a snapshot got the name {name}")))
    }

    /// Reads the snapshot `id`.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] if its hash is not `id`. [`Error::Corrupt`] if it does not parse.
    pub fn load(store: &dyn Store, id: &SnapshotId) -> Result<Snapshot> {
        Self::read(store, id).map(|(snapshot, _)| snapshot)
    }

    /// Reads the snapshot `id`, and returns the bytes that the store keeps of it, too.
    ///
    /// # Errors
    /// Errors of [`Self::load`].
    pub(super) fn read(store: &dyn Store, id: &SnapshotId) -> Result<(Snapshot, Vec<u8>)> {
        let name = blob_name(id);
        read_again(store, &name, || {
            let stored = store.get_stored(&name, BYTES_LIMIT)?;
            Ok((Self::parse(store, id, &stored)?, stored))
        })
    }

    /// Decodes what the store keeps of the snapshot `id`.
    ///
    /// # Errors
    /// Errors of [`Self::load`].
    pub fn parse(store: &dyn Store, id: &SnapshotId, stored: &[u8]) -> Result<Snapshot> {
        Self::parse_with_len(store, id, stored).map(|(snapshot, _)| snapshot)
    }

    /// Like [`Self::parse`], with the length that a listing gives for the blob.
    ///
    /// # Errors
    /// Errors of [`Self::load`].
    pub fn parse_with_len(store: &dyn Store, id: &SnapshotId, stored: &[u8]) -> Result<(Snapshot, u64)> {
        let name = blob_name(id);
        check_hash(&name, stored)?;
        let blob = store.open_stored(&name, stored.to_vec())?;
        let (_, payload) = Envelope::open(MAGIC, &name, &blob)?;
        Ok((decode(&name, payload)?, blob.len() as u64))
    }
}

/// Encodes the root as a listing does, with the keys that this version does not know.
fn encode_root_node<C, W: minicbor::encode::Write>(
    node: &Option<Node>,
    encoder: &mut minicbor::Encoder<W>,
    _: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    use minicbor::encode::Error;
    let Some(node) = node else { return encoder.null()?.ok() };
    let map = node.to_map().map_err(Error::message)?;
    encoder.writer_mut().write_all(&map).map_err(Error::write)
}

/// Decodes the snapshot that is stored as `name`.
fn decode(name: &str, payload: &[u8]) -> Result<Snapshot> {
    let corrupt = |error: minicbor::decode::Error| Error::corrupt(name, 0, "a snapshot", error.to_string());
    let decoded = minicbor::decode::<Snapshot>(payload);
    let (mut needed, mut root_node) = (None, None);
    let looked = UnknownKeys::of(payload, KEY_MAX, |key, mut value| {
        match key {
            ROOT_KEY => needed = unknown_variant(&mut value),
            ROOT_NODE_KEY => {
                let rest = value.input().get(value.position()..).unwrap_or_default();
                root_node = Some(look_at_node(rest)?);
            }
            _ => {}
        }
        Ok(())
    });
    let unknown = match looked {
        Ok(unknown) => unknown,
        Err(error) => return Err(corrupt(decoded.err().unwrap_or(error))),
    };
    needed = needed.or_else(|| root_node.as_mut().and_then(NewerParts::take_needed));
    needed = needed.or(unknown.required.map(|key| format!("key {key} of a snapshot")));
    if let Some(needed) = needed {
        return Err(Error::unsupported(name, needed));
    }
    let mut snapshot = decoded.map_err(corrupt)?;
    snapshot.unknown = unknown;
    if let (Some(node), Some(parts)) = (&mut snapshot.root_node, root_node) {
        node.newer = parts.stored_again();
    }
    Ok(snapshot)
}

impl NamedSnapshot {
    /// The snapshot that a copy of this one is a copy of: that from which this one was copied, from repository to
    /// repository. Its own id if it was not copied, or if it was rewritten here: then it lacks entries of that.
    pub fn origin(&self) -> SnapshotId {
        self.copied_from().filter(|_| !self.is_rewritten()).unwrap_or(self.id)
    }

    /// The snapshot of which this one is a copy, perhaps rewritten.
    pub fn copied_from(&self) -> Option<SnapshotId> {
        let recorded = self.snapshot.extra.get(COPIED_FROM_KEY);
        recorded.and_then(|bytes| bytes.as_slice().try_into().ok()).map(SnapshotId)
    }

    /// Whether it replaces a snapshot of this repository without some entries.
    pub fn is_rewritten(&self) -> bool {
        self.snapshot.extra.contains_key(REWRITTEN_FROM_KEY)
    }

    /// Entries that the snapshot lacks because it was copied while they could not be read; 0 if it is no copy.
    pub fn copy_problems(&self) -> u64 {
        if self.snapshot.extra.contains_key(COPIED_FROM_KEY) { self.snapshot.problems() } else { 0 }
    }

    /// Store name of the intent under which the snapshot was written.
    pub fn intent_name(&self) -> Option<BlobName> {
        let id = self.snapshot.intent.as_deref().and_then(|intent| Salt::try_from(intent).ok());
        id.map(|id| claim_name(ClaimKind::Intent, &id))
    }

    /// Whether the snapshot was written under one of the intents with these store names, which are with those of notes.
    fn is_held_by(&self, names: &HashSet<BlobName>) -> bool {
        self.intent_name().is_some_and(|intent| {
            let is_released = names.contains(&IntentNote::Released.name(&intent));
            names.contains(&IntentNote::Withdrawn.name(&intent)) || (names.contains(&intent) && !is_released)
        })
    }
}

/// Deletes the snapshot `id`.
///
/// # Errors
/// Errors of the store.
pub fn delete(store: &dyn Store, id: &SnapshotId) -> Result<()> {
    store.delete(&blob_name(id), Durable::OnReturn)
}

/// Like [`list`], without snapshots that their backup has not reported yet and may withdraw.
///
/// # Errors
/// Errors of listing the store.
pub fn list_reported(store: &dyn Store) -> Result<(Vec<NamedSnapshot>, Vec<Unreadable>)> {
    let (mut snapshots, damaged) = list(store)?;
    take_unreported(store, &mut snapshots)?;
    Ok((snapshots, damaged))
}

/// Whether the backup of a snapshot has reported it, so that it will not withdraw it.
///
/// # Errors
/// Errors of listing the store.
pub fn is_reported(store: &dyn Store, named: &NamedSnapshot) -> Result<bool> {
    Ok(take_unreported(store, &mut vec![named.clone()])?.is_empty())
}

/// Fails unless the snapshot `replaced` is there and no prune is announced. A snapshot in its place, which was put
/// before, then has all that it needs: a prune that announces itself later lists it.
///
/// # Errors
/// [`Error::Usage`] if a prune is running; [`Error::NoSuchSnapshot`] if the snapshot was deleted. Errors of the store.
pub fn check_replaced(store: &dyn Store, replaced: &SnapshotId) -> Result<()> {
    if ContainerClaim::is_any_pending(store)? {
        return Err(Error::Usage("a prune is running, or was killed; run `prune` or try again later".into()));
    }
    match store.head(&blob_name(replaced))? {
        Some(_) => Ok(()),
        None => Err(Error::NoSuchSnapshot { id: replaced.to_string(), hint: ": it was deleted meanwhile".into() }),
    }
}

/// The `error` of something that has read `snapshots`. If it says that something is lost, and one of them is no longer
/// there, nothing is: another process has forgotten it meanwhile, and a prune may delete what only it needed.
pub fn explain_loss<'a>(store: &dyn Store, snapshots: impl IntoIterator<Item = &'a SnapshotId>, error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) {
        return error;
    }
    match snapshots.into_iter().find(|id| is_forgotten(store, id).unwrap_or_default()) {
        Some(id) => forgotten(id),
        None => error,
    }
}

/// Whether another process has deleted a snapshot since it was found. One whose blob cannot be read is there.
///
/// # Errors
/// Errors of the store that are not damage.
pub fn is_forgotten(store: &dyn Store, id: &SnapshotId) -> Result<bool> {
    match store.head(&blob_name(id)) {
        Err(error) if error.is_unreadable() => Ok(false),
        head => Ok(head?.is_none()),
    }
}

/// The error of a snapshot that another process has forgotten since it was found.
pub fn forgotten(id: &SnapshotId) -> Error {
    Error::NoSuchSnapshot { id: id.to_string(), hint: ": it was forgotten meanwhile".into() }
}

/// Removes and returns snapshots that their backup has not reported yet. They must have been listed before: the intent
/// of each was put before it.
pub(super) fn take_unreported(store: &dyn Store, snapshots: &mut Vec<NamedSnapshot>) -> Result<Vec<NamedSnapshot>> {
    let intents: HashSet<BlobName> =
        store.list(BlobKind::Intent.into())?.into_iter().map(|listed| listed.name).collect();
    Ok(snapshots.extract_if(.., |named| named.is_held_by(&intents)).collect())
}

/// Name of a blob that could not be read, or of the directory, with the error.
pub type Unreadable = (String, Error);

/// Returns all snapshots, oldest first, and those that could not be read.
///
/// # Errors
/// Errors of listing the store.
pub fn list(store: &dyn Store) -> Result<(Vec<NamedSnapshot>, Vec<Unreadable>)> {
    let (mut snapshots, mut damaged) = (Vec::new(), Vec::new());
    for listed in store.list(BlobKind::Snapshot.into())? {
        let Some(id) = parse_name(&listed.name) else { continue };
        match Snapshot::load(store, &id) {
            Ok(snapshot) => snapshots.push(NamedSnapshot { id, snapshot }),
            Err(error) if error.stops_reading() => return Err(error),
            Err(error) => damaged.push((listed.name.into(), error)),
        }
    }
    drop_forgotten(store, &mut damaged)?;
    snapshots.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    Ok((snapshots, damaged))
}

/// Removes the snapshots that are no longer listed, nor found by name: another process has forgotten them since the
/// first listing. One that is still listed and cannot be found stays.
///
/// # Errors
/// Errors of listing the store.
pub(super) fn drop_forgotten(store: &dyn Store, damaged: &mut Vec<Unreadable>) -> Result<()> {
    if damaged.iter().all(|(_, error)| error.kind() != ErrorKind::NotFound) {
        return Ok(());
    }
    let listed: HashSet<BlobName> =
        store.list(BlobKind::Snapshot.into())?.into_iter().map(|listed| listed.name).collect();
    damaged.retain(|(name, error)| {
        let is_absent = |name| matches!(store.head(&name), Ok(None));
        let is_gone = || !listed.contains(name.as_str()) && BlobName::parse(name).is_ok_and(is_absent);
        error.kind() != ErrorKind::NotFound || !is_gone()
    });
    Ok(())
}

/// The last of some snapshots, oldest first, as `latest` names it.
///
/// # Errors
/// [`Error::NoSuchSnapshot`] if there is none. The error of a damaged one if there is no other.
pub(super) fn last(snapshots: Vec<NamedSnapshot>, mut damaged: Vec<Unreadable>, now_ns: i64) -> Result<NamedSnapshot> {
    match (latest(snapshots, now_ns), damaged.pop()) {
        (Some(last), damaged) => {
            if let Some((name, error)) = damaged {
                tracing::warn!("skipping {name}: {error}");
            }
            Ok(last)
        }
        (None, Some((_, error))) => Err(error),
        (None, None) => {
            let hint = ": the repository has no snapshots yet".into();
            Err(Error::NoSuchSnapshot { id: LATEST.into(), hint })
        }
    }
}

/// Finds a snapshot by id, unique prefix or `latest`.
///
/// # Errors
/// [`Error::NoSuchSnapshot`] if none or several match. The error of the snapshot if it is damaged.
pub fn find(store: &dyn Store, wanted: &str) -> Result<NamedSnapshot> {
    let none = |hint: String| Error::NoSuchSnapshot { id: wanted.into(), hint };
    if wanted == LATEST {
        let (snapshots, damaged) = list_reported(store)?;
        return last(snapshots, damaged, Clock::default().now_ns());
    }
    if wanted.is_empty() || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(none(": give an id of hex digits, a unique prefix of one, or `latest`".into()));
    }
    let prefix = wanted.to_ascii_lowercase();
    let names = match (store.list(BlobKind::Snapshot.into()), SnapshotId::parse(&prefix)) {
        // A whole id needs no list.
        (Err(Error::Unreadable { .. }), Some(id)) => {
            return Ok(NamedSnapshot { id, snapshot: Snapshot::load(store, &id)? });
        }
        (names, _) => names?,
    };
    let matching: Vec<SnapshotId> = names
        .iter()
        .map(|listed| listed.name.last())
        .filter(|name| name.starts_with(&prefix))
        .filter_map(SnapshotId::parse)
        .collect();
    match matching.as_slice() {
        [id] => match Snapshot::load(store, id) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(forgotten(id)),
            loaded => Ok(NamedSnapshot { id: *id, snapshot: loaded? }),
        },
        [] => Err(none(String::new())),
        several => Err(none(format!(": {} snapshots have this prefix; give more digits", several.len()))),
    }
}
