//! A store in memory, for tests: a map from names to bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::name::{check_len, check_name, check_prefix, check_range, missing};
use super::{BlobMetadata, ListedBlob, Store};
use crate::error::Result;

/// Blobs in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    blobs: Mutex<BTreeMap<String, Blob>>,
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
    pub fn replace(&self, name: &str, bytes: &[u8]) {
        self.blobs().insert(name.into(), Blob { bytes: bytes.into(), modified: SystemTime::now() });
    }

    fn blobs(&self) -> MutexGuard<'_, BTreeMap<String, Blob>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self, name: &str) -> Result<Arc<[u8]>> {
        check_name(name)?;
        self.blobs().get(name).map(|blob| Arc::clone(&blob.bytes)).ok_or_else(|| missing(name))
    }
}

impl Store for MemoryStore {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        check_name(name)?;
        let mut blobs = self.blobs();
        let new = !blobs.contains_key(name);
        if new {
            blobs.insert(name.into(), Blob { bytes: parts.concat().into(), modified: SystemTime::now() });
        }
        Ok(new)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        check_name(name)?;
        MemoryStore::replace(self, name, &parts.concat());
        Ok(())
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        let bytes = self.bytes(name)?;
        check_len(name, bytes.len() as u64, bytes_max)?;
        Ok(bytes.to_vec())
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.bytes(name)?;
        check_range(name, bytes.len() as u64, offset, len)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(bytes.iter().skip(start).take(len).copied().collect())
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        check_name(name)?;
        let metadata = |blob: &Blob| BlobMetadata { len: blob.bytes.len() as u64, modified: blob.modified };
        Ok(self.blobs().get(name).map(metadata))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        check_prefix(prefix)?;
        let below =
            |name: &str| prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
        let blobs = self.blobs();
        let listed = blobs.iter().filter(|(name, _)| below(name));
        Ok(listed.map(|(name, blob)| ListedBlob { name: name.clone(), len: blob.bytes.len() as u64 }).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.blobs().remove(name);
        Ok(())
    }

    fn location(&self) -> String {
        "memory".into()
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
