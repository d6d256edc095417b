//! Cast: the base's words in another type, and how the chunk differs from them.
//!
//! A cast tensor is the converted base itself (form 0), or differs from it at few places. The original after its cast
//! lies within half a step of the converted base: the context form codes which place of the step in as many bits as the
//! step has.

use super::{DeltaBuffers, elements};
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::wire::WireReader;

/// From what to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cast {
    /// The chunk is BF16, the base FP32.
    Fp32ToBf16,
    /// The chunk is FP16, the base FP32.
    Fp32ToFp16,
    /// The chunk is FP32, the base BF16.
    Bf16ToFp32,
    /// The chunk is FP32, the base FP16.
    Fp16ToFp32,
}

/// How words were converted.
const ROUNDED: u8 = 0;
const CUT: u8 = 1;
/// Words of a sample.
const SAMPLE: usize = 4096;

impl Cast {
    /// The cast between these types, if there is one.
    pub const fn between(base: ElementType, raw: ElementType) -> Option<Cast> {
        match (base, raw) {
            (ElementType::Fp32, ElementType::Bf16) => Some(Cast::Fp32ToBf16),
            (ElementType::Fp32, ElementType::Fp16) => Some(Cast::Fp32ToFp16),
            (ElementType::Bf16, ElementType::Fp32) => Some(Cast::Bf16ToFp32),
            (ElementType::Fp16, ElementType::Fp32) => Some(Cast::Fp16ToFp32),
            _ => None,
        }
    }

    /// Type of the base's words.
    pub const fn from(self) -> ElementType {
        match self {
            Cast::Fp32ToBf16 | Cast::Fp32ToFp16 => ElementType::Fp32,
            Cast::Bf16ToFp32 => ElementType::Bf16,
            Cast::Fp16ToFp32 => ElementType::Fp16,
        }
    }

    /// Type of the chunk's words.
    pub const fn to(self) -> ElementType {
        match self {
            Cast::Fp32ToBf16 => ElementType::Bf16,
            Cast::Fp32ToFp16 => ElementType::Fp16,
            Cast::Bf16ToFp32 | Cast::Fp16ToFp32 => ElementType::Fp32,
        }
    }

    /// The words of `base` in the other type, no more than `raw_len` bytes need.
    fn convert(self, how: u8, base: &[u8], raw_len: usize, converted: &mut Vec<u8>) {
        let (from, to) = (self.from().width(), self.to().width());
        let words = (base.len() / from).min(raw_len.div_ceil(to));
        let base = base.get(..words * from).unwrap_or_default();
        converted.resize(words * to, 0);
        match self {
            Cast::Fp32ToBf16 if how == CUT => kernel::fp32_to_bf16_truncated(base, converted),
            Cast::Fp32ToBf16 => kernel::fp32_to_bf16(base, converted),
            Cast::Fp32ToFp16 => kernel::fp32_to_fp16(base, converted),
            Cast::Bf16ToFp32 => kernel::bf16_to_fp32(base, converted),
            Cast::Fp16ToFp32 => kernel::fp16_to_fp32(base, converted),
        }
    }

    /// How many of the first words of `raw` are the converted ones of `base`.
    fn agreeing(self, how: u8, base: &[u8], raw: &[u8]) -> usize {
        let width = self.to().width();
        let mut converted = Vec::new();
        self.convert(how, base, raw.len().min(SAMPLE * width), &mut converted);
        let pairs = converted.chunks_exact(width).zip(raw.chunks_exact(width));
        pairs.filter(|(converted, raw)| converted == raw).count()
    }
}

/// Appends how words were converted, and how `raw` follows from those.
pub(super) fn encode(
    cast: Cast,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let agreeing = |how: u8| cast.agreeing(how, base, raw);
    let how = if cast == Cast::Fp32ToBf16 && agreeing(CUT) > agreeing(ROUNDED) { CUT } else { ROUNDED };
    let mut converted = std::mem::take(&mut buffers.converted);
    cast.convert(how, base, raw.len(), &mut converted);
    out.push(how);
    let encoded = elements::encode(cast.to(), raw, &converted, buffers, scratch, out);
    buffers.converted = converted;
    encoded
}

/// Appends the `raw_len` bytes that `reader` and `base` tell.
pub(super) fn decode(
    cast: Cast,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let how = reader.u8()?;
    if how > CUT || (how == CUT && cast != Cast::Fp32ToBf16) {
        return Err(reader.error("a conversion", how.to_string()));
    }
    let mut converted = std::mem::take(&mut buffers.converted);
    cast.convert(how, base, raw_len, &mut converted);
    let decoded = super::decode_form(cast.to(), reader, &converted, raw_len, buffers, scratch, out);
    buffers.converted = converted;
    decoded
}
