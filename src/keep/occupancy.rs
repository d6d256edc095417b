//! How much of each container is needed, for the plan of a prune.

use std::time::SystemTime;

use super::live::LiveSet;
use super::plan::Occupancy;
use super::prune::PruneRun;
use super::view::View;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{ContainerKind, HEADER_BYTES, blob_name, parse_header, read_kind};
use crate::repo::index::read_container_index;
use crate::store::{BlobName, Reading, Store, StoreExt, try_map_parallel};
use crate::types::ContainerId;

impl PruneRun<'_> {
    /// What the plan knows of each container of the view.
    pub(super) fn occupancies(&mut self, view: &View, live: &LiveSet) -> Result<Vec<Occupancy>> {
        let store = self.repository.store.as_ref();
        let mut ids: Vec<ContainerId> = view.all.containers.iter().copied().collect();
        ids.sort_unstable();
        let mut containers = Vec::with_capacity(ids.len());
        let heads = try_map_parallel(store.requests_max(), &ids, |id| {
            self.check_stop()?;
            store.head(&blob_name(id))
        })?;
        for (id, head) in ids.into_iter().zip(heads) {
            self.check_stop()?;
            let name = blob_name(&id);
            let Some(head) = head else { continue };
            let kind = kind_of(store, &name)?;
            let (kind, live_bytes, loose_bytes) = match (kind, live.has_any(&id)) {
                (kind, true) => {
                    let (kind, container_index) = (kind?, read_container_index(store, &id)?);
                    let loose = || self.options.encoding().loose_bytes(kind, &container_index);
                    let loose = if self.options.recompress_threads > 0 { loose() } else { 0 };
                    (kind, Occupancy::live_bytes_of(&id, head.len, &container_index, live)?, loose)
                }
                // Whatever it was, nobody needs it.
                (Err(error), false) if error.is_bad_blob() || error.kind() == ErrorKind::Cold => {
                    (ContainerKind::Data, 0, 0)
                }
                (kind, false) => (kind?, 0, 0),
            };
            let modified = self.ages.put_at(&name, head.modified, SystemTime::now());
            containers.push(Occupancy { id, kind, bytes: head.len, live_bytes, loose_bytes, modified });
        }
        Ok(containers)
    }
}

/// What a container holds, or why its header does not say it.
///
/// # Errors
/// Errors of the store.
fn kind_of(store: &dyn Store, name: &BlobName) -> Result<Result<ContainerKind>> {
    match read_kind(store, name, Reading::Again) {
        Ok(kind) => Ok(Ok(kind)),
        Err(error @ Error::Cold { .. }) => Ok(Err(error)),
        Err(_) => Ok(parse_header(name, &store.get_range(name, 0, HEADER_BYTES, Reading::Again)?)),
    }
}
