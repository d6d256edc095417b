//! Clues: one feature in eight of each stored chunk, in blobs that every machine reads. A machine without a similarity
//! index finds near versions by them, and need not read the indexes of all containers.
//!
//! 1. A backup into a store that is not local puts a blob with the clues of its containers after its snapshot.
//! 2. Whoever opens the similarity index takes the clues of the containers that it does not know. A look-up that meets
//!    the clue of a container reads the index of that container and takes all its features: chunks that were stored
//!    near a similar one are likely to be similar to what follows.
//! 3. Once there are many blobs of about one length, a longer one takes them in. It is put before they are deleted.
//!    Killed in between, clues are in two blobs, which harms nobody. Only a prune leaves out what is gone.
//! 4. Clues are hints. They may lag, lie or be lost: only containers that are listed count, and bytes are compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use minicbor::{Decode, Encode};

use super::super::listing::ContainerListing;
use super::HASH_MASK;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::container::{ContainerIndex, ENTRIES_LIMIT, FEATURES_MAX};
use crate::repo::overwritten::delete_damaged;
use crate::store::{BlobKind, BlobName, Durable, ListedBlob, Store, StoreExt, get_hashed, map_parallel};
use crate::types::ContainerId;
use crate::wire::{Envelope, WireReader, put_varint};

const MAGIC: [u8; 8] = *b"FHRDSIML";
/// Bytes of a blob, at most.
const BYTES_LIMIT: u64 = 16 << 20;
/// Clues of one blob that is written. These take about 4 MB.
pub(super) const CLUES_MAX: usize = 1 << 19;
/// Containers of one blob that is written.
const CONTAINERS_MAX: usize = 1 << 16;
/// Bytes from which on a blob is not taken in by another one.
const FULL_BYTES: u64 = 1 << 20;
/// Blobs of about one length that are written as one.
const MERGED_MIN: usize = 8;
/// Blobs whose lengths differ by less than this factor are of about one length, as a shift.
const CLASS_SHIFT: u32 = 2;
/// Bytes of blobs that one merge takes in, at most.
const MERGED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of blobs that are requested at once, at most, but one blob always is.
const REQUESTED_BYTES_MAX: u64 = 4 << 20;
/// Blobs that are read for any purpose, at most.
const BLOBS_MAX: usize = 1024;
/// Bytes of blobs that one prune reads, at most.
const SWEPT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a hash: a feature without its position.
pub(super) const HASH_BYTES: usize = 6;
/// Bytes of a container's row: id, entries and clues.
const ROW_BYTES: usize = 32 + 4 + 4;

/// Clues of one entry: it has at most 64 features.
const ENTRY_CLUES_MAX: u64 = 8;

/// Of so many features of an entry, in their order, the first one is a clue.
const STRIDE: usize = 8;

/// The clues of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerClues {
    /// The container.
    pub container: ContainerId,
    /// Number of its entries; 0 if none has features.
    pub entries: u32,
    /// Positions of entries, ascending, and the low 48 bits of a feature of each.
    pub clues: Vec<(u32, u64)>,
}

impl ContainerClues {
    /// A container in which no entry has features.
    pub(super) fn none(container: ContainerId) -> Self {
        ContainerClues { container, entries: 0, clues: Vec::new() }
    }

    /// The clues of a container with this index.
    pub(super) fn of_index(container: ContainerId, index: &ContainerIndex) -> Self {
        let of_entry = |(position, entry)| clues_of(index.features(entry)).map(move |hash| (position, hash));
        let clues: Vec<(u32, u64)> = (0..).zip(&index.entries).flat_map(of_entry).collect();
        match clues.is_empty() {
            true => Self::none(container),
            false => ContainerClues { container, entries: index.entries.len() as u32, clues },
        }
    }
}

/// The payload.
#[derive(Debug, Default, Encode, Decode)]
#[cbor(map)]
struct CluesPayload {
    /// A row for each container, ascending by id.
    #[cbor(n(0), with = "minicbor::bytes")]
    rows: Vec<u8>,
    /// Positions of all clues, each as the difference to the one before it in its container, as varints.
    #[cbor(n(1), with = "minicbor::bytes")]
    positions: Vec<u8>,
    /// Hashes of all clues.
    #[cbor(n(2), with = "minicbor::bytes")]
    hashes: Vec<u8>,
}

/// Which features of an entry are clues.
pub(super) fn clues_of(features: &[u64]) -> impl Iterator<Item = u64> + '_ {
    features.iter().take(FEATURES_MAX).step_by(STRIDE).map(|feature| feature & HASH_MASK)
}

