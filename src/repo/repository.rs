//! A repository: its place, its fixed configuration, its key.
//!
//! `config` is put if absent, checksummed, and kept twice (`config` and `config-copy`, the copy written first).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use minicbor::{Decode, Encode};

use crate::config::{ChunkerKind, Config, RepositoryConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{LocalStore, Store};
use crate::types::{RepositoryKey, hex};
use crate::wire::{Envelope, WRITER_FEATURES_KNOWN};

const MAGIC: [u8; 8] = *b"FHRDCONF";
const NAME: &str = "config";
const COPY: &str = "config-copy";
const BYTES_LIMIT: u64 = 1 << 20;

/// The `config` blob: CBOR map with integer keys in an envelope of type `FHRDCONF`.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
struct Record {
    /// 16 random bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    id: Vec<u8>,
    /// 32 random bytes: keys fingerprints, seeds the chunker.
    #[cbor(n(1), with = "minicbor::bytes")]
    key: Vec<u8>,
    /// Chunker name.
    #[n(2)]
    chunker: String,
    /// Its parameters by name.
    #[n(3)]
    parameters: BTreeMap<String, u64>,
    /// Open map.
    #[n(4)]
    extra: BTreeMap<String, minicbor::bytes::ByteVec>,
}

/// An open repository.
#[derive(Clone)]
pub struct Repository {
    /// Its blobs.
    pub store: Arc<dyn Store>,
    /// Where it is.
    pub path: PathBuf,
    /// 32 hex digits that name it.
    pub id: String,
    /// Its key.
    pub key: RepositoryKey,
    /// What was fixed at creation.
    pub config: RepositoryConfig,
    /// Features a program must know to write here.
    pub writer_features: u64,
}

impl Repository {
    /// Creates a repository in a directory that is absent or empty.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when there is anything in the directory.
    pub fn init(path: &Path, config: &RepositoryConfig) -> Result<Self> {
        if std::fs::symlink_metadata(path).is_ok() {
            let listing = std::fs::read_dir(path).map_err(|error| Error::io("list", path, error))?;
            if path.join(NAME).exists() || path.join(COPY).exists() {
                return Err(Error::AlreadyExists { path: path.into(), what: "a repository" });
            }
            // All that an `init` which was killed leaves is the store's directory of temporaries, empty or not.
            let foreign = |entry: std::io::Result<std::fs::DirEntry>| !entry.is_ok_and(|entry| is_leftover(&entry));
            if listing.into_iter().any(foreign) {
                return Err(Error::AlreadyExists { path: path.into(), what: "other files" });
            }
        }
        let mut random = [0u8; 48];
        getrandom::fill(&mut random)
            .map_err(|error| Error::io("get random bytes for", path, std::io::Error::other(error)))?;
        Self::init_with(path, config, &random)
    }

    /// [`Repository::init`] in a directory known to be free, with 16 bytes of id and 32 bytes of key: repositories of the
    /// same key cut and name chunks alike, which measurements need and nobody else may have.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; those of writing.
    pub(crate) fn init_with(path: &Path, config: &RepositoryConfig, identity: &[u8; 48]) -> Result<Self> {
        let store = LocalStore::create(path)?;
        let (id, key) = identity.split_at(16);
        let parameters = BTreeMap::from([
            ("chunk_bytes_min".to_string(), config.chunk_bytes_min.0),
            ("chunk_bytes_avg".to_string(), config.chunk_bytes_avg.0),
            ("chunk_bytes_max".to_string(), config.chunk_bytes_max.0),
        ]);
        let record = Record {
            id: id.to_vec(),
            key: key.to_vec(),
            chunker: config.chunker.to_string(),
            parameters,
            extra: BTreeMap::new(),
        };
        let payload =
            minicbor::to_vec(&record).map_err(|error| Error::internal(format!("cannot encode config: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        // Of two at once, the one that comes second here ends here.
        if !store.put_if_absent(COPY, &[&blob])? || !store.put_if_absent(NAME, &[&blob])? {
            return Err(Error::AlreadyExists { path: path.into(), what: "a repository" });
        }
        Self::open(path)
    }

    /// Opens the repository in a directory.
    ///
    /// # Errors
    /// [`Error::NoRepository`] when the directory is absent or holds none; when both copies of `config` are damaged,
    /// the error of the first.
    pub fn open(path: &Path) -> Result<Self> {
        let none = |reason: &str| Error::NoRepository { path: path.into(), reason: reason.into() };
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(none("the folder does not exist; `fhrd init` creates one"));
            }
            Err(error) => return Err(Error::io("open repository", path, error)),
        };
        if !metadata.is_dir() {
            return Err(none("that is not a folder"));
        }
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(path)?);
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
                let missing = first.kind() == ErrorKind::NotFound && second.kind() == ErrorKind::NotFound;
                return Err(if missing { none("the folder holds no `config`") } else { first });
            }
        };
        Self::from_record(path, store, record)
    }

    fn from_record(path: &Path, store: Arc<dyn Store>, (record, writer_features): (Record, u64)) -> Result<Self> {
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
            path: path.into(),
            id: hex(&record.id),
            key: RepositoryKey(key),
            config,
            writer_features,
        })
    }

    /// What is wrong with the stored copies of the configuration, with their names.
    pub fn config_defects(&self) -> Vec<(&'static str, Error)> {
        let read = |name| {
            let repository =
                Self::from_record(&self.path, self.store.clone(), read_record(self.store.as_ref(), name)?)?;
            let same = (&repository.id, repository.key, &repository.config) == (&self.id, self.key, &self.config);
            if same { Ok(()) } else { Err(Error::corrupt(name, 0, "the other copy's record", "another record")) }
        };
        [NAME, COPY].into_iter().filter_map(|name| read(name).err().map(|error| (name, error))).collect()
    }

    /// Fails when writing into this repository needs features that this program does not have.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the unknown feature bits.
    pub fn check_writable(&self) -> Result<()> {
        match self.writer_features & !WRITER_FEATURES_KNOWN {
            0 => Ok(()),
            unknown => Err(Error::unknown_features(NAME, unknown)),
        }
    }

    /// Fails when a run's configuration sets a fixed key to something else. Values equal to the defaults pass:
    /// they may not have been meant.
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

/// Whether this is a directory `tmp` with nothing in it but files named as a store names its temporaries.
fn is_leftover(entry: &std::fs::DirEntry) -> bool {
    let is_temporary = |name: &std::ffi::OsStr| {
        name.to_str().is_some_and(|name| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    entry.file_name() == "tmp"
        && std::fs::read_dir(entry.path())
            .is_ok_and(|mut inner| inner.all(|inner| inner.is_ok_and(|inner| is_temporary(&inner.file_name()))))
}

fn read_record(store: &dyn Store, name: &str) -> Result<(Record, u64)> {
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
        let directory = tempfile::tempdir().expect("makes a directory");
        let path = directory.path().join("repository");
        let repository = Repository::init(&path, &RepositoryConfig::default()).expect("creates");
        let (mut record, features) = read_record(repository.store.as_ref(), NAME).expect("reads");
        record.chunker = "magic".into();
        let error = Repository::from_record(&path, repository.store, (record, features)).map(|_| ());
        let Err(Error::Unsupported { what, unknown }) = error else { panic!("{error:?}") };
        assert_eq!((what.as_str(), unknown.as_str()), ("config", "chunker `magic`"));
    }
}
