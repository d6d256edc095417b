//! What a store reports about a blob without its content, and streams of content.

use std::io::{Read, SeekFrom};
use std::time::SystemTime;

use super::interface::StoreExt;
use super::kind::BlobName;
use super::{ReadTwice, Reading, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::types::hex;

/// Properties of a blob that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobMetadata {
    /// Length, bytes.
    pub len: u64,
    /// When it was put, by the store's clock. Compare it only with times of the same store.
    pub modified: SystemTime,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedBlob {
    /// Full name.
    pub name: BlobName,
    /// Length, bytes.
    pub len: u64,
}

/// Reads a stream that must have `len` bytes, for the blob `name`.
pub fn read_stream(name: &str, len: u64, content: &mut dyn Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match content.take(len.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(read) if read as u64 == len => Ok(bytes),
        Ok(_) => Err(Error::io("write", name, std::io::Error::other(format!("the stream does not have {len} bytes")))),
        Err(error) => Err(Error::io("write", name, error)),
    }
}

/// Bytes that are hashed at once.
const HASH_BYTES: usize = 4 << 20;

/// The BLAKE3 of a stream from its start; leaves the stream there.
pub(super) fn hash_stream(content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
    let failed = |error| Error::io("read", "the bytes to store", error);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; HASH_BYTES];
    content.seek(SeekFrom::Start(0)).map_err(failed)?;
    loop {
        match content.read(&mut buffer).map_err(failed)? {
            0 => break,
            count => hasher.update(buffer.get(..count).unwrap_or_default()),
        };
    }
    content.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(*hasher.finalize().as_bytes())
}

/// The BLAKE3 of a blob, read in ranges.
pub(super) fn stored_hash<S: Store + ?Sized>(
    store: &S,
    name: &BlobName,
    check_stop: &dyn Fn() -> Result<()>,
) -> Result<[u8; 32]> {
    // In a cold repository, `len_of` says which length a container must have.
    let blob_len = match store.cold_state() {
        Some(state) if state.is_cold() => store.head(name)?.map(|head| head.len),
        _ => store.len_of(name)?,
    };
    let blob_len = blob_len.ok_or_else(|| Error::BlobMissing { what: name.into() })?;
    let (mut hasher, mut offset) = (blake3::Hasher::new(), 0);
    while offset < blob_len {
        check_stop()?;
        let len = usize::try_from(blob_len - offset).unwrap_or(HASH_BYTES).min(HASH_BYTES);
        hasher.update(&store.get_range(name, offset, len, Reading::FromStore)?);
        offset += len as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// What `read` makes of the blob `name`. If that is damage, and the store has another copy, it is read again: only the
/// store says that a blob is damaged.
///
/// # Errors
/// Errors of `read`.
pub fn read_again<T>(store: &dyn Store, name: &BlobName, read: impl Fn() -> Result<T>) -> Result<T> {
    read().or_else(|error| again(store, name, error, read))
}

/// What `read` makes of another copy of the blob `name`, after `error`; the error if that is no damage, or if there is
/// no other copy.
///
/// # Errors
/// `error`, and errors of `read`. [`Error::Untried`] in place of these if something that may help was not tried.
pub fn again<T>(store: &dyn Store, name: &BlobName, error: Error, read: impl FnOnce() -> Result<T>) -> Result<T> {
    if error.kind() != ErrorKind::Damaged {
        return Err(error);
    }
    let copy = store.other_copy(name);
    if !copy.is_there {
        return Err(copy.explain(error));
    }
    tracing::debug!("reading {name} again: {error}");
    read().map_err(|error| copy.explain(error))
}

/// Reads a blob whose name ends with the BLAKE3 of what the store keeps, and checks that.
///
/// # Errors
/// Errors of [`Store::get`]; [`Error::ChecksumMismatch`] if the hash differs.
pub fn get_hashed(store: &dyn Store, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
    read_again(store, name, || {
        let stored = store.get_stored(name, bytes_max)?;
        check_hash(name, &stored)?;
        store.open_stored(name, stored)
    })
}

/// What `error` says of the blob `name`, which ends with the BLAKE3 of what the store keeps. What seems to be of a
/// newer version is damage if the bytes do not have that hash: whoever changed them made the checksums right. All of
/// them are read then.
///
/// # Errors
/// Errors of reading that are no damage, and of `check_stop`.
pub fn newer_or_wrong(
    store: &dyn Store,
    name: &BlobName,
    error: Error,
    check_stop: &dyn Fn() -> Result<()>,
) -> Result<Error> {
    if !error.is_newer() {
        return Ok(error);
    }
    match store.stored_hash(name, check_stop) {
        Ok(hash) => Ok(compare_hash(name, &hash).err().unwrap_or(error)),
        Err(other) if other.is_unavailable() => Ok(error),
        Err(other) => Err(other),
    }
}

/// Reads every byte that the store keeps for the blob `name`, which ends with their BLAKE3, and checks that.
///
/// # Errors
/// [`Error::ChecksumMismatch`] if the hash differs; errors of [`StoreExt::stored_hash`].
pub fn read_stored_hash(store: &dyn Store, name: &BlobName, check_stop: &dyn Fn() -> Result<()>) -> Result<()> {
    read_again(store, name, || compare_hash(name, &store.stored_hash(name, check_stop)?))
}

/// Checks that `name` ends with the BLAKE3 of `stored`, the bytes that the store keeps.
///
/// # Errors
/// [`Error::ChecksumMismatch`] otherwise.
pub fn check_hash(name: &BlobName, stored: &[u8]) -> Result<()> {
    compare_hash(name, blake3::hash(stored).as_bytes())
}

/// `stored`, if `name` ends with its BLAKE3.
pub(super) fn named_bytes(name: &BlobName, stored: Vec<u8>) -> Option<Vec<u8>> {
    check_hash(name, &stored).is_ok().then_some(stored)
}

pub(super) fn compare_hash(name: &BlobName, hash: &[u8; 32]) -> Result<()> {
    let (got, expected) = (hex(hash), name.last());
    if got == expected {
        return Ok(());
    }
    Err(Error::ChecksumMismatch { what: name.into(), offset: 0, expected: expected.into(), got })
}
