//! A store that puts parity after each container, and gives healed bytes of a damaged one. Snapshots, segments and
//! marks have parity in the same way: they are short, so theirs is as long as a copy.
//!
//! 1. It belongs right below the store that encrypts, above the cache: parity is of the bytes that are kept.
//! 2. While a share is set, a container that is put gets its parity before the put returns. So no segment names a
//!    container before its parity is durable, whoever writes it.
//! 3. A reader whose checksum fails asks [`Store::other_copy`]. First the cache drops its copies. Then the container
//!    and its parity are read whole, bad shards are computed again, and if the hash of all bytes is that of the name,
//!    reads give them from then on. Nothing is written.
//! 4. [`ParityStore::write_back`] and [`ParityStore::add`] write, for who asks for it.
//! 5. Parity never gives back a blob that is gone. That of a snapshot, a segment or a mark is deleted before it.
//!
//! One container is coded at a time, so the memory is that of one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::blob::{ParityBlob, encode};
use super::code::ParityEncoder;
use super::layout::{CONTAINER_BYTES_MAX, ParityLayout};
use super::rebuilt::{HealOutcome, HealedContainers, RebuiltContainer, not_healed};
use super::share::ParityShare;
use crate::error::{Error, ErrorKind, Result};
use crate::store::blob::{check_hash, compare_hash, read_stream, stored_hash};
use crate::store::name::{check_len, missing};
use crate::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing, read_again,
};

/// Bytes of one read, at most. If it fails, each shard is read alone.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a parity blob, at most: as many shards as the container has, and a little more.
const BLOB_BYTES_MAX: u64 = CONTAINER_BYTES_MAX + CONTAINER_BYTES_MAX / 64;

/// Kinds of blobs that have parity as containers have it.
pub const SHORT_KINDS: [BlobKind; 4] =
    [BlobKind::Segment, BlobKind::Snapshot, BlobKind::RequiredMark, BlobKind::OptionalMark];
/// The longest blob, other than a container, that gets parity, bytes. A longer segment is written again from the
/// indexes of containers.
const SHORT_BYTES_MAX: u64 = 32 << 20;

/// What there is of the parity of a container, or of another blob.
#[derive(Debug)]
pub enum ParityFound {
    /// No such blob.
    Absent,
    /// Every byte is as it was written.
    Whole,
    /// It is damaged, or of another container.
    Damaged(Error),
}

/// See the module.
pub struct ParityStore {
    inner: Arc<dyn Store>,
    /// Parts of the share, or 0 without one.
    share: AtomicU32,
    encoder: Mutex<ParityEncoder>,
    /// Held while a container is healed.
    healing: Mutex<()>,
    healed: HealedContainers,
}

/// What was read of a blob that may be damaged.
struct DamagedBytes {
    bytes: Vec<u8>,
    /// Numbers of the ranges that could not be read, and are zero.
    unread: BTreeSet<usize>,
}

