//! Bases: chunks of the repository and of the running session, as sub-block deduplication reads them.
//!
//! 1. [`search`]: candidates come from the similarity index. [`entries`]: operation lists come from the ring of session
//!    entries or from container indexes.
//! 2. [`chunk_bytes`]: chunk bytes come from the base cache, which is filled from frames.
//! 3. [`frame_reader`]: frames that are not cached are read within a budget of reads per MiB of new chunks.
//! 4. [`shared`]: chunk bytes for the workers of Match, who read any entry that they are told to.
//!
//! The state of [`Bases`] advances with the stream of chunks. That of [`shared`] changes what a worker must read or
//! decode again, never what it gets. So the bases that are found do not depend on timing.

mod chunk_bytes;
mod entries;
mod frame_reader;
mod search;
mod shared;

pub use entries::{Entries, base_problem};
use parking_lot::Mutex;
pub use shared::{BaseChunk, SharedBases, WorkerBases};

use std::sync::Arc;

use bytes::Bytes;

use self::frame_reader::FrameReader;
use super::Match;
use super::base_cache::BaseCache;
use super::candidates::Candidates;
use super::capping::{ContainerCapping, MatchOrigin};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::memory::{BLOCK_BYTES, ByteLru};
use crate::repo::container::{Extent, FrameAddress, FrameNumber, FramesInFlight};
use crate::repo::index::{ChunkIndex, Resolver};
use crate::store::Store;

/// One in this many bytes of the memory for bases is for chunks alone. Frames may take the rest.
const CHUNKS_SHARE: usize = 2;
/// Memory for the extent maps of bases, bytes: one in so many of the memory for bases, within these bounds.
const EXTENTS_SHARE: usize = 4;
const EXTENT_CACHE_BYTES: (usize, usize) = (2 << 20, 8 << 20);

/// See the module.
pub struct Bases {
    /// Operation lists, names and extent maps.
    pub entries: Entries,
    candidates: Candidates,
    /// Literal bytes in the open solid frame.
    pub open_solid: Vec<u8>,
    /// Literal bytes in the open incompressible frame.
    pub open_incompressible: Vec<u8>,
    frames: ByteLru<FrameNumber, Bytes>,
    /// Chunks, in the memory that `frames` leaves free.
    base_cache: BaseCache,
    /// Memory for `frames` and `base_cache`, bytes.
    bytes_max: usize,
    frame_reader: FrameReader,
    capping: Option<ContainerCapping>,
}

/// Memory for extent maps, bytes.
fn extent_cache_bytes(config: &SubdedupConfig) -> usize {
    (config.base_cache_bytes.0 as usize / EXTENTS_SHARE).clamp(EXTENT_CACHE_BYTES.0, EXTENT_CACHE_BYTES.1)
}

impl Bases {
    /// Bases in the stored containers that `resolver` sees and in the running session with its `index`. They keep at
    /// most `bytes_max` bytes of frames and chunks in memory.
    pub fn new(
        store: Arc<dyn Store>,
        resolver: Resolver,
        in_flight: Arc<FramesInFlight>,
        index: Arc<Mutex<ChunkIndex>>,
        config: &SubdedupConfig,
        bytes_max: usize,
        candidates: Candidates,
    ) -> Self {
        Bases {
            entries: Entries::new(resolver, in_flight.clone(), index, extent_cache_bytes(config)),
            candidates,
            open_solid: Vec::new(),
            open_incompressible: Vec::new(),
            frames: ByteLru::new(frame_bytes_max(bytes_max)),
            base_cache: BaseCache::new(bytes_max),
            bytes_max,
            frame_reader: FrameReader::new(store, in_flight, config.base_reads_per_mib),
            capping: (config.base_containers_max > 0).then(|| ContainerCapping::new(config.base_containers_max)),
        }
    }

    /// Starts a new batch of chunks, which may use other containers than the last batch.
    pub fn next_batch(&mut self) {
        self.capping.iter_mut().for_each(ContainerCapping::reset);
    }

    /// Drops matches that need more containers than the batch may use.
    pub fn cap(&mut self, matches: &mut Vec<Match>) -> Result<()> {
        if self.capping.is_none() {
            return Ok(());
        }
        let origin = |extent: Extent| match extent.frame.address() {
            FrameAddress::Stored { container, .. } => MatchOrigin::Container(container),
            FrameAddress::Session(_) | FrameAddress::Open(_) => MatchOrigin::Session,
        };
        let mut origins = Vec::with_capacity(matches.len());
        for found in matches.iter() {
            let extent_map = self.entries.extent_map(found.base)?;
            let extents = extent_map.extents_of(found.offset..found.offset + found.len)?;
            origins.push(extents.map(origin).collect());
        }
        self.capping.iter_mut().for_each(|capping| capping.apply(matches, &origins));
        Ok(())
    }
}

/// The part of `bytes_max` that decoded frames may take.
fn frame_bytes_max(bytes_max: usize) -> usize {
    bytes_max.saturating_sub((bytes_max / CHUNKS_SHARE).max(2 * BLOCK_BYTES))
}
