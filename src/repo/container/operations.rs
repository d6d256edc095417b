//! Bodies: how a chunk's bytes are put together.
//!
//! A body is a list of pieces that cover the chunk from its first byte to its last: literal bytes, which lie one
//! after another in the chunk's frame, copies from another chunk's content, and copies from another chunk's literal
//! bytes (those of a chunk that was flattened because its chain had become too long). The body of a delta names ranges
//! of bases only; the literal bytes say how the chunk differs from them. A base is named as an entry: its fingerprint
//! and the digest of its body. A digest covers the digests of the bases, so references are acyclic by construction.

use crate::types::Fingerprint;

/// A chunk that others copy from, named as one encoding of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Base {
    /// Its content.
    pub fingerprint: Fingerprint,
    /// Its encoding: [`operations_digest`] of its body.
    pub digest: u64,
}

/// One piece of a body. Lengths and offsets in bytes; `base` counts in the list of bases that goes with the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The next literal bytes of the chunk.
    Add {
        /// How many.
        len: u32,
    },
    /// A range of a base's content.
    Copy {
        /// Which base.
        base: u32,
        /// Offset in its content.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// A range of a base's literal bytes.
    LiteralCopy {
        /// Which base.
        base: u32,
        /// Offset in its literal bytes.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// A range of a base's content from which the chunk is derived: all such pieces, one after another, are what the
    /// chunk's literal bytes are a delta to. A body has them alone or not at all.
    Delta {
        /// Which base.
        base: u32,
        /// Offset in its content.
        offset: u32,
        /// Bytes.
        len: u32,
    },
}

impl Operation {
    /// Bytes of the chunk, or of what it is a delta to, that this piece makes.
    pub fn len(&self) -> u32 {
        match self {
            Operation::Add { len }
            | Operation::Copy { len, .. }
            | Operation::LiteralCopy { len, .. }
            | Operation::Delta { len, .. } => *len,
        }
    }
    /// Kind as stored.
    pub fn kind(&self) -> u8 {
        match self {
            Operation::Add { .. } => 0,
            Operation::Copy { .. } => 1,
            Operation::LiteralCopy { .. } => 2,
            Operation::Delta { .. } => 3,
        }
    }
    /// Base and offset in it, of all but literals.
    pub fn source(&self) -> Option<(u32, u32)> {
        match *self {
            Operation::Add { .. } => None,
            Operation::Copy { base, offset, .. }
            | Operation::LiteralCopy { base, offset, .. }
            | Operation::Delta { base, offset, .. } => Some((base, offset)),
        }
    }
    /// The same with another base number.
    pub fn with_base(self, number: impl FnOnce(u32) -> u32) -> Operation {
        match self {
            Operation::Add { len } => Operation::Add { len },
            Operation::Copy { base, offset, len } => Operation::Copy { base: number(base), offset, len },
            Operation::LiteralCopy { base, offset, len } => Operation::LiteralCopy { base: number(base), offset, len },
            Operation::Delta { base, offset, len } => Operation::Delta { base: number(base), offset, len },
        }
    }
    /// Whether it makes no bytes; such pieces are invalid.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pieces with their bases; no pieces at all means that the whole chunk is literal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationList {
    /// In order; empty for a whole chunk.
    pub operations: Vec<Operation>,
    /// What the pieces' `base` counts in.
    pub bases: Vec<Base>,
}

/// Digest of a chunk stored whole.
pub const WHOLE_DIGEST: u64 = 0;

/// Bytes that a copy adds to what is digested.
const OPERATION_BYTES: usize = 49;

/// 64-bit name of an encoding: [`WHOLE_DIGEST`] for a whole chunk, else the first eight bytes of BLAKE3 over the
/// pieces (kind `u8`, length, and for copies base fingerprint, base digest, offset), never zero.
pub fn operations_digest(operations: &[Operation], bases: &[Base]) -> u64 {
    if operations.is_empty() {
        return WHOLE_DIGEST;
    }
    // One call for all: hashing many bytes at once is several times faster than a few at a time.
    let mut bytes = Vec::with_capacity(operations.len() * OPERATION_BYTES);
    for operation in operations {
        bytes.push(operation.kind());
        bytes.extend_from_slice(&operation.len().to_le_bytes());
        if let Some((base, offset)) =
            operation.source().and_then(|(base, offset)| Some((bases.get(base as usize)?, offset)))
        {
            bytes.extend_from_slice(&base.fingerprint.0);
            bytes.extend_from_slice(&base.digest.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
    }
    Fingerprint(*blake3::hash(&bytes).as_bytes()).prefix().max(1)
}
