//! The listing of a directory in a parent snapshot, as the base of a new one.
//!
//! 1. Chunks of both listings are compared in the order of their names. Chunks that did not change are never read.
//! 2. A new chunk has as its base what covers its names. Chunks that are differences themselves stand for their bases,
//!    so whoever reads a listing needs one more chunk, whatever the number of snapshots.
//! 3. What cannot be read is no base. Then the listing is stored whole.

use std::collections::VecDeque;
use std::sync::Arc;

use minicbor::Decoder;

use super::listing::NODE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::repo::container::{Base, ContainerKind, EntryNumber, Operation, OperationSource, WHOLE_DIGEST};
use crate::repo::index::{ContainerListing, SharedContainerIndexes};
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::{ListingBase, Repository};
use crate::types::Fingerprint;
use crate::wire::WireReader;

/// Content of the bases of one chunk, at most.
const BASE_BYTES_MAX: u64 = 2 << 20;
/// Chunks of a parent's listing that one new chunk is compared with, at most.
const CHUNKS_MAX: usize = 4;
/// The share of a reader's memory that the bases take: one in so many.
const READERS: usize = 4;

/// Reads bases of listings. What it reads, the run relies on.
pub struct ListingBases {
    reader: ChunkReader,
}

impl ListingBases {
    /// Bases among the containers in `listing`, whose indexes the run shares.
    pub fn new(repository: &Repository, listing: &Arc<ContainerListing>, shared: &Arc<SharedContainerIndexes>) -> Self {
        ListingBases { reader: ChunkReader::of_run(READERS, repository, listing.clone(), shared.clone()) }
    }

    /// The entry of a chunk of a listing that others may build on, or the bases that it builds on itself.
    fn names(&mut self, fingerprint: &Fingerprint) -> Result<Vec<(Base, u32)>> {
        let entry = self.reader.entry_of(fingerprint)?;
        let view = self.reader.resolver.view(entry)?;
        let mut names = Vec::new();
        for operation in view.operations.as_slice() {
            match *operation {
                Operation::Delta { base, offset: 0, len } => {
                    names.push((self.reader.resolver.base_name(&view, base)?, len))
                }
                _ => return Ok(Vec::new()),
            }
        }
        if names.is_empty() {
            names.push((Base { fingerprint: *fingerprint, digest: WHOLE_DIGEST }, view.raw_len));
        }
        // Chains would make reading dear.
        names.retain(|(name, _)| name.digest == WHOLE_DIGEST);
        Ok(names)
    }

    /// The bytes of exactly this entry.
    fn read(&mut self, (name, len): &(Base, u32)) -> Result<Vec<u8>> {
        let found = self.reader.resolver.locator.locate_exact(name)?;
        // Data containers may be in cold storage, or go there.
        let found = found.filter(|found| found.container_index.kind == ContainerKind::Metadata);
        let found = found.ok_or_else(|| Error::ChunkMissing { fingerprint: name.fingerprint.to_string() })?;
        let number: EntryNumber = self.reader.resolver.number_of(&found);
        let bytes = self.reader.read_entry(number, &name.fingerprint)?;
        if bytes.len() == *len as usize {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!("chunk {}", name.fingerprint), 0, format!("{len} bytes"), bytes.len().to_string()))
    }
}

/// A chunk of the former listing.
struct FormerChunk {
    fingerprint: Fingerprint,
    len: u64,
    /// Its last name, once it was read.
    last: Option<Vec<u8>>,
}

impl FormerChunk {
    fn last(&mut self, bases: &mut ListingBases) -> Result<&[u8]> {
        if self.last.is_none() {
            let bytes = bases.reader.read_exact(&self.fingerprint, self.len)?;
            self.last = ends(&bytes)?.map(|(_, last)| last.to_vec());
        }
        Ok(self.last.as_deref().unwrap_or_default())
    }
}

/// The listing of one directory in a parent snapshot.
pub struct FormerListing {
    walk: Option<RecipeWalk>,
    /// Chunks that may have names of the next new chunk.
    chunks: VecDeque<FormerChunk>,
}

