//! A store that encrypts: what it stores is sealed, what it gives is as it was put.
//!
//! 1. Every blob is sealed but those that a program needs before it has the keys: the configuration and the key slots.
//! 2. Names made of a hash are made of what is stored, so a blob is verified without a key.
//! 3. A blob that names a generation which the keyring lacks costs only itself if all key slots have opened: whoever
//!    can put may have forged it. Otherwise somebody may have made that key, and nothing else is worth reading.
//! 4. Lengths in listings are those before sealing. They follow from the length that is stored.
//!
//! Wrappers that count or fail requests belong below this store, because above it they see other bytes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::blob::{hash_stream, named_bytes};
use super::interface::StoreExt;
use super::slots_in_use::SlotsInUse;
use super::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing, read_again,
};
use crate::crypto::{
    BlobKey, CipherSuite, HEADER_BYTES, Keyring, SealedHeader, SealedReader, sealed_len, sealed_offset, unsealed_len,
};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::checksum;

/// Keys of blobs that were read in ranges last, at most: each saves reading the header again.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The directory of a blob, which its key is bound to.
fn directory(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// See the module.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    suite: CipherSuite,
    keyring: Arc<Keyring>,
    keys: Mutex<LruCache<BlobName, Arc<BlobKey>>>,
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

    /// The key of a new blob of `len` bytes with the hash `content` in `directory`.
    fn new_key(&self, directory: &str, len: u64, content: &[u8; 32]) -> Result<BlobKey> {
        let master = self.keyring.latest()?;
        BlobKey::new(master, SealedHeader::new(self.suite, master, len, content)?, directory)
    }

    fn seal(&self, directory: &str, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.new_key(directory, len, &checksum(parts))?.seal(parts)
    }

    /// What `open` makes of the blob `name`, whose stored bytes begin with `head`, with the key that opens it.
    fn with_key<T>(&self, name: &BlobName, head: &[u8], open: impl Fn(BlobKey) -> Result<T>) -> Result<T> {
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
    fn unknown_key(&self, name: &BlobName, generation: u32) -> Error {
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

    fn open(&self, name: &BlobName, stored: &[u8]) -> Result<Vec<u8>> {
        self.with_key(name, stored, |key| key.open(name, stored))
    }

    /// The error of a blob of more than `bytes_max` bytes, in bytes before sealing.
    fn too_long(&self, name: &BlobName, bytes_max: u64) -> Option<Error> {
        let len = self.head(name).ok()??.len;
        let expected = format!("the end, at most {bytes_max} bytes");
        (len > bytes_max).then(|| Error::corrupt(name, bytes_max, expected, format!("{len} bytes")))
    }

    fn known_keys(&self) -> parking_lot::MutexGuard<'_, LruCache<BlobName, Arc<BlobKey>>> {
        self.keys.lock()
    }

    /// The key of a stored blob, for reading a range of it.
    fn stored_key(&self, name: &BlobName) -> Result<Arc<BlobKey>> {
        if let Some(key) = self.known_keys().get(name) {
            return Ok(key.clone());
        }
        let head = self.inner.get_range(name, 0, HEADER_BYTES, Reading::Again)?;
        let generation = SealedHeader::parse(name, &head)?.generation;
        let is_ambiguous = self.keyring.masters(generation).nth(1).is_some();
        let key = Arc::new(self.with_key(name, &head, |key| {
            if is_ambiguous {
                let len = usize::from(key.blob_len() > 0);
                key.open_range(name, 0, len, |start, len| self.inner.get_range(name, start, len, Reading::Again))?;
            }
            Ok(key)
        })?);
        self.known_keys().put(name.clone(), key.clone());
        Ok(key)
    }
}

/// The length of a blob in a listing, bytes, whose kept bytes are `len`.
fn len_before(name: &BlobName, len: u64) -> u64 {
    if name.kind().is_public() { len } else { unsealed_len(len) }
}

impl Store for SealedStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        if name.kind().is_public() {
            return self.inner.put(name, parts, options);
        }
        let options = PutOptions { read_again_from: options.read_again_from.map(sealed_offset), ..options };
        self.inner.put(name, &[&self.seal(directory_of(&name), parts)?], options)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        if name.kind().is_public() {
            return self.inner.put_stream(name, len, content);
        }
        // The same key for every reading, so the content must not change meanwhile: two blocks under one nonce would
        // leak both. Callers pass unnamed files, which nobody else can open.
        let key = self.new_key(directory_of(&name), len, &hash_stream(content)?)?;
        self.inner.put_stream(name, sealed_len(len), &mut SealedReader::new(&key, content))
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.known_keys().pop(name);
        if name.kind().is_public() {
            return self.inner.overwrite(name, parts, options);
        }
        self.inner.overwrite(name, &[&self.seal(directory(name), parts)?], options)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        self.known_keys().pop(name);
        if name.kind().is_public() {
            return self.inner.overwrite_if_present(name, parts, options);
        }
        self.inner.overwrite_if_present(name, &[&self.seal(directory(name), parts)?], options)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        if name.kind().is_public() {
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

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        let read = |start, len| self.inner.get_range(name, start, len, reading);
        if name.kind().is_public() {
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
            let copy = match error.kind() {
                ErrorKind::Damaged => self.inner.other_copy(name),
                _ => OtherCopy::default(),
            };
            let opened =
                self.stored_key(name).map_err(|_| error).and_then(|key| key.open_range(name, offset, len, read));
            opened.map_err(|error| copy.explain(error))
        })
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let head = self.inner.head(name)?;
        Ok(head.map(|head| BlobMetadata { len: len_before(name, head.len), ..head }))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.inner.len_of(name)?.map(|len| len_before(name, len)))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let mut listed = self.inner.list(prefix)?;
        listed.iter_mut().for_each(|blob| blob.len = len_before(&blob.name, blob.len));
        Ok(listed)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.known_keys().pop(name);
        self.inner.delete(name, durable)
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.inner.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        self.inner.other_copy(name)
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
        Some(self)
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

