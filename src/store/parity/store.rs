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
//! 5. Parity never gives back a blob that is gone. That of a snapshot, a segment or an optional mark is deleted before
//!    it.
//! 6. A required mark gets parity without a share, too: while it cannot be read, nobody writes. If it has none, one
//!    wrong byte is found by its hash ([`super::guess`]).
//!
//! One container is coded at a time, so the memory is that of one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::blob::encode;
use super::code::ParityEncoder;
use super::layout::{CONTAINER_BYTES_MAX, ParityLayout};
use super::memory::HealMemory;
use super::missing_blobs::ListedMissing;
use super::rebuilt::{HealOutcome, HealedContainers, RebuiltContainer, not_healed};
use super::share::ParityShare;
use crate::error::{Error, ErrorKind, Result};
use crate::store::blob::{check_hash, compare_hash, read_stream, stored_hash};
use crate::store::name::check_len;
use crate::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing, read_again,
};

/// Kinds of blobs that have parity as containers have it.
pub const SHORT_KINDS: [BlobKind; 4] =
    [BlobKind::Segment, BlobKind::Snapshot, BlobKind::RequiredMark, BlobKind::OptionalMark];
/// A healed segment is read in many ranges: whether it is still there is asked as often as this.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);
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
    /// It was not read: that takes more memory than there is for it, as the text says.
    TooLarge(String),
}

/// See the module.
pub struct ParityStore {
    pub(super) inner: Arc<dyn Store>,
    /// Parts of the share, or 0 without one.
    share: AtomicU32,
    encoder: Mutex<ParityEncoder>,
    /// Held while a container is healed.
    pub(super) healing: Mutex<()>,
    pub(super) healed: HealedContainers,
    pub(super) memory: Mutex<HealMemory>,
    /// The mark that sets the share.
    pub(super) share_mark: Mutex<Option<BlobName>>,
    /// Marks whose wrong byte was searched for, and whether it was found.
    pub(super) guesses: Mutex<HashMap<BlobName, bool>>,
    /// The blobs that are missing and have parity.
    pub(super) missing: Mutex<ListedMissing>,
}