fn encode(containers: &[ContainerClues]) -> Result<Vec<u8>> {
    let mut payload = CluesPayload::default();
    for ContainerClues { container, entries, clues } in containers {
        payload.rows.extend_from_slice(&container.0);
        payload.rows.extend_from_slice(&entries.to_le_bytes());
        payload.rows.extend_from_slice(&(clues.len() as u32).to_le_bytes());
        let mut before = 0;
        for (position, hash) in clues {
            put_varint(&mut payload.positions, u64::from(position - before));
            before = *position;
            payload.hashes.extend_from_slice(&hash.to_le_bytes()[..HASH_BYTES]);
        }
    }
    let payload =
        minicbor::to_vec(&payload).map_err(|error| Error::internal(format!("cannot store clues: {error}")))?;
    Ok(Envelope::new(MAGIC).seal(&payload))
}

/// Reads the clues of the blob `name`, which has these bytes.
///
/// # Errors
/// [`Error::ChecksumMismatch`], [`Error::Corrupt`] or [`Error::Unsupported`].
fn decode(name: &str, blob: &[u8]) -> Result<Vec<ContainerClues>> {
    let (_, payload) = Envelope::open(MAGIC, name, blob)?;
    let payload: CluesPayload =
        minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "clues", error.to_string()))?;
    let (rows, rest) = payload.rows.as_chunks::<ROW_BYTES>();
    let (hashes, rest_of_hashes) = payload.hashes.as_chunks::<HASH_BYTES>();
    if !rest.is_empty() || !rest_of_hashes.is_empty() {
        let got = format!("{} and {} bytes", payload.rows.len(), payload.hashes.len());
        return Err(Error::corrupt(name, 0, "whole rows and hashes", got));
    }
    let mut positions = WireReader::new(name, 0, &payload.positions);
    let (mut hashes, mut containers) = (hashes.iter(), Vec::with_capacity(rows.len()));
    for row in rows {
        let mut row = WireReader::new(name, 0, row);
        let (container, entries) = (ContainerId(row.array()?), row.u32()?);
        let (count, mut next) = (row.u32()?, 0u64);
        if u64::from(entries) > ENTRIES_LIMIT || u64::from(count) > ENTRY_CLUES_MAX * u64::from(entries) {
            let got = format!("{entries} entries with {count} clues");
            let expected = format!("at most {ENTRIES_LIMIT} entries, {ENTRY_CLUES_MAX} clues each");
            return Err(Error::corrupt(name, 0, expected, got));
        }
        let mut clues = Vec::with_capacity(hashes.len().min(count as usize));
        for _ in 0..count {
            let Some(hash) = hashes.next() else {
                return Err(positions.error("a hash for each clue", "no more hashes"));
            };
            let position = next.saturating_add(positions.varint()?);
            if position >= u64::from(entries) {
                return Err(positions.error(format!("an entry below {entries}"), position.to_string()));
            }
            next = position;
            let mut bytes = [0; 8];
            bytes[..HASH_BYTES].copy_from_slice(hash);
            clues.push((position as u32, u64::from_le_bytes(bytes)));
        }
        containers.push(ContainerClues { container, entries, clues });
    }
    positions.finish()?;
    match hashes.next() {
        None => Ok(containers),
        Some(_) => Err(Error::corrupt(name, 0, "a clue for each hash", "more hashes")),
    }
}

/// Reads the blob `name`.
///
/// # Errors
/// Errors of the store; [`Error::ChecksumMismatch`], [`Error::Corrupt`] or [`Error::Unsupported`].
pub fn load(store: &dyn Store, name: &BlobName) -> Result<Vec<ContainerClues>> {
    decode(name, &get_hashed(store, name, BYTES_LIMIT)?)
}

/// Stores clues: in one blob, unless they are too many. Returns the names of the blobs.
///
/// # Errors
/// Errors of the store.
pub fn put(store: &dyn Store, mut containers: Vec<ContainerClues>) -> Result<Vec<BlobName>> {
    // The same clues give the same blob. Of two rows of a container, the one with more clues stays.
    containers.sort_by_key(|clues| (clues.container, Reverse(clues.clues.len())));
    containers.dedup_by_key(|clues| clues.container);
    let (mut names, mut rest) = (Vec::new(), containers.as_slice());
    while !rest.is_empty() {
        let mut count = 0;
        let fits = |clues: &&ContainerClues| {
            count += clues.clues.len();
            count <= CLUES_MAX
        };
        let (part, tail) = rest.split_at(rest.iter().take(CONTAINERS_MAX).take_while(fits).count().max(1));
        names.push(store.put_hashed(BlobKind::Similarity, &[&encode(part)?])?);
        rest = tail;
    }
    Ok(names)
}

