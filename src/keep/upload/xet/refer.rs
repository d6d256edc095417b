//! Xorbs whose chunks have become files need no bytes of their own: their tables then name these files.

use std::collections::{BTreeMap, BTreeSet};

use super::CheckedShard;
use super::chunk_table::XorbChunkRange;
use super::hash::XetHash;
use crate::backup::MemoryContent;
use crate::error::Result;
use crate::keep::forget;
use crate::keep::upload::UploadStore;
use crate::repo::published::PublishedFile;
use crate::types::SnapshotId;

/// Xorbs of one snapshot, at most.
const GROUP_MAX: usize = 256;

/// For each chunk of a xorb the number of a file, and its offset there, if one has it.
type ChunkSpots = Vec<Option<(u32, u64)>>;

/// Where the files of a shard have the chunks of its new xorbs.
fn spots(shard: &CheckedShard) -> BTreeMap<XetHash, ChunkSpots> {
    let new = shard.new_xorbs().iter().map(|xorb| (xorb.hash, vec![None; xorb.chunks.len()]));
    let mut spots: BTreeMap<XetHash, ChunkSpots> = new.collect();
    let lens: BTreeMap<XetHash, &[(XetHash, u32)]> =
        shard.new_xorbs().iter().map(|xorb| (xorb.hash, xorb.chunks.as_slice())).collect();
    for (at, file) in (0..).zip(shard.claims()) {
        let mut offset = 0;
        for term in &file.terms {
            let (first, end) = (term.chunks.0 as usize, term.chunks.1 as usize);
            let mut chunk_offset = offset;
            offset += u64::from(term.len);
            let (Some(own), Some(lens)) = (spots.get_mut(&term.xorb), lens.get(&term.xorb)) else { continue };
            for (spot, (_, len)) in own.iter_mut().zip(lens.iter()).take(end).skip(first) {
                *spot = Some((at, chunk_offset));
                chunk_offset += u64::from(*len);
            }
        }
    }
    spots
}

/// The table of a xorb whose chunks are all in files, with the files as parts.
fn table(chunks: &[(XetHash, u32)], spots: &ChunkSpots, parts: &mut BTreeMap<u32, u32>) -> Option<Vec<XorbChunkRange>> {
    let all: Vec<(u32, u64)> = spots.iter().copied().collect::<Option<_>>()?;
    let range = |((hash, len), (file, offset)): (&(XetHash, u32), (u32, u64))| {
        let next = parts.len() as u32;
        let part = *parts.entry(file).or_insert(next);
        XorbChunkRange { hash: *hash, len: *len, part, offset }
    };
    Some(chunks.iter().zip(all).map(range).collect())
}

impl UploadStore {
    /// Lets the new xorbs of a shard refer to its files, which are stored as `files`, and deletes their own bytes. They
    /// stay until they expire. Xorbs of which a chunk is in no file stay as they are.
    ///
    /// # Errors
    /// Errors of storing. The xorbs are there then, too.
    pub fn refer_xorbs(&self, owner: &str, shard: &CheckedShard, files: &[PublishedFile]) -> Result<()> {
        let spots = spots(shard);
        let now_ns = self.repository.clock.now_ns();
        let counts = |name: &str, expires_ns: i64| name == owner && expires_ns > now_ns;
        let mut alone: BTreeMap<XetHash, BTreeSet<SnapshotId>> = BTreeMap::new();
        for found in self.xorbs(&spots.keys().copied().collect(), &counts)?.into_iter().filter(|found| found.is_alone) {
            alone.entry(found.hash).or_default().insert(found.named.id);
        }
        let new: Vec<_> = shard.new_xorbs().iter().filter(|xorb| alone.contains_key(&xorb.hash)).collect();
        for group in new.chunks(GROUP_MAX) {
            let (mut parts, mut tables, mut replaced) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
            for xorb in group {
                let own = spots.get(&xorb.hash).and_then(|spots| table(&xorb.chunks, spots, &mut parts));
                if let Some(own) = own {
                    tables.insert(xorb.hash, own);
                    replaced.extend(alone.get(&xorb.hash).into_iter().flatten().copied());
                }
            }
            if tables.is_empty() {
                continue;
            }
            let mut in_order: Vec<(u32, u32)> = parts.into_iter().map(|(file, part)| (part, file)).collect();
            in_order.sort_unstable();
            let stored = in_order.iter().filter_map(|(_, file)| files.get(*file as usize)?.content);
            let sources: Vec<MemoryContent> = stored.map(MemoryContent::Stored).collect();
            if sources.len() != in_order.len() {
                return Err(crate::Error::internal("a file of a shard is not stored"));
            }
            // Beside a prune, they keep bytes of their own until they expire: others wait to store.
            self.store_xorbs(owner, &tables.into_iter().collect::<Vec<_>>(), sources, true)?;
            forget(&self.repository, &replaced.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
