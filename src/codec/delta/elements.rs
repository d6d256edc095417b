//! Elements: modes of floats of 2 and 4 bytes, and the choice among them.
//!
//! 1. Counting the differences gives the size of mode 3 except for a few bytes. Mode 3 is written unless 5 says
//!    otherwise.
//! 2. If few elements changed, modes 4 and 2 are tried as well.
//! 3. Mode 1 is tried if its estimate is near or below the size of mode 3, or if windows of the chunk repeat. Mode 2 is
//!    tried if samples of the XOR compress well, given the share of the whole XOR that repeats.
//! 4. If mode 3 saves little, mode 2 is tried without samples: the base is unrelated, and the XOR may be anything.
//! 5. If at most one in eight elements changed, mode 9 is tried first. It may be a little larger than the others, for
//!    it is decoded in a fraction of their time. Where mode 3 cannot be smaller, and neither the chunk nor the changes
//!    repeat, no other mode is tried.
//! 6. Modes 5 and 6 are tried where the lower halves of all FP32 elements are zero, for these cost nothing there.
//! 7. If a sample has many elements that became zero, mode 7 leaves these out, and the others are encoded as above.

use super::payload::{
    CONTEXT, DIFFERENCES, LEVEL, MASKED, PLANES, SAME, SHORT_BYTES, SPARSE, combine, is_prefix, standalone,
    try_smaller, xor,
};
use super::{DeltaBuffers, context, masked, pruned, sparse};
use crate::codec::floats;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::kernel::windows::share_seen_before;
use crate::wire::{WireReader, put_varint};

/// Mode 4 is tried if at most one element in this many changed.
const FEW_SHARE: usize = 20;
/// Mode 9 is tried if at most one element in this many changed.
const SPARSE_SHARE: usize = 8;
/// Mode 9 may be larger than the smallest mode by one in this many bytes.
const SPARSE_TOLERANCE: usize = 32;
/// Mode 2 is tried if mode 3 takes at least this share of the chunk, in quarters.
const LITTLE_QUARTERS: usize = 3;
/// Mode 1 is tried if its estimate is at most this factor of the size of mode 3.
const NEAR_FACTOR: f64 = 1.06;

/// Appends the payload in the smallest mode to `out`.
pub(super) fn encode(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let both = raw.len().min(base.len()) / element_type.width() * element_type.width();
    let elements = raw.get(..both).zip(base.get(..both)).filter(|_| scratch.has_derivations);
    match elements.and_then(|(raw, base)| pruned::pruning(element_type, raw, base)) {
        Some(pruning) => pruned::encode(element_type, pruning, [raw, base], both, buffers, scratch, out),
        None => encode_modes(element_type, raw, base, buffers, scratch, out),
    }
}

