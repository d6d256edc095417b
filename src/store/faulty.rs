//! A wrapper that fails one chosen operation, for tests that fail every operation in turn.
//!
//! 1. Operations on the wrapper are numbered from 0 in the order of their calls. Puts are also numbered separately.
//! 2. [`InjectedFault`] selects the operation that fails and how. All others pass through.
//! 3. A test repeats its work with `operation` = 0, 1, 2 … until [`FaultyStore::operations`] stays below it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ObservedStore, Store, StoreCall, StoreObserver};
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
pub type FaultyStore<S> = ObservedStore<S, FaultCounter>;

/// Counts operations until the one that fails.
#[derive(Debug)]
pub struct FaultCounter {
    fault: InjectedFault,
    operations: AtomicU64,
    puts: AtomicU64,
    /// The operation with the put that is cut.
    truncated: AtomicU64,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S, fault: InjectedFault) -> Self {
        let (operations, puts, truncated) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        ObservedStore::with(inner, FaultCounter { fault, operations, puts, truncated })
    }

    /// Operations begun so far.
    pub fn operations(&self) -> u64 {
        self.observer.operations.load(Ordering::SeqCst)
    }
}

impl FaultCounter {
    /// Whether the operation with this number fails, and whether it is done all the same.
    fn fails(&self, number: u64) -> Option<bool> {
        match self.fault {
            InjectedFault::Fail { operation, took_effect } if number == operation => Some(took_effect),
            InjectedFault::PowerCut { operation, took_effect } if number >= operation => {
                Some(took_effect && number == operation)
            }
            _ => None,
        }
    }
}

fn injected(call: StoreCall, name: &str) -> Error {
    Error::io(call.action(), name, io::Error::other("injected fault"))
}

impl StoreObserver for FaultCounter {
    fn before(&self, call: StoreCall, name: &str) -> Result<u64> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        if matches!(call, StoreCall::Put | StoreCall::PutStream | StoreCall::Overwrite) {
            let put = self.puts.fetch_add(1, Ordering::SeqCst);
            if self.fault == (InjectedFault::Truncate { put }) {
                self.truncated.store(number, Ordering::SeqCst);
            }
        }
        match self.fails(number) {
            Some(false) => Err(injected(call, name)),
            _ => Ok(number),
        }
    }

    fn after(&self, call: StoreCall, name: &str, number: u64, _bytes: u64) -> Result<()> {
        if self.fails(number).is_some() { Err(injected(call, name)) } else { Ok(()) }
    }

    fn stored_len(&self, number: u64, len: u64) -> u64 {
        if self.truncated.load(Ordering::SeqCst) == number { len / 2 } else { len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{BlobName, BlobPrefix, MemoryStore, StoreExt, contract};

    #[test]
    fn meets_the_contract_without_a_fault() {
        contract::check(&FaultyStore::new(MemoryStore::new(), InjectedFault::None));
    }

    fn name(text: &str) -> BlobName {
        BlobName::parse(text).expect("a name")
    }

    /// Puts three blobs and ignores errors. Returns which puts reported success and which blobs exist.
    fn put_three(fault: InjectedFault) -> (Vec<bool>, Vec<String>, FaultyStore<MemoryStore>) {
        let store = FaultyStore::new(MemoryStore::new(), fault);
        let reported = ["a", "b", "c"].map(|text| store.put_if_absent(&name(text), &[b"12", b"34"]).is_ok());
        let stored =
            store.inner().list(BlobPrefix::All).expect("lists").into_iter().map(|listed| listed.name.into()).collect();
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
        let error = store.get(&name("a"), 10).expect_err("no power").to_string();
        assert_eq!(error, "cannot read a: injected fault");
    }

    #[test]
    fn a_truncated_put_reports_success() {
        let (reported, _, store) = put_three(InjectedFault::Truncate { put: 2 });
        assert_eq!(reported, [true; 3]);
        assert_eq!(
            (store.get(&name("b"), 10).expect("reads"), store.get(&name("c"), 10).expect("reads")),
            (b"1234".to_vec(), b"12".to_vec())
        );
    }
}
