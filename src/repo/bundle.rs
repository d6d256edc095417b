//! Bundles: blobs that hold copies of many snapshots, so that a machine without a local cache reads few blobs.
//!
//! 1. The listing of `snapshots/` says which snapshots exist. A bundle only saves reads: each copy is the whole blob of
//!    a snapshot, and its hash must be an id that is listed. What a bundle lacks is read one by one.
//! 2. [`maintain`] writes a bundle once enough snapshots are in none. It takes in bundles that are not larger than what
//!    it has gathered, and those of which more than half is gone. So their sizes grow geometrically: N snapshots are in
//!    about log2(N / 32) bundles, and each was written at most about as many times.
//! 3. A bundle is put before those that it takes in are deleted. Killed in between, a snapshot is in two bundles, which
//!    harms nobody; the next run deletes one.
//! 4. A damaged bundle costs only reads. Whoever meets it and may write deletes it: a backup, which reads some of a
//!    local store each time, `forget`, `check --read-data` and `repair`.

use std::collections::{HashMap, HashSet};

use minicbor::{Decoder, Encoder};

use super::Repository;
use super::overwritten::delete_damaged;
use super::snapshot::{self, NamedSnapshot, Snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobKind, BlobName, Durable, ListedBlob, Store, StoreExt, get_hashed};
use crate::types::SnapshotId;
use crate::wire::Envelope;

/// Snapshots in no bundle that make a new one worth it. A backup looks each time as many snapshots have gathered.
pub const LOOSE_MIN: usize = 32;
/// Bytes of a snapshot in a bundle or in a local file, at most. Larger ones are read one by one.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"FHRDBNDL";
/// Bytes of a bundle, at most.
const BYTES_LIMIT: u64 = 64 << 20;
/// Bytes of snapshots in a bundle from which on it is not written again while most of them exist.
const FULL_BYTES: u64 = 16 << 20;
/// Bytes of all bundles that one listing of snapshots reads, at most.
const READ_BYTES_MAX: u64 = 256 << 20;

/// The blobs of snapshots in a bundle, in its order.
struct Bundle {
    payload: Vec<u8>,
}

impl Bundle {
    /// Reads and verifies the bundle `name`.
    fn load(store: &dyn Store, name: &BlobName) -> Result<Bundle> {
        let blob = get_hashed(store, name, BYTES_LIMIT)?;
        let (_, payload) = Envelope::open(MAGIC, name, &blob)?;
        let bundle = Bundle { payload: payload.to_vec() };
        bundle.visit(|_, _| ()).map_err(|error| Error::corrupt(name, 0, "a bundle", error.to_string()))?;
        Ok(bundle)
    }

    /// Calls `each` with the id that the bytes of a snapshot have, and with the bytes.
    fn visit<'a>(&'a self, mut each: impl FnMut(SnapshotId, &'a [u8])) -> Result<(), minicbor::decode::Error> {
        let mut decoder = Decoder::new(&self.payload);
        let entries = decoder.map()?.ok_or_else(|| minicbor::decode::Error::message("a map of no length"))?;
        for _ in 0..entries {
            if decoder.u64()? != 0 {
                decoder.skip()?;
                continue;
            }
            let count = decoder.array()?.ok_or_else(|| minicbor::decode::Error::message("an array of no length"))?;
            for _ in 0..count {
                let blob = decoder.bytes()?;
                each(SnapshotId(*blake3::hash(blob).as_bytes()), blob);
            }
        }
        Ok(())
    }

    /// Ids and lengths of its snapshots.
    fn snapshots(&self) -> Vec<(SnapshotId, u64)> {
        let mut snapshots = Vec::new();
        // It decoded once.
        let _ = self.visit(|id, blob| snapshots.push((id, blob.len() as u64)));
        snapshots
    }
}

/// Fails unless the bundle `name` can be read whole. Whether its snapshots exist does not matter.
///
/// # Errors
/// Errors of the store; [`Error::ChecksumMismatch`], [`Error::Corrupt`] or [`Error::Unsupported`].
pub fn verify(store: &dyn Store, name: &BlobName) -> Result<()> {
    Bundle::load(store, name).map(drop)
}

/// The bundles, those with most bytes first. A directory that cannot be listed is as good as empty.
fn listed(store: &dyn Store) -> Result<Vec<ListedBlob>> {
    let mut listed = match store.list(BlobKind::Bundle.into()) {
        Err(error @ Error::Unreadable { .. }) => {
            tracing::warn!("reading snapshots one by one: {error}");
            Vec::new()
        }
        listed => listed?,
    };
    listed.sort_by(|one, other| (other.len, &one.name).cmp(&(one.len, &other.name)));
    Ok(listed)
}

