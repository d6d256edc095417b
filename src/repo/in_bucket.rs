//! Whether a bucket of files has a repository in it.

use super::Repository;
use crate::error::Result;
use crate::store::{BlobKind, BlobName, SourceBucket, StoreExt};

/// Bytes of the file that says which repository it is, at most.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Where a repository is, beside the objects below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryPrefix {
    /// Elsewhere.
    Apart,
    /// Below the prefix: its keys begin with this.
    Below(String),
    /// The prefix is in the repository.
    Around,
}

impl RepositoryPrefix {
    /// The place of `repository` beside the objects of `bucket`.
    ///
    /// # Errors
    /// Errors of reading which repository is there.
    pub fn find(repository: &Repository, bucket: &SourceBucket) -> Result<Self> {
        let location = repository.store.location();
        // A prefix may have these words, too.
        let server = location.rsplit_once(" at ").filter(|(_, server)| server.contains("://"));
        let url = server.map_or(location.as_str(), |(url, _)| url);
        let below = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
        if !below(url, bucket.url()) && !below(bucket.url(), url) {
            return Ok(RepositoryPrefix::Apart);
        }
        let root = bucket.url_of("");
        let prefix = url.strip_prefix(root.as_str()).map_or(String::new(), |prefix| format!("{prefix}/"));
        // A bucket of this name may be another one, on another server.
        let config = BlobName::only(BlobKind::Config);
        let there = bucket.read_start(&format!("{prefix}{config}"), CONFIG_BYTES_MAX)?;
        if there.is_none_or(|there| repository.store.get(&config, CONFIG_BYTES_MAX).is_ok_and(|own| own != there)) {
            return Ok(RepositoryPrefix::Apart);
        }
        Ok(if below(bucket.url(), url) { RepositoryPrefix::Around } else { RepositoryPrefix::Below(prefix) })
    }
}
