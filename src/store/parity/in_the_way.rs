//! Bytes that lie under the name of a blob and are not its own: damage, or files that were mixed up.

use std::io;

use super::SHORT_KINDS;
use super::missing_blobs::MissingBlob;
use super::store::ParityStore;
use crate::error::{Error, ErrorKind, Result};
use crate::store::blob::stored_hash;
use crate::store::name::{check_len, missing};
use crate::store::{BlobKind, BlobName, NewName, PutOptions, Reading, Store};

/// Two blobs differ in as many bytes at least: each has hashes.
const DIFFERENT_BYTES_MIN: usize = 16;
/// Missing blobs whose parity is tried on what lies under one name, at most.
const TRIED_MAX: usize = 1000;

/// What is under the name of a container.
#[derive(Debug)]
pub enum BytesInTheWay {
    /// Its own bytes.
    Own,
    /// Other bytes: its own with damage, or those of another container.
    Other(Vec<u8>),
    /// Nothing, or not all of it can be read.
    Unreadable,
}

/// The error of bytes under the name `name` that are the only ones of another blob, which proves nothing about either.
pub fn only_bytes(name: &BlobName, other: &BlobName) -> Error {
    let text = format!(
        "it has all that there is of another blob: copy it aside, put it under {other}, or where blobs of its kind with \
         this hash are, and heal again"
    );
    Error::Unreadable { what: name.to_string(), offset: 0, source: io::Error::other(text) }
}

/// How many bytes of `there` are those of `blob` at the same offset. Zeros are nobody's: a power cut leaves them.
fn own_bytes(there: &[u8], blob: &[u8]) -> usize {
    there.iter().zip(blob).filter(|(there, own)| **there != 0 && there == own).count()
}

