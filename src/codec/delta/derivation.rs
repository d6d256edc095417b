//! Derivation: how a chunk is derived from its base, and its id on disk.

use super::{Blended, BlockGrid, Cast, Converted, Quantised, Scaled};
use crate::codec::ElementType;

/// How a chunk is derived from its base. Ids are on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// Elements of the same type with small changes.
    Context(ElementType),
    /// Bytes of any kind with small changes.
    Bytes,
    /// Quantised blocks with small changes. On disk these are bytes.
    Blocks(BlockGrid),
    /// XOR and zstd only (BitX).
    Xor,
    /// The base's elements converted to another type.
    Cast(Cast),
    /// Quantised blocks of the base's elements.
    Quantised(Quantised),
    /// The base's elements in another float format, for pairs that [`Cast`] does not have.
    Converted(Converted),
    /// A weighted mean of two bases.
    Blended(Blended),
    /// Codes of the base's elements by scales.
    Scaled(Scaled),
}

impl Derivation {
    /// Id of every [`Derivation::Quantised`]. Its payload says which one.
    pub const QUANTISED_ID: u8 = 11;
    /// Id of every [`Derivation::Converted`]. Its payload says which one.
    pub const CONVERTED_ID: u8 = 12;
    /// Id of every [`Derivation::Blended`]. Its payload says which one.
    pub const BLENDED_ID: u8 = 13;
    /// Id of every [`Derivation::Scaled`]. Its payload says which one.
    pub const SCALED_ID: u8 = 14;
    /// Every derivation that its id alone describes.
    pub const ALL: [Derivation; 10] = [
        Derivation::Context(ElementType::Bf16),
        Derivation::Context(ElementType::Fp16),
        Derivation::Context(ElementType::Fp32),
        Derivation::Context(ElementType::Fp64),
        Derivation::Bytes,
        Derivation::Xor,
        Derivation::Cast(Cast::Fp32ToBf16),
        Derivation::Cast(Cast::Fp32ToFp16),
        Derivation::Cast(Cast::Bf16ToFp32),
        Derivation::Cast(Cast::Fp16ToFp32),
    ];

    /// Id on disk.
    pub const fn id(self) -> u8 {
        match self {
            Derivation::Context(ElementType::Bf16) => 1,
            Derivation::Context(ElementType::Fp16) => 2,
            Derivation::Context(ElementType::Fp32) => 3,
            Derivation::Context(ElementType::Fp64) => 4,
            Derivation::Bytes
            | Derivation::Blocks(_)
            | Derivation::Context(ElementType::Byte | ElementType::Unknown) => 5,
            Derivation::Xor => 6,
            Derivation::Cast(Cast::Fp32ToBf16) => 7,
            Derivation::Cast(Cast::Fp32ToFp16) => 8,
            Derivation::Cast(Cast::Bf16ToFp32) => 9,
            Derivation::Cast(Cast::Fp16ToFp32) => 10,
            Derivation::Quantised(_) => Self::QUANTISED_ID,
            Derivation::Converted(_) => Self::CONVERTED_ID,
            Derivation::Blended(_) => Self::BLENDED_ID,
            Derivation::Scaled(_) => Self::SCALED_ID,
        }
    }

    /// The derivation that this id alone describes.
    pub fn of_id(id: u64) -> Option<Derivation> {
        Self::ALL.into_iter().find(|derivation| u64::from(derivation.id()) == id)
    }
}
