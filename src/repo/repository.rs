//! A repository: a store with a fixed configuration and a key.
//!
//! The record of both is put once, checksummed, and kept in two copies: `config` and `config-copy`. The copy is
//! written first.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, atomic::AtomicBool};

use bytesize::ByteSize;

use crate::config::RepositoryConfig;
use crate::crypto::{CipherSuite, KeySlot, Keyring, SecretKey, Unlock};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::blob_cache::BlobCache;
use crate::repo::clock::Clock;
use crate::repo::cold_store::ColdStore;
use crate::repo::container::NewContainers;
use crate::repo::encryption::{Encryption, HeldBack};
use crate::repo::features;
use crate::repo::keys::{self, OpenedSlots};
use crate::repo::record::{
    BYTES_LIMIT, EncryptionRecord, NAME, StoredRecord, config_record, encode_record, put_record, read_record,
};
use crate::repo::salts::Salts;
use crate::store::{
    self, BlobKind, BlobName, CountingStore, ParityStore, PutOptions, SealedStore, StoppingStore, Store, StoreCounters,
    StoreExt,
};
use crate::types::{RepositoryKey, hex};
use crate::wire::WRITER_FEATURES_KNOWN;

/// Purpose of the key of local caches.
const CACHE_CONTEXT: &str = "fhrd 2026-11 local cache";

/// Asks the user for what opens an encrypted repository.
pub type AskUnlock<'a> = &'a dyn Fn() -> Result<Unlock>;

/// An open repository.
#[derive(Clone)]
pub struct Repository {
    /// The store of its blobs.
    pub store: Arc<dyn Store>,
    /// The layer of `store` that has parity, right below encryption.
    pub parity: Arc<ParityStore>,
    /// Unique identifier, 32 hex digits.
    pub id: String,
    /// Key of its fingerprints.
    pub key: RepositoryKey,
    /// Configuration that was fixed at creation.
    pub config: RepositoryConfig,
    /// Whether a backup looks at both copies of the configuration: not in a remote store if the first is intact.
    pub config_is_doubtful: bool,
    /// Counts what is asked of the store, below encryption and the cache.
    pub requests: Arc<StoreCounters>,
    /// Features of its configuration that a program must support to write into it. Marks may name more.
    pub writer_features: u64,
    /// Salts of what is written into it.
    pub salts: Salts,
    /// How it is encrypted, if it is.
    pub encryption: Option<Encryption>,
    /// Tells the time of new snapshots, and which ones are from the future.
    pub clock: Clock,
    /// Directory of its local caches, if it is not the usual one.
    pub cache_directory: Option<Arc<Path>>,
}

impl Repository {
    /// Creates a repository at `location`, a path or a URL.
    ///
    /// # Errors
    /// Errors of [`store::create`] and [`Repository::init`].
    pub fn init_at(location: impl AsRef<OsStr>, config: &RepositoryConfig) -> Result<Self> {
        Self::init(store::create(location)?, config)
    }

    /// Creates a repository in a store that holds nothing.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the store holds a repository or other files.
    pub fn init(store: Arc<dyn Store>, config: &RepositoryConfig) -> Result<Self> {
        Self::init_new(store, config, None)
    }

    /// Creates a repository with the key and the chunker of another one. Both cut and name chunks alike.
    ///
    /// # Errors
    /// Errors of [`Repository::init`].
    pub fn init_like(store: Arc<dyn Store>, like: &Repository) -> Result<Self> {
        Self::init_new(store, &like.config, Some(&like.key))
    }

    fn init_new(store: Arc<dyn Store>, config: &RepositoryConfig, key: Option<&RepositoryKey>) -> Result<Self> {
        check_unused(&store)?;
        let mut random = [0u8; 48];
        getrandom::fill(&mut random)
            .map_err(|error| Error::io("get random bytes for", store.location(), std::io::Error::other(error)))?;
        if let (Some(key), Some(own)) = (key, random.get_mut(16..)) {
            own.copy_from_slice(&key.0);
        }
        Self::init_with(store, config, &random)
    }