/// The blobs with clues, the shortest first: these are the newest. `None` if the directory cannot be listed.
fn listed(store: &dyn Store) -> Result<Option<Vec<ListedBlob>>> {
    let mut listed = match store.list(BlobKind::Similarity.into()) {
        Err(error @ Error::Unreadable { .. }) => {
            tracing::warn!("finding near versions without the clues of others: {error}");
            return Ok(None);
        }
        listed => listed?,
    };
    listed.retain(|blob| is_clues(&blob.name));
    listed.sort_by(|one, other| (one.len, &one.name).cmp(&(other.len, &other.name)));
    Ok(Some(listed))
}

/// Whether a blob below `similarity` has the name of one with clues. Others are of newer versions.
pub fn is_clues(name: &BlobName) -> bool {
    name.kind() == BlobKind::Similarity && name.hash().is_some()
}

/// The first of `blobs` that have at most `bytes_max` bytes together, and are not too many.
fn bounded(blobs: Vec<ListedBlob>, bytes_max: u64) -> Vec<ListedBlob> {
    let count = count_within(&blobs, bytes_max);
    blobs.into_iter().take(BLOBS_MAX.min(count)).collect()
}

/// How many of `blobs`, from the first on, have at most `bytes_max` bytes together.
fn count_within(blobs: &[ListedBlob], bytes_max: u64) -> usize {
    let mut bytes = 0u64;
    let fits = |blob: &&ListedBlob| {
        bytes = bytes.saturating_add(blob.len);
        bytes <= bytes_max
    };
    blobs.iter().take_while(fits).count()
}

/// The blobs whose clues a machine has taken, by hash.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TakenBlobs {
    /// They need not be read again.
    pub(super) done: HashSet<[u8; 32]>,
    /// Some of their containers were not listed: another run was storing them, or they are gone. They are read once
    /// more.
    pub(super) partly: HashSet<[u8; 32]>,
}

impl TakenBlobs {
    fn add(&mut self, hash: [u8; 32], is_whole: bool) {
        let was_partly = self.partly.remove(&hash);
        let hashes = if is_whole || was_partly { &mut self.done } else { &mut self.partly };
        hashes.insert(hash);
    }
}

/// Calls `each` with the clues in blobs that are not taken, those of blobs of `bytes_max` bytes at most. It says
/// whether a container is listed. Adds the blobs to `taken`, and removes those that are gone. Returns whether all blobs
/// are read now; `None` if the directory cannot be listed.
///
/// # Errors
/// Errors of the store. A blob that cannot be read is a warning.
pub(super) fn visit(
    store: &dyn Store,
    taken: &mut TakenBlobs,
    bytes_max: u64,
    mut each: impl FnMut(ContainerClues) -> bool,
) -> Result<Option<bool>> {
    let Some(mut blobs) = listed(store)? else { return Ok(None) };
    let there: HashSet<[u8; 32]> = blobs.iter().filter_map(|blob| blob.name.hash()).collect();
    [&mut taken.done, &mut taken.partly].into_iter().for_each(|hashes| hashes.retain(|hash| there.contains(hash)));
    blobs.retain(|blob| blob.name.hash().is_some_and(|hash| !taken.done.contains(&hash)));
    let count = blobs.len();
    let blobs = bounded(blobs, bytes_max);
    let mut rest = blobs.as_slice();
    while !rest.is_empty() {
        let fitting = count_within(rest, REQUESTED_BYTES_MAX).min(store.requests_max());
        let (part, tail) = rest.split_at(fitting.max(1));
        let read = map_parallel(part.len(), part, |blob| get_hashed(store, &blob.name, BYTES_LIMIT));
        for (ListedBlob { name, .. }, read) in part.iter().zip(read) {
            // One after the other: decoded, they take more than twice the memory.
            let containers = read.and_then(|bytes| decode(name, &bytes));
            let (Some(containers), Some(hash)) = (unless_unreadable(name, containers)?, name.hash()) else { continue };
            let count = containers.len();
            let listed = containers.into_iter().map(&mut each).filter(|is_listed| *is_listed).count();
            taken.add(hash, listed == count);
        }
        rest = tail;
    }
    Ok(Some(blobs.len() == count))
}

