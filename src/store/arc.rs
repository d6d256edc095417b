//! A shared store is a store.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::{BlobMetadata, ListedBlob, NameOfHash, ReadTwice, Store};
use crate::error::Result;

impl<S: Store + ?Sized> Store for Arc<S> {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        (**self).put_if_absent(name, parts)
    }

    fn put_stream_if_absent(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<bool> {
        (**self).put_stream_if_absent(name, len, content)
    }

    fn put_hashed(&self, name_of: NameOfHash, parts: &[&[u8]]) -> Result<[u8; 32]> {
        (**self).put_hashed(name_of, parts)
    }

    fn put_stream_hashed(&self, name_of: NameOfHash, len: u64, content: &mut dyn ReadTwice) -> Result<[u8; 32]> {
        (**self).put_stream_hashed(name_of, len, content)
    }

    fn put_hashed_cached(&self, name_of: NameOfHash, parts: &[&[u8]], cached_from: u64) -> Result<[u8; 32]> {
        (**self).put_hashed_cached(name_of, parts, cached_from)
    }

    fn get_stored(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        (**self).get_stored(name, bytes_max)
    }

    fn open_stored(&self, name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        (**self).open_stored(name, stored)
    }

    fn stored_hash(&self, name: &str, check_stop: &dyn Fn() -> Result<()>) -> Result<[u8; 32]> {
        (**self).stored_hash(name, check_stop)
    }

    fn overwrite(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        (**self).overwrite(name, parts)
    }

    fn overwrite_stored(&self, name: &str, stored: &[u8]) -> Result<()> {
        (**self).overwrite_stored(name, stored)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        (**self).get(name, bytes_max)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        (**self).get_range(name, offset, len)
    }

    fn get_range_cached(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        (**self).get_range_cached(name, offset, len)
    }

    fn forget_copies(&self, name: &str) -> bool {
        (**self).forget_copies(name)
    }

    fn len_of(&self, name: &str) -> Result<Option<u64>> {
        (**self).len_of(name)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        (**self).head(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        (**self).list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        (**self).delete(name)
    }

    fn delete_unsynced(&self, name: &str) -> Result<()> {
        (**self).delete_unsynced(name)
    }

    fn locked_until(&self, name: &str) -> Result<Option<SystemTime>> {
        (**self).locked_until(name)
    }

    fn lock(&self, name: &str, until: SystemTime) -> Result<()> {
        (**self).lock(name, until)
    }

    fn location(&self) -> String {
        (**self).location()
    }

    fn local_path(&self) -> Option<&Path> {
        (**self).local_path()
    }

    fn requests_max(&self) -> usize {
        (**self).requests_max()
    }

    fn is_unused(&self) -> Result<bool> {
        (**self).is_unused()
    }

    fn puts_exclusively(&self, name: &str) -> Result<bool> {
        (**self).puts_exclusively(name)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        (**self).clean_temporaries()
    }
}
