//! A store that a test can let fail, or during whose requests other things happen.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use fhrd::error::Result;
use fhrd::repo::Repository;
use fhrd::store::{self, BlobMetadata, ListedBlob, Store};

use crate::input::TestRepository;

/// Gets the call, such as `list`, and the name or prefix.
type Hook = Box<dyn Fn(&str, &str) -> Result<()> + Send + Sync>;

/// Calls a hook before each put, get, look, listing, overwrite and deletion, which it can let fail.
struct HookedStore {
    inner: Arc<dyn Store>,
    hook: Hook,
}

impl Store for HookedStore {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        (self.hook)("put", name)?;
        self.inner.put_if_absent(name, parts)
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        (self.hook)("put", name)?;
        self.inner.put_stream_if_absent(name, len, content)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        (self.hook)("overwrite", name)?;
        self.inner.overwrite(name, parts)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        (self.hook)("get", name)?;
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.get_range(name, offset, len)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        (self.hook)("head", name)?;
        self.inner.head(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        (self.hook)("list", prefix)?;
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        (self.hook)("delete", name)?;
        self.inner.delete(name)
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn local_path(&self) -> Option<&Path> {
        self.inner.local_path()
    }
}

/// The repository, with `hook` called before requests.
pub fn hooked(place: &TestRepository, hook: impl Fn(&str, &str) -> Result<()> + Send + Sync + 'static) -> Repository {
    let inner = store::open(place.path()).unwrap();
    Repository::open(Arc::new(HookedStore { inner, hook: Box::new(hook) })).unwrap()
}
