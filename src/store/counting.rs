//! A wrapper that counts operations and bytes: for reports, and for tests of how much is read.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::{BlobMetadata, ListedBlob, NameOfHash, ReadTwice, Store};
use crate::error::Result;
use crate::metrics::Counter;

/// Operations on a store and bytes transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StoreCounts {
    /// Puts, including those of existing blobs.
    pub puts: u64,
    /// Reads of whole blobs.
    pub gets: u64,
    /// Ranged reads.
    pub ranges: u64,
    /// Queries of length and time.
    pub heads: u64,
    /// Listings.
    pub lists: u64,
    /// Deletions.
    pub deletes: u64,
    /// Bytes of new blobs.
    pub bytes_written: u64,
    /// Bytes read, whole and ranged.
    pub bytes_read: u64,
}

impl StoreCounts {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &StoreCounts) -> StoreCounts {
        StoreCounts {
            puts: self.puts - before.puts,
            gets: self.gets - before.gets,
            ranges: self.ranges - before.ranges,
            heads: self.heads - before.heads,
            lists: self.lists - before.lists,
            deletes: self.deletes - before.deletes,
            bytes_written: self.bytes_written - before.bytes_written,
            bytes_read: self.bytes_read - before.bytes_read,
        }
    }

    /// All operations.
    pub fn requests(&self) -> u64 {
        self.puts + self.gets + self.ranges + self.heads + self.lists + self.deletes
    }
}

/// A store that counts its operations, and logs each at the level `trace`.
#[derive(Debug)]
pub struct CountingStore<S> {
    inner: S,
    counters: Arc<StoreCounters>,
}

/// The counters of a [`CountingStore`], which others may hold, too.
#[derive(Debug, Default)]
pub struct StoreCounters {
    puts: Counter,
    gets: Counter,
    ranges: Counter,
    heads: Counter,
    lists: Counter,
    deletes: Counter,
    bytes_written: Counter,
    bytes_read: Counter,
}

impl StoreCounters {
    /// The counts so far.
    pub fn counts(&self) -> StoreCounts {
        StoreCounts {
            puts: self.puts.get(),
            gets: self.gets.get(),
            ranges: self.ranges.get(),
            heads: self.heads.get(),
            lists: self.lists.get(),
            deletes: self.deletes.get(),
            bytes_written: self.bytes_written.get(),
            bytes_read: self.bytes_read.get(),
        }
    }
}

impl<S> CountingStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S) -> Self {
        CountingStore { inner, counters: Arc::default() }
    }

    /// The counters, which outlive the store.
    pub fn counters(&self) -> Arc<StoreCounters> {
        self.counters.clone()
    }

    /// The counts so far.
    pub fn counts(&self) -> StoreCounts {
        self.counters.counts()
    }

    /// Counts a request.
    fn count(&self, counter: &Counter, verb: &str, name: &str) {
        counter.add(1);
        tracing::trace!(target: "fhrd::requests", "{verb} {name}");
    }

    /// Counts the bytes of a successful read.
    fn read(&self, read: Result<Vec<u8>>) -> Result<Vec<u8>> {
        read.inspect(|bytes| self.counters.bytes_read.add(bytes.len() as u64))
    }
}

impl<S: Store> Store for CountingStore<S> {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        self.count(&self.counters.puts, "put", name);
        let new = self.inner.put_if_absent(name, parts)?;
        if new {
            self.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
        }
        Ok(new)
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        self.count(&self.counters.puts, "put", name);
        let new = self.inner.put_stream_if_absent(name, len, content)?;
        if new {
            self.counters.bytes_written.add(len);
        }
        Ok(new)
    }

    fn put_hashed(&self, name_of: NameOfHash, parts: &[&[u8]]) -> Result<[u8; 32]> {
        self.count(&self.counters.puts, "put", &name_of(&[0; 32]));
        let hash = self.inner.put_hashed(name_of, parts)?;
        self.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(hash)
    }

    fn put_hashed_cached(&self, name_of: NameOfHash, parts: &[&[u8]], cached_from: u64) -> Result<[u8; 32]> {
        self.count(&self.counters.puts, "put", &name_of(&[0; 32]));
        let hash = self.inner.put_hashed_cached(name_of, parts, cached_from)?;
        self.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(hash)
    }

    fn put_stream_hashed(&self, name_of: NameOfHash, len: u64, content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
        self.count(&self.counters.puts, "put", &name_of(&[0; 32]));
        let hash = self.inner.put_stream_hashed(name_of, len, content)?;
        self.counters.bytes_written.add(len);
        Ok(hash)
    }

    fn get_stored(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.count(&self.counters.gets, "get", name);
        self.read(self.inner.get_stored(name, bytes_max))
    }

    fn stored_hash(&self, name: &str, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        self.count(&self.counters.gets, "get", name);
        self.inner.stored_hash(name, check_stop)
    }

    fn open_stored(&self, name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        self.inner.open_stored(name, stored)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.count(&self.counters.puts, "put", name);
        self.inner.overwrite(name, parts)?;
        self.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }

    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        self.count(&self.counters.puts, "put", name);
        self.inner.overwrite_stored(name, stored)?;
        self.counters.bytes_written.add(stored.len() as u64);
        Ok(())
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.count(&self.counters.gets, "get", name);
        self.read(self.inner.get(name, bytes_max))
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.count(&self.counters.ranges, "range", name);
        self.read(self.inner.get_range(name, offset, len))
    }

    fn get_range_cached(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.count(&self.counters.ranges, "range", name);
        self.read(self.inner.get_range_cached(name, offset, len))
    }

    fn forget_copies(&self, name: &str) -> bool {
        self.inner.forget_copies(name)
    }

    fn len_of(&self, name: &str) -> Result<Option<u64>> {
        self.count(&self.counters.heads, "head", name);
        self.inner.len_of(name)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        self.count(&self.counters.heads, "head", name);
        self.inner.head(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        self.count(&self.counters.lists, "list", prefix);
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.count(&self.counters.deletes, "delete", name);
        self.inner.delete(name)
    }

    fn locked_until(&self, name: &str) -> Result<Option<SystemTime>> {
        self.count(&self.counters.heads, "head", name);
        self.inner.locked_until(name)
    }

    fn lock(&self, name: &str, until: SystemTime) -> Result<()> {
        self.count(&self.counters.puts, "lock", name);
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
        self.count(&self.counters.lists, "list", "");
        self.inner.is_unused()
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
    fn meets_the_contract() {
        contract::check(&CountingStore::new(MemoryStore::new()));
    }

    #[test]
    fn operations_and_bytes_are_counted() {
        let store = CountingStore::new(MemoryStore::new());
        for _ in 0..2 {
            store.put_if_absent("a", &[b"12", b"345"]).expect("puts");
        }
        store.get("a", 10).expect("reads");
        store.get_range("a", 1, 3).expect("reads");
        assert!(store.get_range("a", 1, 9).is_err());
        let expected =
            StoreCounts { puts: 2, gets: 1, ranges: 2, bytes_written: 5, bytes_read: 8, ..StoreCounts::default() };
        assert_eq!(store.counts(), expected);
    }
}
