//! A wrapper that counts operations and bytes: for reports, and for tests of how much is read.

use std::sync::Arc;

use serde::Serialize;

use super::{ObservedStore, Store, StoreCall, StoreObserver};
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
pub type CountingStore<S> = ObservedStore<S, Arc<StoreCounters>>;

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

impl<S: Store> CountingStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S) -> Self {
        ObservedStore::with(inner, Arc::default())
    }

    /// The counters, which outlive the store.
    pub fn counters(&self) -> Arc<StoreCounters> {
        self.observer.clone()
    }

    /// The counts so far.
    pub fn counts(&self) -> StoreCounts {
        self.observer.counts()
    }
}

impl StoreObserver for Arc<StoreCounters> {
    fn before(&self, call: StoreCall, name: &str) -> Result<u64> {
        let (counter, verb) = match call {
            StoreCall::Put | StoreCall::PutStream | StoreCall::Overwrite => (&self.puts, "put"),
            StoreCall::Lock => (&self.puts, "lock"),
            StoreCall::Get => (&self.gets, "get"),
            StoreCall::GetRange => (&self.ranges, "range"),
            StoreCall::Head | StoreCall::LenOf | StoreCall::LockedUntil => (&self.heads, "head"),
            StoreCall::List | StoreCall::IsUnused => (&self.lists, "list"),
            StoreCall::Delete => (&self.deletes, "delete"),
            // They send requests of their own, or none.
            StoreCall::StoredHash
            | StoreCall::SyncDeletions
            | StoreCall::PutsExclusively
            | StoreCall::MakeDirectories
            | StoreCall::CleanTemporaries => return Ok(0),
        };
        counter.add(1);
        tracing::trace!(target: "fhrd::requests", "{verb} {name}");
        Ok(0)
    }

    fn after(&self, call: StoreCall, _name: &str, _number: u64, bytes: u64) -> Result<()> {
        if call.is_write() {
            self.bytes_written.add(bytes)
        } else {
            self.bytes_read.add(bytes)
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{BlobName, MemoryStore, Reading, StoreExt, contract};

    #[test]
    fn meets_the_contract() {
        contract::check(&CountingStore::new(MemoryStore::new()));
    }

    #[test]
    fn operations_and_bytes_are_counted() {
        let store = CountingStore::new(MemoryStore::new());
        let a = BlobName::parse("a").expect("a name");
        for _ in 0..2 {
            store.put_if_absent(&a, &[b"12", b"345"]).expect("puts");
        }
        store.get(&a, 10).expect("reads");
        store.get_range(&a, 1, 3, Reading::Once).expect("reads");
        assert!(store.get_range(&a, 1, 9, Reading::Once).is_err());
        let expected =
            StoreCounts { puts: 2, gets: 1, ranges: 2, bytes_written: 5, bytes_read: 8, ..StoreCounts::default() };
        assert_eq!(store.counts(), expected);
    }
}
