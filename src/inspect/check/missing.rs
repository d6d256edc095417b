//! What seems to be missing is looked for again before it counts as damage: other processes move and delete containers
//! meanwhile.

use std::collections::HashSet;
use std::sync::Arc;

use super::containers::{pending, trace_entry};
use super::damaged_containers::DamagedContainers;
use super::defect_log::{DefectLog, damage_or_cold};
use super::run::CheckRun;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{EntryNumber, blob_name};
use crate::repo::index::ContainerListing;
use crate::repo::marks::{BadParts, PositionSet};
use crate::repo::read::ChunkReader;
use crate::types::ContainerId;

/// Decoded bytes that the second look caches.
const CACHE_BYTES: usize = 16 << 20;

/// What a check did not find at first.
#[derive(Debug, Default)]
pub(super) struct MissingParts {
    /// Containers that were listed and then not there.
    pub(super) gone: Vec<ContainerId>,
    /// Entries with a base that was not found.
    pub(super) entries: Vec<(ContainerId, PositionSet)>,
}

impl MissingParts {
    /// Lists everything again and looks once more. What is still not there counts as damage, unless a prune may be
    /// deleting its container. Containers of `read` are read.
    pub(super) fn look_again(
        self,
        run: &CheckRun<'_>,
        read: &HashSet<ContainerId>,
        damaged: &mut DamagedContainers,
    ) -> Result<()> {
        if self.gone.is_empty() && self.entries.is_empty() {
            return Ok(());
        }
        let mut listing = ContainerListing::take(&run.repository.store)?;
        listing.add_unlisted()?;
        listing.set_quarantine(run.listing.quarantine());
        // Listed last: a container leaves the store before it leaves the pending entries.
        let pending = pending(run)?;
        for id in self.gone {
            if listing.containers.contains(&id) {
                let mut log = DefectLog::default();
                log.add(format!("{} is missing, although the store lists it", blob_name(&id)));
                damaged.add(id, &BadParts::Whole, log);
            } else {
                damaged.miss(id, "a segment");
            }
        }
        let listing = Arc::new(listing);
        let mut reader = ChunkReader::with_cache(run.repository, listing.clone(), CACHE_BYTES);
        for (id, positions) in self.entries {
            if !listing.containers.contains(&id) {
                damaged.miss(id, "a segment");
            } else if pending.contains(&id) {
                damaged.doubt(id, positions);
            } else {
                entries(run, &mut reader, (&id, positions), read.contains(&id), damaged)?;
            }
        }
        damaged.add_pending(pending);
        Ok(())
    }
}

/// Looks at entries of a container again.
fn entries(
    run: &CheckRun<'_>,
    reader: &mut ChunkReader,
    (id, positions): (&ContainerId, PositionSet),
    is_read: bool,
    damaged: &mut DamagedContainers,
) -> Result<()> {
    let (name, container) = (blob_name(id), reader.resolver.container_number(*id));
    let (mut log, mut bad) = (DefectLog::default(), PositionSet::default());
    for position in positions.ranges().iter().flat_map(|(start, end)| *start..*end) {
        run.check_stop()?;
        let looked = look(reader, EntryNumber::stored(container, position), id, position, is_read);
        let Err((chunk, error)) = looked else { continue };
        let error = damage_or_cold(error)?;
        if !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Cold) {
            bad.insert(position, position + 1);
        }
        log.consequence_of(&error, format!("{name}: entry {position}{chunk}: {error}"));
    }
    if !log.is_empty() {
        damaged.add(*id, &BadParts::Parts { frames: PositionSet::default(), entries: bad }, log);
    }
    Ok(())
}

/// Looks at one entry. Fails with the name of its chunk, if that is known.
fn look(
    reader: &mut ChunkReader,
    number: EntryNumber,
    id: &ContainerId,
    position: u32,
    is_read: bool,
) -> Result<(), (String, Error)> {
    let container_index = reader.resolver.locator.container_indexes().load(id);
    let container_index = container_index.map_err(|error| (String::new(), error))?;
    let Some(entry) = container_index.entries.get(position as usize) else { return Ok(()) };
    let looked =
        if is_read { reader.read_entry(number, &entry.fingerprint).map(drop) } else { trace_entry(reader, number) };
    looked.map_err(|error| (format!(", chunk {}", entry.fingerprint), error))
}