impl Sealing for SealedStore {
    fn get_stored(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, if name.kind().is_public() { bytes_max } else { sealed_len(bytes_max) })
    }

    fn open_stored(&self, name: &BlobName, stored: Vec<u8>) -> Result<Vec<u8>> {
        if name.kind().is_public() { Ok(stored) } else { self.open(name, &stored) }
    }

    fn overwrite_stored(&self, name: &BlobName, stored: &[u8], options: PutOptions) -> Result<bool> {
        self.known_keys().pop(name);
        self.inner.overwrite_stored(name, stored, options)
    }

    fn stored_again(&self, name: &BlobName, parts: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        if name.kind().is_public() {
            return Ok(named_bytes(name, parts.concat()));
        }
        let key = self.stored_key(name)?;
        if parts.iter().map(|part| part.len() as u64).sum::<u64>() != key.blob_len() {
            // The bytes of another blob are in the way.
            return Ok(None);
        }
        // Sealed under the key and the nonces that the blob has. What is no copy of it must not leave this function.
        Ok(named_bytes(name, key.seal(parts)?))
    }

    fn stored_hash(&self, name: &BlobName, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        self.inner.stored_hash(name, check_stop)
    }
}

/// The directory of a blob that is put.
fn directory_of<'a>(name: &NewName<'a>) -> &'a str {
    match name {
        NewName::Given(name) => directory(name),
        NewName::Hashed(kind) => directory(kind.directory()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SecretKey;
    use crate::crypto::random::REPEATS;
    use crate::store::named;
    use crate::store::{BlobKind, MemoryStore, contract, get_hashed};

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
        for len in [0, 1, 16 << 10, (16 << 10) + 1, 100_000] {
            let whole: Vec<u8> = (0..len).map(|at: usize| (at / 5) as u8).collect();
            let parts = whole.split_at(len / 3);
            let stream = &mut std::io::Cursor::new(&whole);
            let names = [
                store.put_hashed(BlobKind::Segment, &[parts.0, parts.1]).unwrap(),
                store.put_stream(NewName::Hashed(BlobKind::Segment), len as u64, stream).unwrap().name,
            ];
            assert_ne!(names[0], names[1], "each has a salt of its own");
            for name in names {
                assert!(get_hashed(&store, &name, len as u64).unwrap() == whole);
                let stored = inner.get(&name, 1 << 20).unwrap();
                assert_eq!(name.hash(), Some(*blake3::hash(&stored).as_bytes()));
                assert_eq!(
                    StoreExt::stored_hash(&store, &name, &|| Ok(())).unwrap(),
                    *blake3::hash(&stored).as_bytes()
                );
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
            store.put_if_absent(&named(name), &[b"in the clear"]).unwrap();
            let is_clear = inner.get(&named(name), 1000).unwrap() == b"in the clear";
            assert_eq!(is_clear, ["config", "config-copy", "keys/ab", "key-copies/ab"].contains(&name), "{name}");
        }
    }

    #[test]
    fn two_blobs_have_two_keys_even_if_the_random_bytes_come_again() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        let (first, mut second) = (vec![1; 200_000], vec![1; 200_000]);
        second[199_999] = 2;
        let salt = |name: &BlobName| inner.get(name, 1 << 20).unwrap()[24..56].to_vec();
        REPEATS.set(true);
        let mut salts = std::collections::BTreeSet::new();
        for (number, content) in [first, second].iter().enumerate() {
            let name = named(&format!("intents/{number}"));
            store.put_if_absent(&name, &[content]).unwrap();
            salts.insert(salt(&name));
            salts.insert(salt(&store.put_hashed(BlobKind::Segment, &[content]).unwrap()));
            store.overwrite(&named("intents/x"), &[content], PutOptions::default()).unwrap();
            salts.insert(salt(&named("intents/x")));
            let mut stream = std::io::Cursor::new(content);
            let streamed = store.put_stream(NewName::Hashed(BlobKind::Segment), content.len() as u64, &mut stream);
            salts.insert(salt(&streamed.unwrap().name));
        }
        assert_eq!(salts.len(), 2, "one of each content");
        let streamed = [[1; 100], [2; 100]].map(|content| {
            let name = named(&format!("pending/{}", content[0]));
            store.put_stream(NewName::Given(&name), 100, &mut std::io::Cursor::new(&content)).unwrap();
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
        let name = store(&new).put_hashed(BlobKind::Segment, &[b"text"]).unwrap();
        let old = store(&old);
        for error in [
            old.get(&name, 100).unwrap_err(),
            old.get_range(&name, 0, 1, Reading::Once).unwrap_err(),
            old.get_range(&name, 0, 0, Reading::Again).unwrap_err(),
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
        assert_eq!(old.get_range(&name, 0, 1, Reading::Once).unwrap_err().kind(), ErrorKind::Damaged);
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
                let name = named(&format!("intents/{number}-{}", content.len()));
                store.put_if_absent(&name, &[content]).unwrap();
                assert_eq!(merged.get(&name, 100).unwrap(), content);
                assert_eq!(merged.get_range(&name, 0, content.len(), Reading::Once).unwrap(), content);
            }
        }
        assert!(stores[0].get(&named("intents/1-4"), 100).is_err(), "the other key does not open it");
    }

    #[test]
    fn a_blob_of_another_folder_does_not_open() {
        let inner: Arc<MemoryStore> = Arc::default();
        let store = sealed(&inner, CipherSuite::Aes256Gcm);
        store.put_if_absent(&named("intents/a"), &[b"text"]).unwrap();
        let stored = inner.get(&named("intents/a"), 1000).unwrap();
        inner.replace(&named("pending/a"), &stored);
        inner.replace(&named("intents/b"), &stored);
        assert!(matches!(store.get(&named("pending/a"), 100), Err(Error::Corrupt { .. })));
        assert!(matches!(store.get_range(&named("pending/a"), 0, 1, Reading::Once), Err(Error::Corrupt { .. })));
        assert_eq!(store.get(&named("intents/b"), 100).unwrap(), b"text");
    }
}
