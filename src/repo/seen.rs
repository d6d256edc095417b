//! Names of blobs that a process has seen, or that something else names: a listing that lacks one may be short, as
//! those of a share that comes and goes. What is not listed is asked for by its name before it counts as gone.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, BlobPrefix, ListedBlob, Store, StoreExt, try_map_parallel};

/// The names that were seen and are not known to be gone.
#[derive(Debug, Default)]
pub struct SeenNames(BTreeSet<BlobName>);

impl SeenNames {
    /// Adds names.
    pub fn add(&mut self, names: impl IntoIterator<Item = BlobName>) {
        self.0.extend(names);
    }

    /// Lists the blobs of a kind, as [`Store::list`] does.
    ///
    /// # Errors
    /// Errors of [`Self::check`].
    pub fn list(&mut self, store: &dyn Store, kind: BlobKind) -> Result<Vec<ListedBlob>> {
        let listed = store.list(kind.into())?;
        self.check(store, kind, listed.iter().map(|blob| blob.name.clone()))?;
        Ok(listed)
    }

    /// Compares a listing of a kind, which gave the names `listed`, with what was seen before. Then adds these.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if it lacks a blob that is there: then it may lack others that nobody has seen. Errors of
    /// the store.
    pub fn check(
        &mut self,
        store: &dyn Store,
        kind: BlobKind,
        listed: impl IntoIterator<Item = BlobName>,
    ) -> Result<()> {
        let listed: BTreeSet<BlobName> = listed.into_iter().collect();
        let lacking: Vec<BlobName> = self
            .0
            .iter()
            .filter(|name| BlobPrefix::Kind(kind).covers(name) && !listed.contains(*name))
            .cloned()
            .collect();
        for (name, head) in
            lacking.iter().zip(try_map_parallel(store.requests_max(), &lacking, |name| store.head(name))?)
        {
            if head.is_some() {
                return Err(Error::unlisted(name));
            }
            self.0.remove(name);
        }
        self.0.extend(listed);
        Ok(())
    }
}
