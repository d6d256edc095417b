//! A store in memory, for tests: a map from names to bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use super::blob::read_stream;
use super::name::{check_len, check_range, is_left_by_init, missing};
use super::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::Result;

/// Blobs in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    blobs: Mutex<BTreeMap<BlobName, Blob>>,
}

#[derive(Debug)]
struct Blob {
    bytes: Arc<[u8]>,
    modified: SystemTime,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the blob `name`, or adds it: damage, for tests.
    pub fn replace(&self, name: &BlobName, bytes: &[u8]) {
        self.blobs().insert(name.clone(), Blob { bytes: bytes.into(), modified: SystemTime::now() });
    }

    fn blobs(&self) -> MutexGuard<'_, BTreeMap<BlobName, Blob>> {
        self.blobs.lock()
    }

    fn bytes(&self, name: &BlobName) -> Result<Arc<[u8]>> {
        self.blobs().get(name).map(|blob| Arc::clone(&blob.bytes)).ok_or_else(|| missing(name))
    }
}

impl Store for MemoryStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], _: PutOptions) -> Result<PutBlob> {
        let name = name.for_parts(parts);
        let mut blobs = self.blobs();
        let is_new = !blobs.contains_key(&name);
        if is_new {
            let bytes = parts.concat().into();
            blobs.insert(name.clone(), Blob { bytes, modified: SystemTime::now() });
        }
        Ok(PutBlob { name, is_new })
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let name = name.for_stream(content)?;
        let bytes = read_stream(&name, len, content)?;
        self.put(NewName::Given(&name), &[&bytes], PutOptions::default())
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], _: PutOptions) -> Result<()> {
        MemoryStore::replace(self, name, &parts.concat());
        Ok(())
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], _: PutOptions) -> Result<bool> {
        let blob = Blob { bytes: parts.concat().into(), modified: SystemTime::now() };
        Ok(self.blobs().get_mut(name).map(|old| *old = blob).is_some())
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        let bytes = self.bytes(name)?;
        check_len(name, bytes.len() as u64, bytes_max)?;
        Ok(bytes.to_vec())
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, _: Reading) -> Result<Vec<u8>> {
        let bytes = self.bytes(name)?;
        check_range(name, bytes.len() as u64, offset, len)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(bytes.iter().skip(start).take(len).copied().collect())
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let metadata = |blob: &Blob| BlobMetadata { len: blob.bytes.len() as u64, modified: blob.modified };
        Ok(self.blobs().get(name).map(metadata))
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.head(name)?.map(|head| head.len))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let blobs = self.blobs();
        let listed = blobs.iter().filter(|(name, _)| prefix.covers(name));
        Ok(listed.map(|(name, blob)| ListedBlob { name: name.clone(), len: blob.bytes.len() as u64 }).collect())
    }

    fn delete(&self, name: &BlobName, _: Durable) -> Result<()> {
        self.blobs().remove(name);
        Ok(())
    }

    fn sync_deletions(&self, _: &[BlobName]) -> Result<()> {
        Ok(())
    }

    fn other_copy(&self, _: &BlobName) -> OtherCopy {
        OtherCopy::default()
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties { location: "memory".into(), local_path: None, requests_max: 1, cold_option: None }
    }

    fn cold_state(&self) -> Option<&ColdState> {
        None
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
        Ok(self.blobs().keys().all(|name| is_left_by_init(name)))
    }

    fn puts_exclusively(&self, _: &BlobName) -> Result<bool> {
        Ok(true)
    }

    fn make_directories(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn clean_temporaries(&self) -> Result<usize> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract;

    #[test]
    fn meets_the_contract() {
        contract::check(&MemoryStore::new());
        contract::check(&Arc::new(MemoryStore::new()));
    }
}