impl ParityStore {
    /// The blob of which all that there is lies under the name of another blob that is no container, as after files
    /// were mixed up. Nobody knows whether it was forgotten, so nothing puts it back. `None` if its parity is not
    /// there: then nothing here shows that there was one. Its kind is that of a blob that is there and was not read, or
    /// else that of `name`, which may be another one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn overwritten(&self, name: &BlobName) -> Result<Option<BlobName>> {
        if name.kind() == BlobKind::Container {
            return Ok(None);
        }
        let hash = match stored_hash(&self.inner, name, &|| Ok(())) {
            Err(error) if error.is_unavailable() => return Ok(None),
            hash => hash?,
        };
        // Parity says that there was a blob with these bytes.
        if name.hash() == Some(hash) || self.inner.head(&BlobName::parity_of(&hash))?.is_none() {
            return Ok(None);
        }
        let mut there = None;
        for kind in SHORT_KINDS.into_iter().chain([BlobKind::Container]) {
            let other = BlobName::hashed(kind, &hash);
            match stored_hash(&self.inner, &other, &|| Ok(())) {
                Ok(found) if found == hash => return Ok(None),
                // What is in cold storage was not read, so it may have other bytes.
                Err(error) if !error.is_unavailable() => return Err(error),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.kind() == ErrorKind::Cold => there = Some(other),
                // It is there, and its parity gives it back, or somebody else has.
                _ if self.heal(&other).may_help() => return Ok(None),
                _ => there = Some(other),
            }
        }
        Ok(there.or_else(|| Some(BlobName::hashed(name.kind(), &hash))))
    }

    /// The blob that is missing, and of which damaged bytes lie under the name of another blob that is no container.
    /// Its parity gives it back, and most of what lies there is its own. `right` are the right bytes under that name,
    /// or empty if nobody knows them.
    ///
    /// # Errors
    /// Errors of the store.
    fn remains(&self, name: &BlobName, right: &[u8]) -> Result<Option<BlobName>> {
        if name.kind() == BlobKind::Container {
            return Ok(None);
        }
        let Some(len) = self.inner.len_of(name)? else { return Ok(None) };
        // Two blobs differ in more.
        let is_nearly_right = |there: &[u8]| {
            let all = there.iter().filter(|byte| **byte != 0).count();
            all - own_bytes(there, right) < DIFFERENT_BYTES_MIN
        };
        match self.bytes_below(name, len) {
            Ok(there) if is_nearly_right(&there) => return Ok(None),
            Err(error) if !error.is_unavailable() => return Err(error),
            _ => {}
        }
        let missing = self.missing_blobs()?;
        let distance = |blob: &MissingBlob| Some((blob.distance(len)?, blob.hash));
        let mut fitting: Vec<(u64, [u8; 32])> = missing.iter().filter_map(distance).collect();
        fitting.sort_unstable();
        if fitting.len() > TRIED_MAX {
            tracing::warn!("{name} may have bytes of {} blobs that are missing; {TRIED_MAX} are tried", fitting.len());
        }
        for (_, hash) in fitting.iter().take(TRIED_MAX) {
            match self.rebuilt_as(name, hash) {
                // Its parity alone may give a short blob back, so what lies there must tell.
                Ok(Some((there, other))) => {
                    let (own, all) = (own_bytes(&there, &other), there.iter().filter(|byte| **byte != 0).count());
                    // Snapshots of one source are alike. Without the right bytes nearly all must be the other's.
                    let is_most = if right.is_empty() { own >= all - all / 8 } else { own > all / 2 };
                    if own > own_bytes(&there, right) && is_most && self.is_nowhere(hash)? {
                        return Ok(Some(BlobName::hashed(name.kind(), hash)));
                    }
                }
                // Nor is it a blob of such a length.
                Err(Error::Usage(_)) => {}
                Err(error) if !error.is_unavailable() => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Whether no blob with this hash is there now.
    fn is_nowhere(&self, hash: &[u8; 32]) -> Result<bool> {
        for kind in SHORT_KINDS.into_iter().chain([BlobKind::Container]) {
            if self.inner.head(&BlobName::hashed(kind, hash))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does what [`Self::overwritten`] does, where what lies there is damaged, too. The right bytes are those of a
    /// heal, if there was one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn damaged_remains(&self, name: &BlobName) -> Result<Option<BlobName>> {
        let right = self.healed.rebuilt(name).and_then(|_| self.healed_bytes(name).ok()).unwrap_or_default();
        self.remains(name, &right)
    }

    /// Whether the store has the own bytes of a blob under its name, as far as it can be read.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn has_own_bytes(&self, name: &BlobName) -> Result<bool> {
        match stored_hash(&self.inner, name, &|| Ok(())) {
            Err(error) if error.is_unavailable() => Ok(false),
            hash => Ok(Some(hash?) == name.hash()),
        }
    }

    /// Checks that what lies under the name of a healed blob is not all that there is of another, damaged or not.
    ///
    /// # Errors
    /// [`Error::Unreadable`] that names the other one. Errors of the store.
    pub(super) fn check_last_bytes(&self, name: &BlobName, right: &[u8]) -> Result<()> {
        let other = match self.overwritten(name)? {
            None => self.remains(name, right)?,
            found => found,
        };
        other.map_or(Ok(()), |other| Err(only_bytes(name, &other)))
    }

    /// The bytes that the store has under a name, at most `bytes_max`, whatever was rebuilt or copied to this machine.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there are more, or more than a heal may take. Errors of [`Store::get_range`].
    pub fn bytes_below(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        let len = self.inner.head(name)?.ok_or_else(|| missing(name))?.len;
        let bytes_max = if self.memory.lock().check_whole(len).is_ok() { bytes_max } else { 0 };
        self.inner.get_range(name, 0, check_len(name, len, bytes_max)?, Reading::FromStore)
    }

    /// What the store has under the name of a container, whatever was rebuilt.
    ///
    /// # Errors
    /// [`Error::Usage`] if other bytes than its own are there, and take more memory than a heal may. Errors of the
    /// store that are no damage.
    pub fn bytes_in_the_way(&self, name: &BlobName) -> Result<BytesInTheWay> {
        let is_own = |hash: [u8; 32]| name.hash() == Some(hash);
        let read = || {
            let head = self.inner.head(name)?.ok_or_else(|| missing(name))?;
            let (len, memory) = (head.len, *self.memory.lock());
            if let Err(error) = memory.check_whole(len) {
                // To see that they are its own takes no memory.
                let is_own = is_own(stored_hash(&self.inner, name, &|| Ok(()))?);
                return if is_own { Ok(BytesInTheWay::Own) } else { Err(error) };
            }
            let bytes = self.inner.get(name, len)?;
            let is_own = is_own(*blake3::hash(&bytes).as_bytes());
            Ok(if is_own { BytesInTheWay::Own } else { BytesInTheWay::Other(bytes) })
        };
        match read() {
            Err(error) if error.is_unreadable() => Ok(BytesInTheWay::Unreadable),
            found => found,
        }
    }

    /// Puts the moved bytes of a container under their own name, unless they are there. Returns whether they were not.
    ///
    /// # Errors
    /// Errors of the store that are no damage.
    pub fn put_back(&self, name: &BlobName, moved: &[u8], options: PutOptions) -> Result<bool> {
        match stored_hash(&self.inner, name, &|| Ok(())) {
            Ok(hash) if Some(hash) == name.hash() => return Ok(false),
            Err(error) if !error.is_unreadable() => return Err(error),
            _ => {}
        }
        if !self.inner.put(NewName::Given(name), &[moved], options)?.is_new {
            self.inner.overwrite(name, &[moved], options)?;
        }
        self.healed.forget(name);
        self.check_written(name)
    }
}
