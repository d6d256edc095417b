//! Operations: how to make the bytes of a chunk.
//!
//! An operation list covers the chunk from its first byte to its last. It adds literal bytes, which the chunk's frame
//! holds one after another, and copies ranges of other chunks. A literal copy takes a range of another chunk's literal
//! bytes: it replaces copies when a chain has become too long. A delta only names ranges of bases, and the literal
//! bytes encode the difference from them.
//!
//! A kind that this version does not know has a base and an offset if it is below 128. So the kinds and bases of all
//! other operations can be read, and only the entries with such an operation cannot.
//!
//! A base is identified as an entry: by its fingerprint and the digest of its operations. A digest covers the digests
//! of the bases, so references cannot form a cycle.

use crate::error::{Error, Result};
use crate::types::Fingerprint;

/// Identity of an entry that other entries refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Base {
    /// Name of the chunk.
    pub fingerprint: Fingerprint,
    /// [`operations_digest`] of the entry.
    pub digest: u64,
}

/// One step that makes part of a chunk. Lengths and offsets are in bytes; `base` counts in the list of bases that
/// belongs to the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The next literal bytes of the chunk.
    Add {
        /// Number of bytes.
        len: u32,
    },
    /// A range of a base's content.
    Copy {
        /// Position of the base.
        base: u32,
        /// Offset in its content.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
    /// A range of a base's literal bytes.
    LiteralCopy {
        /// Position of the base.
        base: u32,
        /// Offset in its literal bytes.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
    /// A range of a base's content that the chunk is a delta to. All such ranges, one after another, are the base of
    /// the delta in the literal bytes. An operation list has only deltas or none.
    Delta {
        /// Position of the base.
        base: u32,
        /// Offset in its content.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
    /// An operation of a newer version. Its entry cannot be read.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Position of its base, and an offset there, if its kind has them.
        base: Option<(u32, u32)>,
        /// Its length.
        len: u32,
    },
}

/// What an operation takes from its base. It decides which other entry of the same chunk serves where the base is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BaseUse {
    /// Content, decoded: any other entry serves.
    Content,
    /// Ranges of the content, which are copied from its frames: any other entry serves but a delta.
    Ranges,
    /// The literal bytes of the entry itself: no other serves.
    Literals,
}

/// Kinds from this one on have neither a base nor an offset, as adds.
const KINDS_WITHOUT_BASE: u8 = 128;

/// Whether operations of a kind have a base and an offset, also if this version does not know the kind.
pub(super) fn has_base(kind: u8) -> bool {
    kind != 0 && kind < KINDS_WITHOUT_BASE
}

impl Operation {
    /// Number of bytes of the chunk, or of the base of a delta.
    pub fn len(&self) -> u32 {
        match self {
            Operation::Add { len }
            | Operation::Copy { len, .. }
            | Operation::LiteralCopy { len, .. }
            | Operation::Delta { len, .. }
            | Operation::Unknown { len, .. } => *len,
        }
    }

    /// Kind as stored.
    pub fn kind(&self) -> u8 {
        match self {
            Operation::Add { .. } => 0,
            Operation::Copy { .. } => 1,
            Operation::LiteralCopy { .. } => 2,
            Operation::Delta { .. } => 3,
            Operation::Unknown { kind, .. } => *kind,
        }
    }

    /// Fails for an operation of a newer version.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn check_known(&self) -> Result<()> {
        match self {
            Operation::Unknown { kind, .. } => {
                Err(Error::unsupported("chunk operations", format!("kind of operation {kind}")))
            }
            _ => Ok(()),
        }
    }

    /// Base and offset in it; `None` for an add.
    pub fn source(&self) -> Option<(u32, u32)> {
        match *self {
            Operation::Add { .. } => None,
            Operation::Copy { base, offset, .. }
            | Operation::LiteralCopy { base, offset, .. }
            | Operation::Delta { base, offset, .. } => Some((base, offset)),
            Operation::Unknown { base, .. } => base,
        }
    }

    /// Its use of its base, if it has one.
    pub fn base_use(&self) -> BaseUse {
        match self {
            Operation::Delta { .. } => BaseUse::Content,
            Operation::LiteralCopy { .. } => BaseUse::Literals,
            _ => BaseUse::Ranges,
        }
    }

    /// The same operation with another base number.
    pub fn with_base(self, number: impl FnOnce(u32) -> u32) -> Operation {
        match self {
            Operation::Add { len } => Operation::Add { len },
            Operation::Copy { base, offset, len } => Operation::Copy { base: number(base), offset, len },
            Operation::LiteralCopy { base, offset, len } => Operation::LiteralCopy { base: number(base), offset, len },
            Operation::Delta { base, offset, len } => Operation::Delta { base: number(base), offset, len },
            Operation::Unknown { kind, base, len } => {
                Operation::Unknown { kind, base: base.map(|(base, offset)| (number(base), offset)), len }
            }
        }
    }

    /// Whether it makes no bytes. Empty operations are invalid.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Operations with their bases. Without operations the whole chunk is literal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationList {
    /// In order of the chunk's bytes; empty for a whole chunk.
    pub operations: Vec<Operation>,
    /// The list in which `base` of an operation counts.
    pub bases: Vec<Base>,
}

/// Digest of a chunk that is stored whole.
pub const WHOLE_DIGEST: u64 = 0;

/// Bytes that a copy adds to the digested bytes.
const OPERATION_BYTES: usize = 49;

/// 64-bit digest of an operation list, never zero: the first eight bytes of BLAKE3 over all operations (kind `u8` and
/// length, then for copies base fingerprint, base digest and offset). It is [`WHOLE_DIGEST`] for a whole chunk.
pub fn operations_digest(operations: &[Operation], bases: &[Base]) -> u64 {
    if operations.is_empty() {
        return WHOLE_DIGEST;
    }
    // One call for all operations: BLAKE3 is several times faster on long input.
    let mut bytes = Vec::with_capacity(operations.len() * OPERATION_BYTES);
    for operation in operations {
        bytes.push(operation.kind());
        bytes.extend_from_slice(&operation.len().to_le_bytes());
        if let Some((base, offset)) = operation.source() {
            let base = &bases[base as usize];
            bytes.extend_from_slice(&base.fingerprint.0);
            bytes.extend_from_slice(&base.digest.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
    }
    Fingerprint(*blake3::hash(&bytes).as_bytes()).prefix().max(1)
}
