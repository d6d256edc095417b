//! Reads the own blobs of a random share of the snapshots, at least one. Listings of snapshots take what a local file
//! or a bundle has, so damage of these blobs goes unseen, and another machine needs them.

use super::sample::SampledFiles;
use super::share::SampleDraw;
use crate::error::Result;
use crate::inspect::check::damage;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::snapshot::{NamedSnapshot, Snapshot, blob_name, is_forgotten};
use crate::store::{StoreExt, map_parallel};
use crate::types::SnapshotId;

/// Reads the blobs of a share of `snapshots` from the store.
pub(super) fn read(
    repository: &Repository,
    snapshots: &[NamedSnapshot],
    draw: &SampleDraw,
    progress: &Progress,
) -> Result<SampledFiles> {
    let store = repository.store.as_ref();
    let mut chosen: Vec<SnapshotId> = snapshots.iter().map(|named| named.id).collect();
    chosen.sort_by_cached_key(|id| draw.number(&id.0));
    let count = chosen.partition_point(|id| draw.has(draw.number(&id.0)));
    chosen.truncate(count.max(1));
    let mut sampled = SampledFiles { snapshots: snapshots.len() as u64, ..SampledFiles::default() };
    let read = map_parallel(store.requests_max(), &chosen, |id| Snapshot::load(store, id).map(drop));
    for (id, read) in chosen.iter().zip(read) {
        let Err(error) = read else {
            sampled.snapshots_read += 1;
            continue;
        };
        let error = damage(error)?;
        if is_forgotten(store, id)? {
            continue;
        }
        if error.is_newer() {
            sampled.newer += 1;
            continue;
        }
        progress.errors.add(1);
        let (name, text) = (blob_name(id), error.to_string());
        sampled.add_damaged(if text.contains(name.as_str()) { text } else { format!("{name}: {text}") });
    }
    Ok(sampled)
}
