//! The container index: which frames and chunk entries a container holds.
//!
//! In memory all entries share one list of operations and one of features, and refer to spans of them. Operations refer
//! to one shared list of bases. `columns` has the encoding on disk.

use std::collections::HashMap;
use std::ops::Range;

use super::columns;
use super::entry_check::{Violation, check_entry, check_frame};
use super::frame::FrameInfo;
use super::layout::{ContainerKind, Footer};
use super::operations::{Base, Operation, OperationList, operations_digest};
use crate::error::{Error, Result};
use crate::types::Fingerprint;

/// Features of an entry, at most.
pub const FEATURES_MAX: usize = 64;

/// Encodings of one chunk in one container that a look-up compares. Writers store a chunk twice in a container only if
/// something has gone wrong, so this bounds the work for a hostile container only.
const ENCODINGS_MAX: usize = 64;

/// One encoding of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Name of the chunk.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of the literal bytes, as a position in the container index.
    pub frame: u32,
    /// Offset of the literal bytes in the decoded frame.
    pub literal_offset: u32,
    /// Number of literal bytes.
    pub literal_len: u32,
    /// 1 for an entry that needs no other entry, else 1 + the depth of its deepest base.
    pub depth: u8,
    pub(super) operations: Span,
    pub(super) features: Span,
}

/// A range of a list that entries share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Decoded container index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ContainerIndex {
    /// Frames in file order.
    pub frames: Vec<FrameInfo>,
    /// Entries in stream order.
    pub entries: Vec<ContainerEntry>,
    /// Bases of all entries, each once.
    pub bases: Vec<Base>,
    /// Content of the container, as far as its header was read; the default otherwise.
    pub kind: ContainerKind,
    /// Whether any operation is of a newer version.
    pub(super) has_unknown: bool,
    pub(super) operations: Vec<Operation>,
    pub(super) features: Vec<u64>,
    /// Prefix of the fingerprint and position of each entry, sorted. A look-up touches little else.
    pub(super) by_prefix: Vec<(u64, u32)>,
}

impl ContainerIndex {
    /// Decodes and checks the container index that `footer` describes; `what` names the container in errors.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`], and [`Error::Corrupt`] for any count, length or offset out of bounds.
    pub fn parse(what: &str, footer: &Footer, bytes: &[u8]) -> Result<Self> {
        crate::wire::verify(what, footer.index_offset, &footer.index_checksum, &[bytes])?;
        Ok(columns::decode(what, footer, bytes)?.index())
    }

    /// Decodes only the fingerprints of the entries, in order.
    ///
    /// # Errors
    /// Errors of [`Self::parse`], for the checksum and for the decoded sections.
    pub fn parse_fingerprints(what: &str, footer: &Footer, bytes: &[u8]) -> Result<Vec<Fingerprint>> {
        crate::wire::verify(what, footer.index_offset, &footer.index_checksum, &[bytes])?;
        columns::decode_fingerprints(what, footer, bytes)
    }

    /// Operations of an entry of this index; empty if the chunk is stored whole.
    pub fn operations(&self, entry: &ContainerEntry) -> &[Operation] {
        &self.operations[entry.operations.range()]
    }

    /// Whether an entry is a delta.
    pub fn is_delta(&self, entry: &ContainerEntry) -> bool {
        matches!(self.operations(entry).first(), Some(Operation::Delta { .. }))
    }

    /// Fails if only a newer version can make the bytes of an entry of this index.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the kind of operation.
    pub fn check_known(&self, entry: &ContainerEntry) -> Result<()> {
        if !self.has_unknown {
            return Ok(());
        }
        self.operations(entry).iter().try_for_each(Operation::check_known)
    }

    /// Similarity features of an entry of this index: 48 bits of hash, above them 8 bits of position.
    pub fn features(&self, entry: &ContainerEntry) -> &[u64] {
        &self.features[entry.features.range()]
    }

    /// Digest of the operations of an entry of this index.
    pub fn digest(&self, entry: &ContainerEntry) -> u64 {
        operations_digest(self.operations(entry), &self.bases)
    }

    /// Position of the first entry with this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<u32> {
        self.with_fingerprint(fingerprint).next()
    }

    /// Positions of the entries with this fingerprint, ascending.
    fn with_fingerprint(&self, fingerprint: &Fingerprint) -> impl Iterator<Item = u32> {
        let prefix = fingerprint.prefix();
        let first = self.by_prefix.partition_point(|known| known.0 < prefix);
        let same_prefix = self.by_prefix[first..].iter().take_while(move |known| known.0 == prefix);
        same_prefix.map(|known| known.1).filter(|position| self.entries[*position as usize].fingerprint == *fingerprint)
    }

    /// Position of the first entry with this fingerprint that `accepts` takes.
    pub fn find_where(&self, fingerprint: &Fingerprint, accepts: impl Fn(&ContainerEntry, u32) -> bool) -> Option<u32> {
        let mut positions = self.with_fingerprint(fingerprint).take(ENCODINGS_MAX);
        positions.find(|position| self.entries.get(*position as usize).is_some_and(|entry| accepts(entry, *position)))
    }

    /// Position of the entry with this fingerprint and operations digest.
    pub fn find_encoding(&self, base: &Base) -> Option<u32> {
        self.find_where(&base.fingerprint, |entry, _| self.digest(entry) == base.digest)
    }

    /// The bases of an entry, each once.
    pub fn bases_of(&self, entry: &ContainerEntry) -> Vec<Base> {
        let bases = self.operations(entry).iter().filter_map(|operation| operation.source());
        let mut numbers: Vec<u32> = bases.map(|(base, _)| base).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().filter_map(|number| self.bases.get(number as usize).copied()).collect()
    }

    /// The bases that have no entry here.
    pub fn bases_elsewhere(&self) -> Vec<Base> {
        self.bases.iter().filter(|base| self.find_encoding(base).is_none()).copied().collect()
    }

    /// Approximate memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * (size_of::<ContainerEntry>() + size_of::<(u64, u32)>())
            + self.frames.len() * size_of::<FrameInfo>()
            + self.bases.len() * size_of::<Base>()
            + self.operations.len() * size_of::<Operation>()
            + self.features.len() * 8
    }

    fn index(mut self) -> Self {
        let positions = self.entries.iter().zip(0..);
        self.by_prefix = positions.map(|(entry, position)| (entry.fingerprint.prefix(), position)).collect();
        self.by_prefix.sort_unstable();
        self
    }
}

