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
    /// Its encoding: [`body_digest`] of its body.
    pub digest: u64,
}

/// One piece of a body. Lengths and offsets in bytes; `base` counts in the list of bases that goes with the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// The next literal bytes of the chunk.
    Literal {
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

impl Piece {
    /// Bytes of the chunk, or of what it is a delta to, that this piece makes.
    pub fn len(&self) -> u32 {
        match self {
            Piece::Literal { len }
            | Piece::Copy { len, .. }
            | Piece::LiteralCopy { len, .. }
            | Piece::Delta { len, .. } => *len,
        }
    }
    /// Kind as stored.
    pub fn kind(&self) -> u8 {
        match self {
            Piece::Literal { .. } => 0,
            Piece::Copy { .. } => 1,
            Piece::LiteralCopy { .. } => 2,
            Piece::Delta { .. } => 3,
        }
    }
    /// Base and offset in it, of all but literals.
    pub fn source(&self) -> Option<(u32, u32)> {
        match *self {
            Piece::Literal { .. } => None,
            Piece::Copy { base, offset, .. }
            | Piece::LiteralCopy { base, offset, .. }
            | Piece::Delta { base, offset, .. } => Some((base, offset)),
        }
    }
    /// The same with another base number.
    pub fn with_base(self, number: impl FnOnce(u32) -> u32) -> Piece {
        match self {
            Piece::Literal { len } => Piece::Literal { len },
            Piece::Copy { base, offset, len } => Piece::Copy { base: number(base), offset, len },
            Piece::LiteralCopy { base, offset, len } => Piece::LiteralCopy { base: number(base), offset, len },
            Piece::Delta { base, offset, len } => Piece::Delta { base: number(base), offset, len },
        }
    }
    /// Whether it makes no bytes; such pieces are invalid.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pieces with their bases; no pieces at all means that the whole chunk is literal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Body {
    /// In order; empty for a whole chunk.
    pub pieces: Vec<Piece>,
    /// What the pieces' `base` counts in.
    pub bases: Vec<Base>,
}

/// Digest of a chunk stored whole.
pub const WHOLE_DIGEST: u64 = 0;

/// Bytes that a copy adds to what is digested.
const PIECE_BYTES: usize = 49;

/// 64-bit name of an encoding: [`WHOLE_DIGEST`] for a whole chunk, else the first eight bytes of BLAKE3 over the
/// pieces (kind `u8`, length, and for copies base fingerprint, base digest, offset), never zero.
pub fn body_digest(pieces: &[Piece], bases: &[Base]) -> u64 {
    if pieces.is_empty() {
        return WHOLE_DIGEST;
    }
    // One call for all: hashing many bytes at once is several times faster than a few at a time.
    let mut bytes = Vec::with_capacity(pieces.len() * PIECE_BYTES);
    for piece in pieces {
        bytes.push(piece.kind());
        bytes.extend_from_slice(&piece.len().to_le_bytes());
        if let Some((base, offset)) =
            piece.source().and_then(|(base, offset)| Some((bases.get(base as usize)?, offset)))
        {
            bytes.extend_from_slice(&base.fingerprint.0);
            bytes.extend_from_slice(&base.digest.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
    }
    Fingerprint(*blake3::hash(&bytes).as_bytes()).prefix().max(1)
}
