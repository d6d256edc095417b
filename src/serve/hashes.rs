//! The hashes that clients know files by: the hash of a git blob for small files, SHA-256 for large ones.
//!
//! 1. They are computed when somebody asks, from the stored content, and remembered in memory and in the local cache.
//! 2. A look at a file must be quick, so the ETag of a large file is a name of its content until its SHA-256 is known.
//! 3. A tree has the SHA-256 of each file. Files are hashed one after another for all clients. What has begun ends even
//!    if its client leaves, so nobody can have one file read again and again.
//! 4. Clients of registries know small files by SHA-256, too. It is remembered beside the other hash.

use std::num::NonZeroUsize;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::parts::{PART_BYTES, blocking, read_part};
use crate::error::{Error, Result};
use crate::memory::LookUps;
use crate::repo::index::HashDatabase;
use crate::repo::published::{PublishedFile, PublishedTree};
use crate::repo::read::StoredFile;
use crate::repo::recipe::ContentReference;
use crate::types::hex;

/// Length from which clients know a file by its SHA-256, bytes.
pub const LARGE_FROM: u64 = 10 << 20;
/// Hashes in memory, at most.
const MEMORY_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_535);
/// Hashes that are written at once.
const PENDING_MAX: usize = 256;
/// Small files that are hashed at once.
const SMALL_AT_ONCE: usize = 4;
/// Purposes of the hashes that name a content, for the hash that the Hub uses, and for SHA-256 of small files.
const CONTEXT: &str = "fhrd 2026-11 content that is served";
const SHA256_CONTEXT: &str = "fhrd 2026-11 SHA-256 of a small content that is served";

/// A hash that a client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentHash {
    /// Of a small file, as a blob of git.
    GitBlob([u8; 20]),
    /// Of a large one.
    Sha256([u8; 32]),
}

impl ContentHash {
    /// Hex digits.
    pub fn digits(&self) -> String {
        match self {
            ContentHash::GitBlob(hash) => hex(hash),
            ContentHash::Sha256(hash) => hex(hash),
        }
    }

    /// What it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            ContentHash::GitBlob(_) => "Git blob",
            ContentHash::Sha256(_) => "SHA-256",
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            ContentHash::GitBlob(hash) => hash.to_vec(),
            ContentHash::Sha256(hash) => hash.to_vec(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let of_git = <[u8; 20]>::try_from(bytes).map(ContentHash::GitBlob);
        of_git.or_else(|_| <[u8; 32]>::try_from(bytes).map(ContentHash::Sha256)).ok()
    }
}

/// The hashes of a server.
pub struct Hashes {
    memory: Mutex<LruCache<[u8; 32], ContentHash>>,
    /// Not yet in the database.
    pending: Mutex<Vec<([u8; 32], Vec<u8>)>>,
    database: Mutex<Option<HashDatabase>>,
    /// A look at a small file must be quick, so it does not wait for a large one.
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    look_ups: LookUps,
}

/// The name of a content: of its reference, so nothing is read. Of rebuilt content its hash decides, not how it is
/// rebuilt.
fn content_name(context: &str, file: &PublishedFile) -> Result<[u8; 32]> {
    let reference = match file.content.and_then(ContentReference::rebuilt) {
        Some(rebuilt) => minicbor::to_vec(("rebuilt", rebuilt.hash, rebuilt.len)),
        None => minicbor::to_vec(file.content),
    };
    let reference = reference.map_err(|error| Error::internal(format!("cannot name a content: {error}")))?;
    Ok(blake3::derive_key(context, &reference))
}

/// A hash that is asked for: where it is remembered, and which one it is.
#[derive(Debug, Clone, Copy)]
struct WantedHash {
    name: [u8; 32],
    is_sha256: bool,
}

impl WantedHash {
    /// The one by which the Hub knows a file.
    fn of_hub(file: &PublishedFile) -> Result<Self> {
        Ok(WantedHash { name: content_name(CONTEXT, file)?, is_sha256: file.len >= LARGE_FROM })
    }