/// What was read, or `None` if it is gone or cannot be read.
fn unless_unreadable<T>(name: &BlobName, read: Result<T>) -> Result<Option<T>> {
    match read {
        // Another one has taken it in.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.is_unavailable() => {
            tracing::warn!("ignoring {name}, which only has clues: {error}");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Writes blobs of about one length as one, once there are eight of them; not all, if they are very many. May be killed
/// at any call, and may run beside others. Returns how many it took in.
///
/// # Errors
/// Errors of the store.
pub fn merge(store: &dyn Store) -> Result<usize> {
    let mut classes: BTreeMap<u32, Vec<ListedBlob>> = BTreeMap::new();
    for blob in listed(store)?.unwrap_or_default().into_iter().filter(|blob| blob.len < FULL_BYTES) {
        classes.entry(blob.len.max(1).ilog2() / CLASS_SHIFT).or_default().push(blob);
    }
    for blobs in classes.into_values().filter(|blobs| blobs.len() >= MERGED_MIN) {
        // Some may be damaged, or of a newer version.
        let merged = write_again(store, &bounded(blobs, MERGED_BYTES_MAX), 2, |_| true)?;
        if merged > 0 {
            return Ok(merged);
        }
    }
    Ok(0)
}

/// Writes the clues in the blobs `taken` again, those of containers that exist, and deletes the blobs. It does nothing
/// if fewer than `count_min` can be read. Returns how many were read.
fn write_again(
    store: &dyn Store,
    taken: &[ListedBlob],
    count_min: usize,
    exists: impl Fn(&ContainerId) -> bool,
) -> Result<usize> {
    let (mut containers, mut read) = (Vec::new(), Vec::new());
    for ListedBlob { name, .. } in taken {
        let Some(clues) = unless_unreadable(name, load(store, name))? else { continue };
        containers.extend(clues.into_iter().filter(|clues| exists(&clues.container)));
        read.push(name);
    }
    if read.len() < count_min {
        return Ok(0);
    }
    let written = put(store, containers)?;
    for name in read.iter().filter(|name| !written.contains(name)) {
        store.delete(name, Durable::OnReturn)?;
    }
    Ok(read.len())
}

/// Merges blobs, and writes those again of which more than half of the containers do not exist. It reads a bounded
/// number of bytes for that, from one blob on that `random` selects. Returns how many it wrote again.
///
/// # Errors
/// Errors of the store.
pub fn sweep(repository: &Repository, random: u64) -> Result<usize> {
    let store = repository.store.as_ref();
    let mut blobs = listed(store)?.unwrap_or_default();
    if blobs.is_empty() {
        return Ok(0);
    }
    let merged = merge(store)?;
    // Behind the blobs: what is put meanwhile exists.
    let listing = ContainerListing::take(&repository.store)?;
    if !listing.unlistable().is_empty() {
        return Ok(merged);
    }
    let exists = |id: &ContainerId| listing.containers.contains(id);
    let count = blobs.len() as u64;
    blobs.rotate_left((random % count) as usize);
    let mut mostly_gone = Vec::new();
    for blob in bounded(blobs, SWEPT_BYTES_MAX) {
        let Some(clues) = unless_unreadable(&blob.name, load(store, &blob.name))? else { continue };
        if clues.iter().filter(|clues| !exists(&clues.container)).count() * 2 > clues.len() {
            mostly_gone.push(blob);
        }
    }
    mostly_gone
        .iter()
        .try_fold(merged, |count, blob| Ok(count + write_again(store, std::slice::from_ref(blob), 1, exists)?))
}

/// Reads all blobs with clues and deletes the damaged ones. Returns their number.
///
/// # Errors
/// Errors of the store.
pub fn delete_damaged_clues(repository: &Repository) -> Result<u64> {
    let (store, mut deleted) = (repository.store.as_ref(), 0);
    for ListedBlob { name, .. } in listed(store)?.unwrap_or_default() {
        match load(store, &name).map(drop) {
            Err(error) if error.is_bad_blob() => {
                tracing::warn!("deleting {name}, which only has clues: {error}");
                deleted += u64::from(delete_damaged(repository, &name)?);
            }
            loaded => _ = unless_unreadable(&name, loaded)?,
        }
    }
    Ok(deleted)
}

#[cfg(test)]
#[path = "clues_tests.rs"]
mod tests;
