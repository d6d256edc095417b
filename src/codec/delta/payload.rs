//! Payload: encodes and decodes the modes that are common to all derivations.

use super::{
    DeltaBuffers, Derivation, WHAT, blended, bytes, cast, classes, converted, elements, listing, pruned, quantised,
    scaled,
};
use crate::codec::{ElementType, Scratch, floats};
use crate::error::{Error, Result};
use crate::kernel::{elements as kernel, float_mode};
use crate::wire::WireReader;

/// zstd level of mode 2.
pub(super) const LEVEL: i32 = 1;
/// Chunks up to this many bytes are encoded in every mode. Samples choose the modes of larger ones.
pub(super) const SHORT_BYTES: usize = 16 << 10;

/// Modes on disk; never reused.
pub(super) const SAME: u8 = 0;
const STANDALONE: u8 = 1;
const XOR: u8 = 2;
pub(super) const CONTEXT: u8 = 3;
pub(super) const MASKED: u8 = 4;
pub(super) const PLANES: u8 = 5;
pub(super) const DIFFERENCES: u8 = 6;
pub(super) const PRUNED: u8 = 7;
pub(super) const CLASSES: u8 = 8;
pub(super) const SPARSE: u8 = 9;
pub(super) const LISTING: u8 = 10;

/// Appends the payload of `raw` against `base` to `out`.
///
/// # Errors
/// Errors of zstd, and [`Error::Internal`] for a plane of 4 GiB or more.
pub fn encode(derivation: Derivation, raw: &[u8], base: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut buffers = scratch.delta.take().unwrap_or_default();
    let encoded = float_mode::with_ieee(|| match derivation {
        Derivation::Context(ElementType::Byte | ElementType::Unknown) | Derivation::Bytes => {
            bytes::encode(ElementType::Unknown, None, [raw, base], &mut buffers, scratch, out)
        }
        Derivation::Context(ElementType::Fp64) => {
            bytes::encode(ElementType::Fp64, None, [raw, base], &mut buffers, scratch, out)
        }
        Derivation::Blocks(blocks) => {
            bytes::encode(ElementType::Unknown, Some(blocks), [raw, base], &mut buffers, scratch, out)
        }
        Derivation::Context(element_type) => elements::encode(element_type, raw, base, &mut buffers, scratch, out),
        Derivation::Xor if is_prefix(raw, base) => {
            out.push(SAME);
            Ok(())
        }
        Derivation::Xor => xor(raw, base, &mut buffers.combined, scratch, out),
        Derivation::Cast(cast) => cast::encode(cast, raw, base, &mut buffers, scratch, out),
        Derivation::Quantised(blocks) => quantised::encode(blocks, raw, base, &mut buffers, scratch, out),
        Derivation::Converted(types) => converted::encode(types, [raw, base], &mut buffers, scratch, out),
        Derivation::Blended(blended) => blended::encode(blended, [raw, base], &mut buffers, scratch, out),
        Derivation::Scaled(scaled) => scaled::encode(scaled, [raw, base], &mut buffers, scratch, out),
    });
    scratch.delta = Some(buffers);
    encoded
}

