//! Cast: a delta to the base's elements converted to another type.
//!
//! A cast tensor equals the converted base (mode 0) or differs from it in few elements. The original of a cast tensor
//! is within half a step of the converted base. Mode 3 encodes its position in the step, in as many bits as the step
//! has.

use super::{DeltaBuffers, elements, payload};
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::wire::WireReader;

/// Element types of base and chunk.
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

/// Conversions on disk.
const ROUNDED: u8 = 0;
const TRUNCATED: u8 = 1;
/// Elements compared to choose the conversion.
const SAMPLE_ELEMENTS: usize = 4096;

impl Cast {
    /// The cast from `base` to `raw`; `None` if these types have none.
    pub const fn between(base: ElementType, raw: ElementType) -> Option<Cast> {
        match (base, raw) {
            (ElementType::Fp32, ElementType::Bf16) => Some(Cast::Fp32ToBf16),
            (ElementType::Fp32, ElementType::Fp16) => Some(Cast::Fp32ToFp16),
            (ElementType::Bf16, ElementType::Fp32) => Some(Cast::Bf16ToFp32),
            (ElementType::Fp16, ElementType::Fp32) => Some(Cast::Fp16ToFp32),
            _ => None,
        }
    }

    /// Element type of the base.
    pub const fn from(self) -> ElementType {
        match self {
            Cast::Fp32ToBf16 | Cast::Fp32ToFp16 => ElementType::Fp32,
            Cast::Bf16ToFp32 => ElementType::Bf16,
            Cast::Fp16ToFp32 => ElementType::Fp16,
        }
    }

    /// Element type of the chunk.
    pub const fn to(self) -> ElementType {
        match self {
            Cast::Fp32ToBf16 => ElementType::Bf16,
            Cast::Fp32ToFp16 => ElementType::Fp16,
            Cast::Bf16ToFp32 | Cast::Fp16ToFp32 => ElementType::Fp32,
        }
    }

    /// Fills `converted` with the elements of `base` in the other type, at most as many as `raw_len` bytes hold.
    fn convert(self, conversion: u8, base: &[u8], raw_len: usize, converted: &mut Vec<u8>) {
        let (from, to) = (self.from().width(), self.to().width());
        let elements = (base.len() / from).min(raw_len.div_ceil(to));
        let base = base.get(..elements * from).unwrap_or_default();
        converted.resize(elements * to, 0);
        match self {
            Cast::Fp32ToBf16 if conversion == TRUNCATED => kernel::fp32_to_bf16_truncated(base, converted),
            Cast::Fp32ToBf16 => kernel::fp32_to_bf16(base, converted),
            Cast::Fp32ToFp16 => kernel::fp32_to_fp16(base, converted),
            Cast::Bf16ToFp32 => kernel::bf16_to_fp32(base, converted),
            Cast::Fp16ToFp32 => kernel::fp16_to_fp32(base, converted),
        }
    }

    /// Number of leading elements of `raw` in a sample that equal the converted ones of `base`.
    fn agreeing(self, conversion: u8, base: &[u8], raw: &[u8]) -> usize {
        let width = self.to().width();
        let mut converted = Vec::new();
        self.convert(conversion, base, raw.len().min(SAMPLE_ELEMENTS * width), &mut converted);
        let pairs = converted.chunks_exact(width).zip(raw.chunks_exact(width));
        pairs.filter(|(converted, raw)| converted == raw).count()
    }
}

/// Appends the conversion and the payload of `raw` against the converted base.
pub(super) fn encode(
    cast: Cast,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let agreeing = |conversion: u8| cast.agreeing(conversion, base, raw);
    let conversion =
        if cast == Cast::Fp32ToBf16 && agreeing(TRUNCATED) > agreeing(ROUNDED) { TRUNCATED } else { ROUNDED };
    let mut converted = std::mem::take(&mut buffers.converted);
    cast.convert(conversion, base, raw.len(), &mut converted);
    out.push(conversion);
    let encoded = elements::encode(cast.to(), raw, &converted, buffers, scratch, out);
    buffers.converted = converted;
    encoded
}

/// Appends the `raw_len` bytes that `reader` and `base` decode to.
pub(super) fn decode(
    cast: Cast,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let conversion = reader.u8()?;
    if conversion > TRUNCATED {
        return Err(reader.unsupported(format!("conversion {conversion}")));
    }
    if conversion == TRUNCATED && cast != Cast::Fp32ToBf16 {
        return Err(reader.unsupported(format!("conversion {conversion} of these types")));
    }
    let mut converted = std::mem::take(&mut buffers.converted);
    cast.convert(conversion, base, raw_len, &mut converted);
    let decoded = payload::decode_mode(cast.to(), reader, &converted, raw_len, buffers, scratch, out);
    buffers.converted = converted;
    decoded
}
