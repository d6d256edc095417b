//! The secrets of a repository.

use minicbor::{Decode, Encode};

use super::secret::{SecretBytes, SecretKey};
use crate::error::{Error, Result};

/// Generations that a keyring has, at most.
const GENERATIONS_MAX: usize = 4096;
/// Purpose of the commitment.
const COMMITMENT_CONTEXT: &str = "fhrd 2026-11 keyring commitment";

/// The master key of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKey {
    /// Its number. The first one is 1.
    pub generation: u32,
    /// The key.
    pub key: SecretKey,
}

/// All secrets of an encrypted repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    /// Key of fingerprints and of the chunker.
    pub fingerprint_key: SecretKey,
    /// BLAKE3 of the payload of the configuration, which is not encrypted: it cannot be exchanged unnoticed.
    pub configuration: [u8; 32],
    /// Master keys by ascending generation, at least one.
    masters: Vec<MasterKey>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct KeyringRecord {
    #[cbor(n(0), with = "minicbor::bytes")]
    fingerprint_key: Vec<u8>,
    #[cbor(n(1), with = "minicbor::bytes")]
    configuration: Vec<u8>,
    #[n(2)]
    masters: Vec<MasterRecord>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct MasterRecord {
    #[n(0)]
    generation: u32,
    #[cbor(n(1), with = "minicbor::bytes")]
    key: Vec<u8>,
}

impl Drop for KeyringRecord {
    fn drop(&mut self) {
        use zeroize::Zeroize;
        self.fingerprint_key.zeroize();
        self.masters.iter_mut().for_each(|master| master.key.zeroize());
    }
}

impl Keyring {
    /// A keyring with a new master key of generation 1.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel gives no random bytes.
    pub fn new(fingerprint_key: SecretKey, configuration: [u8; 32]) -> Result<Self> {
        let masters = vec![MasterKey { generation: 1, key: SecretKey::random()? }];
        Ok(Keyring { fingerprint_key, configuration, masters })
    }

    /// The master key for what is written from now on.
    ///
    /// # Errors
    /// [`Error::Internal`] if there is none, which no constructor allows.
    pub fn latest(&self) -> Result<&MasterKey> {
        self.masters.last().ok_or_else(|| Error::internal("a keyring without keys"))
    }

    /// The master key of a generation.
    pub fn master(&self, generation: u32) -> Option<&MasterKey> {
        self.masters.iter().find(|master| master.generation == generation)
    }

    /// Number of generations.
    pub fn generations(&self) -> usize {
        self.masters.len()
    }

    /// Adds a new master key, under which everything is sealed from now on.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are too many.
    pub fn rotate(&mut self) -> Result<()> {
        if self.masters.len() >= GENERATIONS_MAX {
            return Err(Error::Usage(format!("a repository has at most {GENERATIONS_MAX} generations of its key")));
        }
        let generation = self.latest()?.generation + 1;
        self.masters.push(MasterKey { generation, key: SecretKey::random()? });
        Ok(())
    }

    /// What identifies the repository's first keys without telling them: a store that exchanges them is found out.
    pub fn commitment(&self) -> Result<[u8; 32]> {
        let first = self.masters.first().ok_or_else(|| Error::internal("a keyring without keys"))?;
        Ok(*first.key.derive(COMMITMENT_CONTEXT, &[self.fingerprint_key.bytes()]).bytes())
    }

    /// The keyring as bytes.
    pub fn encode(&self) -> Result<SecretBytes> {
        let record = KeyringRecord {
            fingerprint_key: self.fingerprint_key.bytes().to_vec(),
            configuration: self.configuration.to_vec(),
            masters: self.masters.iter().map(MasterRecord::new).collect(),
        };
        // Room for all of it: a vector that grows leaves copies behind.
        let mut bytes = Vec::with_capacity(128 + 64 * self.masters.len());
        let encoded = minicbor::encode(&record, &mut bytes);
        let bytes = SecretBytes::new(bytes);
        encoded.map(|()| bytes).map_err(|error| Error::internal(format!("cannot encode a keyring: {error}")))
    }

    /// Parses the keyring of `what`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn parse(what: &str, bytes: &SecretBytes) -> Result<Self> {
        let corrupt = |got: String| Error::corrupt(what, 0, "a keyring", got);
        let record: KeyringRecord = minicbor::decode(bytes.bytes()).map_err(|error| corrupt(error.to_string()))?;
        let key = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).map_err(|_| corrupt(format!("{} bytes", bytes.len())));
        let mut masters: Vec<MasterKey> = Vec::new();
        for master in &record.masters {
            if masters.last().is_some_and(|last| last.generation >= master.generation) || master.generation == 0 {
                return Err(corrupt(format!("generation {}", master.generation)));
            }
            masters.push(MasterKey { generation: master.generation, key: SecretKey::new(key(&master.key)?) });
        }
        if masters.is_empty() || masters.len() > GENERATIONS_MAX {
            return Err(corrupt(format!("{} master keys", masters.len())));
        }
        let fingerprint_key = SecretKey::new(key(&record.fingerprint_key)?);
        Ok(Keyring { fingerprint_key, configuration: key(&record.configuration)?, masters })
    }
}

impl MasterRecord {
    fn new(master: &MasterKey) -> Self {
        MasterRecord { generation: master.generation, key: master.key.bytes().to_vec() }
    }
}
