//! A store that encrypts: what it stores is sealed, what it gives is as it was put.
//!
//! 1. Every blob is sealed but those that a program needs before it has the keys: the configuration and the key slots.
//! 2. Names made of a hash are made of what is stored, so a blob is verified without a key.
//! 3. A blob that names a generation which the keyring lacks costs only itself if all key slots have opened: whoever
//!    can put may have forged it. Otherwise somebody may have made that key, and nothing else is worth reading.
//! 4. Lengths in listings are those before sealing. They follow from the length that is stored.
//!
//! Wrappers that count or fail requests belong below this store, because above it they see other bytes.

use std::io::{Read, SeekFrom};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lru::LruCache;

use super::blob::hash_stream;
use super::slots_in_use::{SLOTS, SlotsInUse};
use super::{BlobMetadata, ListedBlob, NameOfHash, ReadTwice, Store, read_again};
use crate::crypto::{
    BlobKey, CipherSuite, HEADER_BYTES, Keyring, SealedHeader, SealedReader, sealed_len, sealed_offset, unsealed_len,
};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::checksum;

/// Keys of blobs that were read in ranges last, at most: each saves reading the header again.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Bytes of a stream that is read once which make its salt.
const STREAM_HEAD_BYTES: u64 = 64 << 10;

/// Whether the blob is stored as it is: the configuration and the key slots, with their copies.
pub fn is_public(name: &str) -> bool {
    matches!(directory(name), "config" | "config-copy") || SLOTS.contains(&directory(name))
}

/// The first component of a name.
fn directory(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// See the module.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    suite: CipherSuite,
    keyring: Arc<Keyring>,
    keys: Mutex<LruCache<String, Arc<BlobKey>>>,
    /// The slots whose keys are the keyring, if it is from slots.
    slots: Option<SlotsInUse>,
}

impl SealedStore {
    /// Seals what is put into `inner` with `suite`, under the latest key of `keyring`.
    pub fn new(inner: Arc<dyn Store>, suite: CipherSuite, keyring: Arc<Keyring>) -> Self {
        SealedStore { inner, suite, keyring, keys: Mutex::new(LruCache::new(KEYS_MAX)), slots: None }
    }

    /// The same, whose keyring has all keys of the key slots `slots`.
    #[must_use]
    pub fn with_slots(self, slots: &[String]) -> Self {
        SealedStore { slots: Some(SlotsInUse::new(slots)), ..self }
    }

    /// The key of a new blob of `len` bytes with the hash `content` in the directory of `name`.
    fn new_key(&self, name: &str, len: u64, content: &[u8; 32]) -> Result<BlobKey> {
        let master = self.keyring.latest()?;
        BlobKey::new(master, SealedHeader::new(self.suite, master, len, content)?, directory(name))
    }

    fn seal(&self, name: &str, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.new_key(name, len, &checksum(parts))?.seal(parts)
    }

