//! A wrapper that misbehaves at one chosen operation, for tests that fail every operation in turn.
//!
//! 1. Operations on the wrapper are numbered from 0 in the order of their calls; so are puts.
//! 2. [`Trouble`] says which one goes wrong and how; all others pass through.
//! 3. A sweep runs its work with `operation` = 0, 1, 2 … until [`FaultyStore::operations`] stays below it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Head, Listed, Store};
use crate::error::{Error, Result};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// One operation reports an error, whether or not it took effect.
    Fail {
        /// Its number.
        operation: u64,
        /// It was done all the same, and only the answer was lost.
        took_effect: bool,
    },
    /// One put stores only the first half and reports success, like a disk that lies.
    Truncate {
        /// Its number among the puts.
        put: u64,
    },
    /// One operation and all after it report an error.
    PowerCut {
        /// Its number.
        operation: u64,
        /// That one was done all the same.
        took_effect: bool,
    },
}

/// A store that fails as its [`Trouble`] says.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    trouble: Trouble,
    operations: AtomicU64,
    puts: AtomicU64,
}

impl<S> FaultyStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S, trouble: Trouble) -> Self {
        FaultyStore { inner, trouble, operations: AtomicU64::new(0), puts: AtomicU64::new(0) }
    }

    /// Operations begun so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    /// The store beneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn operate<T>(&self, action: &'static str, name: &str, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let took_effect = match self.trouble {
            Trouble::Fail { operation, took_effect } if number == operation => took_effect,
            Trouble::PowerCut { operation, took_effect } if number >= operation => took_effect && number == operation,
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
            if self.trouble == (Trouble::Truncate { put }) {
                let whole = parts.concat();
                let (half, _) = whole.split_at(whole.len() / 2);
                return self.inner.put_if_absent(name, &[half]);
            }
            self.inner.put_if_absent(name, parts)
        })
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.operate("read", name, || self.inner.get(name, bytes_max))
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.operate("read", name, || self.inner.get_range(name, offset, len))
    }

    fn head(&self, name: &str) -> Result<Option<Head>> {
        self.operate("inspect", name, || self.inner.head(name))
    }

    fn list(&self, directory: &str) -> Result<Vec<Listed>> {
        self.operate("list", directory, || self.inner.list(directory))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.operate("delete", name, || self.inner.delete(name))
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, contract};

    #[test]
    fn keeps_the_contract_when_nothing_goes_wrong() {
        contract::check(&FaultyStore::new(MemoryStore::new(), Trouble::None));
    }

    /// Puts three blobs, ignoring errors; returns which were reported stored and which are.
    fn put_three(trouble: Trouble) -> (Vec<bool>, Vec<String>, FaultyStore<MemoryStore>) {
        let store = FaultyStore::new(MemoryStore::new(), trouble);
        let reported = ["a", "b", "c"].map(|name| store.put_if_absent(name, &[b"12", b"34"]).is_ok());
        let stored = store.inner().list("").expect("lists").into_iter().map(|listed| listed.name).collect();
        (reported.to_vec(), stored, store)
    }

    #[test]
    fn one_failure_is_one_failure() {
        let (reported, stored, store) = put_three(Trouble::Fail { operation: 1, took_effect: false });
        assert_eq!((reported, stored), (vec![true, false, true], vec!["a".into(), "c".into()]));
        assert_eq!(store.operations(), 3);
        let (reported, stored, _) = put_three(Trouble::Fail { operation: 1, took_effect: true });
        assert_eq!((reported, stored.len()), (vec![true, false, true], 3));
    }

    #[test]
    fn after_a_power_cut_nothing_works() {
        let (reported, stored, store) = put_three(Trouble::PowerCut { operation: 1, took_effect: true });
        assert_eq!((reported, stored), (vec![true, false, false], vec!["a".into(), "b".into()]));
        let error = store.get("a", 10).expect_err("no power").to_string();
        assert_eq!(error, "cannot read a: injected fault");
    }

    #[test]
    fn a_truncated_put_reports_success() {
        let (reported, _, store) = put_three(Trouble::Truncate { put: 2 });
        assert_eq!(reported, [true; 3]);
        assert_eq!(
            (store.get("b", 10).expect("reads"), store.get("c", 10).expect("reads")),
            (b"1234".to_vec(), b"12".to_vec())
        );
    }
}
