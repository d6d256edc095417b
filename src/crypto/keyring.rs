//! The secrets of a repository.

use std::collections::HashSet;

use minicbor::{Decode, Encode};

use super::secret::{SecretBytes, SecretKey};
use crate::error::{Error, Result};

/// Generations that a keyring has, at most. They count from 1, so no later one has a greater number.
const GENERATIONS_MAX: u32 = 4096;
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

impl MasterKey {
    fn identity(&self) -> (u32, &[u8; 32]) {
        (self.generation, self.key.bytes())
    }
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
    /// Further keys of generations that have several: programs that did not see each other have made them at the same
    /// time. They only open what is stored.
    others: Vec<MasterKey>,
    /// Latest generation that seals, if it is not the last one.
    sealing_max: Option<u32>,
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
    /// Absent if there are none.
    #[n(3)]
    others: Option<Vec<MasterRecord>>,
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
        let others = self.others.iter_mut().flatten();
        self.masters.iter_mut().chain(others).for_each(|master| master.key.zeroize());
    }
}

impl Keyring {
    /// A keyring with a new master key of generation 1.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel gives no random bytes.
    pub fn new(fingerprint_key: SecretKey, configuration: [u8; 32]) -> Result<Self> {
        let masters = vec![MasterKey { generation: 1, key: SecretKey::random()? }];
        Ok(Keyring { fingerprint_key, configuration, masters, others: Vec::new(), sealing_max: None })
    }

    /// The master key for what is written from now on.
    ///
    /// # Errors
    /// [`Error::Internal`] if there is none, which no constructor allows.
    pub fn latest(&self) -> Result<&MasterKey> {
        let allowed = |master: &&MasterKey| self.sealing_max.is_none_or(|max| master.generation <= max);
        let allowed = self.masters.iter().rev().find(allowed).or(self.masters.last());
        allowed.ok_or_else(|| Error::internal("a keyring without keys"))
    }

    /// The latest generation that it has a key of, whether or not that key seals.
    pub fn generation_max(&self) -> u32 {
        self.masters.last().map_or(0, |master| master.generation)
    }

    /// The same without the keys of later generations than `generation`.
    #[must_use]
    pub fn up_to(&self, generation: u32) -> Self {
        let mut older = self.clone();
        older.masters.retain(|master| master.generation <= generation);
        older.others.retain(|master| master.generation <= generation);
        older
    }

    /// Seals nothing with later generations than `generation`.
    pub fn seal_at_most_with(&mut self, generation: u32) {
        self.sealing_max = Some(generation);
    }

    /// The master keys of a generation: one, unless two programs have made one each.
    pub fn masters(&self, generation: u32) -> impl Iterator<Item = &MasterKey> {
        self.all().filter(move |master| master.generation == generation)
    }

    /// Takes in the master keys of another keyring of the same repository.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are too many. The keyring is as before then.
    pub fn merge(&mut self, other: &Keyring) -> Result<()> {
        let mut known: HashSet<(u32, &[u8; 32])> = self.all().map(MasterKey::identity).collect();
        let new: Vec<MasterKey> = other.all().filter(|master| known.insert(master.identity())).cloned().collect();
        self.check_count(new.len())?;
        for master in new {
            match self.masters.binary_search_by_key(&master.generation, |known| known.generation) {
                Ok(_) => self.others.push(master),
                Err(at) => self.masters.insert(at, master),
            }
        }
        Ok(())
    }

    /// Whether it has every key of another keyring.
    pub fn has_all_of(&self, other: &Keyring) -> bool {
        let known: HashSet<(u32, &[u8; 32])> = self.all().map(MasterKey::identity).collect();
        other.all().all(|master| known.contains(&master.identity()))
    }

    fn all(&self) -> impl Iterator<Item = &MasterKey> {
        self.masters.iter().chain(&self.others)
    }

    /// Number of its master keys.
    pub fn count(&self) -> usize {
        self.masters.len() + self.others.len()
    }

    fn check_count(&self, more: usize) -> Result<()> {
        if self.count() + more > GENERATIONS_MAX as usize {
            return Err(too_many());
        }
        Ok(())
    }

    /// Number of generations.
    pub fn generations(&self) -> usize {
        self.masters.len()
    }

    /// Adds a new master key, under which everything is sealed from now on.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are too many, or the latest one has the greatest number. Nothing has changed then.
    pub fn rotate(&mut self) -> Result<()> {
        self.check_count(1)?;
        let next = self.generation_max().checked_add(1).filter(|next| *next <= GENERATIONS_MAX);
        let generation = next.ok_or_else(too_many)?;
        self.masters.push(MasterKey { generation, key: SecretKey::random()? });
        self.sealing_max = None;
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
            others: (!self.others.is_empty()).then(|| self.others.iter().map(MasterRecord::new).collect()),
        };
        // Room for all of it: a vector that grows leaves copies behind.
        let mut bytes = Vec::with_capacity(128 + 64 * (self.masters.len() + self.others.len()));
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
        let master = |master: &MasterRecord| match master.generation {
            generation @ 1..=GENERATIONS_MAX => Ok(MasterKey { generation, key: SecretKey::new(key(&master.key)?) }),
            generation => Err(corrupt(format!("generation {generation}, of at most {GENERATIONS_MAX}"))),
        };
        let masters = record.masters.iter().map(master).collect::<Result<Vec<_>>>()?;
        let others = record.others.iter().flatten().map(master).collect::<Result<Vec<_>>>()?;
        if let Some(late) = masters.iter().zip(masters.iter().skip(1)).find(|(a, b)| a.generation >= b.generation) {
            return Err(corrupt(format!("generation {} after {}", late.1.generation, late.0.generation)));
        }
        if masters.is_empty() || masters.len() + others.len() > GENERATIONS_MAX as usize {
            return Err(corrupt(format!("{} master keys", masters.len() + others.len())));
        }
        let fingerprint_key = SecretKey::new(key(&record.fingerprint_key)?);
        Ok(Keyring { fingerprint_key, configuration: key(&record.configuration)?, masters, others, sealing_max: None })
    }
}

