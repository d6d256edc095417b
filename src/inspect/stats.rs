//! Stats: how many bytes, chunks and frames a repository has.
//!
//! 1. The listing of the store gives the stored bytes by kind of blob.
//! 2. The container indexes, read one at a time, give chunks, frames and raw bytes. No frame is read.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::codec::codec;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::container::{ContainerIndex, FOOTER_BYTES, HEADER_BYTES, parse_name};
use crate::repo::index::{DATABASE_FILE, FILTER_FILE, SimilarityFiles, read_container_index};
use crate::repo::marks::Marks;
use crate::repo::paths::cache_directory;
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::store::{BlobKind, BlobPrefix};

/// Stored bytes of the repository by kind of blob.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoredBytes {
    /// Bytes of containers.
    pub containers: u64,
    /// Bytes of parity.
    pub parity: u64,
    /// Bytes of index segments and hot indexes.
    pub index: u64,
    /// Bytes of snapshots.
    pub snapshots: u64,
    /// Bytes of all other blobs: the configuration and the model catalogue.
    pub other: u64,
    /// Sum of the above.
    pub total: u64,
}

/// Statistics of the frames that one codec encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CodecStats {
    /// Number of frames.
    pub frames: u64,
    /// Decoded bytes.
    pub raw_bytes: u64,
    /// Stored bytes, with frame headers.
    pub stored_bytes: u64,
}

/// Bytes of the local index files; 0 for absent files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LocalBytes {
    /// Bytes of the presence filter of chunks.
    pub filter: u64,
    /// Bytes of the similarity index.
    pub similarity: u64,
    /// Bytes of the database of chunks.
    pub database: u64,
}

/// Statistics of a repository.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RepositoryStats {
    /// Readable snapshots.
    pub snapshots: u64,
    /// Index segments.
    pub segments: u64,
    /// Containers.
    pub containers: u64,
    /// Containers with an unreadable index. They count only in `stored_bytes`; `fhrd check` reports the damage.
    pub containers_damaged: u64,
    /// Bytes of the blobs in the store.
    pub stored_bytes: StoredBytes,
    /// Bytes of local index files.
    pub local_bytes: LocalBytes,
    /// Chunk entries of all containers, with those of recipes and listings.
    pub chunks: u64,
    /// Decoded bytes of those entries.
    pub raw_bytes: u64,
    /// Bytes of `raw_bytes` that are stored literally.
    pub literal_bytes: u64,
    /// Bytes of `raw_bytes` that are copied from other chunks.
    pub copied_bytes: u64,
    /// Similarity features in container indexes.
    pub features: u64,
    /// Frames by the name of their codec.
    pub frames: BTreeMap<&'static str, CodecStats>,
    /// Bytes of container indexes.
    pub container_index_bytes: u64,
    /// Bytes of file content of all snapshots, as each snapshot recorded it.
    pub snapshot_bytes: u64,
    /// `raw_bytes` per stored byte; 0 for an empty repository.
    pub ratio: f64,
    /// Chunk entries by the length of their chain of bases.
    pub depths: BTreeMap<u8, u64>,
}

/// Computes the statistics of a repository. Damaged containers and snapshots are skipped with a warning.
///
/// # Errors
/// Fails if the store cannot be listed, or read for a reason other than damage.
pub fn repository_stats(repository: &Repository) -> Result<RepositoryStats> {
    let store = repository.store.as_ref();
    let mut stats = RepositoryStats::default();
    // They say whether the indexes of containers are read from hot indexes.
    Marks::read(store)?;
    for blob in store.list(BlobPrefix::All)? {
        stats.stored_bytes.total += blob.len;
        match blob.name.kind() {
            BlobKind::Container => stats.stored_bytes.containers += blob.len,
            BlobKind::Parity => stats.stored_bytes.parity += blob.len,
            BlobKind::HotIndex => stats.stored_bytes.index += blob.len,
            BlobKind::Segment => {
                stats.segments += 1;
                stats.stored_bytes.index += blob.len;
            }
            BlobKind::Snapshot => stats.stored_bytes.snapshots += blob.len,
            _ => stats.stored_bytes.other += blob.len,
        }
    }
    let SnapshotListing { snapshots, damaged, .. } = snapshot_listing::list(repository)?;
    damaged.iter().for_each(|(name, error)| tracing::warn!("skipping {name}: {error}"));
    stats.snapshots = snapshots.len() as u64;
    let recorded = snapshots.iter().filter_map(|named| named.snapshot.statistics.get("bytes"));
    stats.snapshot_bytes = recorded.fold(0, |sum, bytes| sum.saturating_add(*bytes));
    for blob in store.list(BlobKind::Container.into())? {
        let Some(id) = parse_name(&blob.name) else { continue };
        stats.containers += 1;
        match read_container_index(store, &id) {
            Ok(container_index) => stats.add(&container_index, blob.len),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("skipping a container: {error}");
                stats.containers_damaged += 1;
            }
            Err(error) => return Err(error),
        }
    }
    let directory = cache_directory(repository)?;
    let len = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    stats.local_bytes.filter = len(&directory.join(FILTER_FILE));
    stats.local_bytes.database = len(&directory.join(DATABASE_FILE));
    stats.local_bytes.similarity = SimilarityFiles::paths(&directory).iter().map(|path| len(path)).sum();
    if stats.stored_bytes.total > 0 {
        stats.ratio = stats.raw_bytes as f64 / stats.stored_bytes.total as f64;
    }
    Ok(stats)
}

impl RepositoryStats {
    /// Adds the statistics of a container of `len` bytes.
    fn add(&mut self, container_index: &ContainerIndex, len: u64) {
        for entry in &container_index.entries {
            self.chunks += 1;
            self.raw_bytes += u64::from(entry.raw_len);
            self.literal_bytes += u64::from(entry.literal_len);
            self.copied_bytes += u64::from(entry.raw_len - entry.literal_len);
            self.features += container_index.features(entry).len() as u64;
            *self.depths.entry(entry.depth).or_default() += 1;
        }
        let mut rest = len.saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64);
        for frame in &container_index.frames {
            let name = codec(frame.codec).map_or("unknown", |codec| codec.name());
            let stats = self.frames.entry(name).or_default();
            stats.frames += 1;
            stats.raw_bytes += u64::from(frame.raw_len);
            stats.stored_bytes += frame.stored_bytes() as u64;
            rest = rest.saturating_sub(frame.stored_bytes() as u64);
        }
        self.container_index_bytes += rest;
    }
}