/// Finds copies of the `wanted` snapshots, removes each from `wanted` and calls `found` with it, its blob, and the
/// length that a listing gives for that.
///
/// # Errors
/// Errors of the store. A bundle that cannot be read is a warning.
pub(super) fn find(
    store: &dyn Store,
    wanted: &mut HashSet<SnapshotId>,
    mut found: impl FnMut(NamedSnapshot, &[u8], u64),
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    visit(store, |bundle| {
        let _ = bundle.visit(|id, blob| {
            if wanted.contains(&id)
                && let Ok((snapshot, len)) = Snapshot::parse_with_len(store, &id, blob)
            {
                wanted.remove(&id);
                found(NamedSnapshot { id, snapshot }, blob, len);
            }
        });
        !wanted.is_empty()
    })
}

/// Adds the ids of snapshots that bundles have copies of and that are not `listed` to `ids`, until it has `count_max`.
///
/// # Errors
/// Errors of the store. A bundle that cannot be read is a warning.
pub(super) fn add_unlisted(
    store: &dyn Store,
    listed: &HashSet<SnapshotId>,
    count_max: usize,
    ids: &mut HashSet<SnapshotId>,
) -> Result<()> {
    visit(store, |bundle| {
        let _ = bundle.visit(|id, blob| {
            if ids.len() < count_max && !listed.contains(&id) && Snapshot::parse(store, &id, blob).is_ok() {
                ids.insert(id);
            }
        });
        ids.len() < count_max
    })
}

/// The blobs of the snapshots `wanted`, as far as bundles have copies of them.
///
/// # Errors
/// Errors of the store. A bundle that cannot be read is a warning.
pub(super) fn blobs(store: &dyn Store, wanted: &HashSet<SnapshotId>) -> Result<HashMap<SnapshotId, Vec<u8>>> {
    let mut blobs = HashMap::new();
    visit(store, |bundle| {
        let _ = bundle.visit(|id, blob| {
            if wanted.contains(&id) {
                blobs.insert(id, blob.to_vec());
            }
        });
        blobs.len() < wanted.len()
    })?;
    Ok(blobs)
}

/// Calls `each` with one readable bundle after another, until it returns false.
fn visit(store: &dyn Store, mut each: impl FnMut(&Bundle) -> bool) -> Result<()> {
    let mut bytes = 0;
    for blob in listed(store)? {
        bytes = u64::saturating_add(bytes, blob.len);
        if bytes > READ_BYTES_MAX {
            tracing::warn!("reading snapshots one by one: the bundles have more than {} MiB", READ_BYTES_MAX >> 20);
            break;
        }
        let bundle = match Bundle::load(store, &blob.name) {
            Ok(bundle) => bundle,
            // Another one has taken it in.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.is_unreadable() => {
                tracing::warn!("ignoring {}: {error}", blob.name);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !each(&bundle) {
            break;
        }
    }
    Ok(())
}

/// A bundle as [`maintain`] sees it.
struct Candidate {
    name: BlobName,
    /// Snapshots that exist and that no earlier candidate has.
    live: Vec<SnapshotId>,
    /// Bytes of these.
    live_bytes: u64,
    /// Number of the others.
    gone: usize,
}

/// Writes a bundle if at least `loose_min` snapshots are in none, or if most of one is gone. Returns the number of
/// snapshots written. May be killed at any call, and may run beside others.
///
/// # Errors
/// Errors of the store. A snapshot or a bundle that cannot be read is left out.
pub fn maintain(store: &dyn Store, loose_min: usize) -> Result<usize> {
    maintain_with(store, loose_min, |_| Vec::new(), |_| Ok(false))
}

/// Like [`maintain`]. `known` gives blobs of the snapshots that it is asked for, as far as it has them. `delete`
/// deletes a damaged bundle, or leaves it.
pub(super) fn maintain_with(
    store: &dyn Store,
    loose_min: usize,
    known: impl FnOnce(&HashSet<SnapshotId>) -> Vec<(SnapshotId, Vec<u8>)>,
    delete: impl Fn(&BlobName) -> Result<bool>,
) -> Result<usize> {
    let mut loose: HashSet<SnapshotId> =
        store.list(BlobKind::Snapshot.into())?.iter().filter_map(|blob| snapshot::parse_name(&blob.name)).collect();
    let mut candidates = candidates(store, &mut loose, delete)?;
    candidates.sort_by(|one, other| (one.live.len(), &one.name).cmp(&(other.live.len(), &other.name)));
    let (mut count, mut bytes) = (loose.len(), 0);
    let is_due = loose.len() >= loose_min.max(1);
    let mut taken = Vec::new();
    for candidate in candidates {
        let is_mostly_gone = candidate.gone > candidate.live.len();
        let fits = is_due && candidate.live.len() <= count && bytes + candidate.live_bytes <= FULL_BYTES;
        if is_mostly_gone || fits {
            count += candidate.live.len();
            bytes += candidate.live_bytes;
            taken.push(candidate);
        }
    }
    if !is_due && taken.is_empty() {
        return Ok(0);
    }
    let mut blobs = known(&loose);
    loose.retain(|id| blobs.iter().all(|(known, _)| known != id));
    blobs.extend(loose_blobs(store, loose)?);
    for candidate in &taken {
        let live: HashSet<&SnapshotId> = candidate.live.iter().collect();
        let bundle = match Bundle::load(store, &candidate.name) {
            // Somebody else maintains them now.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            bundle => bundle?,
        };
        let _ = bundle.visit(|id, blob| {
            if live.contains(&id) {
                blobs.push((id, blob.to_vec()));
            }
        });
    }
    let written = put(store, blobs)?;
    for candidate in taken.iter().filter(|candidate| written.names.iter().all(|name| *name != candidate.name)) {
        store.delete(&candidate.name, Durable::OnReturn)?;
    }
    Ok(written.snapshots)
}

/// Reads bundles of at most `bytes_max` bytes together, but at least one, from one on that `random` selects. Deletes
/// the damaged ones: the snapshots in them are read one by one. Returns their number.
///
/// # Errors
/// Errors of the store.
pub fn delete_damaged_bundles(repository: &Repository, bytes_max: u64, random: u64) -> Result<u64> {
    let store = repository.store.as_ref();
    let (mut bundles, mut bytes, mut deleted) = (listed(store)?, 0, 0);
    let count = bundles.len() as u64;
    bundles.rotate_left((random % count.max(1)) as usize);
    for ListedBlob { name, len } in bundles {
        if bytes > 0 && len > bytes_max.saturating_sub(bytes) {
            break;
        }
        bytes += len;
        if let Err(error) = Bundle::load(store, &name) {
            deleted += u64::from(is_deleted(&name, error, |name| delete_damaged(repository, name))?);
        }
    }
    Ok(deleted)
}

/// Deletes a bundle with `delete` if it is damaged, as `error` says. Returns whether it is deleted.
fn is_deleted(name: &BlobName, error: Error, delete: impl Fn(&BlobName) -> Result<bool>) -> Result<bool> {
    match error {
        error if error.kind() == ErrorKind::NotFound => Ok(false),
        error if error.kind() == ErrorKind::Damaged => {
            tracing::warn!("deleting {name}, which only has copies: {error}");
            delete(name)
        }
        error if error.is_unreadable() => {
            tracing::warn!("ignoring {name}: {error}");
            Ok(false)
        }
        error => Err(error),
    }
}

/// The readable bundles. Removes the snapshots that they have from `loose`. `delete` deletes damaged ones.
fn candidates(
    store: &dyn Store,
    loose: &mut HashSet<SnapshotId>,
    delete: impl Fn(&BlobName) -> Result<bool>,
) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for ListedBlob { name, .. } in listed(store)? {
        match Bundle::load(store, &name) {
            Ok(bundle) => {
                let (copies, mut live, mut live_bytes) = (bundle.snapshots(), Vec::new(), 0);
                for (id, len) in &copies {
                    if loose.remove(id) {
                        live.push(*id);
                        live_bytes += len;
                    }
                }
                candidates.push(Candidate { name, gone: copies.len() - live.len(), live, live_bytes });
            }
            Err(error) => drop(is_deleted(&name, error, &delete)?),
        }
    }
    Ok(candidates)
}

