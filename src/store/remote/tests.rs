//! The adapter over objects in memory.

use std::sync::{Arc, Barrier};
use std::thread;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::RemoteStore;
use super::adapter::Objects;
use crate::store::{BlobPrefix, Durable, PutOptions, Store, StoreExt, StoreOptions, contract, named};

fn store(objects: Arc<dyn Objects>, prefix: &str) -> RemoteStore {
    RemoteStore::new(objects, Path::parse(prefix).unwrap(), format!("memory:{prefix}"), &StoreOptions::default())
}

#[test]
fn meets_the_contract() {
    contract::check(&store(Arc::new(InMemory::new()), ""));
    contract::check(&store(Arc::new(InMemory::new()), "a prefix/of two"));
}

/// A deletion beside a writer that replaces the blob: whoever comes first, nothing is there afterwards.
#[test]
fn what_is_deleted_beside_a_writer_that_replaces_it_stays_deleted() {
    let (store, name) = (store(Arc::new(InMemory::new()), ""), named("a/b"));
    for _ in 0..300 {
        store.put_if_absent(&name, &[b"old"]).unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                start.wait();
                store.overwrite_if_present(&name, &[b"new"], PutOptions::default()).unwrap();
            });
            start.wait();
            store.delete(&name, Durable::OnReturn).unwrap();
            writer.join().unwrap();
        });
        assert_eq!(store.head(&name).unwrap(), None);
    }
}

#[test]
fn objects_of_others_are_not_blobs() {
    let objects = Arc::new(InMemory::new());
    let (own, sibling) = (store(objects.clone(), "mine"), store(objects.clone(), "mine2"));
    own.put_if_absent(&named("a/b"), &[b"x"]).unwrap();
    sibling.put_if_absent(&named("a/c"), &[b"y"]).unwrap();
    for foreign in ["mine/Photo.JPG", "mine/a/.hidden", "mine", "other/a"] {
        crate::store::runtime::block_on(objects.put(&Path::from(foreign), "foreign".into())).unwrap().unwrap();
    }
    let names: Vec<_> = own.list(BlobPrefix::All).unwrap().into_iter().map(|blob| blob.name).collect();
    assert_eq!(names, ["a/b"]);
    assert!(!store(objects.clone(), "other").is_unused().unwrap(), "another's object, even if it is no blob");
    assert!(store(objects.clone(), "oth").is_unused().unwrap());
}
