//! A cold repository: its data containers are in cold storage, which gives them only some time after a request.
//!
//! 1. A required mark of the kind `cold` says so. Older programs do not write then: what they store would have no hot
//!    index, and they would read containers that cannot be read.
//! 2. Whoever writes reads the marks first, and the store puts a hot index after each container
//!    ([`ColdStore`](super::cold_store::ColdStore)). Data containers and their parity get the class of storage that the
//!    user gives. All else stays hot, metadata containers included.
//! 3. Readers take the indexes of containers from the hot indexes. So backups, listings and prunes read no data
//!    container: a backup copies from none, and a prune deletes a data container whole or not at all.
//! 4. A container without a hot index is sound: [`add`] writes it, as long as the container can be read.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::container::{ContainerKind, HEADER_BYTES, blob_name, parse_name, read_kind};
use crate::repo::hot_index::{HotIndex, hot_index_name};
use crate::repo::marks::{Mark, MarkKind, Marks, check_writable};
use crate::store::{
    BlobKind, BlobName, ColdState, Durable, ListedBlob, PutOptions, Reading, Store, StoreExt, read_stored_hash,
};
use crate::types::ContainerId;

/// Containers that a report names, at most.
const NAMED_MAX: usize = 1000;

/// Says that the data containers are, or are not, in cold storage. Returns what was said before.
///
/// # Errors
/// If somebody forbids this program to write. Errors of the store.
pub fn set(repository: &Repository, is_cold: bool) -> Result<bool> {
    let (store, before) = (repository.store.as_ref(), Marks::read(repository.store.as_ref())?);
    repository.check_writable()?;
    before.check_writable()?;
    before.set_parity(repository);
    if before.is_cold() == is_cold && before.cold_names.len() <= 1 {
        return Ok(is_cold);
    }
    if is_cold && !before.is_cold() {
        Mark::new(MarkKind::Cold, "set by `fhrd cold`").save(store)?;
    }
    let stays = usize::from(is_cold);
    before.cold_names.iter().skip(stays).try_for_each(|name| store.delete(name, Durable::OnReturn))?;
    Marks::read(store)?;
    Ok(before.is_cold())
}

/// Whether the data containers of a repository are in cold storage, as its marks said when they were last read.
pub fn is_cold(repository: &Repository) -> bool {
    repository.store.cold_state().is_some_and(ColdState::is_cold)
}

/// Whether a container of this kind is put as cold, and its parity with it. What a newer version wrote is not.
pub(super) fn is_put_cold(kind: Option<ContainerKind>) -> bool {
    kind == Some(ContainerKind::Data)
}

/// How a blob that exists is written again, or its parity put: as it was put at first.
///
/// # Errors
/// Errors of reading the header of a container of a cold repository.
pub fn options_of(store: &dyn Store, name: &BlobName) -> Result<PutOptions> {
    let is_cold = store.cold_state().is_some_and(ColdState::is_cold) && name.kind() == BlobKind::Container;
    let kind = match is_cold.then(|| read_kind(store, name, Reading::Again)).transpose() {
        Err(error) if error.is_newer() => None,
        kind => kind?,
    };
    Ok(PutOptions { is_cold: is_put_cold(kind), ..PutOptions::default() })
}

/// How a container of this kind is put. [`None`] is that of a newer version.
pub(super) fn options_of_kind(store: &dyn Store, kind: Option<ContainerKind>) -> PutOptions {
    let is_cold = store.cold_state().is_some_and(ColdState::is_cold);
    PutOptions { is_cold: is_cold && is_put_cold(kind), ..PutOptions::default() }
}

/// The bytes that the store kept for a container at first, from its frames and from what else is known of it. In a cold
/// repository its hot index gives header, index and footer, which may be damaged or cut off. In others they are its
/// own, and only padding is known: zeros. `None` if these are not the bytes that its name says.
///
/// # Errors
/// [`Error::Usage`] if they take more memory than a heal may. Errors of reading any of it.
pub fn rebuilt_container(repository: &Repository, id: &ContainerId) -> Result<Option<Vec<u8>>> {
    let store = repository.store.as_ref();
    let is_cold = store.cold_state().is_some_and(ColdState::is_cold);
    let (name, index) =
        (blob_name(id), if is_cold { HotIndex::load(store, id) } else { HotIndex::of_container(store, id) }?);
    let Some((header, tail)) = index.bytes().split_at_checked(HEADER_BYTES) else { return Ok(None) };
    // Writers pad by an eighth at most. A footer may say anything.
    let is_padded = (1..=index.container_len() / 2).contains(&index.padding());
    if !is_padded && (!is_cold || index.padding() > 0) {
        return Ok(None);
    }
    let (frames_end, header_len) = (index.index_offset() - index.padding(), HEADER_BYTES as u64);
    let lens = frames_end.checked_sub(header_len).map(|frames| [frames, index.padding()].map(usize::try_from));
    let Some([Ok(frames_len), Ok(padding_len)]) = lens else { return Ok(None) };
    // The parts, and all of it.
    repository.parity.check_memory(index.container_len().saturating_mul(2))?;
    let frames = store.get_range(&name, header_len, frames_len, Reading::FromStore)?;
    store.stored_again(&name, &[header, &frames, &vec![0; padding_len], tail])
}