    /// The SHA-256 of any file.
    fn sha256(file: &PublishedFile) -> Result<Self> {
        let context = if file.len < LARGE_FROM { SHA256_CONTEXT } else { CONTEXT };
        Ok(WantedHash { name: content_name(context, file)?, is_sha256: true })
    }
}

/// The ETag of a content whose hash is not known, without quotes.
///
/// # Errors
/// [`Error::Internal`].
pub fn content_etag(file: &PublishedFile) -> Result<String> {
    Ok(format!("fhrd-{}", hex(&content_name(CONTEXT, file)?)))
}

/// The hash of the git blob that git-lfs stores in place of a large file, and its length.
pub fn pointer(sha256: &[u8; 32], len: u64) -> (String, usize) {
    let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {len}\n", hex(sha256));
    let mut digest = git_blob(text.len() as u64);
    digest.update(text.as_bytes());
    (hex(digest.finish().as_ref()), text.len())
}

fn git_blob(len: u64) -> Context {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(format!("blob {len}\0").as_bytes());
    digest
}

/// The hash of a file of `len` bytes. Reads it.
async fn computed(stored: &StoredFile, len: u64, is_sha256: bool) -> Result<ContentHash> {
    let mut digest = if is_sha256 { Context::new(&SHA256) } else { git_blob(len) };
    let mut from = 0;
    while from < len {
        let (stored, to) = (stored.clone(), from.saturating_add(PART_BYTES).min(len));
        digest = blocking(move || {
            digest.update(&read_part(&stored, from, to)?);
            Ok(digest)
        })
        .await?;
        from = to;
    }
    let hash = ContentHash::from_bytes(digest.finish().as_ref());
    hash.ok_or_else(|| Error::internal("a hash has another length"))
}

impl Hashes {
    /// Hashes that are remembered in `database`, if there is one.
    pub fn new(database: Option<HashDatabase>) -> Self {
        Hashes {
            memory: Mutex::new(LruCache::new(MEMORY_MAX)),
            pending: Mutex::default(),
            database: Mutex::new(database),
            small: Arc::new(Semaphore::new(SMALL_AT_ONCE)),
            large: Arc::new(Semaphore::new(1)),
            look_ups: LookUps::default(),
        }
    }

    /// How often a hash was asked for, and known.
    pub fn look_ups(&self) -> &LookUps {
        &self.look_ups
    }

