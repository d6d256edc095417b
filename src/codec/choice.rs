//! Choice: how float chunks and blocks of tensors that are no deltas are encoded (`model.codec`). Each name is one
//! scheme of the literature or this program's own; payloads say which codec made them, so readers need none of this.
//!
//! | name | codec | scheme |
//! |---|---|---|
//! | `floats` | floats | entropy-coded planes of turned words |
//! | `planes` | planes | FHRD: low-entropy byte groups with zstd, the others stored |
//! | `all-planes` | planes | FHRD-1, ZipNN: every byte group with zstd, apart |
//! | `bg4-lz4` | byte groups or LZ4, the smaller | Xet |
//! | `bit-planes` | bit planes | Xet's bit grouping |
//! | `zstd` | zstd | none: as other chunks |

use super::{BitPlanes, ByteGroups, Codec, ElementType, Floats, Layout, Lz4, Planes, Scratch, Zstandard, floats};
use crate::error::Result;
use crate::kernel::entropy::EntropyProfile;

/// A codec of float frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatCodec {
    /// Entropy-coded planes.
    Floats,
    /// Low-entropy byte groups.
    Planes,
    /// All byte groups.
    AllPlanes,
    /// GroupHistograms of four, or the bytes as they are.
    ByteGroups,
    /// Bit planes.
    BitPlanes,
    /// No float codec.
    Zstandard,
}

/// What is known of a float frame's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// What identification found.
    Layout(Layout),
    /// The type that a model file says; the frame starts with a whole word.
    ElementType(ElementType),
}

/// Windows sampled where a width is not known.
const WINDOWS: usize = 512;
/// A byte group under this many bits per byte is taken for low.
const LOW_BITS: f32 = 7.3;

impl Known {
    /// Bytes of a word; found by a sample of `raw` where that is not known.
    fn width(self, raw: &[u8]) -> usize {
        match self {
            Known::Layout(layout) => layout.width(),
            Known::ElementType(ElementType::Byte | ElementType::Unknown) => {
                Layout::predict(&EntropyProfile::of(raw, WINDOWS), LOW_BITS).0.width()
            }
            Known::ElementType(word) => word.width(),
        }
    }
}

impl FloatCodec {
    /// The one that `model.codec` calls so.
    pub fn named(name: &str) -> Option<Self> {
        let found = match name {
            "floats" => FloatCodec::Floats,
            "planes" => FloatCodec::Planes,
            "all-planes" => FloatCodec::AllPlanes,
            "bg4-lz4" => FloatCodec::ByteGroups,
            "bit-planes" => FloatCodec::BitPlanes,
            "zstd" => FloatCodec::Zstandard,
            _ => return None,
        };
        Some(found)
    }

    /// Appends the encoding of `raw` to `out`, zstd at `level` where there is any in it; gives the codec it took.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn encode(
        self,
        known: Known,
        raw: &[u8],
        level: i32,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<&'static dyn Codec> {
        match (self, known) {
            (FloatCodec::Floats, Known::ElementType(word)) => floats::encode(word, 0, raw, scratch, out)?,
            (FloatCodec::Floats, Known::Layout(_)) => floats::encode(ElementType::Unknown, 0, raw, scratch, out)?,
            (FloatCodec::Planes, Known::Layout(layout)) => Planes.encode_layout(layout, raw, level, scratch, out)?,
            (FloatCodec::Planes, Known::ElementType(_)) => Planes.encode(raw, level, scratch, out)?,
            (FloatCodec::AllPlanes, _) => {
                Planes.encode_layout(Layout::all(known.width(raw)), raw, level, scratch, out)?;
            }
            (FloatCodec::ByteGroups, _) => return smaller(&Lz4, &ByteGroups, raw, scratch, out),
            (FloatCodec::BitPlanes, _) => BitPlanes.encode_width(known.width(raw), raw, scratch, out)?,
            (FloatCodec::Zstandard, _) => Zstandard.encode(raw, level, scratch, out)?,
        }
        Ok(match self {
            FloatCodec::Floats => &Floats,
            FloatCodec::Planes | FloatCodec::AllPlanes => &Planes,
            FloatCodec::ByteGroups => &ByteGroups,
            FloatCodec::BitPlanes => &BitPlanes,
            FloatCodec::Zstandard => &Zstandard,
        })
    }
}

/// Appends the shorter of two encodings, the first where they are as long.
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
    use crate::config::FLOAT_CODECS;

    /// Words whose highest byte has few values, in noise.
    fn weights(width: usize) -> Vec<u8> {
        let noise = (0..40_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i.wrapping_mul(i) << 20);
        let word = |n: u64| n & 0x00ff_ffff_ffff_ffff | (0x3b + (n >> 61 & 3)) << 56;
        noise.flat_map(|n| word(n).to_le_bytes()[8 - width..].to_vec()).collect()
    }

    #[test]
    fn every_name_is_a_codec_of_its_own_that_comes_back() {
        let mut chosen = Vec::new();
        for name in FLOAT_CODECS {
            let codec = FloatCodec::named(name).unwrap_or_else(|| panic!("{name} is no codec"));
            assert!(!chosen.contains(&codec), "{name}");
            chosen.push(codec);
            for (word, width) in [
                (ElementType::Bf16, 2),
                (ElementType::Fp32, 4),
                (ElementType::Fp64, 8),
                (ElementType::Unknown, 4),
                (ElementType::Byte, 1),
            ] {
                let raw = weights(width);
                let layout = Layout::new(width as u8, 1 << (width - 1)).unwrap();
                for known in [Known::ElementType(word), Known::Layout(layout)] {
                    let (mut scratch, mut out, mut back) = (Scratch::default(), b"x".to_vec(), Vec::new());
                    let made = codec.encode(known, &raw, 1, &mut scratch, &mut out).unwrap();
                    made.decode(&out[1..], raw.len(), &mut scratch, &mut back).unwrap();
                    assert!(back == raw, "{name} of {known:?}");
                    let grouped = width < 8 || codec != FloatCodec::ByteGroups;
                    if width > 1 && grouped && codec != FloatCodec::Zstandard {
                        assert!(out.len() < raw.len(), "{name} of {known:?}: {} bytes", out.len());
                    }
                }
            }
        }
        assert_eq!(FloatCodec::named("bg4"), None);
    }

    #[test]
    fn xet_takes_groups_for_words_and_plain_bytes_for_text() {
        let chosen = |raw: &[u8]| {
            let mut out = Vec::new();
            let codec = FloatCodec::ByteGroups.encode(
                Known::ElementType(ElementType::Fp32),
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
            let layout = Layout::all(width);
            assert_eq!((layout.width(), u32::from(layout.mask()).count_ones()), (width, width as u32));
        }
        assert_eq!(Layout::all(3), Layout::all(1));
    }
}