impl ParityStore {
    /// Without a share: it only heals what has parity.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let (encoder, healing, healed) = Default::default();
        ParityStore { inner, share: AtomicU32::new(0), encoder, healing, healed }
    }

    /// The share of parity that containers get.
    pub fn share(&self) -> Option<ParityShare> {
        ParityShare::new(self.share.load(Ordering::Relaxed))
    }

    /// Sets the share of parity that containers get from now on.
    pub fn set_share(&self, share: Option<ParityShare>) {
        self.share.store(share.map_or(0, ParityShare::parts), Ordering::Relaxed);
    }

    /// Bytes of the parity that a blob of this kind and stored length gets. `None` if it gets none.
    pub fn parity_len(&self, kind: BlobKind, len: u64) -> Option<u64> {
        let share = self.share().filter(|_| Self::is_protected(kind, len))?;
        Some(ParityLayout::new(len, share)?.blob_bytes() as u64)
    }

    /// Whether a blob of this kind and stored length gets parity, if there is a share.
    pub fn is_protected(kind: BlobKind, len: u64) -> bool {
        kind == BlobKind::Container || SHORT_KINDS.contains(&kind) && len <= SHORT_BYTES_MAX
    }

    /// The parity of the blob `name`, whose stored bytes are the concatenation of `parts`. `None` without a share.
    fn parity_of(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<(BlobName, Vec<u8>)>> {
        let Some((share, id)) = self.share().zip(name.hash()) else { return Ok(None) };
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let layout = ParityLayout::new(len, share).filter(|_| Self::is_protected(name.kind(), len));
        let Some(layout) = layout else { return Ok(None) };
        let blob = encode(&mut self.encoder.lock(), &layout, &id, parts)?;
        Ok(Some((BlobName::parity_of(&id), blob)))
    }

    /// Puts the parity of a blob that is there, in place of what there is. Returns whether there is any now. `options`
    /// are those with which the blob itself is put.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] if the blob is damaged and not healed. Errors of the store.
    pub fn add(&self, name: &BlobName, options: PutOptions) -> Result<bool> {
        let bytes = read_again(self, name, || {
            let bytes = self.get(name, CONTAINER_BYTES_MAX)?;
            check_hash(name, &bytes).map(|()| bytes)
        })?;
        let Some((parity, blob)) = self.parity_of(name, &[&bytes])? else { return Ok(false) };
        if !self.inner.put(NewName::Given(&parity), &[&blob], options)?.is_new {
            self.inner.overwrite(&parity, &[&blob], options)?;
        }
        Ok(true)
    }

    /// Reads the parity of a blob.
    ///
    /// # Errors
    /// Errors of the store that are no damage. [`Error::Unsupported`] if a newer version wrote it.
    pub fn inspect(&self, name: &BlobName) -> Result<ParityFound> {
        let Some(id) = name.hash() else { return Ok(ParityFound::Absent) };
        let parity = BlobName::parity_of(&id);
        match self.parity_blob(&parity) {
            Ok(blob) if blob.is_whole() && blob.id == id => Ok(ParityFound::Whole),
            Ok(_) => {
                let damage = Error::corrupt(parity, 0, format!("the parity of {name}"), "other bytes");
                Ok(ParityFound::Damaged(damage))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(ParityFound::Absent),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(ParityFound::Damaged(error)),
            Err(error) => Err(error),
        }
    }

    /// The blobs that were healed for readers, and not written back.
    pub fn healed(&self) -> Vec<BlobName> {
        self.healed.names()
    }

    /// Parity in cold storage that was to be read, because its blob is damaged.
    pub fn cold(&self) -> Vec<BlobName> {
        self.healed.cold()
    }

    /// Writes the healed bytes of a blob in place of the damaged ones, and reads them again. Returns whether the blob
    /// was still there. `options` are those with which it was put.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it was not healed; [`Error::ChecksumMismatch`] if the store gives other bytes afterwards.
    /// Errors of the store.
    pub fn write_back(&self, name: &BlobName, options: PutOptions) -> Result<bool> {
        let rebuilt = self.healed.rebuilt(name).or_else(|| {
            self.heal(name);
            self.healed.rebuilt(name)
        });
        let rebuilt = rebuilt.ok_or_else(|| not_healed(name))?;
        let bytes = self.rebuilt_range(name, &rebuilt, 0, rebuilt.len as usize, Reading::FromStore)?;
        check_hash(name, &bytes)?;
        if !self.overwrite_if_present(name, &[&bytes], options)? {
            return Ok(false);
        }
        self.inner.other_copy(name);
        let got = stored_hash(&self.inner, name, &|| Ok(()))?;
        compare_hash(name, &got).map(|()| true)
    }

    /// The bytes that the store has under the name of a container, whatever was rebuilt. `None` if it cannot give them.
    ///
    /// # Errors
    /// Errors of the store that are no damage.
    pub fn bytes_in_the_way(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        match self.inner.get(name, CONTAINER_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_unavailable() => Ok(None),
            Err(error) => Err(error),
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
        self.inner.other_copy(name);
        self.healed.forget(name);
        let got = stored_hash(&self.inner, name, &|| Ok(()))?;
        compare_hash(name, &got).map(|()| true)
    }

    /// The healed bytes of a blob. A short one may have been deleted since it was healed, and then it is gone.
    fn rebuilt(&self, name: &BlobName) -> Result<Option<Arc<RebuiltContainer>>> {
        let rebuilt = self.healed.rebuilt(name);
        if rebuilt.is_some() && SHORT_KINDS.contains(&name.kind()) && self.inner.head(name)?.is_none() {
            self.healed.forget(name);
            return Ok(None);
        }
        Ok(rebuilt)
    }

    fn rebuilt_range(
        &self,
        name: &BlobName,
        rebuilt: &RebuiltContainer,
        offset: u64,
        len: usize,
        reading: Reading,
    ) -> Result<Vec<u8>> {
        rebuilt.read(name, offset, len, |offset, len| self.inner.get_range(name, offset, len, reading))
    }

    /// Reads the parity blob `parity`.
    fn parity_blob(&self, parity: &BlobName) -> Result<ParityBlob> {
        let head = self.inner.head(parity)?.ok_or_else(|| missing(parity))?;
        let len = check_len(parity, head.len, BLOB_BYTES_MAX)?;
        ParityBlob::parse(parity, self.read_damaged(parity, len, (len, len), READ_BYTES / 256)?.bytes)
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
        let (mut bytes, mut unread) = (vec![0; padded], BTreeSet::new());
        let wide = READ_BYTES.next_multiple_of(unit);
        for start in (0..len).step_by(wide) {
            let end = (start + wide).min(len);
            if self.read_part(name, stored.min(end), start, &mut bytes)? && end <= stored {
                continue;
            }
            for start in (start..end).step_by(unit) {
                let end = (start + unit).min(end);
                if !self.read_part(name, stored.min(end), start, &mut bytes)? || end > stored {
                    unread.insert(start / unit);
                }
            }
        }
        Ok(DamagedBytes { bytes, unread })
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

    /// Finds out whether parity gives back the bytes of a container that proved wrong.
    fn heal(&self, name: &BlobName) -> HealOutcome {
        let _turn = self.healing.lock();
        if let Some(outcome) = self.healed.recent(name) {
            return outcome;
        }
        let outcome = self.try_heal(name).unwrap_or_else(|error| {
            match name.hash().filter(|_| error.kind() == ErrorKind::Cold) {
                Some(id) => {
                    tracing::warn!("{name} is damaged, and its parity is in cold storage");
                    self.healed.note_cold(BlobName::parity_of(&id));
                }
                None => tracing::debug!("{name} is not rebuilt: {error}"),
            }
            HealOutcome::Failed
        });
        self.healed.note(name, outcome.clone());
        outcome
    }

    fn try_heal(&self, name: &BlobName) -> Result<HealOutcome> {
        let id = name.hash().ok_or_else(|| missing(name))?;
        let stored_len = self.inner.head(name)?.ok_or_else(|| missing(name))?.len;
        let parity = BlobName::parity_of(&id);
        let blob = self.parity_blob(&parity)?;
        let ParityLayout { len, shard_bytes, recovery_shards, .. } = blob.layout;
        // Whoever wrote the blob may say any length. What is missing must be less than what the parity gives back.
        let restored_max = (recovery_shards * shard_bytes) as u64;
        if blob.id != id || len.saturating_sub(stored_len) > restored_max {
            return Err(Error::corrupt(parity, 0, format!("the parity of {name}"), "that of other bytes"));
        }
        let stored = usize::try_from(stored_len.min(len)).map_err(|_| missing(name))?;
        let lens = (len as usize, blob.layout.padded_bytes());
        let read = self.read_damaged(name, stored, lens, shard_bytes)?;
        let DamagedBytes { bytes: mut container, unread } = read;
        let bad = blob.bad_shards(&container);
        if !blob.rebuild(&mut container, &bad)? {
            tracing::warn!(
                "{name} cannot be rebuilt from its parity: {} of {} sectors are bad, and it has {recovery_shards}",
                bad.len(),
                blob.layout.data_shards,
            );
            return Ok(HealOutcome::Failed);
        }
        let mut wrong: BTreeSet<usize> = unread;
        wrong.extend(bad);
        // Behind the end of a container that is short, nothing is padding.
        wrong.retain(|number| *number < blob.layout.data_shards);
        if wrong.is_empty() && stored_len == len {
            return Ok(HealOutcome::Sound);
        }
        tracing::warn!(
            "{name} is damaged in {} of {} sectors, which are rebuilt from its parity; \
             `fhrd check --read-data --heal` writes them back",
            wrong.len().max(1),
            blob.layout.data_shards,
        );
        Ok(HealOutcome::Rebuilt(Arc::new(RebuiltContainer::new(&blob.layout, &wrong, &container))))
    }
}

impl Store for ParityStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let put = self.inner.put(name, parts, options)?;
        if matches!(name, NewName::Hashed(_))
            && let Some((parity, blob)) = self.parity_of(&put.name, parts)?
        {
            // That of a cold container is read only when the container is.
            let options = PutOptions { read_again_from: None, ..options };
            self.inner.put(NewName::Given(&parity), &[&blob], options)?;
        }
        Ok(put)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        match name {
            NewName::Hashed(kind) if self.share().is_some() && Self::is_protected(kind, len) => {
                let bytes = read_stream(kind.directory(), len, content)?;
                self.put(name, &[&bytes], PutOptions::default())
            }
            _ => self.inner.put_stream(name, len, content),
        }
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        let written = self.inner.overwrite(name, parts, options);
        self.healed.forget(name);
        written
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        let written = self.inner.overwrite_if_present(name, parts, options);
        self.healed.forget(name);
        written
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        match self.rebuilt(name)? {
            Some(rebuilt) => {
                let len = check_len(name, rebuilt.len, bytes_max)?;
                self.rebuilt_range(name, &rebuilt, 0, len, Reading::Once)
            }
            None => self.inner.get(name, bytes_max),
        }
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        match self.rebuilt(name)? {
            Some(rebuilt) => self.rebuilt_range(name, &rebuilt, offset, len, reading),
            None => self.inner.get_range(name, offset, len, reading),
        }
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let head = self.inner.head(name)?;
        Ok(head.map(|head| BlobMetadata { len: self.healed.rebuilt(name).map_or(head.len, |it| it.len), ..head }))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        let len = self.inner.len_of(name)?;
        Ok(len.map(|len| self.healed.rebuilt(name).map_or(len, |it| it.len)))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.healed.forget(name);
        if self.share().is_some()
            && SHORT_KINDS.contains(&name.kind())
            && let Some(hash) = name.hash()
        {
            // Whatever keeps it, a prune sweeps it later.
            let parity = BlobName::parity_of(&hash);
            if let Err(error) = self.inner.delete(&parity, durable) {
                tracing::debug!("{parity} stays: {error}");
            }
        }
        let deleted = self.inner.delete(name, durable);
        self.healed.forget(name);
        deleted
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.inner.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> bool {
        let is_other = self.inner.other_copy(name);
        let may_have_parity = name.kind() == BlobKind::Container || SHORT_KINDS.contains(&name.kind());
        may_have_parity && self.heal(name).may_help() || is_other
    }

    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        self.inner.cold_state()
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        self.inner.thawing()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.inner.locks()
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        self.inner.sealing()
    }

    fn is_unused(&self) -> Result<bool> {
        self.inner.is_unused()
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.inner.puts_exclusively(name)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.inner.make_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.inner.clean_temporaries()
    }
}
