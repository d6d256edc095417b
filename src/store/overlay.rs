//! A store over another one, which it only reads: what is put or deleted stays in a local directory.
//!
//! 1. A blob is looked for in the own store first, then in the one below, unless it was deleted here.
//! 2. Listings have the blobs of both.
//! 3. The directory goes with this store. So everything that writes can run whole, and leaves nothing.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::name::missing;
use super::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::{ErrorKind, Result};

/// See the module.
pub struct OverlayStore {
    below: Arc<dyn Store>,
    own: Arc<dyn Store>,
    /// Blobs of the store below that were deleted here.
    hidden: Mutex<HashSet<BlobName>>,
}

impl OverlayStore {
    /// What is put goes into `own`, which must be empty.
    pub fn new(below: Arc<dyn Store>, own: Arc<dyn Store>) -> Self {
        OverlayStore { below, own, hidden: Mutex::default() }
    }

    fn hidden(&self) -> MutexGuard<'_, HashSet<BlobName>> {
        self.hidden.lock()
    }

    /// Reads from the own store, and what it lacks from the one below.
    fn read<T>(&self, name: &BlobName, read: impl Fn(&dyn Store) -> Result<T>) -> Result<T> {
        match read(self.own.as_ref()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if self.hidden().contains(name) {
                    return Err(missing(name));
                }
                read(self.below.as_ref())
            }
            read => read,
        }
    }

    /// Looks into the own store, then into the one below.
    fn look<T>(&self, name: &BlobName, look: impl Fn(&dyn Store) -> Result<Option<T>>) -> Result<Option<T>> {
        match look(self.own.as_ref())? {
            Some(found) => Ok(Some(found)),
            None if self.hidden().contains(name) => Ok(None),
            None => look(self.below.as_ref()),
        }
    }

    /// Whether the store below has a blob that a put would find.
    fn is_below(&self, name: &NewName<'_>) -> Result<bool> {
        match name {
            NewName::Given(name) => Ok(!self.hidden().contains(*name) && self.below.head(name)?.is_some()),
            // The salt of a container, and the time of others, are new.
            NewName::Hashed(_) => Ok(false),
        }
    }
}

impl Store for OverlayStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        if self.is_below(&name)? {
            return Ok(PutBlob { name: name.for_parts(parts), is_new: false });
        }
        self.own.put(name, parts, options)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        if self.is_below(&name)? {
            return Ok(PutBlob { name: name.for_stream(content)?, is_new: false });
        }
        self.own.put_stream(name, len, content)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.own.overwrite(name, parts, options)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.read(name, |store| store.get(name, bytes_max))
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        self.read(name, |store| store.get_range(name, offset, len, reading))
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.look(name, |store| store.head(name))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        self.look(name, |store| store.len_of(name))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let own = self.own.list(prefix)?;
        let named: HashSet<BlobName> = own.iter().map(|blob| blob.name.clone()).collect();
        let mut listed = self.below.list(prefix)?;
        let hidden = self.hidden();
        listed.retain(|blob| !hidden.contains(&blob.name) && !named.contains(&blob.name));
        listed.extend(own);
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.hidden().insert(name.clone());
        self.own.delete(name, durable)
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.own.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        self.below.other_copy(name)
    }

    fn properties(&self) -> StoreProperties {
        self.below.properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        self.below.cold_state()
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        None
    }

    fn locks(&self) -> Option<&dyn Locks> {
        None
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        None
    }

    fn is_unused(&self) -> Result<bool> {
        Ok(self.own.is_unused()? && self.below.is_unused()?)
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.own.puts_exclusively(name)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.below.make_directories(true)?;
        self.own.make_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, StoreExt, contract, named};

    #[test]
    fn meets_the_contract_over_an_empty_store() {
        contract::check(&OverlayStore::new(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())));
    }

    #[test]
    fn what_is_below_is_seen_and_never_changed() {
        let (below, name, other) = (Arc::new(MemoryStore::new()), named("models/00"), named("models/01"));
        below.put_if_absent(&name, &[b"below"]).unwrap();
        let store = OverlayStore::new(below.clone(), Arc::new(MemoryStore::new()));
        assert!(!store.put_if_absent(&name, &[b"other"]).unwrap());
        assert!(store.put_if_absent(&other, &[b"own"]).unwrap());
        assert_eq!(store.get(&name, 9).unwrap(), b"below");
        assert_eq!(store.list(BlobPrefix::All).unwrap().len(), 2);
        store.delete(&name, Durable::OnReturn).unwrap();
        assert!(store.head(&name).unwrap().is_none() && store.get(&name, 9).is_err());
        assert_eq!(store.list(BlobPrefix::All).unwrap().len(), 1);
        assert!(store.put_if_absent(&name, &[b"again"]).unwrap());
        assert_eq!(store.get(&name, 9).unwrap(), b"again");
        assert_eq!((below.get(&name, 9).unwrap(), below.list(BlobPrefix::All).unwrap().len()), (b"below".to_vec(), 1));
    }
}
