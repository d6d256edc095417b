//! How the right bytes of a blob are computed from its parity, in bounded memory.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::blob::ParityBlob;
use super::guess::guessed;
use super::layout::{CONTAINER_BYTES_MAX, ParityLayout};
use super::rebuilt::{HealOutcome, RebuiltContainer};
use super::store::ParityStore;
use crate::error::{Error, ErrorKind, Result};
use crate::store::name::{check_len, missing};
use crate::store::{BlobKind, BlobName, Reading, Store};

/// Bytes of one read, at most. If it fails, each shard is read alone.
const READ_BYTES: usize = 1 << 20;
/// Marks whose wrong byte a process searches for, at most.
const GUESSES_MAX: usize = 16;
/// Bytes of a parity blob, at most: as many shards as the container has, and a little more.
const BLOB_BYTES_MAX: u64 = CONTAINER_BYTES_MAX + CONTAINER_BYTES_MAX / 64;

/// What was read of a blob that may be damaged.
struct DamagedBytes {
    bytes: Vec<u8>,
    /// Numbers of the ranges that could not be read, or that the store lacks, and are zero.
    unread: BTreeSet<usize>,
    /// Whether the store refused any: it may give them another time.
    is_refused: bool,
}

/// Whether the store gave all bytes of a blob.
pub(super) struct WhollyRead(bool);

fn unread_part(name: &BlobName) -> Error {
    let source = io::Error::other("the store does not give all of it");
    Error::Unreadable { what: name.to_string(), offset: 0, source }
}

/// The error of parity that is away, as [`ParityStore::is_parity_away`] finds out.
pub fn parity_away() -> Error {
    let text = "it lacks the parity of a mark; move it back, or run `fhrd parity add` if it is lost for good";
    let source = io::Error::other(text);
    Error::Unreadable { what: format!("the directory {}", BlobKind::Parity), offset: 0, source }
}

impl ParityStore {
    /// Reads the parity blob `parity`, beside a container of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] if both take more memory than a heal may. [`Error::Unreadable`] if parts that it needs cannot
    /// be read. Errors of the store, and of [`ParityBlob::parse`].
    pub(super) fn parity_blob(&self, parity: &BlobName, len: u64) -> Result<(ParityBlob, WhollyRead)> {
        let head = self.inner.head(parity)?.ok_or_else(|| missing(parity))?;
        // Before either is read.
        self.memory.lock().check(len.saturating_add(head.len))?;
        let len = check_len(parity, head.len, BLOB_BYTES_MAX)?;
        let DamagedBytes { bytes, is_refused, .. } = self.read_damaged(parity, len, (len, len), READ_BYTES / 256)?;
        match ParityBlob::parse(parity, bytes) {
            // What was not read is zero here, and may be sound.
            Err(error) if is_refused && error.is_proven_damage() => Err(unread_part(parity)),
            blob => Ok((blob?, WhollyRead(!is_refused))),
        }
    }

    /// The first `stored` bytes of a blob of `len` bytes, as far as they can be read, and zeros up to `padded`. `unit`
    /// is the length of a range that counts as unread if any of the blob's bytes in it is.
    fn read_damaged(
        &self,
        name: &BlobName,
        stored: usize,
        (len, padded): (usize, usize),
        unit: usize,
    ) -> Result<DamagedBytes> {
        let (mut bytes, mut unread, mut is_refused) = (vec![0; padded], BTreeSet::new(), false);
        let wide = READ_BYTES.next_multiple_of(unit);
        for start in (0..len).step_by(wide) {
            let end = (start + wide).min(len);
            if self.read_part(name, stored.min(end), start, &mut bytes)? && end <= stored {
                continue;
            }
            for start in (start..end).step_by(unit) {
                let end = (start + unit).min(end);
                let is_read = self.read_part(name, stored.min(end), start, &mut bytes)?;
                is_refused |= !is_read;
                if !is_read || end > stored {
                    unread.insert(start / unit);
                }
            }
        }
        Ok(DamagedBytes { bytes, unread, is_refused })
    }

