//! Stats: what a repository and a snapshot hold, in numbers.
//!
//! 1. The store's listing gives the stored bytes by kind of blob.
//! 2. Container directories, read one at a time, give chunks, frames and raw bytes; no frame is read.
//! 3. A snapshot's numbers come from walking its tree.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::list::list;
use crate::codec::codec;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::container::{self, ContainerIndex, FOOTER_BYTES, HEADER_BYTES, parse_name};
use crate::repo::index::{self, DATABASE_FILE, SimilarityPlace, read_container_index};
use crate::repo::paths::cache_directory;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::repo::tree::NodeKind;

/// Stored bytes by kind of blob.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoredBytes {
    /// Containers.
    pub containers: u64,
    /// Index segments.
    pub index: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// All else: the configuration.
    pub other: u64,
    /// Sum of the above.
    pub total: u64,
}

/// Frames that one codec encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CodecStats {
    /// How many.
    pub frames: u64,
    /// Bytes they decode to.
    pub raw_bytes: u64,
    /// Bytes they take, headers included.
    pub stored_bytes: u64,
}

/// What the index takes besides the segments: local files, 0 where there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LocalBytes {
    /// The database.
    pub database: u64,
    /// The similarity index.
    pub similarity: u64,
}

/// What a repository holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RepositoryStats {
    /// Snapshots that can be read.
    pub snapshots: u64,
    /// Index segments.
    pub segments: u64,
    /// Containers.
    pub containers: u64,
    /// Of those, unreadable ones, which count in the stored bytes alone: `check` tells more.
    pub containers_damaged: u64,
    /// Stored bytes.
    pub stored_bytes: StoredBytes,
    /// Bytes of local files of the index.
    pub local_bytes: LocalBytes,
    /// Chunk entries in containers, recipes and directory listings included.
    pub chunks: u64,
    /// Bytes of those chunks.
    pub raw_bytes: u64,
    /// Of those, bytes stored literally.
    pub literal_bytes: u64,
    /// Of those, bytes copied from other chunks.
    pub copied_bytes: u64,
    /// Similarity features in container directories.
    pub features: u64,
    /// Frames by codec name.
    pub frames: BTreeMap<&'static str, CodecStats>,
    /// Bytes of container directories.
    pub container_index_bytes: u64,
    /// Bytes of content of all snapshots together, as each recorded it.
    pub snapshot_bytes: u64,
    /// Bytes of chunks per byte stored; 0 for an empty repository.
    pub ratio: f64,
    /// Chunk entries by the depth of their chain of copies.
    pub depths: BTreeMap<u8, u64>,
}

/// What a snapshot holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotStats {
    /// The snapshot, 64 hex digits.
    pub snapshot: String,
    /// Regular files; each name of a hard link counts.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Bytes of content, holes included.
    pub bytes: u64,
    /// What the backup recorded.
    pub recorded: BTreeMap<String, u64>,
}

/// Counts what the repository holds. A damaged container or snapshot is logged, counted and passed over.
///
/// # Errors
/// Whatever keeps the store from being listed or read, other than damage.
pub fn repository_stats(repository: &Repository) -> Result<RepositoryStats> {
    let store = repository.store.as_ref();
    let mut stats = RepositoryStats::default();
    for blob in store.list("")? {
        stats.stored_bytes.total += blob.len;
        match blob.name.split('/').next() {
            Some(container::PREFIX) => stats.stored_bytes.containers += blob.len,
            Some(index::PREFIX) => {
                stats.segments += 1;
                stats.stored_bytes.index += blob.len;
            }
            Some(snapshot::PREFIX) => stats.stored_bytes.snapshots += blob.len,
            _ => stats.stored_bytes.other += blob.len,
        }
    }
    let (snapshots, damaged) = snapshot::list(store)?;
    damaged.iter().for_each(|(name, error)| tracing::warn!("passing over {name}: {error}"));
    stats.snapshots = snapshots.len() as u64;
    let recorded = snapshots.iter().filter_map(|named| named.snapshot.statistics.get("bytes"));
    stats.snapshot_bytes = recorded.fold(0, |sum, bytes| sum.saturating_add(*bytes));
    for blob in store.list(container::PREFIX)? {
        let Some(id) = parse_name(&blob.name) else { continue };
        stats.containers += 1;
        match read_container_index(store, &id) {
            Ok(directory) => stats.add(&directory, blob.len),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("passing over a container: {error}");
                stats.containers_damaged += 1;
            }
            Err(error) => return Err(error),
        }
    }
    let directory = cache_directory(repository)?;
    let len = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    stats.local_bytes.database = len(&directory.join(DATABASE_FILE));
    stats.local_bytes.similarity = SimilarityPlace::files(&directory).iter().map(|path| len(path)).sum();
    if stats.stored_bytes.total > 0 {
        stats.ratio = stats.raw_bytes as f64 / stats.stored_bytes.total as f64;
    }
    Ok(stats)
}

impl RepositoryStats {
    /// Adds a container of `len` bytes.
    fn add(&mut self, directory: &ContainerIndex, len: u64) {
        for entry in &directory.entries {
            self.chunks += 1;
            self.raw_bytes += u64::from(entry.raw_len);
            self.literal_bytes += u64::from(entry.literal_len);
            self.copied_bytes += u64::from(entry.raw_len - entry.literal_len);
            self.features += directory.features(entry).len() as u64;
            *self.depths.entry(entry.depth).or_default() += 1;
        }
        let mut rest = len.saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64);
        for frame in &directory.frames {
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

/// Counts what a snapshot holds, by walking its tree.
///
/// # Errors
/// As for [`list`](super::list::list).
pub fn snapshot_stats(repository: &Repository, snapshot: &NamedSnapshot) -> Result<SnapshotStats> {
    let recorded = snapshot.snapshot.statistics.clone();
    let mut stats = SnapshotStats { snapshot: snapshot.id.to_string(), recorded, ..SnapshotStats::default() };
    list(repository, snapshot, None, &mut |_, node| {
        match node.kind {
            NodeKind::File => {
                stats.files += 1;
                stats.bytes += node.size;
            }
            NodeKind::Directory => stats.directories += 1,
            _ => stats.others += 1,
        }
        Ok(())
    })?;
    Ok(stats)
}
