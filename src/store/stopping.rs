//! A store that stops reading once the user has asked to stop.
//!
//! Loops over stored data, however long, read from the store again and again. With this wrapper they end without a
//! check of their own. Writes go on, so what has begun can be finished, except those of a stream, which may be long.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ObservedStore, Store, StoreCall, StoreObserver};
use crate::error::{Error, Result};

/// See the module.
pub type StoppingStore<S> = ObservedStore<S, StopFlag>;

/// The wish of the user to stop.
#[derive(Debug)]
pub struct StopFlag(Arc<AtomicBool>);

impl<S: Store> StoppingStore<S> {
    /// Wraps `inner`. Once `stop` is set, every read fails with [`Error::Interrupted`].
    pub fn new(inner: S, stop: Arc<AtomicBool>) -> Self {
        ObservedStore::with(inner, StopFlag(stop))
    }
}

impl StoreObserver for StopFlag {
    fn before(&self, call: StoreCall, _name: &str) -> Result<u64> {
        if call.is_write() { Ok(0) } else { self.during().map(|()| 0) }
    }

    fn during(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{BlobName, BlobPrefix, Durable, MemoryStore, NewName, Reading, StoreExt, contract};

    #[test]
    fn a_stopping_store_is_a_store() {
        contract::check(&StoppingStore::new(MemoryStore::new(), Arc::default()));
    }

    #[test]
    fn reads_fail_once_the_flag_is_set_and_writes_go_on() {
        let stop = Arc::<AtomicBool>::default();
        let store = StoppingStore::new(MemoryStore::new(), stop.clone());
        let [a, b, c] = ["a", "b", "c"].map(|name| BlobName::parse(name).unwrap());
        store.put_if_absent(&a, &[b"x"]).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(store.get(&a, 9), Err(Error::Interrupted)));
        assert!(matches!(store.get_range(&a, 0, 1, Reading::Once), Err(Error::Interrupted)));
        assert!(matches!(store.head(&a), Err(Error::Interrupted)));
        assert!(matches!(store.len_of(&a), Err(Error::Interrupted)));
        assert!(matches!(store.list(BlobPrefix::All), Err(Error::Interrupted)));
        assert!(matches!(store.is_unused(), Err(Error::Interrupted)));
        assert!(store.put_if_absent(&b, &[b"y"]).unwrap());
        let stream = &mut std::io::Cursor::new(b"z");
        assert!(matches!(store.put_stream(NewName::Given(&c), 1, stream), Err(Error::Interrupted)));
        assert!(store.inner().head(&c).unwrap().is_none());
        store.delete(&b, Durable::OnReturn).unwrap();
    }
}