    /// What `open` makes of the blob `name`, whose stored bytes begin with `head`, with the key that opens it.
    fn with_key<T>(&self, name: &str, head: &[u8], open: impl Fn(BlobKey) -> Result<T>) -> Result<T> {
        let header = SealedHeader::parse(name, head)?;
        let mut failure = None;
        for master in self.keyring.masters(header.generation) {
            match open(BlobKey::new(master, header, directory(name))?) {
                Ok(opened) => return Ok(opened),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        Err(failure.unwrap_or_else(|| self.unknown_key(name, header.generation)))
    }

    /// The error of a blob that is sealed under a master key which this keyring lacks. It is not damaged: it must be
    /// left as it is.
    fn unknown_key(&self, name: &str, generation: u32) -> Error {
        if self.slots.as_ref().is_some_and(|slots| !slots.may_lack_keys(self.inner.as_ref())) {
            let unknown = format!("generation {generation} of the master key, which no key slot of the repository has");
            return Error::unsupported(name, unknown);
        }
        let latest = self.keyring.latest().map_or(0, |master| master.generation);
        let reason = format!(
            "the key is older than the repository: {name} is encrypted with generation {generation} of the master key, \
             and the key slot that was opened has generation {latest}. Open the repository again; if that does not \
             help, somebody has used `fhrd key rotate` and has to add your key slot again"
        );
        Error::Locked { location: self.inner.location(), reason }
    }

    fn open(&self, name: &str, stored: &[u8]) -> Result<Vec<u8>> {
        self.with_key(name, stored, |key| key.open(name, stored))
    }

    /// The error of a blob of more than `bytes_max` bytes, in bytes before sealing.
    fn too_long(&self, name: &str, bytes_max: u64) -> Option<Error> {
        let len = self.head(name).ok()??.len;
        let expected = format!("the end, at most {bytes_max} bytes");
        (len > bytes_max).then(|| Error::corrupt(name, bytes_max, expected, format!("{len} bytes")))
    }

    fn known_keys(&self) -> std::sync::MutexGuard<'_, LruCache<String, Arc<BlobKey>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a stored blob, for reading a range of it.
    fn stored_key(&self, name: &str) -> Result<Arc<BlobKey>> {
        if let Some(key) = self.known_keys().get(name) {
            return Ok(key.clone());
        }
        let head = self.inner.get_range_cached(name, 0, HEADER_BYTES)?;
        let generation = SealedHeader::parse(name, &head)?.generation;
        let is_ambiguous = self.keyring.masters(generation).nth(1).is_some();
        let key = Arc::new(self.with_key(name, &head, |key| {
            if is_ambiguous {
                let len = usize::from(key.blob_len() > 0);
                key.open_range(name, 0, len, |start, len| self.inner.get_range_cached(name, start, len))?;
            }
            Ok(key)
        })?);
        self.known_keys().put(name.into(), key.clone());
        Ok(key)
    }
}

impl SealedStore {
    /// A range of a blob, whose kept bytes `read` gives.
    fn range(
        &self,
        name: &str,
        offset: u64,
        len: usize,
        read: impl Fn(u64, usize) -> Result<Vec<u8>> + Copy,
    ) -> Result<Vec<u8>> {
        if is_public(name) {
            return read(offset, len);
        }
        let key = self.stored_key(name)?;
        if len == 0 {
            // Nothing to read, but a missing blob is an error.
            read(0, 0)?;
        }
        key.open_range(name, offset, len, read).or_else(|error| {
            // The blob of that name may be another one by now, or a copy may be damaged.
            self.known_keys().pop(name);
            if error.kind() == ErrorKind::Damaged {
                self.inner.forget_copies(name);
            }
            let key = self.stored_key(name).map_err(|_| error)?;
            key.open_range(name, offset, len, read)
        })
    }
}

impl Store for SealedStore {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        if is_public(name) {
            return self.inner.put_if_absent(name, parts);
        }
        self.inner.put_if_absent(name, &[&self.seal(name, parts)?])
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        if is_public(name) {
            return self.inner.put_stream_if_absent(name, len, content);
        }
        // The content is not known yet. Its beginning makes the salt, and what is random in it.
        let mut head = Vec::new();
        content.take(STREAM_HEAD_BYTES).read_to_end(&mut head).map_err(|error| Error::io("read", name, error))?;
        let key = self.new_key(name, len, &checksum(&[name.as_bytes(), &head]))?;
        let content = &mut head.chain(content);
        self.inner.put_stream_if_absent(name, sealed_len(len), &mut SealedReader::new(&key, content))
    }

    fn put_hashed(&self, name_of: NameOfHash, parts: &[&[u8]]) -> Result<[u8; 32]> {
        let name = name_of(&[0; 32]);
        if is_public(&name) {
            return self.inner.put_hashed(name_of, parts);
        }
        self.inner.put_hashed(name_of, &[&self.seal(&name, parts)?])
    }

    fn put_hashed_cached(&self, name_of: NameOfHash, parts: &[&[u8]], cached_from: u64) -> Result<[u8; 32]> {
        let name = name_of(&[0; 32]);
        if is_public(&name) {
            return self.inner.put_hashed_cached(name_of, parts, cached_from);
        }
        self.inner.put_hashed_cached(name_of, &[&self.seal(&name, parts)?], sealed_offset(cached_from))
    }

    fn put_stream_hashed(&self, name_of: NameOfHash, len: u64, content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
        let name = name_of(&[0; 32]);
        if is_public(&name) {
            return self.inner.put_stream_hashed(name_of, len, content);
        }
        let failed = |error| Error::io("read", "the bytes to store", error);
        let key = self.new_key(&name, len, &hash_stream(content)?)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(SealedReader::new(&key, content)).map_err(failed)?;
        let hash = *hasher.finalize().as_bytes();
        // The same key again, so the content must not have changed since: two blocks under one nonce would leak both.
        // Callers pass unnamed files, which nobody else can open.
        content.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.inner.put_stream_if_absent(&name_of(&hash), sealed_len(len), &mut SealedReader::new(&key, content))?;
        Ok(hash)
    }

    fn get_stored(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        if is_public(name) {
            return self.inner.get_stored(name, bytes_max);
        }
        self.inner.get_stored(name, sealed_len(bytes_max))
    }

    fn open_stored(&self, name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        if is_public(name) { self.inner.open_stored(name, stored) } else { self.open(name, &stored) }
    }

    fn stored_hash(&self, name: &str, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        self.inner.stored_hash(name, check_stop)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.known_keys().pop(name);
        if is_public(name) {
            return self.inner.overwrite(name, parts);
        }
        self.inner.overwrite(name, &[&self.seal(name, parts)?])
    }

    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        self.known_keys().pop(name);
        self.inner.overwrite_stored(name, stored)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        if is_public(name) {
            return self.inner.get(name, bytes_max);
        }
        read_again(&self.inner, name, || {
            let stored = self.inner.get(name, sealed_len(bytes_max)).map_err(|error| match &error {
                Error::Corrupt { .. } => self.too_long(name, bytes_max).unwrap_or(error),
                _ => error,
            });
            self.open(name, &stored?)
        })
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.range(name, offset, len, |start, len| self.inner.get_range(name, start, len))
    }