    /// Reads bytes `start` to `end` into their place. Returns `false` if the store cannot give them.
    fn read_part(&self, name: &BlobName, end: usize, start: usize, bytes: &mut [u8]) -> Result<bool> {
        if start >= end {
            return Ok(true);
        }
        match self.inner.get_range(name, start as u64, end - start, Reading::FromStore) {
            Ok(read) => {
                bytes.get_mut(start..end).into_iter().for_each(|target| target.copy_from_slice(&read));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether parity is set, and the mark that says so has none, although who put it put that, too: the directory may
    /// be away. What writers have put meanwhile may be there, and other marks may be those of programs without parity.
    pub fn is_parity_away(&self) -> Result<bool> {
        let Some((mark, hash)) = self.share_mark.lock().clone().and_then(|mark| mark.hash().map(|hash| (mark, hash)))
        else {
            return Ok(false);
        };
        Ok(self.inner.head(&BlobName::parity_of(&hash))?.is_none() && self.inner.head(&mark)?.is_some())
    }

    /// Finds out whether parity gives back the bytes of a container that proved wrong.
    pub(super) fn heal(&self, name: &BlobName) -> HealOutcome {
        let _turn = self.healing.lock();
        if let Some(outcome) = self.healed.recent(name) {
            return outcome;
        }
        let outcome = self.try_heal(name).unwrap_or_else(|error| {
            // What could not be read of the parity, or for it, may be sound.
            let untried = (!error.is_proven_damage()).then(|| format!("its parity was not tried: {error}").into());
            match (error, name.hash()) {
                (Error::Cold { .. }, Some(id)) => {
                    tracing::warn!("{name} is damaged, and its parity is in cold storage");
                    self.healed.note_cold(BlobName::parity_of(&id));
                }
                (Error::Usage(text), _) => {
                    tracing::warn!("{name} is damaged, and its parity is not used: {text}");
                    self.healed.note_too_large(name.clone());
                }
                (error, _) => tracing::debug!("{name} is not rebuilt: {error}"),
            }
            untried.map_or(HealOutcome::Failed, HealOutcome::Untried)
        });
        let outcome = match outcome {
            HealOutcome::Failed | HealOutcome::Untried(_) if name.kind() == BlobKind::RequiredMark => {
                self.guess(name).unwrap_or(outcome)
            }
            outcome => outcome,
        };
        self.healed.note(name, outcome.clone());
        outcome
    }

    /// The bytes of a required mark that parity does not give back, if its name gives them back.
    fn guess(&self, name: &BlobName) -> Option<HealOutcome> {
        let mut guesses = self.guesses.lock();
        // Whoever can put blobs here could put many.
        if !guesses.get(name).copied().unwrap_or(guesses.len() < GUESSES_MAX) {
            return None;
        }
        let found = guessed(&self.inner, name);
        guesses.insert(name.clone(), !matches!(found, Ok(None)));
        match found {
            Ok(Some(right)) => {
                tracing::warn!("{name} has one wrong byte, which its hash gives back; `fhrd repair index` writes it");
                Some(HealOutcome::Rebuilt(Arc::new(right)))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!("{name} is not rebuilt: {error}");
                None
            }
        }
    }

    fn try_heal(&self, name: &BlobName) -> Result<HealOutcome> {
        let id = name.hash().ok_or_else(|| missing(name))?;
        let stored_len = self.inner.head(name)?.ok_or_else(|| missing(name))?.len;
        let (parity, memory) = (BlobName::parity_of(&id), *self.memory.lock());
        let found = self.parity_blob(&parity, stored_len);
        if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) && self.is_parity_away()? {
            return Err(parity_away());
        }
        let (blob, WhollyRead(is_parity_read)) = found?;
        let ParityLayout { len, shard_bytes, recovery_shards, .. } = blob.layout;
        memory.check((blob.layout.padded_bytes() + blob.layout.blob_bytes()) as u64)?;
        // Whoever wrote the blob may say any length. What is missing must be less than what the parity gives back.
        let restored_max = (recovery_shards * shard_bytes) as u64;
        if blob.id != id || len.saturating_sub(stored_len) > restored_max {
            return Err(Error::corrupt(parity, 0, format!("the parity of {name}"), "that of other bytes"));
        }
        let stored = usize::try_from(stored_len.min(len)).map_err(|_| missing(name))?;
        let lens = (len as usize, blob.layout.padded_bytes());
        let read = self.read_damaged(name, stored, lens, shard_bytes)?;
        let DamagedBytes { bytes: mut container, unread, is_refused } = read;
        let bad = blob.bad_shards(&container);
        if !blob.rebuild(&mut container, &bad, memory.work)? {
            tracing::warn!(
                "{name} cannot be rebuilt from its parity: {} of {} sectors are bad, and it has {recovery_shards}",
                bad.len(),
                blob.layout.data_shards,
            );
            let not_given = if is_parity_read { name } else { &parity };
            return match is_parity_read && !is_refused {
                true => Ok(HealOutcome::Failed),
                // With what the store may give another time, it could be enough.
                false => Err(unread_part(not_given)),
            };
        }
        let mut wrong: BTreeSet<usize> = unread;
        wrong.extend(bad);
        // Behind the end of a container that is short, nothing is padding.
        wrong.retain(|number| *number < blob.layout.data_shards);
        if wrong.is_empty() && stored_len == len {
            return Ok(HealOutcome::Sound);
        }
        let is_mark = name.kind() == BlobKind::RequiredMark;
        tracing::warn!(
            "{name} is damaged in {} of {} sectors, which are rebuilt from its parity; `fhrd {}` writes them back",
            wrong.len().max(1),
            blob.layout.data_shards,
            if is_mark { "repair index" } else { "check --read-data --heal" },
        );
        let rebuilt = RebuiltContainer::new(&blob.layout, &wrong, &container);
        memory.check_rebuilt(rebuilt.bytes())?;
        Ok(HealOutcome::Rebuilt(Arc::new(rebuilt)))
    }

    /// What lies under a name, with zeros for what cannot be read, and the blob with this hash that its parity makes of
    /// that, if it does.
    ///
    /// # Errors
    /// [`Error::Usage`] if that takes more memory than a heal may. Errors of the store; damage of the parity.
    pub(super) fn rebuilt_as(&self, name: &BlobName, hash: &[u8; 32]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let memory = *self.memory.lock();
        let head = self.inner.head(name)?.ok_or_else(|| missing(name))?;
        let (blob, _) = self.parity_blob(&BlobName::parity_of(hash), head.len)?;
        let layout = &blob.layout;
        if !layout.restores_from(head.len) {
            return Ok(None);
        }
        memory.check((2 * layout.padded_bytes() + layout.blob_bytes()) as u64)?;
        let stored = usize::try_from(head.len.min(layout.len)).map_err(|_| missing(name))?;
        let lens = (layout.len as usize, layout.padded_bytes());
        let mut bytes = self.read_damaged(name, stored, lens, layout.shard_bytes)?.bytes;
        let (there, bad) = (bytes.get(..stored).unwrap_or_default().to_vec(), blob.bad_shards(&bytes));
        let is_rebuilt = blob.rebuild(&mut bytes, &bad, memory.work)?;
        bytes.truncate(layout.len as usize);
        Ok((is_rebuilt && blake3::hash(&bytes).as_bytes() == hash).then_some((there, bytes)))
    }
}
