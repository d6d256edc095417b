//! A store that a test can let fail, or during whose requests other things happen.

use std::sync::Arc;

use fhrd::error::Result;
use fhrd::repo::Repository;
use fhrd::store::{
    self, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, PutOptions, Reading, Store, StoreExt,
};

use crate::double::{Double, double_store};
use crate::input::TestRepository;

/// Gets the call, such as `list`, and the name or prefix.
type Hook = Box<dyn Fn(&str, &str) -> Result<()> + Send + Sync>;

/// Gets the prefix and what is listed, and returns what the store shall answer.
type ChangeListing = Box<dyn Fn(&str, Vec<ListedBlob>) -> Vec<ListedBlob> + Send + Sync>;

/// Gets the name and the bytes of a blob that is read whole, and returns what the store shall answer.
type ChangeBytes = Box<dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync>;

/// Calls a hook before each put, get, look, listing, overwrite and deletion, which it can let fail, and changes answers.
pub struct HookedStore {
    inner: Arc<dyn Store>,
    hook: Hook,
    listing: ChangeListing,
    bytes: ChangeBytes,
}

impl HookedStore {
    /// The store of a repository, with nothing changed.
    pub fn new(place: &TestRepository) -> Self {
        Self::of(store::open(place.path()).unwrap())
    }

    /// This store, with nothing changed.
    pub fn of(inner: Arc<dyn Store>) -> Self {
        HookedStore {
            inner,
            hook: Box::new(|_, _| Ok(())),
            listing: Box::new(|_, listed| listed),
            bytes: Box::new(|_, bytes| bytes),
        }
    }

    /// Calls `hook` before requests.
    pub fn before(self, hook: impl Fn(&str, &str) -> Result<()> + Send + Sync + 'static) -> Self {
        HookedStore { hook: Box::new(hook), ..self }
    }

    /// Changes what is listed.
    pub fn listing(self, change: impl Fn(&str, Vec<ListedBlob>) -> Vec<ListedBlob> + Send + Sync + 'static) -> Self {
        HookedStore { listing: Box::new(change), ..self }
    }

    /// Changes what is read whole.
    pub fn bytes(self, change: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        HookedStore { bytes: Box::new(change), ..self }
    }

    /// The repository in it.
    pub fn open(self) -> Repository {
        Repository::open(Arc::new(self)).unwrap()
    }
}

double_store!(HookedStore);

impl Double for HookedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        (self.hook)("put", name)?;
        self.inner.put_if_absent(name, parts)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        (self.hook)("overwrite", name)?;
        self.inner.overwrite(name, parts, PutOptions::default())
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        (self.hook)("get", name)?;
        Ok((self.bytes)(name, self.inner.get(name, bytes_max)?))
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        (self.hook)("head", name)?;
        self.inner.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        (self.hook)("list", &prefix.directory())?;
        Ok((self.listing)(&prefix.directory(), self.inner.list(prefix)?))
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        (self.hook)("delete", name)?;
        self.inner.delete(name, Durable::OnReturn)
    }
}

/// The repository, with `hook` called before requests.
pub fn hooked(place: &TestRepository, hook: impl Fn(&str, &str) -> Result<()> + Send + Sync + 'static) -> Repository {
    HookedStore::new(place).before(hook).open()
}