    fn get_range_cached(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.range(name, offset, len, |start, len| self.inner.get_range_cached(name, start, len))
    }

    fn forget_copies(&self, name: &str) -> bool {
        self.inner.forget_copies(name)
    }

    fn len_of(&self, name: &str) -> Result<Option<u64>> {
        let len = self.inner.len_of(name)?;
        Ok(if is_public(name) { len } else { len.map(unsealed_len) })
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        let head = self.inner.head(name)?;
        let len = |len| if is_public(name) { len } else { unsealed_len(len) };
        Ok(head.map(|head| BlobMetadata { len: len(head.len), ..head }))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        let mut listed = self.inner.list(prefix)?;
        listed.iter_mut().filter(|blob| !is_public(&blob.name)).for_each(|blob| blob.len = unsealed_len(blob.len));
        Ok(listed)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.known_keys().pop(name);
        self.inner.delete(name)
    }

    fn delete_unsynced(&self, name: &str) -> Result<()> {
        self.known_keys().pop(name);
        self.inner.delete_unsynced(name)
    }

    fn locked_until(&self, name: &str) -> Result<Option<SystemTime>> {
        self.inner.locked_until(name)
    }

    fn lock(&self, name: &str, until: SystemTime) -> Result<()> {
        self.inner.lock(name, until)
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn local_path(&self) -> Option<&Path> {
        self.inner.local_path()
    }

    fn requests_max(&self) -> usize {
        self.inner.requests_max()
    }

    fn is_unused(&self) -> Result<bool> {
        self.inner.is_unused()
    }

    fn puts_exclusively(&self, name: &str) -> Result<bool> {
        self.inner.puts_exclusively(name)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.inner.clean_temporaries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SecretKey;
    use crate::crypto::random::REPEATS;
    use crate::store::{MemoryStore, contract, get_hashed};

    fn sealed(inner: &Arc<MemoryStore>, suite: CipherSuite) -> SealedStore {
        let keyring = Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap();
        SealedStore::new(inner.clone(), suite, Arc::new(keyring))
    }

    #[test]
    fn meets_the_contract() {
        for suite in [CipherSuite::Aes256Gcm, CipherSuite::ChaCha20Poly1305] {
            contract::check(&sealed(&Arc::default(), suite));
        }
    }

    #[test]
    fn what_is_stored_has_its_own_hash_as_name_and_opens_as_what_was_put() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        let name_of: NameOfHash = |hash| format!("index/{}", crate::types::hex(hash));
        for len in [0, 1, 16 << 10, (16 << 10) + 1, 100_000] {
            let whole: Vec<u8> = (0..len).map(|at: usize| (at / 5) as u8).collect();
            let parts = whole.split_at(len / 3);
            let hashes = [
                store.put_hashed(name_of, &[parts.0, parts.1]).unwrap(),
                store.put_stream_hashed(name_of, len as u64, &mut std::io::Cursor::new(&whole)).unwrap(),
            ];
            assert_ne!(hashes[0], hashes[1], "each has a salt of its own");
            for name in hashes.iter().map(name_of) {
                assert!(get_hashed(&store, &name, len as u64).unwrap() == whole);
                let stored = inner.get(&name, 1 << 20).unwrap();
                assert_eq!(name_of(blake3::hash(&stored).as_bytes()), name);
                assert_eq!(store.stored_hash(&name, &|| Ok(())).unwrap(), *blake3::hash(&stored).as_bytes());
                assert!(len < 32 || !stored.windows(32).any(|window| window == &whole[len - 32..]), "in the clear");
                assert_eq!(store.head(&name).unwrap().unwrap().len, len as u64);
            }
        }
    }

    #[test]
    fn only_the_configuration_and_the_key_slots_are_in_the_clear() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        for name in
            ["config", "config-copy", "keys/ab", "key-copies/ab", "keys-2/ab", "containers/ab/keys", "snapshots/config"]
        {
            store.put_if_absent(name, &[b"in the clear"]).unwrap();
            let is_clear = inner.get(name, 1000).unwrap() == b"in the clear";
            assert_eq!(is_clear, ["config", "config-copy", "keys/ab", "key-copies/ab"].contains(&name), "{name}");
        }
    }