/// Appends `raw_len` bytes, decoded from `payload` and `base` by the derivation with this id, to `out`.
///
/// The caller has verified the checksum of the payload, so an unknown id or mode means a newer writer.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown id or mode, [`Error::Corrupt`] if `payload` does not decode to `raw_len`
/// bytes.
pub fn decode(
    id: impl Into<u64>,
    payload: &[u8],
    base: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let id = id.into();
    let derivation = Derivation::of_id(id);
    let mut buffers = scratch.delta.take().unwrap_or_default();
    let mut reader = WireReader::new(WHAT, 0, payload);
    let decoded = float_mode::with_ieee(|| match derivation {
        None if id == u64::from(Derivation::QUANTISED_ID) => {
            quantised::decode(&mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        None if id == u64::from(Derivation::CONVERTED_ID) => {
            converted::decode(&mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        None if id == u64::from(Derivation::BLENDED_ID) => {
            blended::decode(&mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        None if id == u64::from(Derivation::SCALED_ID) => {
            scaled::decode(&mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Some(Derivation::Context(element_type)) => {
            decode_mode(element_type, &mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Some(Derivation::Bytes | Derivation::Xor) => {
            decode_mode(ElementType::Byte, &mut reader, base, raw_len, &mut buffers, scratch, out)
        }
        Some(Derivation::Cast(cast)) => cast::decode(cast, &mut reader, base, raw_len, &mut buffers, scratch, out),
        // No id alone describes the others.
        _ => Err(Error::unsupported(WHAT, format!("derivation {id}"))),
    });
    scratch.delta = Some(buffers);
    decoded
}

/// Like [`decode`], in place: `content` is the base before, and the chunk, which is as long, afterwards. Returns
/// `false`, and changes nothing, for derivations and modes other than 0, 3 and 9 of floats of 2 and 4 bytes.
///
/// # Errors
/// Errors of [`decode`]. `content` may then be neither base nor chunk.
pub fn apply(id: impl Into<u64>, payload: &[u8], content: &mut [u8], scratch: &mut Scratch) -> Result<bool> {
    let mut reader = WireReader::new(WHAT, 0, payload);
    let Some(Derivation::Context(element_type @ (ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32))) =
        Derivation::of_id(id.into())
    else {
        return Ok(false);
    };
    let mode = reader.u8()?;
    match mode {
        SAME => return reader.finish().map(|()| true),
        CONTEXT | SPARSE => {}
        _ => return Ok(false),
    }
    let mut buffers = scratch.delta.take().unwrap_or_default();
    let decoded =
        float_mode::with_ieee(|| elements::apply(element_type, mode, &mut reader, content, &mut buffers, scratch));
    scratch.delta = Some(buffers);
    decoded.map(|()| true)
}

/// Appends `raw_len` bytes to `out`. Reads the mode and all of `reader`.
pub(super) fn decode_mode(
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
        STANDALONE => floats::decode(reader.bytes(reader.remaining())?, raw_len, scratch, out),
        XOR | PLANES | DIFFERENCES => {
            let rest = reader.bytes(reader.remaining())?;
            if mode == XOR {
                scratch.decompress(rest, raw_len, out)?;
            } else {
                floats::decode(rest, raw_len, scratch, out)?;
            }
            let combined = out.get_mut(start..).unwrap_or_default();
            if mode == DIFFERENCES {
                kernel::add(combined, base)
            } else {
                kernel::xor_assign(combined, base)
            }
            Ok(())
        }
        CONTEXT | MASKED | SPARSE
            if matches!(element_type, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32) =>
        {
            elements::decode(element_type, mode, reader, base, raw_len, buffers, scratch, out)
        }
        CLASSES if element_type == ElementType::Byte => classes::decode(reader, base, raw_len, buffers, scratch, out),
        LISTING if element_type == ElementType::Byte => listing::decode(reader, base, raw_len, out),
        PRUNED if matches!(element_type, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32) => {
            pruned::decode(element_type, reader, base, raw_len, buffers, scratch, out)
        }
        unknown => Err(reader.unsupported(format!("delta mode {unknown}"))),
    }
}

/// Whether the chunk is a prefix of the base.
pub(super) fn is_prefix(raw: &[u8], base: &[u8]) -> bool {
    base.get(..raw.len()) == Some(raw)
}

/// Fills `combined` with `raw` and `base` combined by `with`. A shorter base is padded with zeros.
pub(super) fn combine(with: fn(&[u8], &[u8], &mut [u8]), raw: &[u8], base: &[u8], combined: &mut Vec<u8>) {
    combined.clear();
    combined.extend_from_slice(raw);
    with(raw, base, combined);
}

/// Appends a payload in mode 2.
pub(super) fn xor(
    raw: &[u8],
    base: &[u8],
    combined: &mut Vec<u8>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    combine(kernel::xor, raw, base, combined);
    out.push(XOR);
    scratch.compress(combined, LEVEL, out)
}

/// Appends a payload in mode 1.
pub(super) fn standalone(
    element_type: ElementType,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.push(STANDALONE);
    floats::encode(element_type, 0, raw, scratch, out)
}

/// Writes to `trial`, then replaces the bytes of `out` from `start` on if there are none or the trial is shorter.
pub(super) fn try_smaller(
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