/// Appends the payload in the smallest mode but 7.
pub(super) fn encode_modes(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    if is_prefix(raw, base) {
        out.push(SAME);
        return Ok(());
    }
    let start = out.len();
    let is_short = raw.len() <= SHORT_BYTES;
    let width = element_type.width();
    let both = raw.len().min(base.len()) / width * width;
    let ((raw_elements, rest), base_elements) = (raw.split_at(both), base.get(..both).unwrap_or_default());
    let (mut is_few, mut is_near, mut least) = (false, both == 0, raw.len());
    let (mut changes_repeat, mut in_mode_9) = (false, None);
    let DeltaBuffers { context, masked, sparse, combined, trial, windows, .. } = buffers;
    let has_wide_bf16 = element_type == ElementType::Fp32 && has_zero_halves(raw) && has_zero_halves(base);
    if both > 0 {
        let found = context::analyse(element_type, raw_elements, base_elements, context);
        let changed = both / width - found.unchanged;
        is_few = changed * FEW_SHARE <= both / width;
        least = found.bytes;
        let is_sparse = scratch.has_derivations && changed * SPARSE_SHARE <= both / width;
        if is_sparse && append_sparse(element_type, [raw_elements, base_elements, rest], sparse, scratch, out)? {
            let len = out.len() - start;
            changes_repeat = sparse.repeat(len, scratch, trial)?;
            let may_be_smaller = changes_repeat || has_wide_bf16 || floats::repeats(raw);
            if len <= least + least / SPARSE_TOLERANCE && !may_be_smaller {
                return Ok(());
            }
            in_mode_9 = Some(out.split_off(start));
        }
        is_near = floats::estimate(element_type, raw_elements) as f64 <= found.bytes as f64 * NEAR_FACTOR
            || !is_few && scratch.has_derivations && floats::is_dequantised(element_type, raw_elements);
        let encoded = with_rest(element_type, CONTEXT, rest, scratch, out, |out, _| {
            found.write(context, out);
            Ok(())
        });
        encoded?;
    }
    if both > 0 && (is_few || is_short) {
        try_smaller(start, out, trial, |out| {
            with_rest(element_type, MASKED, rest, scratch, out, |out, scratch| {
                masked::encode(element_type, raw_elements, base_elements, masked, scratch, out)
            })
        })?;
    }
    let saves_little = least / LITTLE_QUARTERS >= raw.len() / 4;
    let may_repeat = is_few || is_short || saves_little || changes_repeat;
    let new_share = if may_repeat { 0.0 } else { 1.0 - share_seen_before(raw, base, windows) };
    if may_repeat || xor_seems_smaller(raw, base, new_share, least, [combined, trial], scratch)? {
        try_smaller(start, out, trial, |out| xor(raw, base, combined, scratch, out))?;
    }
    if is_near || is_short || floats::repeats(raw) {
        try_smaller(start, out, trial, |out| standalone(element_type, raw, scratch, out))?;
    }
    if has_wide_bf16 {
        try_planes(start, [raw, base], [combined, trial], scratch, out)?;
    }
    let least = out.len() - start;
    if let Some(payload) = in_mode_9.filter(|payload| payload.len() <= least + least / SPARSE_TOLERANCE) {
        out.truncate(start);
        out.extend_from_slice(&payload);
    }
    Ok(())
}

/// Tries modes 5 and 6.
fn try_planes(
    start: usize,
    [raw, base]: [&[u8]; 2],
    [combined, trial]: [&mut Vec<u8>; 2],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (id, with) in [(PLANES, kernel::xor as fn(&[u8], &[u8], &mut [u8])), (DIFFERENCES, kernel::difference)] {
        try_smaller(start, out, trial, |out| {
            combine(with, raw, base, combined);
            out.push(id);
            floats::encode(ElementType::Unknown, 0, combined, scratch, out)
        })?;
    }
    Ok(())
}

/// Whether all elements are BF16 in four bytes, as scales of quantised BF16 weights are. Tokens of mode 3 would have
/// the zeros of the lower halves.
fn has_zero_halves(elements: &[u8]) -> bool {
    elements.as_chunks::<4>().0.iter().all(|element| element[0] == 0 && element[1] == 0)
}

/// Appends the payload of `[raw, base, rest]` in mode 9. Returns whether it is there: a gap may be too long.
fn append_sparse(
    element_type: ElementType,
    [raw, base, rest]: [&[u8]; 3],
    buffers: &mut sparse::SparseBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let (start, mut is_possible) = (out.len(), false);
    with_rest(element_type, SPARSE, rest, scratch, out, |out, scratch| {
        is_possible = sparse::encode(element_type, raw, base, buffers, scratch, out)?;
        Ok(())
    })?;
    if !is_possible {
        out.truncate(start);
    }
    Ok(is_possible)
}

/// Samples for mode 2, and bytes of a sample.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 2 << 10;
/// Samples may be larger than their share of mode 3 by this factor: long inputs compress better.
const SAMPLE_TOLERANCE: f64 = 1.25;