    /// The hash of a file, if it is known.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub async fn known(self: &Arc<Self>, file: &PublishedFile) -> Result<Option<ContentHash>> {
        self.remembered(WantedHash::of_hub(file)?).await
    }

    async fn remembered(self: &Arc<Self>, wanted: WantedHash) -> Result<Option<ContentHash>> {
        let WantedHash { name, is_sha256 } = wanted;
        let remembered = self.memory.lock().get(&name).copied();
        if remembered.is_some() {
            self.look_ups.add(true);
            return Ok(remembered);
        }
        let hashes = self.clone();
        let stored = blocking(move || Ok(hashes.database.lock().as_ref().and_then(|database| database.get(&name))));
        let stored = stored.await?;
        let fits = |hash: &ContentHash| matches!(hash, ContentHash::Sha256(_)) == is_sha256;
        let hash = stored.and_then(|bytes| ContentHash::from_bytes(&bytes)).filter(fits);
        self.look_ups.add(hash.is_some());
        if let Some(hash) = hash {
            self.memory.lock().put(name, hash);
        }
        Ok(hash)
    }

    /// The hash of a file. Reads the file if it is not known.
    ///
    /// # Errors
    /// Errors of reading.
    pub async fn of(self: &Arc<Self>, tree: &PublishedTree, file: &PublishedFile) -> Result<ContentHash> {
        self.found(WantedHash::of_hub(file)?, tree, file).await
    }

    /// The SHA-256 of a file, also of a small one. Reads the file if it is not known. Who asks for many calls
    /// [`Self::write`] then.
    ///
    /// # Errors
    /// Errors of reading.
    pub async fn sha256(self: &Arc<Self>, tree: &PublishedTree, file: &PublishedFile) -> Result<[u8; 32]> {
        match self.found(WantedHash::sha256(file)?, tree, file).await? {
            ContentHash::Sha256(hash) => Ok(hash),
            ContentHash::GitBlob(_) => Err(Error::internal("a hash is of another kind")),
        }
    }

    async fn found(
        self: &Arc<Self>,
        wanted: WantedHash,
        tree: &PublishedTree,
        file: &PublishedFile,
    ) -> Result<ContentHash> {
        if let Some(hash) = self.remembered(wanted).await? {
            return Ok(hash);
        }
        let turns = if file.len < LARGE_FROM { &self.small } else { &self.large };
        let turn = turns.clone().acquire_owned().await.map_err(|error| Error::internal(error.to_string()))?;
        // Another client may have waited for the same.
        if let Some(hash) = self.remembered(wanted).await? {
            return Ok(hash);
        }
        let (hashes, stored, len) = (self.clone(), tree.open(file)?, file.len);
        // Only who has a turn begins, so what goes on without a client is bounded, too.
        let computing = tokio::spawn(async move {
            let hash = computed(&stored, len, wanted.is_sha256).await?;
            blocking(move || {
                hashes.remember(wanted.name, hash, len);
                Ok(())
            })
            .await?;
            drop(turn);
            Ok(hash)
        });
        computing.await.map_err(|error| Error::internal(format!("a hash failed: {error}")))?
    }

    /// The ETag of a file, without quotes. A small file is read for it. A large one is not: from a slow store, that
    /// could take longer than clients wait.
    ///
    /// # Errors
    /// Errors of reading.
    pub async fn etag(self: &Arc<Self>, tree: &PublishedTree, file: &PublishedFile) -> Result<String> {
        match self.known(file).await? {
            Some(hash) => Ok(hash.digits()),
            None if file.len < LARGE_FROM => Ok(self.of(tree, file).await?.digits()),
            None => content_etag(file),
        }
    }

    /// The SHA-256 of a large file, if it is in memory or in the database. Blocks.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn known_large(&self, file: &PublishedFile) -> Result<Option<[u8; 32]>> {
        if file.len < LARGE_FROM {
            return Ok(None);
        }
        let name = WantedHash::of_hub(file)?.name;
        let remembered = self.memory.lock().get(&name).copied();
        let stored = || self.database.lock().as_ref().and_then(|database| database.get(&name));
        let hash = remembered.or_else(|| ContentHash::from_bytes(&stored()?));
        Ok(hash.and_then(|hash| if let ContentHash::Sha256(sha256) = hash { Some(sha256) } else { None }))
    }

    /// Remembers the SHA-256 of a large file that came with it.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn add_large(&self, file: &PublishedFile, sha256: [u8; 32]) -> Result<()> {
        if file.len >= LARGE_FROM {
            self.remember(WantedHash::of_hub(file)?.name, ContentHash::Sha256(sha256), file.len);
        }
        Ok(())
    }

    /// Remembers a hash of a file of `len` bytes.
    fn remember(&self, name: [u8; 32], hash: ContentHash, len: u64) {
        self.memory.lock().put(name, hash);
        let mut pending = self.pending.lock();
        pending.push((name, hash.bytes()));
        let is_full = pending.len() >= PENDING_MAX;
        drop(pending);
        // That of a large file took long.
        if is_full || len >= LARGE_FROM {
            self.write();
        }
    }

    /// Writes what is not yet in the database.
    pub fn write(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        let mut database = self.database.lock();
        if !pending.is_empty() && database.as_mut().is_some_and(|database| !database.put(&pending)) {
            *database = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_git_lfs() {
        assert_eq!(hex(git_blob(0).finish().as_ref()), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        let (oid, len) = pointer(&[0; 32], 5);
        assert_eq!((oid.len(), len), (40, 126));
        assert_eq!(ContentHash::from_bytes(&[1; 20]).unwrap().digits(), "01".repeat(20));
        assert_eq!(ContentHash::from_bytes(&[1; 19]), None);
    }
}
