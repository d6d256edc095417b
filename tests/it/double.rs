//! Stores of tests that do something else than the store below them in a few methods.

use std::path::PathBuf;

use fhrd::error::Result;
use fhrd::store::{BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, PutOptions, Reading, Store, StoreExt};

/// The name `text`, which must be valid.
pub fn named(text: &str) -> BlobName {
    BlobName::parse(text).unwrap()
}

/// The names in a directory, ascending. The empty directory is the whole store.
pub fn names_in(store: &dyn Store, directory: &str) -> Vec<String> {
    let is_below = |name: &BlobName| {
        directory.is_empty() || name.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    };
    let listed = store.list(BlobPrefix::All).unwrap().into_iter().map(|blob| blob.name);
    listed.filter(is_below).map(String::from).collect()
}

/// A store that passes on all that it does not replace.
pub trait Double: Send + Sync {
    /// The store below.
    fn inner(&self) -> &dyn Store;

    /// Called before a blob is put or overwritten.
    fn is_put_with(&self, _: &BlobName, _: PutOptions) {}

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.inner().put_if_absent(name, parts)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        self.inner().overwrite(name, parts, PutOptions::default())
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        match self.head(name)? {
            Some(_) => self.overwrite(name, parts).map(|()| true),
            None => Ok(false),
        }
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.inner().get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner().get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.inner().head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.inner().list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner().delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        self.inner().location()
    }

    fn local_path(&self) -> Option<PathBuf> {
        self.inner().local_path()
    }

    fn requests_max(&self) -> usize {
        self.inner().requests_max()
    }
}

/// Makes a store of a [`Double`].
macro_rules! double_store {
    ($name:ty) => {
        impl fhrd::store::Store for $name {
            fn put(
                &self,
                name: fhrd::store::NewName<'_>,
                parts: &[&[u8]],
                options: fhrd::store::PutOptions,
            ) -> fhrd::Result<fhrd::store::PutBlob> {
                let name = name.for_parts(parts);
                crate::double::Double::is_put_with(self, &name, options);
                let is_new = crate::double::Double::put(self, &name, parts)?;
                Ok(fhrd::store::PutBlob { name, is_new })
            }

            fn put_stream(
                &self,
                name: fhrd::store::NewName<'_>,
                len: u64,
                content: &mut dyn fhrd::store::ReadTwice,
            ) -> fhrd::Result<fhrd::store::PutBlob> {
                let mut bytes = Vec::new();
                let read = std::io::Read::read_to_end(content, &mut bytes);
                read.map_err(|error| fhrd::Error::io("read", "a stream", error))?;
                assert_eq!(bytes.len() as u64, len);
                fhrd::store::Store::put(self, name, &[&bytes], fhrd::store::PutOptions::default())
            }

            fn overwrite(
                &self,
                name: &fhrd::store::BlobName,
                parts: &[&[u8]],
                options: fhrd::store::PutOptions,
            ) -> fhrd::Result<()> {
                crate::double::Double::is_put_with(self, name, options);
                crate::double::Double::overwrite(self, name, parts)
            }

            fn overwrite_if_present(
                &self,
                name: &fhrd::store::BlobName,
                parts: &[&[u8]],
                options: fhrd::store::PutOptions,
            ) -> fhrd::Result<bool> {
                crate::double::Double::is_put_with(self, name, options);
                crate::double::Double::overwrite_if_present(self, name, parts)
            }

            fn get(&self, name: &fhrd::store::BlobName, bytes_max: u64) -> fhrd::Result<Vec<u8>> {
                crate::double::Double::get(self, name, bytes_max)
            }

            fn get_range(
                &self,
                name: &fhrd::store::BlobName,
                offset: u64,
                len: usize,
                _: fhrd::store::Reading,
            ) -> fhrd::Result<Vec<u8>> {
                crate::double::Double::get_range(self, name, offset, len)
            }

            fn head(&self, name: &fhrd::store::BlobName) -> fhrd::Result<Option<fhrd::store::BlobMetadata>> {
                crate::double::Double::head(self, name)
            }

            fn len_of(&self, name: &fhrd::store::BlobName) -> fhrd::Result<Option<u64>> {
                Ok(crate::double::Double::head(self, name)?.map(|head| head.len))
            }

            fn list(&self, prefix: fhrd::store::BlobPrefix) -> fhrd::Result<Vec<fhrd::store::ListedBlob>> {
                crate::double::Double::list(self, prefix)
            }

            fn delete(&self, name: &fhrd::store::BlobName, _: fhrd::store::Durable) -> fhrd::Result<()> {
                crate::double::Double::delete(self, name)
            }

            fn sync_deletions(&self, names: &[fhrd::store::BlobName]) -> fhrd::Result<()> {
                crate::double::Double::inner(self).sync_deletions(names)
            }

            fn other_copy(&self, _: &fhrd::store::BlobName) -> fhrd::store::OtherCopy {
                fhrd::store::OtherCopy::default()
            }

            fn properties(&self) -> fhrd::store::StoreProperties {
                fhrd::store::StoreProperties {
                    location: crate::double::Double::location(self),
                    local_path: crate::double::Double::local_path(self),
                    requests_max: crate::double::Double::requests_max(self),
                    cold_option: None,
                }
            }

            fn cold_state(&self) -> Option<&fhrd::store::ColdState> {
                None
            }

            fn thawing(&self) -> Option<&dyn fhrd::store::Thawing> {
                None
            }

            fn locks(&self) -> Option<&dyn fhrd::store::Locks> {
                None
            }

            fn sealing(&self) -> Option<&dyn fhrd::store::Sealing> {
                None
            }

            fn is_unused(&self) -> fhrd::Result<bool> {
                Ok(crate::double::Double::list(self, fhrd::store::BlobPrefix::All)?.is_empty())
            }

            fn puts_exclusively(&self, name: &fhrd::store::BlobName) -> fhrd::Result<bool> {
                crate::double::Double::inner(self).puts_exclusively(name)
            }

            fn make_directories(&self, dry_run: bool) -> fhrd::Result<()> {
                crate::double::Double::inner(self).make_directories(dry_run)
            }

            fn clean_temporaries(&self) -> fhrd::Result<usize> {
                crate::double::Double::inner(self).clean_temporaries()
            }
        }
    };
}
pub(crate) use double_store;