/// Writes back a [`rebuilt_container`], and reads it again. Returns whether it was still there.
///
/// # Errors
/// [`Error::Corrupt`] if more of it is damaged; [`Error::ChecksumMismatch`] if the store gives other bytes afterwards.
/// Errors of the store.
pub(super) fn write_container(repository: &Repository, id: &ContainerId) -> Result<bool> {
    let (store, name) = (repository.store.as_ref(), blob_name(id));
    let bytes = rebuilt_container(repository, id)?
        .ok_or_else(|| Error::corrupt(&name, 0, "parts that give its bytes back", "others"))?;
    if !store.overwrite_stored(&name, &bytes, options_of(store, &name)?)? {
        return Ok(false);
    }
    match read_stored_hash(store, &name, &|| Ok(())) {
        // Its class says so.
        Err(Error::Cold { .. }) => Ok(true),
        read => read.map(|()| true),
    }
}

/// The containers that have a hot index, with the bytes of that.
///
/// # Errors
/// Errors of listing the store.
pub fn indexed(store: &dyn Store) -> Result<HashMap<ContainerId, u64>> {
    let of = |blob: &ListedBlob| Some((ContainerId(blob.name.indexed()?), blob.len));
    Ok(store.list(BlobKind::HotIndex.into())?.iter().filter_map(of).collect())
}

/// Reads a hot index and checks all of it. Returns the bytes of its container.
///
/// # Errors
/// Errors of the store; [`Error::Corrupt`] and [`Error::ChecksumMismatch`].
pub fn verify(store: &dyn Store, id: &ContainerId) -> Result<u64> {
    HotIndex::load(store, id).map(|hot_index| hot_index.container_len())
}

/// What [`add`] has done.
#[derive(Debug, Default, Serialize)]
pub struct AddedIndexes {
    /// Containers that have got a hot index, or a sound one in place of a damaged one.
    pub containers: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Containers that had one before.
    pub containers_before: u64,
    /// Containers that cannot be read.
    pub unread: u64,
    /// Number of these in cold storage.
    pub cold: u64,
    /// Number of these that are damaged.
    pub damaged: u64,
    /// The first 1000 of them, with the reason.
    pub unread_containers: Vec<String>,
}

/// Writes the hot indexes that are missing or damaged.
///
/// # Errors
/// [`Error::Usage`] if the repository is not cold. Errors of the store that are not about one container.
pub fn add(repository: &Repository, progress: &Progress, stop: &AtomicBool) -> Result<AddedIndexes> {
    check_writable(repository)?;
    let store = repository.store.as_ref();
    if !is_cold(repository) {
        return Err(Error::Usage("the repository is not cold: run `fhrd cold set on` first".into()));
    }
    let there = indexed(store)?;
    let ids = store.list(BlobKind::Container.into())?;
    let ids: BTreeSet<ContainerId> = ids.iter().filter_map(|blob| parse_name(&blob.name)).collect();
    progress.files_total.add(ids.len() as u64);
    let mut added = AddedIndexes::default();
    for id in ids {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let found = if there.contains_key(&id) { verify(store, &id).map(Some) } else { Ok(None) };
        let is_lacking = match &found {
            Ok(found) => found.is_none(),
            Err(error) => error.is_unreadable() && !error.is_newer(),
        };
        if let Ok(Some(_)) = found {
            added.containers_before += 1;
        } else {
            let written = if is_lacking { write_hot_index(store, &id) } else { found.map(|_| 0) };
            match written {
                Ok(bytes) => (added.containers, added.bytes) = (added.containers + 1, added.bytes + bytes),
                // A prune has deleted it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.is_unavailable() => {
                    added.unread += 1;
                    added.cold += u64::from(error.kind() == ErrorKind::Cold);
                    added.damaged += u64::from(error.kind() == ErrorKind::Damaged);
                    if added.unread_containers.len() < NAMED_MAX {
                        added.unread_containers.push(error.to_string());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        progress.files_done.add(1);
    }
    Ok(added)
}

/// Writes the hot index of a container that can be read. Returns its bytes. All bytes of the container are read first:
/// a whole container of another name has a sound index, too, and readers of the hot index do not see whose it is.
///
/// # Errors
/// [`Error::ChecksumMismatch`] if the container is damaged, or is another one. Errors of the store.
pub(super) fn write_hot_index(store: &dyn Store, id: &ContainerId) -> Result<u64> {
    read_stored_hash(store, &blob_name(id), &|| Ok(()))?;
    let hot_index = HotIndex::of_container(store, id)?;
    let name: BlobName = hot_index_name(id);
    let blob = hot_index.blob(id);
    if !store.put_if_absent(&name, &[&blob])? {
        store.overwrite(&name, &[&blob], PutOptions::default())?;
    }
    Ok(blob.len() as u64)
}