impl FormerListing {
    /// The listing of this content. Reads nothing yet.
    pub fn new(content: ContentReference) -> Self {
        FormerListing { walk: Some(RecipeWalk::new(content)), chunks: VecDeque::new() }
    }

    /// Notes that the new listing goes on with this chunk.
    pub fn skip(&mut self, fingerprint: &Fingerprint, bases: &mut ListingBases) -> Result<()> {
        let skipped = self.attempt(|former| {
            former.fill(2, bases)?;
            if let Some(at) = former.chunks.iter().position(|chunk| chunk.fingerprint == *fingerprint) {
                former.chunks.drain(..=at);
            }
            Ok(())
        });
        skipped.map(Option::unwrap_or_default)
    }

    /// The base of a chunk of the new listing.
    ///
    /// # Errors
    /// Errors of the store, but for what is damaged, missing or in cold storage.
    pub fn base_of(&mut self, chunk: &[u8], bases: &mut ListingBases) -> Result<Option<ListingBase>> {
        self.attempt(|former| former.find(chunk, bases)).map(Option::flatten)
    }

    /// Gives up the listing if it cannot be read.
    fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match read(self) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_unavailable() => {
                let text = "storing a listing without the former one, which cannot be read";
                match error.is_proven_damage() {
                    true => tracing::warn!("{text}: {error}"),
                    false => tracing::debug!("{text}: {error}"),
                }
                (self.walk, self.chunks) = (None, VecDeque::new());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Knows `count` chunks, if there are so many.
    fn fill(&mut self, count: usize, bases: &mut ListingBases) -> Result<()> {
        while let Some(walk) = self.walk.as_mut().filter(|_| self.chunks.len() < count) {
            match walk.next(&mut bases.reader)? {
                Some(ContentReference::Chunk { fingerprint, len }) => {
                    self.chunks.push_back(FormerChunk { fingerprint, len, last: None });
                }
                _ => self.walk = None,
            }
        }
        Ok(())
    }

    fn find(&mut self, chunk: &[u8], bases: &mut ListingBases) -> Result<Option<ListingBase>> {
        let Some((first, last)) = ends(chunk)? else { return Ok(None) };
        let (mut found, mut at) = (ListingBase::default(), 0);
        loop {
            self.fill(at + 2, bases)?;
            let is_last = self.chunks.len() == at + 1;
            let Some(former) = self.chunks.get_mut(at) else { break };
            if at == CHUNKS_MAX || former.len > BASE_BYTES_MAX {
                return Ok(None);
            }
            if former.last(bases)? < first {
                self.chunks.remove(at);
                continue;
            }
            // Names behind the last chunk are in none.
            let covers = is_last || former.last(bases)? >= last;
            for name in bases.names(&former.fingerprint)? {
                if !found.names.contains(&name) {
                    found.names.push(name);
                }
            }
            if covers {
                break;
            }
            at += 1;
        }
        for name in &found.names {
            let bytes = bases.read(name)?;
            found.bytes.extend_from_slice(&bytes);
            if found.bytes.len() as u64 > BASE_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(found).filter(|found| !found.names.is_empty()))
    }
}

/// The first and the last name of a chunk of a listing.
fn ends(chunk: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
    let mut reader = WireReader::new("directory listing", 0, chunk);
    let mut ends = None;
    while reader.remaining() > 0 {
        let len = reader.bounded("a node", NODE_BYTES_MAX)?;
        let map = reader.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
        ends = ends.map_or(Some((map, map)), |(first, _)| Some((first, map)));
    }
    let name = |map| name_of(map).map_err(|error| reader.error("a node with a name", error.to_string()));
    ends.map(|(first, last)| Ok((name(first)?, name(last)?))).transpose()
}

/// The name of a node, which is its first field.
fn name_of(map: &[u8]) -> std::result::Result<&[u8], minicbor::decode::Error> {
    let mut decoder = Decoder::new(map);
    decoder.map()?;
    match decoder.u64()? {
        0 => decoder.bytes(),
        key => Err(minicbor::decode::Error::message(format!("key {key} first"))),
    }
}
