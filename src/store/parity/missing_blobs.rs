//! Blobs that are missing while their parity is there: what lies under other names may be all that there is of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blob::layout_in_header;
use super::layout::{HEADER_BYTES, ParityLayout};
use super::store::{ParityStore, SHORT_KINDS};
use crate::error::Result;
use crate::store::{BlobKind, BlobName, ListedBlob, Reading, Store, try_map_parallel};

/// What is missing is listed again after this time: a heal of many blobs lists it once.
const STAYS: Duration = Duration::from_secs(600);

/// When they were listed, and which they are.
pub(super) type ListedMissing = Option<(Instant, Arc<Vec<MissingBlob>>)>;

/// The longest parity that may be of a short blob if its header cannot be read, bytes. That of a full container is
/// longer, and may be in cold storage.
const SHORT_BYTES_MAX: u64 = 512 << 10;

/// A blob that is missing, and whose parity is there.
pub(super) struct MissingBlob {
    pub hash: [u8; 32],
    /// What the header of its parity says. `None` if the first one cannot be read.
    layout: Option<ParityLayout>,
    /// Bytes of the parity.
    parity_len: u64,
}

impl MissingBlob {
    /// By how many bytes the blob is longer or shorter than the `len` bytes that lie elsewhere, if its parity may make
    /// it of these.
    pub fn distance(&self, len: u64) -> Option<u64> {
        match self.layout {
            Some(layout) => layout.restores_from(len).then(|| layout.len.abs_diff(len)),
            None => (self.parity_len <= SHORT_BYTES_MAX).then(|| self.parity_len.abs_diff(len)),
        }
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
        let mut hashes: BTreeMap<[u8; 32], u64> = BTreeMap::new();
        let of = |blob: &ListedBlob| Some((blob.name.protected()?, blob.len));
        hashes.extend(self.inner.list(BlobKind::Parity.into())?.iter().filter_map(of));
        for kind in SHORT_KINDS.into_iter().chain([BlobKind::Container]) {
            for blob in self.inner.list(kind.into())? {
                blob.name.hash().map(|hash| hashes.remove(&hash));
            }
        }
        let hashes: Vec<([u8; 32], u64)> = hashes.into_iter().collect();
        let missing = try_map_parallel(self.inner.properties().requests_max, &hashes, |(hash, parity_len)| {
            let parity = BlobName::parity_of(hash);
            let layout = match self.inner.get_range(&parity, 0, HEADER_BYTES, Reading::Once) {
                Err(error) if !error.is_unavailable() => return Err(error),
                header => header.ok().and_then(|header| layout_in_header(&parity, &header, hash)),
            };
            Ok(MissingBlob { hash: *hash, layout, parity_len: *parity_len })
        })?;
        let missing = Arc::new(missing);
        *listed = Some((Instant::now(), missing.clone()));
        Ok(missing)
    }
}
