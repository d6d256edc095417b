//! A wrapper that fails one chosen operation, for tests that fail every operation in turn.
//!
//! 1. Operations on the wrapper are numbered from 0 in the order of their calls. Puts are also numbered separately.
//! 2. [`InjectedFault`] selects the operation that fails and how. All others pass through.
//! 3. A test repeats its work with `operation` = 0, 1, 2 … until [`FaultyStore::operations`] stays below it.

use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BlobMetadata, ListedBlob, Store};
use crate::error::{Error, Result};

/// The operation that fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// No operation fails.
    None,
    /// One operation reports an error.
    Fail {
        /// Number of the operation.
        operation: u64,
        /// The operation is done all the same, and only its answer is lost.
        took_effect: bool,
    },
    /// One put stores only the first half and reports success, like a faulty disk.
    Truncate {
        /// Number of the put.
        put: u64,
    },
    /// One operation and all after it report an error.
    PowerCut {
        /// Number of the operation.
        operation: u64,
        /// The first of them is done all the same.
        took_effect: bool,
    },
}

/// A store with one [`InjectedFault`].
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    fault: InjectedFault,
    operations: AtomicU64,
    puts: AtomicU64,
}

impl<S> FaultyStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S, fault: InjectedFault) -> Self {
        FaultyStore { inner, fault, operations: AtomicU64::new(0), puts: AtomicU64::new(0) }
    }

    /// Operations begun so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    /// The wrapped store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn operate<T>(&self, action: &'static str, name: &str, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let took_effect = match self.fault {
            InjectedFault::Fail { operation, took_effect } if number == operation => took_effect,
            InjectedFault::PowerCut { operation, took_effect } if number >= operation => {
                took_effect && number == operation
            }
            _ => return operation(),
        };
        if took_effect {
            operation()?;
        }
        Err(Error::io(action, name, io::Error::other("injected fault")))
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        let put = self.puts.fetch_add(1, Ordering::SeqCst);
        self.operate("write", name, || {
            if self.fault == (InjectedFault::Truncate { put }) {
                let whole = parts.concat();
                let (half, _) = whole.split_at(whole.len() / 2);
                return self.inner.put_if_absent(name, &[half]);
            }
            self.inner.put_if_absent(name, parts)
        })
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        let put = self.puts.fetch_add(1, Ordering::SeqCst);
        self.operate("write", name, || {
            if self.fault == (InjectedFault::Truncate { put }) {
                return self.inner.put_stream_if_absent(name, len / 2, &mut content.take(len / 2));
            }
            self.inner.put_stream_if_absent(name, len, content)
        })
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.operate("write", name, || self.inner.overwrite(name, parts))
    }

    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.operate("write", name, || self.inner.overwrite_stored(name, stored))
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.operate("read", name, || self.inner.get(name, bytes_max))
    }

    fn forget_copies(&self, name: &str) -> bool {
        self.inner.forget_copies(name)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.operate("read", name, || self.inner.get_range(name, offset, len))
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        self.operate("inspect", name, || self.inner.head(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        self.operate("list", prefix, || self.inner.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.operate("delete", name, || self.inner.delete(name))
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
        self.operate("list", "", || self.inner.is_unused())
    }

    fn puts_exclusively(&self, name: &str) -> Result<bool> {
        self.inner.puts_exclusively(name)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.operate("clean", "", || self.inner.clean_temporaries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, contract};

    #[test]
    fn meets_the_contract_without_a_fault() {
        contract::check(&FaultyStore::new(MemoryStore::new(), InjectedFault::None));
    }

    /// Puts three blobs and ignores errors. Returns which puts reported success and which blobs exist.
    fn put_three(fault: InjectedFault) -> (Vec<bool>, Vec<String>, FaultyStore<MemoryStore>) {
        let store = FaultyStore::new(MemoryStore::new(), fault);
        let reported = ["a", "b", "c"].map(|name| store.put_if_absent(name, &[b"12", b"34"]).is_ok());
        let stored = store.inner().list("").expect("lists").into_iter().map(|listed| listed.name).collect();
        (reported.to_vec(), stored, store)
    }

    #[test]
    fn exactly_one_operation_fails() {
        let (reported, stored, store) = put_three(InjectedFault::Fail { operation: 1, took_effect: false });
        assert_eq!((reported, stored), (vec![true, false, true], vec!["a".into(), "c".into()]));
        assert_eq!(store.operations(), 3);
        let (reported, stored, _) = put_three(InjectedFault::Fail { operation: 1, took_effect: true });
        assert_eq!((reported, stored.len()), (vec![true, false, true], 3));
    }

    #[test]
    fn all_operations_fail_after_a_power_cut() {
        let (reported, stored, store) = put_three(InjectedFault::PowerCut { operation: 1, took_effect: true });
        assert_eq!((reported, stored), (vec![true, false, false], vec!["a".into(), "b".into()]));
        let error = store.get("a", 10).expect_err("no power").to_string();
        assert_eq!(error, "cannot read a: injected fault");
    }

    #[test]
    fn a_truncated_put_reports_success() {
        let (reported, _, store) = put_three(InjectedFault::Truncate { put: 2 });
        assert_eq!(reported, [true; 3]);
        assert_eq!(
            (store.get("b", 10).expect("reads"), store.get("c", 10).expect("reads")),
            (b"1234".to_vec(), b"12".to_vec())
        );
    }
}
