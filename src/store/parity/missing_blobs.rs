//! Blobs that are missing while their parity is there: what lies under other names may be all that there is of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blob::layout_in_header;
use super::layout::{HEADER_BYTES, ParityLayout};
use super::store::{ParityStore, SHORT_KINDS};
use crate::error::Result;
use crate::store::{BlobKind, BlobName, Reading, Store, try_map_parallel};

/// What is missing is listed again after this time: a heal of many blobs lists it once.
const STAYS: Duration = Duration::from_secs(600);

/// When they were listed, and which they are.
pub(super) type ListedMissing = Option<(Instant, Arc<Vec<MissingBlob>>)>;

/// A blob that is missing, and whose parity is there.
pub(super) struct MissingBlob {
    pub hash: [u8; 32],
    /// What the header of its parity says. `None` if the first one cannot be read.
    layout: Option<ParityLayout>,
}

impl MissingBlob {
    /// Whether its parity may make it of `len` bytes that lie elsewhere.
    pub fn may_be_made_of(&self, len: u64) -> bool {
        self.layout.is_none_or(|layout| layout.restores_from(len))
    }
}

impl ParityStore {
    /// The blobs that are missing and whose parity is there, as they were listed at most ten minutes ago.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn missing_blobs(&self) -> Result<Arc<Vec<MissingBlob>>> {
        let mut listed = self.missing.lock();
        if let Some((at, missing)) = listed.as_ref()
            && at.elapsed() < STAYS
        {
            return Ok(missing.clone());
        }
        let mut hashes: BTreeSet<[u8; 32]> = BTreeSet::new();
        hashes.extend(self.inner.list(BlobKind::Parity.into())?.iter().filter_map(|blob| blob.name.protected()));
        for kind in SHORT_KINDS.into_iter().chain([BlobKind::Container]) {
            for blob in self.inner.list(kind.into())? {
                blob.name.hash().map(|hash| hashes.remove(&hash));
            }
        }
        let hashes: Vec<[u8; 32]> = hashes.into_iter().collect();
        let missing = try_map_parallel(self.inner.properties().requests_max, &hashes, |hash| {
            let parity = BlobName::parity_of(hash);
            let layout = match self.inner.get_range(&parity, 0, HEADER_BYTES, Reading::Once) {
                Err(error) if !error.is_unavailable() => return Err(error),
                header => header.ok().and_then(|header| layout_in_header(&parity, &header, hash)),
            };
            Ok(MissingBlob { hash: *hash, layout })
        })?;
        let missing = Arc::new(missing);
        *listed = Some((Instant::now(), missing.clone()));
        Ok(missing)
    }
}
