//! A store that a test can let fail, or during whose requests other things happen.

use std::sync::Arc;

use fhrd::error::Result;
use fhrd::repo::Repository;
use fhrd::store::{self, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, Reading, Store, StoreExt};

use crate::double::{Double, double_store};
use crate::input::TestRepository;

/// Gets the call, such as `list`, and the name or prefix.
type Hook = Box<dyn Fn(&str, &str) -> Result<()> + Send + Sync>;

/// Calls a hook before each put, get, look, listing, overwrite and deletion, which it can let fail.
struct HookedStore {
    inner: Arc<dyn Store>,
    hook: Hook,
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
        self.inner.overwrite(name, parts)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        (self.hook)("get", name)?;
        self.inner.get(name, bytes_max)
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
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        (self.hook)("delete", name)?;
        self.inner.delete(name, Durable::OnReturn)
    }
}

/// The repository, with `hook` called before requests.
pub fn hooked(place: &TestRepository, hook: impl Fn(&str, &str) -> Result<()> + Send + Sync + 'static) -> Repository {
    let inner = store::open(place.path()).unwrap();
    Repository::open(Arc::new(HookedStore { inner, hook: Box::new(hook) })).unwrap()
}
