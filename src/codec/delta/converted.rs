//! Converted: a delta to the base's elements in another float format, by way of FP32.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-3: format of the base, bits 4-7: that of the chunk; 1 BF16, 2 FP16, 3 FP32, 4 E4M3, 5 E5M2 |
//! | the rest | a payload against the converted base, of floats, or of bytes if the chunk is FP8 |
//!
//! The type of a tensor does not tell which FP8 it has. The format with more equal elements in a sample is taken.

use super::{DeltaBuffers, bytes, elements, payload};
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::float_format::FloatFormat;
use crate::wire::WireReader;

/// Elements compared to choose the formats.
const SAMPLE_ELEMENTS: usize = 4096;

/// Element types of base and chunk: two different ones of BF16, FP16, FP32 and FP8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Converted {
    from: ElementType,
    to: ElementType,
}

/// The formats that elements of a type may have; none for what is not converted.
pub(super) fn formats(element_type: ElementType) -> &'static [FloatFormat] {
    match element_type {
        ElementType::Bf16 => &[FloatFormat::Bf16],
        ElementType::Fp16 => &[FloatFormat::Fp16],
        ElementType::Fp32 => &[FloatFormat::Fp32],
        ElementType::Byte => &[FloatFormat::E4m3, FloatFormat::E5m2],
        ElementType::Fp64 | ElementType::Unknown => &[],
    }
}

/// Number of a format on disk; never reused.
pub(super) const fn number(format: FloatFormat) -> u8 {
    match format {
        FloatFormat::Bf16 => 1,
        FloatFormat::Fp16 => 2,
        FloatFormat::Fp32 => 3,
        FloatFormat::E4m3 => 4,
        FloatFormat::E5m2 => 5,
    }
}

/// The format with this number.
pub(super) fn of_number(wanted: u8) -> Option<FloatFormat> {
    FloatFormat::ALL.into_iter().find(|format| number(*format) == wanted)
}

/// The type of the codecs that elements of a format have.
pub(super) const fn element_type(format: FloatFormat) -> ElementType {
    match format {
        FloatFormat::Bf16 => ElementType::Bf16,
        FloatFormat::Fp16 => ElementType::Fp16,
        FloatFormat::Fp32 => ElementType::Fp32,
        FloatFormat::E4m3 | FloatFormat::E5m2 => ElementType::Byte,
    }
}

impl Converted {
    /// The conversion from `base` to `raw`; `None` if there is none.
    pub fn between(base: ElementType, raw: ElementType) -> Option<Converted> {
        let is_float = |element_type| !formats(element_type).is_empty();
        (base != raw && is_float(base) && is_float(raw)).then_some(Converted { from: base, to: raw })
    }

    /// Element type of the base.
    pub const fn from(self) -> ElementType {
        self.from
    }

    /// Element type of the chunk.
    pub const fn to(self) -> ElementType {
        self.to
    }
}

/// Formats of the elements of base and chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Formats {
    from: FloatFormat,
    to: FloatFormat,
}

impl Formats {
    /// Fills `converted` with the elements of `base` in the other format, at most as many as `raw_len` bytes hold.
    fn convert(self, base: &[u8], raw_len: usize, wide: &mut Vec<u8>, converted: &mut Vec<u8>) {
        let (from, to) = (self.from.width(), self.to.width());
        let elements = (base.len() / from).min(raw_len.div_ceil(to));
        wide.resize(elements * 4, 0);
        converted.resize(elements * to, 0);
        self.from.widen(base.get(..elements * from).unwrap_or_default(), wide);
        self.to.narrow(wide, converted);
    }

    /// Number of leading elements of `raw` in a sample that equal the converted ones of `base`.
    fn agreeing(self, raw: &[u8], base: &[u8], wide: &mut Vec<u8>, converted: &mut Vec<u8>) -> usize {
        let width = self.to.width();
        self.convert(base, raw.len().min(SAMPLE_ELEMENTS * width), wide, converted);
        let pairs = converted.chunks_exact(width).zip(raw.chunks_exact(width));
        pairs.filter(|(converted, raw)| converted == raw).count()
    }
}

/// Appends the formats and the payload of `raw` against the converted base.
pub(super) fn encode(
    types: Converted,
    [raw, base]: [&[u8]; 2],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut wide, mut converted) = (std::mem::take(&mut buffers.wide), std::mem::take(&mut buffers.converted));
    let mut best: Option<(usize, Formats)> = None;
    for from in formats(types.from) {
        for to in formats(types.to) {
            let formats = Formats { from: *from, to: *to };
            let agreeing = formats.agreeing(raw, base, &mut wide, &mut converted);
            if best.is_none_or(|best| agreeing > best.0) {
                best = Some((agreeing, formats));
            }
        }
    }
    let (_, formats) = best.ok_or_else(|| crate::error::Error::internal("a conversion without formats"))?;
    formats.convert(base, raw.len(), &mut wide, &mut converted);
    out.push(number(formats.from) | number(formats.to) << 4);
    let encoded = match types.to {
        ElementType::Byte => bytes::encode(ElementType::Unknown, None, [raw, &converted], buffers, scratch, out),
        element_type => elements::encode(element_type, raw, &converted, buffers, scratch, out),
    };
    (buffers.wide, buffers.converted) = (wide, converted);
    encoded
}

/// Appends the `raw_len` bytes that `reader` and `base` decode to.
pub(super) fn decode(
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let numbers = reader.u8()?;
    let formats = of_number(numbers & 15).zip(of_number(numbers >> 4)).filter(|(from, to)| from != to);
    let Some((from, to)) = formats else {
        return Err(reader.unsupported(format!("a conversion of formats {} to {}", numbers & 15, numbers >> 4)));
    };
    let (mut wide, mut converted) = (std::mem::take(&mut buffers.wide), std::mem::take(&mut buffers.converted));
    Formats { from, to }.convert(base, raw_len, &mut wide, &mut converted);
    let decoded = payload::decode_mode(element_type(to), reader, &converted, raw_len, buffers, scratch, out);
    (buffers.wide, buffers.converted) = (wide, converted);
    decoded
}