impl ParityStore {
    /// Without a share: it only heals what has parity.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let (share, encoder, healing, healed, memory, share_mark, guesses, missing) = Default::default();
        ParityStore { inner, share, encoder, healing, healed, memory, share_mark, guesses, missing }
    }

    /// Sets what heals may take, for a process of about `bytes` bytes of memory. The default is that of
    /// [`MEMORY_DEFAULT`](crate::config::MEMORY_DEFAULT).
    pub fn set_memory(&self, bytes: u64) {
        let memory = HealMemory::within(bytes);
        self.healed.limit(memory.rebuilt);
        *self.memory.lock() = memory;
    }

    /// Checks that so many bytes at once are not too many for a heal.
    ///
    /// # Errors
    /// [`Error::Usage`] with the memory that they take.
    pub fn check_memory(&self, bytes: u64) -> Result<()> {
        self.memory.lock().check_whole(bytes)
    }

    /// Blobs that were not healed, or whose parity was not read, because that takes more memory.
    pub fn too_large(&self) -> Vec<BlobName> {
        self.healed.too_large()
    }

    /// Why the parity of a damaged blob was not tried, if it was not.
    pub fn untried(&self, name: &BlobName) -> Option<String> {
        self.healed.untried(name)
    }

    /// The share of parity that containers get.
    pub fn share(&self) -> Option<ParityShare> {
        ParityShare::new(self.share.load(Ordering::Relaxed))
    }

    /// Sets the share of parity that containers get from now on.
    pub fn set_share(&self, share: Option<ParityShare>) {
        self.share.store(share.map_or(0, ParityShare::parts), Ordering::Relaxed);
    }

    /// Says which mark sets the share. Its own parity shows whether that of others may be away.
    pub fn set_share_mark(&self, mark: Option<BlobName>) {
        *self.share_mark.lock() = mark;
    }

    /// The share of parity that a blob of this kind gets.
    fn share_of(&self, kind: BlobKind) -> Option<ParityShare> {
        self.share().or_else(|| (kind == BlobKind::RequiredMark).then_some(ParityShare::WHOLE))
    }

    /// Bytes of the parity that a blob of this kind and stored length gets. `None` if it gets none.
    pub fn parity_len(&self, kind: BlobKind, len: u64) -> Option<u64> {
        let share = self.share_of(kind).filter(|_| Self::is_protected(kind, len))?;
        Some(ParityLayout::new(len, share)?.blob_bytes() as u64)
    }

    /// Whether a container of this stored length is too long for parity.
    pub fn is_too_long(len: u64) -> bool {
        len > CONTAINER_BYTES_MAX
    }

    /// Whether a blob of this kind and stored length gets parity, if there is a share.
    pub fn is_protected(kind: BlobKind, len: u64) -> bool {
        kind == BlobKind::Container || SHORT_KINDS.contains(&kind) && len <= SHORT_BYTES_MAX
    }

    /// The parity of the blob `name`, whose stored bytes are the concatenation of `parts`. `None` without a share.
    fn parity_of(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<(BlobName, Vec<u8>)>> {
        let Some((share, id)) = self.share_of(name.kind()).zip(name.hash()) else { return Ok(None) };
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let layout = ParityLayout::new(len, share).filter(|_| Self::is_protected(name.kind(), len));
        let Some(layout) = layout else { return Ok(None) };
        let blob = encode(&mut self.encoder.lock(), &layout, &id, parts)?;
        Ok(Some((BlobName::parity_of(&id), blob)))
    }

    /// Puts the parity of a blob that is there, in place of what there is. Returns whether there is any now: a
    /// container that is too long gets none. `options` are those with which the blob itself is put.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] if the blob is damaged and not healed. Errors of the store.
    pub fn add(&self, name: &BlobName, options: PutOptions) -> Result<bool> {
        if self.len_of(name)?.is_some_and(Self::is_too_long) {
            return Ok(false);
        }
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
        match self.parity_blob(&parity, 0) {
            Ok((blob, _)) if blob.is_whole() && blob.id == id => Ok(ParityFound::Whole),
            Ok(_) => {
                let damage = Error::corrupt(parity, 0, format!("the parity of {name}"), "other bytes");
                Ok(ParityFound::Damaged(damage))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(ParityFound::Absent),
            Err(Error::Usage(reason)) => Ok(ParityFound::TooLarge(reason)),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(ParityFound::Damaged(error)),
            Err(error) => Err(error),
        }
    }

    /// Whether a blob was healed for readers, and not written back.
    pub fn is_healed(&self, name: &BlobName) -> bool {
        self.healed.has(name)
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
    /// [`Error::Unreadable`] if it has [all that there is of another](Self::overwritten). Errors of the store.
    pub fn write_back(&self, name: &BlobName, options: PutOptions) -> Result<bool> {
        if self.healed.rebuilt(name).is_none() && matches!(self.heal(name), HealOutcome::Sound) {
            // Somebody else was here.
            return Ok(false);
        }
        let bytes = self.healed_bytes(name)?;
        self.check_last_bytes(name, &bytes)?;
        if !self.overwrite_if_present(name, &[&bytes], options)? {
            return Ok(false);
        }
        self.check_written(name)
    }

    /// The healed bytes of a blob, which its name says.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it was not healed. Errors of the store.
    pub fn healed_bytes(&self, name: &BlobName) -> Result<Vec<u8>> {
        let rebuilt = self.healed.rebuilt(name).or_else(|| {
            self.heal(name);
            self.healed.rebuilt(name)
        });
        let rebuilt = rebuilt.ok_or_else(|| not_healed(name))?;
        let bytes = self.rebuilt_range(name, &rebuilt, 0, rebuilt.len as usize, Reading::FromStore)?;
        check_hash(name, &bytes).map(|()| bytes)
    }

    /// Reads a blob that was just written back. What is in cold storage again, as its class says, cannot be read.
    pub(super) fn check_written(&self, name: &BlobName) -> Result<bool> {
        self.inner.other_copy(name);
        match stored_hash(&self.inner, name, &|| Ok(())) {
            Err(Error::Cold { .. }) => Ok(true),
            hash => compare_hash(name, &hash?).map(|()| true),
        }
    }

    /// Puts a required mark. Its parity comes first: a mark without it would say that parity is away.
    fn put_mark(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let parity = self.parity_of(&name.for_parts(parts), parts)?;
        let put_parity =
            |(parity, blob): &(BlobName, Vec<u8>)| self.inner.put(NewName::Given(parity), &[blob], options).map(drop);
        parity.iter().try_for_each(put_parity)?;
        let put = self.inner.put(name, parts, options)?;
        match parity {
            // A prune may have swept it as that of nothing.
            Some(parity) if self.inner.head(&parity.0)?.is_none() => put_parity(&parity)?,
            _ => {}
        }
        Ok(put)
    }

    /// The healed bytes of a blob. A short one may have been deleted since it was healed, and then it is gone: the
    /// store is asked, unless it was asked less than `since` ago.
    fn rebuilt(&self, name: &BlobName, since: Duration) -> Result<Option<Arc<RebuiltContainer>>> {
        let rebuilt = self.healed.rebuilt(name);
        if rebuilt.is_some() && SHORT_KINDS.contains(&name.kind()) && !self.healed.was_seen(name, since) {
            if self.inner.head(name)?.is_none() {
                self.healed.forget(name);
                return Ok(None);
            }
            self.healed.note_seen(name);
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
}

impl Store for ParityStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        if matches!(name, NewName::Hashed(BlobKind::RequiredMark)) {
            return self.put_mark(name, parts, options);
        }
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
            NewName::Hashed(kind) if self.share_of(kind).is_some() && Self::is_protected(kind, len) => {
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
        match self.rebuilt(name, Duration::ZERO)? {
            Some(rebuilt) => {
                let len = check_len(name, rebuilt.len, bytes_max)?;
                self.rebuilt_range(name, &rebuilt, 0, len, Reading::Once)
            }
            None => self.inner.get(name, bytes_max),
        }
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        match self.rebuilt(name, LOOKS_AGAIN)? {
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
        // What is deleted may be another one's.
        if SHORT_KINDS.contains(&name.kind()) && self.is_healed(name) {
            self.check_last_bytes(name, &self.healed_bytes(name).unwrap_or_default())?;
        }
        self.healed.forget(name);
        let has_parity = self.share_of(name.kind()).is_some() && SHORT_KINDS.contains(&name.kind());
        let parity = name.hash().filter(|_| has_parity).map(|hash| BlobName::parity_of(&hash));
        let delete_parity = || {
            // Whatever keeps it, a prune sweeps it later.
            if let Some(parity) = &parity
                && let Err(error) = self.inner.delete(parity, durable)
            {
                tracing::debug!("{parity} stays: {error}");
            }
        };
        // A required mark without parity would say that parity is away.
        let is_first = name.kind() != BlobKind::RequiredMark;
        if is_first {
            delete_parity();
        }
        let deleted = self.inner.delete(name, durable);
        if !is_first && deleted.is_ok() {
            delete_parity();
        }
        self.healed.forget(name);
        deleted
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.inner.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        let other = self.inner.other_copy(name);
        let may_have_parity = name.kind() == BlobKind::Container || SHORT_KINDS.contains(&name.kind());
        if !may_have_parity {
            return other;
        }
        let outcome = self.heal(name);
        let is_there = outcome.may_help() || other.is_there;
        OtherCopy { is_there, untried: outcome.untried().or(other.untried) }
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