/// Whether mode 2 seems to take fewer than `least` bytes. Extrapolates from samples; `new_share` is the share of the
/// whole XOR that does not repeat.
fn xor_seems_smaller(
    raw: &[u8],
    base: &[u8],
    new_share: f64,
    least: usize,
    [combined, trial]: [&mut Vec<u8>; 2],
    scratch: &mut Scratch,
) -> Result<bool> {
    combined.clear();
    for number in 0..SAMPLES {
        let start = raw.len().saturating_sub(SAMPLE_BYTES) * number / (SAMPLES - 1);
        let (from, base) = (combined.len(), base.get(start..).unwrap_or_default());
        combined.extend_from_slice(raw.get(start..raw.len().min(start + SAMPLE_BYTES)).unwrap_or_default());
        kernel::xor_assign(combined.get_mut(from..).unwrap_or_default(), base);
    }
    // Without repeats mode 3 is smaller.
    if new_share == 1.0 && !floats::repeats(combined) {
        return Ok(false);
    }
    trial.clear();
    scratch.compress(combined, LEVEL, trial)?;
    let whole = trial.len() as f64 / combined.len().max(1) as f64 * raw.len() as f64 * new_share;
    Ok(whole < least as f64 * SAMPLE_TOLERANCE)
}

/// Appends `mode`, the bytes of `write`, and the encoding of `rest`.
fn with_rest(
    element_type: ElementType,
    mode: u8,
    rest: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>, &mut Scratch) -> Result<()>,
) -> Result<()> {
    out.push(mode);
    if rest.len() < element_type.width() {
        write(out, scratch)?;
        out.extend_from_slice(rest);
        return Ok(());
    }
    let mut own = Vec::new();
    write(&mut own, scratch)?;
    put_varint(out, own.len() as u64);
    out.extend_from_slice(&own);
    floats::encode(element_type, 0, rest, scratch, out)
}

/// Decodes in mode 3 or 9 in place: `content` is the base before, and the chunk, which is as long, afterwards.
pub(super) fn apply(
    element_type: ElementType,
    mode: u8,
    reader: &mut WireReader<'_>,
    content: &mut [u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
) -> Result<()> {
    let whole = content.len() / element_type.width() * element_type.width();
    let (elements, rest) = content.split_at_mut(whole);
    let own_len = reader.remaining().checked_sub(rest.len());
    let own_len = own_len.ok_or_else(|| reader.error(format!("{} more bytes", rest.len()), "fewer"))?;
    let mut own = WireReader::new(super::WHAT, reader.offset(), reader.bytes(own_len)?);
    match mode {
        CONTEXT => context::decode(element_type, &mut own, elements, &mut buffers.context)?,
        SPARSE => sparse::apply(element_type, &mut own, elements, &mut buffers.sparse, scratch)?,
        unknown => return Err(reader.unsupported(format!("delta mode {unknown} in place"))),
    }
    rest.copy_from_slice(reader.bytes(reader.remaining())?);
    Ok(())
}

/// Appends `raw_len` bytes, decoded in mode 3, 4 or 9.
#[expect(clippy::too_many_arguments, reason = "the mode that was read, the input and two work spaces")]
pub(super) fn decode(
    element_type: ElementType,
    mode: u8,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let width = element_type.width();
    let both = raw_len.min(base.len()) / width * width;
    let rest_len = raw_len - both;
    let own_len = match rest_len < width {
        true => reader.remaining().checked_sub(rest_len),
        false => usize::try_from(reader.varint()?).ok(),
    };
    let own_len = own_len.ok_or_else(|| reader.error(format!("{rest_len} more bytes"), "fewer"))?;
    let mut own = WireReader::new(super::WHAT, reader.offset(), reader.bytes(own_len)?);
    let start = out.len();
    let base = base.get(..both).unwrap_or_default();
    if mode == CONTEXT {
        out.extend_from_slice(base);
        context::decode(element_type, &mut own, out.get_mut(start..).unwrap_or_default(), &mut buffers.context)?;
    } else if mode == SPARSE {
        sparse::decode(element_type, &mut own, base, &mut buffers.sparse, scratch, out)?;
    } else {
        masked::decode(element_type, &mut own, base, buffers, scratch, out)?;
    }
    let rest = reader.bytes(reader.remaining())?;
    if rest_len < width {
        out.extend_from_slice(rest);
        return Ok(());
    }
    floats::decode(rest, rest_len, scratch, out)
}