fn too_many() -> Error {
    Error::Usage(format!("a repository has at most {GENERATIONS_MAX} generations of its key"))
}

impl MasterRecord {
    fn new(master: &MasterKey) -> Self {
        MasterRecord { generation: master.generation, key: master.key.bytes().to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(generations: usize) -> Keyring {
        let mut keyring = Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap();
        (1..generations).for_each(|_| keyring.rotate().unwrap());
        keyring
    }

    #[test]
    fn keyrings_that_grew_apart_are_merged_and_lose_no_key() {
        let old = keyring(1);
        let (mut one, mut other) = (old.clone(), old.clone());
        one.rotate().unwrap();
        other.rotate().unwrap();
        other.rotate().unwrap();
        let mut merged = old.clone();
        for _ in 0..2 {
            for part in [&one, &other, &old] {
                merged.merge(part).unwrap();
            }
        }
        assert_eq!((1..5).map(|number| merged.masters(number).count()).collect::<Vec<_>>(), [1, 2, 1, 0]);
        for part in [&one, &other] {
            for master in &part.masters {
                assert!(merged.masters(master.generation).any(|known| known == master), "{}", master.generation);
            }
        }
        assert_eq!(merged.latest().unwrap(), other.latest().unwrap());
        assert_eq!(merged.commitment().unwrap(), old.commitment().unwrap());
        let again = Keyring::parse("x", &merged.encode().unwrap()).unwrap();
        assert_eq!(again, merged);
        merged.rotate().unwrap();
        assert_eq!(merged.latest().unwrap().generation, 4);
    }

    fn numbered(masters: &[u32], others: &[u32]) -> Result<Keyring> {
        let records = |numbers: &[u32]| {
            numbers.iter().map(|generation| MasterRecord { generation: *generation, key: vec![3; 32] }).collect()
        };
        let record = KeyringRecord {
            fingerprint_key: vec![1; 32],
            configuration: vec![2; 32],
            masters: records(masters),
            others: Some(records(others)),
        };
        Keyring::parse("x", &SecretBytes::new(minicbor::to_vec(&record).unwrap()))
    }

    #[test]
    fn generations_that_no_rotation_can_give_are_refused() {
        for number in [0, GENERATIONS_MAX + 1, u32::MAX - 1, u32::MAX] {
            for (masters, others) in [(vec![number], vec![]), (vec![1, number], vec![]), (vec![1], vec![number])] {
                let error = numbered(&masters, &others).unwrap_err().to_string();
                assert!(error.contains(&format!("generation {number}")), "{error}");
            }
        }
        assert!(numbered(&[2, 2], &[]).is_err() && numbered(&[3, 2], &[]).is_err() && numbered(&[], &[]).is_err());
    }

    #[test]
    fn a_keyring_that_does_not_fit_changes_nothing() {
        let few = keyring(3);
        let (mut one, mut other) = (few.clone(), few.clone());
        (0..3000).for_each(|_| one.rotate().unwrap());
        (0..3000).for_each(|_| other.rotate().unwrap());
        let before = one.clone();
        assert!(matches!(one.merge(&other), Err(Error::Usage(_))));
        assert!(one == before && one.has_all_of(&few) && !few.has_all_of(&one));
        one.merge(&few).unwrap();
        assert!(one == before);
    }

    #[test]
    fn a_rotation_beyond_the_last_generation_is_refused_and_changes_nothing() {
        let mut last = numbered(&[1, GENERATIONS_MAX], &[]).unwrap();
        last.seal_at_most_with(1);
        let before = last.clone();
        assert!(matches!(last.rotate(), Err(Error::Usage(_))));
        assert_eq!(last, before);
        // As if the bound were none.
        last.masters[1].generation = u32::MAX;
        assert!(matches!(last.rotate(), Err(Error::Usage(_))));
        assert_eq!(last.masters.len(), 2);
    }

    #[test]
    fn a_keyring_with_one_key_for_each_generation_is_stored_as_before() {
        let record = |others| KeyringRecord {
            fingerprint_key: vec![1; 32],
            configuration: vec![2; 32],
            masters: vec![MasterRecord { generation: 1, key: vec![3; 32] }],
            others,
        };
        let bytes = minicbor::to_vec(record(None)).unwrap();
        assert_eq!(bytes.first(), Some(&0xa3), "a map of three");
        assert_eq!(minicbor::to_vec(record(Some(Vec::new()))).unwrap().first(), Some(&0xa4));
    }
}
