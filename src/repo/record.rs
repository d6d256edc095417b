//! The record of a repository's fixed configuration, in two copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytesize::ByteSize;
use minicbor::{Decode, Encode};

use crate::config::{ChunkerKind, Config, RepositoryConfig};
use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, Store, StoreExt};
use crate::wire::Envelope;

pub(super) const MAGIC: [u8; 8] = *b"FHRDCONF";
pub(super) const NAME: &str = "config";
pub(super) const BYTES_LIMIT: u64 = 1 << 20;
/// Key of the padding of containers in the record's open map, and its only value.
pub(super) const PADDING: &str = "padding";
pub(super) const PADME: &[u8] = b"padme";
/// The `config` blob: a CBOR map with integer keys in an envelope of type `FHRDCONF`.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(super) struct ConfigRecord {
    /// 16 random bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(super) id: Vec<u8>,
    /// 32 random bytes: the key of fingerprints and the seed of the chunker. Absent if the repository is encrypted.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(super) key: Option<Vec<u8>>,
    /// Name of the chunker.
    #[n(2)]
    chunker: String,
    /// Parameters of the chunker by name.
    #[n(3)]
    parameters: BTreeMap<String, u64>,
    /// Fields of later versions.
    #[n(4)]
    extra: BTreeMap<String, minicbor::bytes::ByteVec>,
    /// How the repository is encrypted; absent if it is not.
    #[n(5)]
    pub(super) encryption: Option<EncryptionRecord>,
}

/// How a repository is encrypted.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(super) struct EncryptionRecord {
    /// Number of the cipher for new blobs.
    #[n(0)]
    pub(super) suite: u8,
    /// Commitment to the keyring, 32 bytes.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(super) commitment: Vec<u8>,
}

/// The record, the features that a writer must support, and the BLAKE3 of the record's bytes.
pub(super) struct StoredRecord {
    pub(super) record: ConfigRecord,
    pub(super) writer_features: u64,
    pub(super) hash: [u8; 32],
}

impl StoredRecord {
    /// The configuration that the record fixes.
    pub(super) fn config(&self) -> Result<RepositoryConfig> {
        let record = &self.record;
        let parameter = |name: &str| {
            let value = record.parameters.get(name).copied().map(ByteSize);
            value.ok_or_else(|| Error::corrupt(NAME, 0, format!("the parameter `{name}`"), "none"))
        };
        let chunker = ChunkerKind::from_name(&record.chunker).ok_or_else(|| Error::Unsupported {
            what: NAME.into(),
            unknown: format!("chunker `{}`", record.chunker),
        })?;
        let pad_containers = match record.extra.get(PADDING).map(|value| value.as_slice()) {
            None => false,
            Some(PADME) => true,
            Some(_) => return Err(Error::unsupported(NAME, "padding of containers")),
        };
        let config = RepositoryConfig {
            chunk_bytes_min: parameter("chunk_bytes_min")?,
            chunk_bytes_avg: parameter("chunk_bytes_avg")?,
            chunk_bytes_max: parameter("chunk_bytes_max")?,
            chunker,
            pad_containers,
        };
        let whole = Config { repository: config.clone(), ..Config::default() };
        whole.validate().map_err(|message| Error::corrupt(NAME, 0, "parameters this version supports", message))?;
        Ok(config)
    }
}

pub(super) fn config_record(
    config: &RepositoryConfig,
    id: &[u8],
    key: Option<&[u8]>,
    encryption: Option<EncryptionRecord>,
) -> ConfigRecord {
    let parameters = BTreeMap::from([
        ("chunk_bytes_min".to_string(), config.chunk_bytes_min.0),
        ("chunk_bytes_avg".to_string(), config.chunk_bytes_avg.0),
        ("chunk_bytes_max".to_string(), config.chunk_bytes_max.0),
    ]);
    let padding = config.pad_containers.then(|| (PADDING.to_string(), PADME.to_vec().into()));
    let extra = padding.into_iter().collect();
    ConfigRecord {
        id: id.to_vec(),
        key: key.map(<[u8]>::to_vec),
        chunker: config.chunker.to_string(),
        parameters,
        extra,
        encryption,
    }
}

pub(super) fn encode_record(record: &ConfigRecord) -> Result<Vec<u8>> {
    minicbor::to_vec(record).map_err(|error| Error::internal(format!("cannot encode the configuration: {error}")))
}

/// Stores both copies of the record, with the features that writers must support.
pub(super) fn put_record(store: &Arc<dyn Store>, payload: &[u8], writer_features: u64) -> Result<()> {
    let blob = Envelope { writer_features, ..Envelope::new(MAGIC) }.seal(payload);
    // Of two concurrent calls, only the one that puts the copy first goes on: its record has an id of its own. A server
    // may call a name taken that this very put has just taken.
    for name in [BlobKind::ConfigCopy, BlobKind::Config].map(BlobName::only) {
        if !store.put_if_absent(&name, &[&blob])? && store.get(&name, BYTES_LIMIT)? != blob {
            return Err(Error::AlreadyExists { path: store.location().into(), what: "a repository" });
        }
    }
    Ok(())
}

/// Reads the blob `name` if it is a copy of the configuration, without a key. Returns whether it is.
///
/// # Errors
/// Errors of a damaged copy.
pub fn check_configuration(store: &dyn Store, name: &BlobName) -> Result<bool> {
    match name.kind() {
        kind @ (BlobKind::Config | BlobKind::ConfigCopy) => read_record(store, kind).map(|_| true),
        _ => Ok(false),
    }
}

/// Reads a copy of the record.
pub(super) fn read_record(store: &dyn Store, kind: BlobKind) -> Result<StoredRecord> {
    let name = BlobName::only(kind);
    let blob = store.get(&name, BYTES_LIMIT)?;
    let (envelope, payload) = Envelope::open(MAGIC, &name, &blob)?;
    let record = minicbor::decode(payload);
    let record = record.map_err(|error| Error::corrupt(&name, 0, "a configuration record", error.to_string()))?;
    let hash = *blake3::hash(payload).as_bytes();
    Ok(StoredRecord { record, writer_features: envelope.writer_features, hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::Repository;
    use crate::store::MemoryStore;

    #[test]
    fn an_unknown_chunker_on_disk_needs_a_newer_version() {
        let store = Arc::new(MemoryStore::new());
        let repository = Repository::init(store, &RepositoryConfig::default()).expect("creates");
        let mut stored = read_record(repository.store.as_ref(), BlobKind::Config).expect("reads");
        stored.record.chunker = "magic".into();
        let error = stored.config().map(|_| ());
        let Err(Error::Unsupported { what, unknown }) = error else { panic!("{error:?}") };
        assert_eq!((what.as_str(), unknown.as_str()), ("config", "chunker `magic`"));
    }
}
