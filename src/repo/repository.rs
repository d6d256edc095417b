//! A repository: a store with a fixed configuration and a key.
//!
//! The record of both is put once, checksummed, and kept in two copies: `config` and `config-copy`. The copy is
//! written first.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use minicbor::{Decode, Encode};

use crate::config::{ChunkerKind, Config, RepositoryConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::salts::Salts;
use crate::store::{self, StoppingStore, Store};
use crate::types::{RepositoryKey, hex};
use crate::wire::{Envelope, WRITER_FEATURES_KNOWN};

const MAGIC: [u8; 8] = *b"FHRDCONF";
const NAME: &str = "config";
const COPY: &str = "config-copy";
const BYTES_LIMIT: u64 = 1 << 20;

/// The `config` blob: a CBOR map with integer keys in an envelope of type `FHRDCONF`.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
struct ConfigRecord {
    /// 16 random bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    id: Vec<u8>,
    /// 32 random bytes: the key of fingerprints and the seed of the chunker.
    #[cbor(n(1), with = "minicbor::bytes")]
    key: Vec<u8>,
    /// Name of the chunker.
    #[n(2)]
    chunker: String,
    /// Parameters of the chunker by name.
    #[n(3)]
    parameters: BTreeMap<String, u64>,
    /// Fields of later versions.
    #[n(4)]
    extra: BTreeMap<String, minicbor::bytes::ByteVec>,
}

/// An open repository.
#[derive(Clone)]
pub struct Repository {
    /// The store of its blobs.
    pub store: Arc<dyn Store>,
    /// Unique identifier, 32 hex digits.
    pub id: String,
    /// Key of its fingerprints.
    pub key: RepositoryKey,
    /// Configuration that was fixed at creation.
    pub config: RepositoryConfig,
    /// Features that a program must support to write into it.
    pub writer_features: u64,
    /// Salts of what is written into it.
    pub salts: Salts,
}

impl Repository {
    /// Creates a repository at `location`, a path or a URL.
    ///
    /// # Errors
    /// Those of [`store::create`] and [`Repository::init`].
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

    /// Creates a repository at `location` with the key and the chunker of another one. Both cut and name chunks alike.
    ///
    /// # Errors
    /// As of [`Repository::init_at`].
    pub fn init_like(location: impl AsRef<OsStr>, like: &Repository) -> Result<Self> {
        Self::init_new(store::create(location)?, &like.config, Some(&like.key))
    }

    fn init_new(store: Arc<dyn Store>, config: &RepositoryConfig, key: Option<&RepositoryKey>) -> Result<Self> {
        if store.head(NAME)?.is_some() || store.head(COPY)?.is_some() {
            return Err(already_exists(&store, "a repository"));
        }
        if !store.is_unused()? {
            return Err(already_exists(&store, "other files"));
        }
        let mut random = [0u8; 48];
        getrandom::fill(&mut random)
            .map_err(|error| Error::io("get random bytes for", store.location(), std::io::Error::other(error)))?;
        if let (Some(key), Some(own)) = (key, random.get_mut(16..)) {
            own.copy_from_slice(&key.0);
        }
        Self::init_with(store, config, &random)
    }

    /// Creates a repository in an unused store with a given identity: 16 bytes of id and 32 bytes of key.
    ///
    /// Repositories with equal keys chunk and fingerprint alike.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; those of writing.
    pub(crate) fn init_with(store: Arc<dyn Store>, config: &RepositoryConfig, identity: &[u8; 48]) -> Result<Self> {
        let (id, key) = identity.split_at(16);
        let parameters = BTreeMap::from([
            ("chunk_bytes_min".to_string(), config.chunk_bytes_min.0),
            ("chunk_bytes_avg".to_string(), config.chunk_bytes_avg.0),
            ("chunk_bytes_max".to_string(), config.chunk_bytes_max.0),
        ]);
        let record = ConfigRecord {
            id: id.to_vec(),
            key: key.to_vec(),
            chunker: config.chunker.to_string(),
            parameters,
            extra: BTreeMap::new(),
        };
        let payload = minicbor::to_vec(&record)
            .map_err(|error| Error::internal(format!("cannot encode the configuration: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        // Of two concurrent calls, only the one that puts the copy first goes on.
        if !store.put_if_absent(COPY, &[&blob])? || !store.put_if_absent(NAME, &[&blob])? {
            return Err(already_exists(&store, "a repository"));
        }
        Self::open(store)
    }

    /// Opens the repository at `location`, a path or a URL.
    ///
    /// # Errors
    /// Those of [`store::open`] and [`Repository::open`].
    pub fn open_at(location: impl AsRef<OsStr>) -> Result<Self> {
        Self::open(store::open(location)?)
    }

    /// Opens the repository in a store.
    ///
    /// # Errors
    /// [`Error::NoRepository`] if the store holds none. If both copies of the configuration are unusable, the error of
    /// the first.
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        let record = match (read_record(store.as_ref(), NAME), read_record(store.as_ref(), COPY)) {
            (Ok(record), Ok(_)) => record,
            (Ok(record), Err(error)) => {
                tracing::warn!("the second copy of the configuration is unusable: {error}");
                record
            }
            (Err(first), Ok(record)) => {
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
        Self::from_record(store, record)
    }

    /// The same repository, whose reads fail with [`Error::Interrupted`] once `stop` is set.
    pub fn stopped_by(&self, stop: &Arc<AtomicBool>) -> Self {
        Repository { store: Arc::new(StoppingStore::new(self.store.clone(), stop.clone())), ..self.clone() }
    }

    fn from_record(store: Arc<dyn Store>, (record, writer_features): (ConfigRecord, u64)) -> Result<Self> {
        let key = <[u8; 32]>::try_from(record.key.as_slice())
            .map_err(|_| Error::corrupt(NAME, 0, "a key of 32 bytes", record.key.len().to_string()))?;
        let parameter = |name: &str| {
            let value = record.parameters.get(name).copied().map(ByteSize);
            value.ok_or_else(|| Error::corrupt(NAME, 0, format!("the parameter `{name}`"), "none"))
        };
        let chunker = ChunkerKind::from_name(&record.chunker).ok_or_else(|| Error::Unsupported {
            what: NAME.into(),
            unknown: format!("chunker `{}`", record.chunker),
        })?;
        let config = RepositoryConfig {
            chunk_bytes_min: parameter("chunk_bytes_min")?,
            chunk_bytes_avg: parameter("chunk_bytes_avg")?,
            chunk_bytes_max: parameter("chunk_bytes_max")?,
            chunker,
        };
        let whole = Config { repository: config.clone(), ..Config::default() };
        whole.validate().map_err(|message| Error::corrupt(NAME, 0, "parameters this version supports", message))?;
        Ok(Repository {
            store,
            id: hex(&record.id),
            key: RepositoryKey(key),
            config,
            writer_features,
            salts: Salts::default(),
        })
    }

    /// Returns the defects of the stored copies of the configuration, with their names.
    pub fn config_defects(&self) -> Vec<(&'static str, Error)> {
        let read = |name| {
            let repository = Self::from_record(self.store.clone(), read_record(self.store.as_ref(), name)?)?;
            let same = (&repository.id, repository.key, &repository.config) == (&self.id, self.key, &self.config);
            if same { Ok(()) } else { Err(Error::corrupt(name, 0, "the other copy's record", "another record")) }
        };
        [NAME, COPY].into_iter().filter_map(|name| read(name).err().map(|error| (name, error))).collect()
    }

    /// Writes a damaged or missing copy of the configuration again, from the other one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn heal_config(&self) -> Result<()> {
        let defects = self.config_defects();
        let [(name, error)] = defects.as_slice() else { return Ok(()) };
        if !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) {
            return Ok(());
        }
        // Another intact record may be of another repository.
        if read_record(self.store.as_ref(), name).is_ok() {
            return Ok(());
        }
        let bytes = self.store.get(if *name == NAME { COPY } else { NAME }, BYTES_LIMIT)?;
        self.store.overwrite(name, &[&bytes])?;
        tracing::warn!("{name} is written again from its other copy: {error}");
        Ok(())
    }

    /// Fails if writing into this repository needs features that this program lacks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the unknown feature bits.
    pub fn check_writable(&self) -> Result<()> {
        match self.writer_features & !WRITER_FEATURES_KNOWN {
            0 => Ok(()),
            unknown => Err(Error::unknown_features(NAME, unknown)),
        }
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
        ];
        for (key, repository, run, default) in keys {
            if run != repository && run != default {
                return Err(Error::ConfigConflict { key, repository, run });
            }
        }
        Ok(())
    }
}

fn already_exists(store: &Arc<dyn Store>, what: &'static str) -> Error {
    Error::AlreadyExists { path: store.location().into(), what }
}

/// Reads a copy of the record, with the features that a program must support to write into the repository.
fn read_record(store: &dyn Store, name: &str) -> Result<(ConfigRecord, u64)> {
    let blob = store.get(name, BYTES_LIMIT)?;
    let (envelope, payload) = Envelope::open(MAGIC, name, &blob)?;
    let record = minicbor::decode(payload);
    let record = record.map_err(|error| Error::corrupt(name, 0, "a configuration record", error.to_string()))?;
    Ok((record, envelope.writer_features))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_chunker_on_disk_needs_a_newer_version() {
        let store = Arc::new(store::MemoryStore::new());
        let repository = Repository::init(store, &RepositoryConfig::default()).expect("creates");
        let (mut record, features) = read_record(repository.store.as_ref(), NAME).expect("reads");
        record.chunker = "magic".into();
        let error = Repository::from_record(repository.store, (record, features)).map(|_| ());
        let Err(Error::Unsupported { what, unknown }) = error else { panic!("{error:?}") };
        assert_eq!((what.as_str(), unknown.as_str()), ("config", "chunker `magic`"));
    }
}