    #[test]
    fn two_blobs_have_two_keys_even_if_the_random_bytes_come_again() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        let name_of: NameOfHash = |hash| format!("index/{}", crate::types::hex(hash));
        let (first, mut second) = (vec![1; 200_000], vec![1; 200_000]);
        second[199_999] = 2;
        let salt = |name: &str| inner.get(name, 1 << 20).unwrap()[24..56].to_vec();
        REPEATS.set(true);
        let mut salts = std::collections::BTreeSet::new();
        for (number, content) in [first, second].iter().enumerate() {
            let name = format!("intents/{number}");
            store.put_if_absent(&name, &[content]).unwrap();
            salts.insert(salt(&name));
            salts.insert(salt(&name_of(&store.put_hashed(name_of, &[content]).unwrap())));
            store.overwrite("intents/x", &[content]).unwrap();
            salts.insert(salt("intents/x"));
            let mut stream = std::io::Cursor::new(content);
            let hash = store.put_stream_hashed(name_of, content.len() as u64, &mut stream).unwrap();
            salts.insert(salt(&name_of(&hash)));
        }
        assert_eq!(salts.len(), 2, "one of each content");
        let streamed = [[1; 100], [2; 100]].map(|content| {
            let name = format!("pending/{}", content[0]);
            store.put_stream_if_absent(&name, 100, &mut &content[..]).unwrap();
            assert_eq!(store.get(&name, 100).unwrap(), content);
            salt(&name)
        });
        REPEATS.set(false);
        assert_ne!(streamed[0], streamed[1]);
    }

    #[test]
    fn a_blob_of_a_generation_that_the_keyring_lacks_is_locked_and_not_damaged() {
        let inner: Arc<MemoryStore> = Arc::default();
        let old = Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap();
        let mut new = old.clone();
        new.rotate().unwrap();
        let store =
            |keyring: &Keyring| SealedStore::new(inner.clone(), CipherSuite::Aes256Gcm, Arc::new(keyring.clone()));
        let name_of: NameOfHash = |hash| format!("index/{}", crate::types::hex(hash));
        let name = name_of(&store(&new).put_hashed(name_of, &[b"text"]).unwrap());
        let old = store(&old);
        for error in [
            old.get(&name, 100).unwrap_err(),
            old.get_range(&name, 0, 1).unwrap_err(),
            old.get_range_cached(&name, 0, 0).unwrap_err(),
            get_hashed(&old, &name, 100).unwrap_err(),
        ] {
            let is_locked = |error: &Error| error.kind() == ErrorKind::Locked && !error.is_unreadable();
            assert!(is_locked(&error) && is_locked(&error.duplicate()), "{error}");
            assert!(error.to_string().contains("the key is older than the repository"), "{error}");
        }
        // A header that is damaged is damage.
        let mut stored = inner.get(&name, 1000).unwrap();
        stored[12] = 9;
        inner.replace(&name, &stored);
        assert_eq!(old.get_range(&name, 0, 1).unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn two_keys_of_one_generation_open_what_each_has_sealed() {
        let inner: Arc<MemoryStore> = Arc::default();
        let keyring = Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap();
        let mut rings = [keyring.clone(), keyring.clone(), keyring];
        rings[..2].iter_mut().for_each(|ring| ring.rotate().unwrap());
        let stores = rings
            .each_ref()
            .map(|ring| SealedStore::new(inner.clone(), CipherSuite::Aes256Gcm, Arc::new(ring.clone())));
        let [one, other, mut merged] = rings;
        merged.merge(&one).unwrap();
        merged.merge(&other).unwrap();
        let merged = SealedStore::new(inner.clone(), CipherSuite::Aes256Gcm, Arc::new(merged));
        for (number, store) in stores.iter().enumerate() {
            for content in [&b""[..], b"text"] {
                let name = format!("intents/{number}-{}", content.len());
                store.put_if_absent(&name, &[content]).unwrap();
                assert_eq!(merged.get(&name, 100).unwrap(), content);
                assert_eq!(merged.get_range(&name, 0, content.len()).unwrap(), content);
            }
        }
        assert!(stores[0].get("intents/1-4", 100).is_err(), "the other key does not open it");
    }

    #[test]
    fn a_blob_of_another_folder_does_not_open() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        store.put_if_absent("intents/a", &[b"text"]).unwrap();
        let stored = inner.get("intents/a", 1000).unwrap();
        inner.replace("pending/a", &stored);
        inner.replace("intents/b", &stored);
        assert!(matches!(store.get("pending/a", 100), Err(Error::Corrupt { .. })));
        assert!(matches!(store.get_range("pending/a", 0, 1), Err(Error::Corrupt { .. })));
        assert_eq!(store.get("intents/b", 100).unwrap(), b"text");
    }
}
