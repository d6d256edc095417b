//! A store that stops reading once the user has asked to stop.
//!
//! Loops over stored data, however long, read from the store again and again. With this wrapper they end without a
//! check of their own. Writes go on, so what has begun can be finished, except those of a stream, which may be long.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::{BlobMetadata, ListedBlob, NameOfHash, ReadTwice, Store};
use crate::error::{Error, Result};

/// See the module.
pub struct StoppingStore<S> {
    inner: S,
    stop: Arc<AtomicBool>,
}

impl<S> StoppingStore<S> {
    /// Wraps `inner`. Once `stop` is set, every read fails with [`Error::Interrupted`].
    pub fn new(inner: S, stop: Arc<AtomicBool>) -> Self {
        StoppingStore { inner, stop }
    }

    fn readable(&self) -> Result<&S> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(&self.inner) }
    }
}

/// A stream that fails once the flag is set.
pub struct StoppingReader<'a, R: ?Sized> {
    /// The stream itself.
    pub inner: &'a mut R,
    /// The flag.
    pub stop: &'a AtomicBool,
}

impl<R: Seek + ?Sized> Seek for StoppingReader<'_, R> {
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(position)
    }
}

impl<R: Read + ?Sized> Read for StoppingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // `ErrorKind::Interrupted` would be repeated.
        if self.stop.load(Ordering::Relaxed) { Err(std::io::Error::other("stopped")) } else { self.inner.read(buffer) }
    }
}

impl<S: Store> Store for StoppingStore<S> {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        self.inner.put_if_absent(name, parts)
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        let mut content = StoppingReader { inner: content, stop: &self.stop };
        let put = self.inner.put_stream_if_absent(name, len, &mut content);
        if put.is_err() {
            self.readable()?;
        }
        put
    }

    fn put_hashed(&self, name_of: NameOfHash, parts: &[&[u8]]) -> Result<[u8; 32]> {
        self.inner.put_hashed(name_of, parts)
    }

    fn put_hashed_cached(&self, name_of: NameOfHash, parts: &[&[u8]], cached_from: u64) -> Result<[u8; 32]> {
        self.inner.put_hashed_cached(name_of, parts, cached_from)
    }

    fn put_stream_hashed(&self, name_of: NameOfHash, len: u64, content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
        let mut content = StoppingReader { inner: content, stop: &self.stop };
        let put = self.inner.put_stream_hashed(name_of, len, &mut content);
        if put.is_err() {
            self.readable()?;
        }
        put
    }

    fn get_stored(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.readable()?.get_stored(name, bytes_max)
    }

    fn open_stored(&self, name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        self.inner.open_stored(name, stored)
    }

    fn stored_hash(&self, name: &str, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        let check = || self.readable().and_then(|_| check_stop());
        self.readable()?.stored_hash(name, &check)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.inner.overwrite(name, parts)
    }

    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        self.inner.overwrite_stored(name, stored)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.readable()?.get(name, bytes_max)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.readable()?.get_range(name, offset, len)
    }

    fn get_range_cached(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.readable()?.get_range_cached(name, offset, len)
    }

    fn forget_copies(&self, name: &str) -> bool {
        self.inner.forget_copies(name)
    }

    fn len_of(&self, name: &str) -> Result<Option<u64>> {
        self.readable()?.len_of(name)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        self.readable()?.head(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        self.readable()?.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn delete_unsynced(&self, name: &str) -> Result<()> {
        self.inner.delete_unsynced(name)
    }

    fn locked_until(&self, name: &str) -> Result<Option<SystemTime>> {
        self.readable()?.locked_until(name)
    }

    fn lock(&self, name: &str, until: SystemTime) -> Result<()> {
        self.inner.lock(name, until)
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn local_path(&self) -> Option<&Path> {
        self.inner.local_path()
    }

    fn requests_max(&self) -> usize {
        self.inner.requests_max()
    }

    fn is_unused(&self) -> Result<bool> {
        self.readable()?.is_unused()
    }

    fn puts_exclusively(&self, name: &str) -> Result<bool> {
        self.inner.puts_exclusively(name)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.inner.clean_temporaries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, contract};

    #[test]
    fn a_stopping_store_is_a_store() {
        contract::check(&StoppingStore::new(MemoryStore::new(), Arc::default()));
    }

    #[test]
    fn reads_fail_once_the_flag_is_set_and_writes_go_on() {
        let stop = Arc::<AtomicBool>::default();
        let store = StoppingStore::new(MemoryStore::new(), stop.clone());
        store.put_if_absent("a", &[b"x"]).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(store.get("a", 9), Err(Error::Interrupted)));
        assert!(matches!(store.get_range("a", 0, 1), Err(Error::Interrupted)));
        assert!(matches!(store.head("a"), Err(Error::Interrupted)));
        assert!(matches!(store.list(""), Err(Error::Interrupted)));
        assert!(store.put_if_absent("b", &[b"y"]).unwrap());
        assert!(matches!(store.put_stream_if_absent("c", 1, &mut &b"z"[..]), Err(Error::Interrupted)));
        assert!(store.inner.head("c").unwrap().is_none());
        store.delete("b").unwrap();
    }
}
