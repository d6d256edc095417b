//! A repository in memory with the key slots of two users, and a store that lets others act between two calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::double::{Double, double_store, named};
use fhrd::config::RepositoryConfig;
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::repo::{Repository, keys};
use fhrd::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, PutOptions, Reading, Store,
    StoreExt,
};
use fhrd::{Error, Result};

/// Everything that a store holds.
pub type Blobs = BTreeMap<String, Vec<u8>>;

/// Key files: those of two users, and new ones.
pub const P: u8 = 1;
pub const Q: u8 = 2;
pub const USERS: [u8; 6] = [P, Q, 3, 4, 5, 6];

pub fn secret(user: u8) -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![user; 32]))
}

pub fn blobs_of(store: &MemoryStore) -> Blobs {
    let names = store.list(BlobPrefix::All).unwrap().into_iter().map(|blob| blob.name);
    names.map(|name| (name.to_string(), store.get(&name, 1 << 30).unwrap())).collect()
}

pub fn store_with(blobs: &Blobs) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(&named(name), bytes));
    Arc::new(store)
}

/// A repository with the slots of P and Q.
pub fn two_slots() -> &'static Blobs {
    static BLOBS: OnceLock<Blobs> = OnceLock::new();
    BLOBS.get_or_init(|| {
        let store = Arc::new(MemoryStore::new());
        let config = RepositoryConfig::default();
        let repository = Repository::init_encrypted(store.clone(), &config, None, &secret(P), "p").unwrap();
        keys::add(&repository, &secret(Q), "q").unwrap();
        assert_eq!(store.list(BlobKind::Key.into()).unwrap().len(), 2);
        blobs_of(&store)
    })
}

pub fn open(store: Arc<dyn Store>, user: u8) -> Result<Repository> {
    Repository::open_with(store, &|| Ok(secret(user)))
}

/// A change of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Rotate,
    /// With the key file of a new user.
    Add(u8),
    Passwd(u8),
    /// The slot of another user.
    Remove(u8),
    /// Writes damaged slots again.
    Heal,
}

impl Verb {
    /// Runs the verb as `user`.
    pub fn run(self, store: Arc<dyn Store>, user: u8) -> Result<()> {
        let repository = open(store, user)?;
        match self {
            Verb::Rotate => keys::rotate(&repository, &secret(user)).map(drop),
            Verb::Add(new) => keys::add(&repository, &secret(new), "added").map(drop),
            Verb::Heal => keys::heal_slots(&repository).map(drop),
            Verb::Passwd(new) => keys::passwd(&repository, &secret(new), "changed").map(drop),
            Verb::Remove(other) => {
                let slots = keys::list(repository.store.as_ref())?;
                let is_of = |slot: &keys::NamedSlot| matches!(slot.slot.open("x", &secret(other)), Ok(Some(_)));
                let slot = slots.iter().find(|slot| is_of(slot)).map(|slot| slot.id.clone());
                let slot = slot.ok_or_else(|| Error::Usage("no such slot".into()))?;
                keys::remove_slot(&repository, &slot).map(drop)
            }
        }
    }
}

/// What is asked before each call, which has a number from 0. An error stops the call and is its result.
pub type Gate = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// See the module.
pub struct Gated {
    pub inner: Arc<MemoryStore>,
    pub gate: Gate,
    pub calls: AtomicU64,
    /// Blobs that were put two hours ago.
    pub old: BTreeSet<String>,
}

impl Gated {
    pub fn new(inner: &Arc<MemoryStore>, gate: Gate) -> Arc<Self> {
        Arc::new(Gated { inner: inner.clone(), gate, calls: AtomicU64::default(), old: BTreeSet::new() })
    }

    fn step(&self) -> Result<()> {
        (self.gate)(self.calls.fetch_add(1, Ordering::SeqCst))
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

/// The error of a process that was killed.
pub fn killed() -> Error {
    Error::Interrupted
}

double_store!(Gated);

impl Double for Gated {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.step()?;
        self.inner.put_if_absent(name, parts)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.step()?;
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.step()?;
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        self.step()?;
        self.inner.overwrite(name, parts, PutOptions::default())
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.step()?;
        let mut head = self.inner.head(name)?;
        if let Some(head) = head.as_mut().filter(|_| self.old.contains(name.as_str())) {
            head.modified = SystemTime::now() - Duration::from_secs(7200);
        }
        Ok(head)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.step()?;
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.step()?;
        self.inner.delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        "keys".into()
    }
}
