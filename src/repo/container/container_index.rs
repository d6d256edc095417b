//! The directory of a container: which frames and chunk entries it holds.
//!
//! In memory a flat table: entries refer to ranges of shared lists of pieces and features, and pieces to one list of
//! bases. On disk a fixed sequence of sections, each a column group of its own, stored zstd-compressed where that is
//! smaller (see `columns`).

use std::collections::HashMap;
use std::ops::Range;

use super::frame::FrameInfo;
use super::operations::{Base, Operation, OperationList, operations_digest};
use crate::types::Fingerprint;

#[path = "columns.rs"]
mod columns;

/// Features an entry may carry.
pub const FEATURES_MAX: usize = 64;

/// One encoding of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Content name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of its literal bytes.
    pub frame: u32,
    /// Where they begin in the decoded frame.
    pub literal_offset: u32,
    /// How many there are.
    pub literal_len: u32,
    /// 1 for a chunk that needs no body but its own, else 1 + the deepest of its bases.
    pub depth: u8,
    operations: (u32, u32),
    features: (u32, u32),
}

/// Decoded directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ContainerIndex {
    /// In file order.
    pub frames: Vec<FrameInfo>,
    /// In stream order.
    pub entries: Vec<Entry>,
    /// What the pieces' `base` counts in.
    pub bases: Vec<Base>,
    operations: Vec<Operation>,
    features: Vec<u64>,
    /// The entries' numbers in the order of their fingerprints' prefixes, with these: a look-up touches little else.
    by_prefix: Vec<(u64, u32)>,
}

fn span((start, len): (u32, u32)) -> Range<usize> {
    start as usize..start as usize + len as usize
}

impl ContainerIndex {
    /// Pieces of an entry; empty for a whole chunk.
    pub fn operations(&self, entry: &Entry) -> &[Operation] {
        self.operations.get(span(entry.operations)).unwrap_or_default()
    }

    /// Similarity features of an entry: 48 bits of hash, above them 8 bits of position.
    pub fn features(&self, entry: &Entry) -> &[u64] {
        self.features.get(span(entry.features)).unwrap_or_default()
    }

    /// Digest of an entry's body.
    pub fn digest(&self, entry: &Entry) -> u64 {
        operations_digest(self.operations(entry), &self.bases)
    }

    /// Number of the first entry with this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<u32> {
        self.with_fingerprint(fingerprint).next()
    }

    /// Numbers of the entries with this fingerprint, ascending.
    fn with_fingerprint(&self, fingerprint: &Fingerprint) -> impl Iterator<Item = u32> {
        let prefix = fingerprint.prefix();
        let at = self.by_prefix.partition_point(|known| known.0 < prefix);
        let same = self.by_prefix.get(at..).unwrap_or_default().iter().take_while(move |known| known.0 == prefix);
        let is_named =
            |number: &u32| self.entries.get(*number as usize).is_some_and(|entry| entry.fingerprint == *fingerprint);
        same.map(|known| known.1).filter(is_named)
    }

    /// Number of the entry with this fingerprint and body digest.
    pub fn find_encoding(&self, base: &Base) -> Option<u32> {
        self.with_fingerprint(&base.fingerprint)
            .find(|number| self.entries.get(*number as usize).is_some_and(|entry| self.digest(entry) == base.digest))
    }

    /// Bytes of memory it takes, roughly.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * (size_of::<Entry>() + size_of::<(u64, u32)>())
            + self.frames.len() * size_of::<FrameInfo>()
            + self.bases.len() * size_of::<Base>()
            + self.operations.len() * size_of::<Operation>()
            + self.features.len() * 8
    }

    fn index(mut self) -> Self {
        self.by_prefix = self.entries.iter().zip(0..).map(|(entry, at)| (entry.fingerprint.prefix(), at)).collect();
        self.by_prefix.sort_unstable();
        self
    }
}

/// Collects the directory of a container being written.
#[derive(Debug, Default)]
pub struct ContainerIndexBuilder {
    container_index: ContainerIndex,
    base_numbers: HashMap<Base, u32>,
}

/// What a chunk entry says besides its body.
#[derive(Debug, Clone, Copy)]
pub struct EntryFields {
    /// Content name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame in the container.
    pub frame: u32,
    /// Offset in the decoded frame.
    pub literal_offset: u32,
    /// Literal bytes.
    pub literal_len: u32,
    /// Depth of the chain.
    pub depth: u8,
}

impl ContainerIndexBuilder {
    /// Adds a frame and gives its number.
    pub fn push_frame(&mut self, info: FrameInfo) -> u32 {
        self.container_index.frames.push(info);
        self.container_index.frames.len() as u32 - 1
    }

    /// Adds an entry.
    pub fn push_entry(&mut self, fields: EntryFields, body: &OperationList, features: &[u64]) {
        let container_index = &mut self.container_index;
        let numbers: Vec<u32> = body
            .bases
            .iter()
            .map(|base| {
                *self.base_numbers.entry(*base).or_insert_with(|| {
                    container_index.bases.push(*base);
                    container_index.bases.len() as u32 - 1
                })
            })
            .collect();
        let renumber = |base: u32| numbers.get(base as usize).copied().unwrap_or(u32::MAX);
        let operations = (container_index.operations.len() as u32, body.operations.len() as u32);
        container_index.operations.extend(body.operations.iter().map(|operation| operation.with_base(renumber)));
        let kept = features.get(..features.len().min(FEATURES_MAX)).unwrap_or_default();
        let features = (container_index.features.len() as u32, kept.len() as u32);
        container_index.features.extend_from_slice(kept);
        let EntryFields { fingerprint, raw_len, frame, literal_offset, literal_len, depth } = fields;
        container_index.entries.push(Entry {
            fingerprint,
            raw_len,
            frame,
            literal_offset,
            literal_len,
            depth,
            operations,
            features,
        });
    }

    /// Entries so far.
    pub fn entries(&self) -> &[Entry] {
        &self.container_index.entries
    }
    /// Frames so far.
    pub fn frames(&self) -> &[FrameInfo] {
        &self.container_index.frames
    }
    /// The directory's bytes on disk.
    pub fn encode(&self) -> crate::Result<Vec<u8>> {
        columns::encode(&self.container_index)
    }
    /// The directory itself.
    pub fn finish(self) -> ContainerIndex {
        self.container_index.index()
    }
}

impl ContainerIndex {
    /// Parses the directory that `footer` describes; `what` names the container.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for any count, length or offset that does not fit.
    pub fn parse(what: &str, footer: &super::layout::Footer, bytes: &[u8]) -> crate::Result<Self> {
        crate::wire::verify(what, footer.index_offset, &footer.index_checksum, &[bytes])?;
        Ok(columns::decode(what, footer, bytes)?.index())
    }

    /// The entries' fingerprints alone, in order, of the directory that `footer` describes.
    ///
    /// # Errors
    /// As of [`Self::parse`] for the checksum and for what is read.
    pub fn parse_fingerprints(
        what: &str,
        footer: &super::layout::Footer,
        bytes: &[u8],
    ) -> crate::Result<Vec<Fingerprint>> {
        crate::wire::verify(what, footer.index_offset, &footer.index_checksum, &[bytes])?;
        columns::decode_fingerprints(what, footer, bytes)
    }
}

#[cfg(test)]
#[path = "container_index_tests.rs"]
mod tests;
