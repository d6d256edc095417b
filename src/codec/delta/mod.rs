//! Delta: a chunk encoded against a base, in the smallest of several modes.
//!
//! A payload starts with its mode:
//!
//! | mode | then | tried for |
//! |---|---|---|
//! | 0 same | nothing: the chunk is a prefix of the base | always |
//! | 1 standalone | a [`super::floats`] payload | a base that does not seem to help |
//! | 2 XOR | a zstd frame of the XOR of chunk and base | few changes, repeats |
//! | 3 context | differences of elements as tokens, see [`context`] | floats of 2 and 4 bytes |
//! | 4 masked | a mask of changed element groups, and these groups as in mode 3 | few changes |
//! | 5 planes | a [`super::floats`] payload of the XOR of chunk and base | bytes, FP64 |
//! | 6 differences | a [`super::floats`] payload of the byte differences | bytes |
//!
//! In modes 1, 2, 5 and 6 a base shorter than the chunk is padded with zeros. Modes 3 and 4 encode the whole elements
//! that both have. A rest shorter than an element is stored at the end of the payload. For a longer rest, the length of
//! the mode's own bytes (varint) follows the mode, and a [`super::floats`] payload of the rest ends the payload.
//!
//! The payload of a cast starts with one more byte, the conversion of the base's elements: 0 exact, or rounded to
//! nearest with ties to even; 1 truncated. The rest is a payload against the converted base.

mod bytes;
mod cast;
mod context;
mod elements;
mod masked;
#[cfg(test)]
mod tests;

use super::{ElementType, Scratch};
use crate::error::{Error, Result};
use crate::kernel::elements as kernel;
use crate::kernel::windows::WindowTable;
use crate::wire::WireReader;
pub use cast::Cast;

/// How a chunk is derived from its base. Ids are on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// Elements of the same type with small changes.
    Context(ElementType),
    /// Bytes of any kind with small changes.
    Bytes,
    /// XOR and zstd only (BitX).
    Xor,
    /// The base's elements converted to another type.
    Cast(Cast),
}

impl Derivation {
    /// Every derivation with an id of its own.
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
            Derivation::Bytes | Derivation::Context(ElementType::Byte | ElementType::Unknown) => 5,
            Derivation::Xor => 6,
            Derivation::Cast(Cast::Fp32ToBf16) => 7,
            Derivation::Cast(Cast::Fp32ToFp16) => 8,
            Derivation::Cast(Cast::Bf16ToFp32) => 9,
            Derivation::Cast(Cast::Fp16ToFp32) => 10,
        }
    }

    /// The derivation with this id.
    pub fn of_id(id: u8) -> Option<Derivation> {
        Self::ALL.into_iter().find(|derivation| derivation.id() == id)
    }
}

/// Name of a payload in errors.
const WHAT: &str = "delta payload";
/// zstd level of mode 2.
const LEVEL: i32 = 1;
/// Chunks up to this many bytes are encoded in every mode. Samples choose the modes of larger ones.
const SHORT_BYTES: usize = 16 << 10;

const SAME: u8 = 0;
const STANDALONE: u8 = 1;
const XOR: u8 = 2;
const CONTEXT: u8 = 3;
const MASKED: u8 = 4;
const PLANES: u8 = 5;
const DIFFERENCES: u8 = 6;

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct DeltaBuffers {
    context: context::ContextBuffers,
    masked: masked::MaskedBuffers,
    combined: Vec<u8>,
    converted: Vec<u8>,
    trial: Vec<u8>,
    windows: WindowTable,
}

/// Most bytes before the first whole element.
const PHASE_MAX: usize = 7;

/// Appends a tag and the delta of `raw` to `base` to `out`. `phase` bytes (at most 7) precede the first whole element
/// of both.
///
/// The tag is one byte: the derivation id in its low four bits, the phase above. The first `phase` bytes of `raw` follow
/// unchanged, then the payload of [`encode`] for the rest.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_tagged(
    derivation: Derivation,
    phase: usize,
    raw: &[u8],
    base: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let phase = phase.min(PHASE_MAX).min(raw.len()).min(base.len());
    out.push(derivation.id() | (phase as u8) << 4);
    out.extend_from_slice(&raw[..phase]);
    encode(derivation, &raw[phase..], &base[phase..], scratch, out)
}

/// Inverse of [`encode_tagged`]: appends `raw_len` bytes to `out`.
///
/// # Errors
/// Those of [`decode`], and [`Error::Corrupt`] if the phase does not fit.
pub fn decode_tagged(
    tagged: &[u8],
    base: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, tagged);
    let first = reader.u8()?;
    let phase = usize::from(first >> 4);
    let (head, payload) = (reader.bytes(phase)?, reader.bytes(reader.remaining())?);
    let rest = raw_len.checked_sub(phase).zip(base.get(phase..)).filter(|_| phase <= PHASE_MAX);
    let Some((rest_len, base)) = rest else {
        return Err(reader
            .error(format!("at most {PHASE_MAX} bytes before an element_type, in chunk and base"), phase.to_string()));
    };
    out.extend_from_slice(head);
    decode(first & 15, payload, base, rest_len, scratch, out)
}