/// The blobs of the snapshots `ids` that are readable and not too large.
fn loose_blobs(store: &dyn Store, ids: HashSet<SnapshotId>) -> Result<Vec<(SnapshotId, Vec<u8>)>> {
    let mut blobs = Vec::new();
    for id in ids {
        match Snapshot::read(store, &id) {
            Ok((_, blob)) if blob.len() <= SNAPSHOT_BYTES_MAX => blobs.push((id, blob)),
            Ok(_) => {}
            Err(error) if error.is_unreadable() || error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(blobs)
}

/// What [`put`] wrote.
#[derive(Default)]
struct Written {
    names: Vec<BlobName>,
    snapshots: usize,
}

/// Stores bundles of `blobs`: one, unless they have more bytes than a bundle may.
fn put(store: &dyn Store, mut blobs: Vec<(SnapshotId, Vec<u8>)>) -> Result<Written> {
    let failed =
        |error: minicbor::encode::Error<std::convert::Infallible>| Error::internal(format!("a bundle: {error}"));
    // The same snapshots give the same bundle.
    blobs.sort_unstable();
    let mut written = Written::default();
    let mut rest = blobs.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(_, blob): &&(SnapshotId, Vec<u8>)| {
            bytes += blob.len() as u64;
            bytes <= 2 * FULL_BYTES
        };
        let (part, tail) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        let mut encoder = Encoder::new(Vec::new());
        encoder.map(1).and_then(|encoder| encoder.u8(0)?.array(part.len() as u64)).map_err(failed)?;
        for (_, blob) in part {
            encoder.bytes(blob).map_err(failed)?;
        }
        let blob = Envelope::new(MAGIC).seal(encoder.writer());
        written.names.push(store.put_hashed(BlobKind::Bundle, &[&blob])?);
        written.snapshots += part.len();
        rest = tail;
    }
    Ok(written)
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
