//! A shared store is a store.

use std::sync::Arc;

use super::{
    BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob, PutOptions,
    ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::Result;

impl<S: Store + ?Sized> Store for Arc<S> {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        (**self).put(name, parts, options)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        (**self).put_stream(name, len, content)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        (**self).overwrite(name, parts, options)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        (**self).overwrite_if_present(name, parts, options)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        (**self).get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        (**self).get_range(name, offset, len, reading)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        (**self).head(name)
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        (**self).len_of(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        (**self).list(prefix)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        (**self).delete(name, durable)
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        (**self).sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        (**self).other_copy(name)
    }

    fn properties(&self) -> StoreProperties {
        (**self).properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        (**self).cold_state()
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        (**self).thawing()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        (**self).locks()
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        (**self).sealing()
    }

    fn is_unused(&self) -> Result<bool> {
        (**self).is_unused()
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        (**self).puts_exclusively(name)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        (**self).make_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        (**self).clean_temporaries()
    }
}
