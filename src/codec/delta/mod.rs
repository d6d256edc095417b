//! Delta: a chunk by how it follows from a base, smallest of several forms.
//!
//! A payload starts with its form:
//!
//! | form | what follows | where it is tried |
//! |---|---|---|
//! | 0 same | nothing: the chunk is the base's front | always |
//! | 1 standalone | a [`super::floats`] payload | where the base seems not to help |
//! | 2 exclusive or | a zstd frame of the chunk and base combined | few changes, repeats |
//! | 3 context | differences of words as tokens, see [`context`] | floats of 2 and 4 bytes |
//! | 4 masked | which groups of words changed, and those as in form 3 | few changes |
//! | 5 planes | a [`super::floats`] payload of the chunk and base combined by exclusive or | bytes, FP64 |
//! | 6 differences | the same of the differences of bytes | bytes |
//!
//! In forms 1, 2, 5 and 6 what the base lacks counts as zeros. Forms 3 and 4 are of the whole words that both have;
//! what is left over, if less than a word, ends the payload as it is, else the form is followed by the length of its
//! own bytes (varint), and the rest is a [`super::floats`] payload.
//!
//! A cast's payload starts with one byte more, how words of the base were converted: 0 exactly or rounded to nearest,
//! ties to even; 1 cut. It goes on as that of a base of the converted words.

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

/// How a chunk follows from its base. Numbers are on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// The same words a little changed.
    Context(ElementType),
    /// Bytes a little changed, whatever they are.
    Bytes,
    /// Exclusive or and zstd, nothing else.
    Xor,
    /// The base's words in another type.
    Cast(Cast),
}

impl Derivation {
    /// All that differ.
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

    /// Its number on disk.
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

    /// The one of this number.
    pub fn of_id(id: u8) -> Option<Derivation> {
        Self::ALL.into_iter().find(|derivation| derivation.id() == id)
    }
}

/// Name in errors.
const WHAT: &str = "delta payload";
/// zstd's level.
const LEVEL: i32 = 1;
/// Chunks up to this many bytes are encoded in every form, larger ones by what samples say.
const SHORT_BYTES: usize = 16 << 10;

const SAME: u8 = 0;
const STANDALONE: u8 = 1;
const XOR: u8 = 2;
const CONTEXT: u8 = 3;
const MASKED: u8 = 4;
const PLANES: u8 = 5;
const DIFFERENCES: u8 = 6;

/// Work space.
#[derive(Default)]
pub(super) struct DeltaBuffers {
    context: context::ContextBuffers,
    masked: masked::MaskedBuffers,
    combined: Vec<u8>,
    converted: Vec<u8>,
    trial: Vec<u8>,
    windows: WindowTable,
}

/// Bytes of a first word that are missing, at most.
const PHASE_MAX: usize = 7;

/// Appends to `out` a derivation and how `raw` follows from `base` by it, where `phase` bytes (at most 7) lie before
/// the first whole word of both: a byte with the derivation's number and, above its lowest four bits, the phase; those
/// bytes of `raw` as they are; what [`encode`] makes of the rest.
///
/// # Errors
/// As for [`encode`].
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
/// As for [`decode`].
pub fn decode_tagged(body: &[u8], base: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, body);
    let first = reader.u8()?;
    let phase = usize::from(first >> 4);
    let (head, payload) = (reader.bytes(phase)?, reader.bytes(reader.remaining())?);
    let rest = raw_len.checked_sub(phase).zip(base.get(phase..)).filter(|_| phase <= PHASE_MAX);
    let Some((rest_len, base)) = rest else {
        return Err(
            reader.error(format!("at most {PHASE_MAX} bytes before a word, in chunk and base"), phase.to_string())
        );
    };
    out.extend_from_slice(head);
    decode(first & 15, payload, base, rest_len, scratch, out)
}

/// Appends to `out` how `raw` follows from `base`.
///
/// # Errors
/// What zstd refuses, or a plane of 4 GiB.
pub fn encode(derivation: Derivation, raw: &[u8], base: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut buffers = std::mem::take(&mut scratch.delta);
    let encoded = match derivation {
        Derivation::Context(ElementType::Byte | ElementType::Unknown) | Derivation::Bytes => {
            bytes::encode(ElementType::Unknown, raw, base, &mut buffers, scratch, out)
        }
        Derivation::Context(ElementType::Fp64) => {
            bytes::encode(ElementType::Fp64, raw, base, &mut buffers, scratch, out)
        }
        Derivation::Context(word) => elements::encode(word, raw, base, &mut buffers, scratch, out),
        Derivation::Xor if is_front(raw, base) => {
            out.push(SAME);
            Ok(())
        }
        Derivation::Xor => xor(raw, base, &mut buffers.combined, scratch, out),
        Derivation::Cast(cast) => cast::encode(cast, raw, base, &mut buffers, scratch, out),
    };
    scratch.delta = buffers;
    encoded
}

/// Appends to `out` the `raw_len` bytes that follow from `base` by the derivation of number `id`.
///
/// # Errors
/// [`Error::Corrupt`] where there is no such number, or `payload` does not tell so many bytes by that base.
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
        Derivation::Context(word) => decode_form(word, &mut reader, base, raw_len, &mut buffers, scratch, out),
        Derivation::Bytes | Derivation::Xor => {
            decode_form(ElementType::Byte, &mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Derivation::Cast(cast) => cast::decode(cast, &mut reader, base, raw_len, &mut buffers, scratch, out),
    };
    scratch.delta = buffers;
    decoded
}

/// Takes all of `reader`, from the form on.
fn decode_form(
    word: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let form = reader.u8()?;
    let start = out.len();
    match form {
        SAME => {
            let front = base.get(..raw_len);
            out.extend_from_slice(front.ok_or_else(|| reader.error("a base as long", base.len().to_string()))?);
            reader.finish()
        }
        STANDALONE => super::floats::decode(reader.bytes(reader.remaining())?, raw_len, scratch, out),
        XOR | PLANES | DIFFERENCES => {
            let rest = reader.bytes(reader.remaining())?;
            if form == XOR {
                scratch.decompress(rest, raw_len, out)?;
            } else {
                super::floats::decode(rest, raw_len, scratch, out)?;
            }
            let combined = out.get_mut(start..).unwrap_or_default();
            if form == DIFFERENCES {
                kernel::add(combined, base)
            } else {
                kernel::xor_in_place(combined, base)
            }
            Ok(())
        }
        CONTEXT | MASKED if matches!(word, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32) => {
            elements::decode(word, form, reader, base, raw_len, buffers, scratch, out)
        }
        _ => Err(reader.error("a form", form.to_string())),
    }
}

fn is_front(raw: &[u8], base: &[u8]) -> bool {
    base.get(..raw.len()) == Some(raw)
}

/// `raw` and `base` combined in `combined`; what the base lacks is zero.
fn combine(with: fn(&[u8], &[u8], &mut [u8]), raw: &[u8], base: &[u8], combined: &mut Vec<u8>) {
    combined.clear();
    combined.extend_from_slice(raw);
    with(raw, base, combined);
}

/// Appends form 2.
fn xor(raw: &[u8], base: &[u8], combined: &mut Vec<u8>, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    combine(kernel::xor, raw, base, combined);
    out.push(XOR);
    scratch.compress(combined, LEVEL, out)
}

/// Appends form 1.
fn standalone(word: ElementType, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    out.push(STANDALONE);
    super::floats::encode(word, 0, raw, scratch, out)
}

/// Has `write` append to `trial`, and replaces what is in `out` from `start` on if that is larger, or nothing.
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
