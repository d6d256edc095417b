//! Encoding of float frames that are not deltas, as `model.codec` chooses.
//!
//! Each name is a published scheme or fhrd's own. A frame's header names its codec, so readers need no configuration.
//!
//! | name | codec | scheme |
//! |---|---|---|
//! | `floats` | floats | entropy-coded planes of rotated elements |
//! | `planes` | planes | FHRD: low-entropy byte groups with zstd, the others stored |
//! | `all-planes` | planes | FHRD-1: each byte group with zstd |
//! | `zipnn` | floats | ZipNN: planes of rotated elements with Huffman codes, or stored |
//! | `bg4-lz4` | byte groups or LZ4, the smaller | Xet |
//! | `bit-planes` | bit planes | Xet's bit grouping |
//! | `zstd` | zstd | none: as other chunks |

use super::{
    BitPlanes, ByteGroupLayout, ByteGroups, Codec, ElementRows, ElementType, Floats, Lz4, Planes, Scratch, Zstandard,
    floats,
};
use crate::config::FloatCodec;
use crate::error::Result;
use crate::kernel::entropy::EntropyProfile;

/// What the caller knows about the elements of a block before it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockHint {
    /// The layout that identification found.
    Layout(ByteGroupLayout),
    /// The type in a model file; the block starts with a whole element.
    ElementType(ElementType),
    /// The type in a model file, and the rows of the tensor in the block.
    Tensor(ElementType, ElementRows),
}

/// Windows sampled if the width is not known.
const WINDOWS: usize = 512;
/// A byte group below this many bits per byte is low.
const LOW_BITS: f32 = 7.3;

impl BlockHint {
    /// Bytes of an element; predicted from a sample of `raw` if the hint does not say.
    fn width(self, raw: &[u8]) -> usize {
        match self {
            BlockHint::Layout(layout) => layout.width(),
            BlockHint::ElementType(element_type) | BlockHint::Tensor(element_type, _) => match element_type {
                ElementType::Byte | ElementType::Unknown => {
                    ByteGroupLayout::predict(&EntropyProfile::of(raw, WINDOWS), LOW_BITS).0.width()
                }
                element_type => element_type.width(),
            },
        }
    }

    /// The type of the elements, and what is known of their rows.
    fn elements(self) -> (ElementType, ElementRows) {
        match self {
            BlockHint::Tensor(element_type, rows) => (element_type, rows),
            BlockHint::ElementType(element_type) => (element_type, ElementRows::default()),
            BlockHint::Layout(_) => (ElementType::Unknown, ElementRows::default()),
        }
    }
}

impl FloatCodec {
    /// Appends the encoding of `raw` to `out` and returns the codec that made it. `level` is for codecs with zstd.
    ///
    /// # Errors
    /// Errors of the codec.
    pub fn encode(
        self,
        hint: BlockHint,
        raw: &[u8],
        level: i32,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<&'static dyn Codec> {
        match self {
            FloatCodec::Floats => {
                let (element_type, rows) = hint.elements();
                floats::encode_rows(element_type, 0, rows, raw, scratch, out)?;
                Ok(&Floats)
            }
            FloatCodec::Planes => {
                match hint {
                    BlockHint::Layout(layout) => Planes.encode_layout(layout, raw, level, scratch, out)?,
                    BlockHint::ElementType(_) | BlockHint::Tensor(..) => Planes.encode(raw, level, scratch, out)?,
                }
                Ok(&Planes)
            }
            FloatCodec::AllPlanes => {
                Planes.encode_layout(ByteGroupLayout::all(hint.width(raw)), raw, level, scratch, out)?;
                Ok(&Planes)
            }
            FloatCodec::ZipNn => {
                floats::encode_huffman(hint.elements().0, raw, scratch, out)?;
                Ok(&Floats)
            }
            FloatCodec::ByteGroups => smaller(&Lz4, &ByteGroups, raw, scratch, out),
            FloatCodec::BitPlanes => {
                BitPlanes.encode_width(hint.width(raw), raw, scratch, out)?;
                Ok(&BitPlanes)
            }
            FloatCodec::Zstandard => {
                Zstandard.encode(raw, level, scratch, out)?;
                Ok(&Zstandard)
            }
        }
    }
}

/// Appends the shorter of two encodings, or the first if both have the same length. Returns its codec.
fn smaller(
    first: &'static dyn Codec,
    second: &'static dyn Codec,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<&'static dyn Codec> {
    let start = out.len();
    first.encode(raw, 0, scratch, out)?;
    let middle = out.len();
    second.encode(raw, 0, scratch, out)?;
    if out.len() - middle < middle - start {
        out.drain(start..middle);
        return Ok(second);
    }
    out.truncate(middle);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements whose highest byte has few values; the other bytes are noise.
    fn weights(width: usize) -> Vec<u8> {
        let noise = (0..40_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i.wrapping_mul(i) << 20);
        let element = |n: u64| n & 0x00ff_ffff_ffff_ffff | (0x3b + (n >> 61 & 3)) << 56;
        noise.flat_map(|n| element(n).to_le_bytes()[8 - width..].to_vec()).collect()
    }

    #[test]
    fn every_float_codec_round_trips_with_every_hint() {
        for codec in FloatCodec::ALL.iter().copied() {
            for (element_type, width) in [
                (ElementType::Bf16, 2),
                (ElementType::Fp32, 4),
                (ElementType::Fp64, 8),
                (ElementType::Unknown, 4),
                (ElementType::Byte, 1),
            ] {
                let raw = weights(width);
                let layout = ByteGroupLayout::new(width as u8, 1 << (width - 1)).unwrap();
                for hint in [BlockHint::ElementType(element_type), BlockHint::Layout(layout)] {
                    let (mut scratch, mut out, mut back) = (Scratch::default(), b"x".to_vec(), Vec::new());
                    let made = codec.encode(hint, &raw, 1, &mut scratch, &mut out).unwrap();
                    made.decode(&out[1..], raw.len(), &mut scratch, &mut back).unwrap();
                    assert!(back == raw, "{codec} of {hint:?}");
                    let grouped = width < 8 || codec != FloatCodec::ByteGroups;
                    if width > 1 && grouped && codec != FloatCodec::Zstandard {
                        assert!(out.len() < raw.len(), "{codec} of {hint:?}: {} bytes", out.len());
                    }
                }
            }
        }
    }

    #[test]
    fn bg4_lz4_groups_floats_but_not_text() {
        let chosen = |raw: &[u8]| {
            let mut out = Vec::new();
            let codec = FloatCodec::ByteGroups.encode(
                BlockHint::ElementType(ElementType::Fp32),
                raw,
                1,
                &mut Scratch::default(),
                &mut out,
            );
            codec.unwrap().name()
        };
        let constant: Vec<u8> = weights(4).as_chunks().0.iter().flat_map(|[a, b, c, _]| [*a, *b, *c, 0x3c]).collect();
        assert_eq!(chosen(&constant), "bg4-lz4");
        assert_eq!(chosen("it is all the same to me, ".repeat(900).as_bytes()), "lz4");
    }

    #[test]
    fn all_planes_compresses_every_group() {
        for width in [1, 2, 4, 8] {
            let layout = ByteGroupLayout::all(width);
            assert_eq!((layout.width(), u32::from(layout.mask()).count_ones()), (width, width as u32));
        }
        assert_eq!(ByteGroupLayout::all(3), ByteGroupLayout::all(1));
    }
}