/// The fields of a new entry, without its operations.
#[derive(Debug, Clone, Copy)]
pub struct EntryFields {
    /// Name of the chunk.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of the literal bytes, as a position in the container index.
    pub frame: u32,
    /// Offset of the literal bytes in the decoded frame.
    pub literal_offset: u32,
    /// Number of literal bytes.
    pub literal_len: u32,
    /// Depth of the chain.
    pub depth: u8,
}

/// Collects the container index of a container that is being written.
#[derive(Debug, Default)]
pub struct ContainerIndexBuilder {
    index: ContainerIndex,
    base_numbers: HashMap<Base, u32>,
}

impl ContainerIndexBuilder {
    /// Adds a frame and returns its position.
    ///
    /// # Errors
    /// [`Error::Internal`] if a reader would refuse the frame; nothing is added then.
    pub fn push_frame(&mut self, info: FrameInfo) -> Result<u32> {
        check_frame(info.raw_len.into(), info.stored_len.into()).map_err(|violation| defect("a frame", violation))?;
        check_count("frames", self.index.frames.len() + 1, columns::FRAMES_LIMIT)?;
        self.index.frames.push(info);
        Ok(self.index.frames.len() as u32 - 1)
    }

    /// Adds an entry. Features beyond [`FEATURES_MAX`] are dropped.
    ///
    /// # Errors
    /// [`Error::Internal`] if a reader would refuse the entry; nothing is added then.
    pub fn push_entry(&mut self, fields: EntryFields, list: &OperationList, features: &[u64]) -> Result<()> {
        check_entry(&fields, list, &self.index.frames)
            .map_err(|violation| defect(&format!("an entry of chunk {}", fields.fingerprint), violation))?;
        let index = &mut self.index;
        check_count("entries", index.entries.len() + 1, columns::ENTRIES_LIMIT)?;
        check_count("operations", index.operations.len() + list.operations.len(), columns::OPERATIONS_LIMIT)?;
        check_count("bases", index.bases.len() + list.bases.len(), columns::BASES_LIMIT)?;
        check_count("features", index.features.len() + features.len().min(FEATURES_MAX), columns::FEATURES_LIMIT)?;
        let mut number_of = |base: &Base| {
            *self.base_numbers.entry(*base).or_insert_with(|| {
                index.bases.push(*base);
                index.bases.len() as u32 - 1
            })
        };
        let numbers: Vec<u32> = list.bases.iter().map(&mut number_of).collect();
        let operations = Span { start: index.operations.len() as u32, len: list.operations.len() as u32 };
        let renumbered = list.operations.iter().map(|operation| operation.with_base(|base| numbers[base as usize]));
        index.operations.extend(renumbered);
        let features_start = index.features.len() as u32;
        index.features.extend(features.iter().take(FEATURES_MAX));
        let features = Span { start: features_start, len: index.features.len() as u32 - features_start };
        let EntryFields { fingerprint, raw_len, frame, literal_offset, literal_len, depth } = fields;
        index.entries.push(ContainerEntry {
            fingerprint,
            raw_len,
            frame,
            literal_offset,
            literal_len,
            depth,
            operations,
            features,
        });
        Ok(())
    }

    /// Entries so far.
    pub fn entries(&self) -> &[ContainerEntry] {
        &self.index.entries
    }

    /// Frames so far.
    pub fn frames(&self) -> &[FrameInfo] {
        &self.index.frames
    }

    /// The encoded container index.
    pub fn encode(&self) -> Result<Vec<u8>> {
        columns::encode(&self.index)
    }

    /// The container index in memory.
    pub fn finish(self) -> ContainerIndex {
        self.index.index()
    }
}

/// Checks that a reader accepts a container index with `count` of `what`.
fn check_count(what: &str, count: usize, limit: u64) -> Result<()> {
    if count as u64 <= limit {
        return Ok(());
    }
    Err(Error::internal(format!("a container index of {count} {what} cannot be stored: at most {limit}")))
}

fn defect(what: &str, violation: Violation) -> Error {
    let Violation { expected, found } = violation;
    Error::internal(format!("{what} cannot be stored: expected {expected}, found {found}"))
}

#[cfg(test)]
#[path = "container_index_tests.rs"]
mod tests;