/// Appends the payload of `raw` against `base` to `out`.
///
/// # Errors
/// Those of zstd, and [`Error::Internal`] for a plane of 4 GiB or more.
pub fn encode(derivation: Derivation, raw: &[u8], base: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut buffers = std::mem::take(&mut scratch.delta);
    let encoded = match derivation {
        Derivation::Context(ElementType::Byte | ElementType::Unknown) | Derivation::Bytes => {
            bytes::encode(ElementType::Unknown, raw, base, &mut buffers, scratch, out)
        }
        Derivation::Context(ElementType::Fp64) => {
            bytes::encode(ElementType::Fp64, raw, base, &mut buffers, scratch, out)
        }
        Derivation::Context(element_type) => elements::encode(element_type, raw, base, &mut buffers, scratch, out),
        Derivation::Xor if is_prefix(raw, base) => {
            out.push(SAME);
            Ok(())
        }
        Derivation::Xor => xor(raw, base, &mut buffers.combined, scratch, out),
        Derivation::Cast(cast) => cast::encode(cast, raw, base, &mut buffers, scratch, out),
    };
    scratch.delta = buffers;
    encoded
}

/// Appends `raw_len` bytes, decoded from `payload` and `base` by the derivation with this id, to `out`.
///
/// The caller has verified the checksum of the payload, so an unknown id or mode means a newer writer.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown id or mode, [`Error::Corrupt`] if `payload` does not decode to `raw_len` bytes.
pub fn decode(
    id: u8,
    payload: &[u8],
    base: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let derivation = Derivation::of_id(id).ok_or_else(|| Error::unsupported(WHAT, format!("derivation {id}")))?;
    let mut buffers = std::mem::take(&mut scratch.delta);
    let mut reader = WireReader::new(WHAT, 0, payload);
    let decoded = match derivation {
        Derivation::Context(element_type) => {
            decode_mode(element_type, &mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Derivation::Bytes | Derivation::Xor => {
            decode_mode(ElementType::Byte, &mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Derivation::Cast(cast) => cast::decode(cast, &mut reader, base, raw_len, &mut buffers, scratch, out),
    };
    scratch.delta = buffers;
    decoded
}

/// Appends `raw_len` bytes to `out`. Reads the mode and all of `reader`.
fn decode_mode(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mode = reader.u8()?;
    let start = out.len();
    match mode {
        SAME => {
            let prefix = base.get(..raw_len);
            out.extend_from_slice(
                prefix.ok_or_else(|| {
                    reader.error(format!("a base of at least {raw_len} bytes"), base.len().to_string())
                })?,
            );
            reader.finish()
        }
        STANDALONE => super::floats::decode(reader.bytes(reader.remaining())?, raw_len, scratch, out),
        XOR | PLANES | DIFFERENCES => {
            let rest = reader.bytes(reader.remaining())?;
            if mode == XOR {
                scratch.decompress(rest, raw_len, out)?;
            } else {
                super::floats::decode(rest, raw_len, scratch, out)?;
            }
            let combined = out.get_mut(start..).unwrap_or_default();
            if mode == DIFFERENCES {
                kernel::add(combined, base)
            } else {
                kernel::xor_in_place(combined, base)
            }
            Ok(())
        }
        CONTEXT | MASKED if matches!(element_type, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32) => {
            elements::decode(element_type, mode, reader, base, raw_len, buffers, scratch, out)
        }
        CONTEXT | MASKED => Err(reader.error("a mode for bytes", mode.to_string())),
        unknown => Err(reader.unsupported(format!("delta mode {unknown}"))),
    }
}

/// Whether the chunk is a prefix of the base.
fn is_prefix(raw: &[u8], base: &[u8]) -> bool {
    base.get(..raw.len()) == Some(raw)
}

/// Fills `combined` with `raw` and `base` combined by `with`. A shorter base is padded with zeros.
fn combine(with: fn(&[u8], &[u8], &mut [u8]), raw: &[u8], base: &[u8], combined: &mut Vec<u8>) {
    combined.clear();
    combined.extend_from_slice(raw);
    with(raw, base, combined);
}

/// Appends a payload in mode 2.
fn xor(raw: &[u8], base: &[u8], combined: &mut Vec<u8>, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    combine(kernel::xor, raw, base, combined);
    out.push(XOR);
    scratch.compress(combined, LEVEL, out)
}

/// Appends a payload in mode 1.
fn standalone(element_type: ElementType, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    out.push(STANDALONE);
    super::floats::encode(element_type, 0, raw, scratch, out)
}

/// Writes to `trial`, then replaces the bytes of `out` from `start` on if there are none or the trial is shorter.
fn try_smaller(
    start: usize,
    out: &mut Vec<u8>,
    trial: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    trial.clear();
    write(trial)?;
    if out.len() == start || trial.len() < out.len() - start {
        out.truncate(start);
        out.extend_from_slice(trial);
    }
    Ok(())
}