    /// Creates an encrypted repository in a store that holds nothing, with the key of fingerprints `key` or a new one.
    /// `unlock` opens its first key slot, called `label`.
    ///
    /// # Errors
    /// Errors of [`Self::init`], and those of [`KeySlot::new`].
    pub fn init_encrypted(
        store: Arc<dyn Store>,
        config: &RepositoryConfig,
        key: Option<&RepositoryKey>,
        unlock: &Unlock,
        label: &str,
    ) -> Result<Self> {
        check_unused(&store)?;
        let suite = CipherSuite::of_this_machine();
        let fingerprint_key = key.map_or_else(SecretKey::random, |key| Ok(SecretKey::new(key.0)))?;
        let mut keyring = Keyring::new(fingerprint_key, [0; 32])?;
        let commitment = keyring.commitment()?.to_vec();
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| Error::io("get random bytes for", store.location(), std::io::Error::other(error)))?;
        let encryption = Some(EncryptionRecord { suite: suite.number(), commitment });
        let payload = encode_record(&config_record(config, &id, None, encryption))?;
        keyring.configuration = *blake3::hash(&payload).as_bytes();
        // The slot first: whoever finds a configuration finds a slot that opens it.
        keys::put(store.as_ref(), &KeySlot::new(&keyring, unlock, label, suite)?)?;
        put_record(&store, &payload, features::bits(&features::needed(true)))?;
        store.make_directories(false)?;
        let repository = Self::open_with(store, &|| Ok(unlock.clone()))?;
        // Nobody changes the keys yet.
        keys::heal_claimed(&repository)?;
        Ok(repository)
    }

    /// Creates a repository in an unused store with a given identity: 16 bytes of id and 32 bytes of key.
    ///
    /// Repositories with equal keys chunk and fingerprint alike.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; errors of writing.
    pub fn init_with(store: Arc<dyn Store>, config: &RepositoryConfig, identity: &[u8; 48]) -> Result<Self> {
        let (id, key) = identity.split_at(16);
        let payload = encode_record(&config_record(config, id, Some(key), None))?;
        put_record(&store, &payload, features::bits(&features::needed(false)))?;
        store.make_directories(false)?;
        Self::open(store)
    }

    /// Opens the repository at `location`, a path or a URL. It must not be encrypted.
    ///
    /// # Errors
    /// Errors of [`store::open`] and [`Repository::open`].
    pub fn open_at(location: impl AsRef<OsStr>) -> Result<Self> {
        Self::open(store::open(location)?)
    }

    /// Opens the repository in a store. It must not be encrypted.
    ///
    /// # Errors
    /// Errors of [`Self::open_with`].
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        let location = store.location();
        Self::open_with(store, &|| {
            let reason = "no password and no key file was given".into();
            Err(Error::Locked { location: location.clone(), reason })
        })
    }

    /// Opens the repository in a store. If it is encrypted, `ask` says with what.
    ///
    /// # Errors
    /// [`Error::NoRepository`] if the store holds none. If both copies of the configuration are unusable, the error of
    /// the first. [`Error::Locked`] if no key slot opens, or `ask` fails: there is no password or key file then.
    pub fn open_with(store: Arc<dyn Store>, ask: AskUnlock<'_>) -> Result<Self> {
        Self::open_cached(store, ask, BlobCache::None)
    }

    /// Like [`Self::open_with`]; of a remote store, `cache` says what the local disk holds.
    ///
    /// # Errors
    /// Errors of [`Self::open_with`].
    pub fn open_cached(store: Arc<dyn Store>, ask: AskUnlock<'_>, cache: BlobCache) -> Result<Self> {
        let counting = CountingStore::new(store);
        let (requests, store) = (counting.counters(), Arc::new(counting) as Arc<dyn Store>);
        let first = read_record(store.as_ref(), BlobKind::Config);
        // Of a remote store, `check` looks at both copies. Here each costs a request.
        let needs_second = first.is_err() || store.requests_max() == 1;
        let second = needs_second.then(|| read_record(store.as_ref(), BlobKind::ConfigCopy)).transpose();
        let record = match (first, second) {
            (Ok(record), Ok(_)) => record,
            (Ok(record), Err(error)) => {
                tracing::warn!("the second copy of the configuration is unusable: {error}");
                record
            }
            (Err(first), Ok(None)) => return Err(first),
            (Err(first), Ok(Some(record))) => {
                tracing::warn!("using the second copy of the configuration: {first}");
                record
            }
            (Err(first), Err(second)) => {
                if first.kind() == ErrorKind::NotFound && second.kind() == ErrorKind::NotFound {
                    let reason = format!("it holds no `{NAME}`");
                    return Err(Error::NoRepository { location: store.location(), reason });
                }
                return Err(first);
            }
        };
        Ok(Repository { config_is_doubtful: needs_second, ..Self::from_record(store, record, ask, requests, cache)? })
    }

    /// The same repository, whose reads fail with [`Error::Interrupted`] once `stop` is set.
    pub fn stopped_by(&self, stop: &Arc<AtomicBool>) -> Self {
        let store = Arc::new(StoppingStore::new(self.store.clone(), stop.clone()));
        let encryption = self.encryption.as_ref().map(|encryption| encryption.stopped_by(stop));
        Repository { store, encryption, ..self.clone() }
    }

    fn from_record(
        store: Arc<dyn Store>,
        stored: StoredRecord,
        ask: AskUnlock<'_>,
        requests: Arc<StoreCounters>,
        cache: BlobCache,
    ) -> Result<Self> {
        let config = stored.config()?;
        let id = hex(&stored.record.id);
        let opened = stored.unlock(&store, ask)?;
        let parity = Arc::new(ParityStore::new(cache.below(store, &id)?));
        let mut store: Arc<dyn Store> = parity.clone();
        let (key, encryption) = match opened {
            None => (stored.plain_key()?, None),
            Some((suite, opened)) => {
                let encryption = Encryption::of(&store, suite, opened)?;
                store =
                    Arc::new(SealedStore::new(store, suite, encryption.keyring.clone()).with_slots(&encryption.slots));
                (RepositoryKey(*encryption.keyring.fingerprint_key.bytes()), Some(encryption))
            }
        };
        let store = Arc::new(ColdStore::new(store));
        let (writer_features, salts, config_is_doubtful) = (stored.writer_features, Salts::default(), true);
        let clock = Clock::default();
        Ok(Repository {
            store,
            parity,
            id,
            key,
            config,
            writer_features,
            salts,
            encryption,
            requests,
            config_is_doubtful,
            clock,
            cache_directory: None,
        })
    }

    /// Whether the store lets only one of two programs create a repository at the same time.
    ///
    /// # Errors
    /// Errors of [`Store::puts_exclusively`].
    pub fn was_created_alone(&self) -> Result<bool> {
        self.store.puts_exclusively(&BlobName::only(BlobKind::ConfigCopy))
    }

    /// Returns the defects of the stored copies of the configuration, with what each is.
    pub fn config_defects(&self) -> Vec<(BlobKind, Error)> {
        let read = |kind: BlobKind| {
            let stored = read_record(self.store.as_ref(), kind)?;
            let config = stored.config()?;
            let is_same = (hex(&stored.record.id), &config) == (self.id.clone(), &self.config)
                && match &self.encryption {
                    None => stored.record.key.as_deref() == Some(&self.key.0[..]),
                    Some(encryption) => stored.hash == encryption.keyring.configuration,
                };
            if is_same {
                Ok(())
            } else {
                Err(Error::corrupt(kind.directory(), 0, "the other copy's record", "another record"))
            }
        };
        let kinds = [BlobKind::Config, BlobKind::ConfigCopy].into_iter();
        kinds.filter_map(|kind| read(kind).err().map(|error| (kind, error))).collect()
    }

    /// Writes a damaged or missing copy of the configuration again, from the other one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn heal_config(&self) -> Result<()> {
        let defects = self.config_defects();
        let [(kind, error)] = defects.as_slice() else { return Ok(()) };
        if !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) {
            return Ok(());
        }
        // Another intact record may be of another repository.
        if read_record(self.store.as_ref(), *kind).is_ok() {
            return Ok(());
        }
        let other = if *kind == BlobKind::Config { BlobKind::ConfigCopy } else { BlobKind::Config };
        let bytes = self.store.get(&BlobName::only(other), BYTES_LIMIT)?;
        self.store.overwrite(&BlobName::only(*kind), &[&bytes], PutOptions::default())?;
        tracing::warn!("{kind} is written again from its other copy: {error}");
        Ok(())
    }

    /// Makes the directories of all kinds of blobs, which repositories of earlier programs lack, if that is allowed.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if one is away; [`Error::Interrupted`].
    pub fn ready_directories(&self) -> Result<()> {
        match self.store.make_directories(false) {
            Err(error) if error.is_unreadable() || error.stops_reading() => Err(error),
            Err(error) => {
                tracing::debug!("{error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Key of what the local cache directory has of an encrypted repository. It outlives a change of the master key.
    pub fn cache_key(&self) -> Option<SecretKey> {
        let keyring = &self.encryption.as_ref()?.keyring;
        Some(keyring.fingerprint_key.derive(CACHE_CONTEXT, &[]))
    }

    /// Checks that `keyring` is of this store's repository, for a keyring that did not come from one of its slots.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is not; errors of reading the configuration.
    pub fn check_keyring(store: &dyn Store, keyring: &Keyring) -> Result<()> {
        let stored = read_record(store, BlobKind::Config).or_else(|_| read_record(store, BlobKind::ConfigCopy))?;
        if stored.record.encryption.is_some() && keyring.configuration == stored.hash {
            return Ok(());
        }
        Err(Error::Locked { location: store.location(), reason: "these are the keys of another repository".into() })
    }

    /// Fails if writing into this repository needs features that this program lacks, or would use an old master key, or
    /// if a directory of the repository is away.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the unknown feature bits. [`Error::Locked`] if an old key slot and an old claim hold
    /// back a master key that is in use; [`Error::Unreadable`] with the directory; errors of listing the store.
    pub fn check_writable(&self) -> Result<()> {
        self.check_features()?;
        let held_back = self.encryption.as_ref().and_then(|encryption| encryption.held_back.as_ref());
        held_back.map_or(Ok(()), HeldBack::check)
    }

    /// Like [`Self::check_writable`], for a change of the key slots: it is what gets rid of old ones.
    pub(super) fn check_features(&self) -> Result<()> {
        self.store.make_directories(true)?;
        match self.writer_features & !WRITER_FEATURES_KNOWN {
            0 => Ok(()),
            unknown => Err(Error::unknown_features(NAME, unknown)),
        }
    }

    /// What begins containers of this repository.
    pub fn new_containers(&self) -> NewContainers {
        NewContainers::new(self.salts.clone(), self.config.pad_containers)
    }

    /// Fails if a run's configuration changes a fixed key. Default values pass, because the user may not have set them.
    ///
    /// # Errors
    /// [`Error::ConfigConflict`] with the first key that differs.
    pub fn check_run(&self, run: &RepositoryConfig) -> Result<()> {
        let default = RepositoryConfig::default();
        let text = |size: ByteSize| size.0.to_string();
        let keys = [
            (
                "repository.chunker",
                self.config.chunker.to_string(),
                run.chunker.to_string(),
                default.chunker.to_string(),
            ),
            (
                "repository.chunk_bytes_min",
                text(self.config.chunk_bytes_min),
                text(run.chunk_bytes_min),
                text(default.chunk_bytes_min),
            ),
            (
                "repository.chunk_bytes_avg",
                text(self.config.chunk_bytes_avg),
                text(run.chunk_bytes_avg),
                text(default.chunk_bytes_avg),
            ),
            (
                "repository.chunk_bytes_max",
                text(self.config.chunk_bytes_max),
                text(run.chunk_bytes_max),
                text(default.chunk_bytes_max),
            ),
            (
                "repository.pad_containers",
                self.config.pad_containers.to_string(),
                run.pad_containers.to_string(),
                default.pad_containers.to_string(),
            ),
        ];
        for (key, repository, run, default) in keys {
            if run != repository && run != default {
                return Err(Error::ConfigConflict { key, repository, run });
            }
        }
        Ok(())
    }
}

impl StoredRecord {
    /// Opens the key slots of an encrypted repository. `None` if it is not encrypted.
    fn unlock(&self, store: &Arc<dyn Store>, ask: AskUnlock<'_>) -> Result<Option<(CipherSuite, OpenedSlots)>> {
        let Some(record) = &self.record.encryption else { return Ok(None) };
        let suite = CipherSuite::from_number(record.suite)
            .ok_or_else(|| Error::unsupported(NAME, format!("cipher {}", record.suite)))?;
        // A password or key file that cannot be read is missing.
        let unlock = ask().map_err(|error| match error.kind() {
            ErrorKind::Failed => Error::Locked { location: store.location(), reason: error.to_string() },
            _ => error,
        })?;
        let opened = keys::open(store.as_ref(), &unlock, |keyring| {
            Ok(keyring.configuration == self.hash && keyring.commitment()?.as_slice() == record.commitment)
        })?;
        Ok(Some((suite, opened)))
    }

    /// The key of a repository that is not encrypted.
    fn plain_key(&self) -> Result<RepositoryKey> {
        let key = self.record.key.as_deref().unwrap_or_default();
        let key = <[u8; 32]>::try_from(key);
        key.map(RepositoryKey).map_err(|_| {
            let len = self.record.key.as_ref().map_or(0, Vec::len);
            Error::corrupt(NAME, 0, "a key of 32 bytes", len.to_string())
        })
    }
}

/// Fails if the store holds a repository or other files.
fn check_unused(store: &Arc<dyn Store>) -> Result<()> {
    let [first, second] = [BlobKind::Config, BlobKind::ConfigCopy].map(BlobName::only);
    if store.head(&first)?.is_some() || store.head(&second)?.is_some() {
        return Err(already_exists(store, "a repository"));
    }
    if !store.is_unused()? {
        return Err(already_exists(store, "other files"));
    }
    Ok(())
}

fn already_exists(store: &Arc<dyn Store>, what: &'static str) -> Error {
    Error::AlreadyExists { path: store.location().into(), what }
}
