//! Masked: a mask of changed groups of 64 elements, and the elements of these groups as in mode 3.
//!
//! | bytes | meaning |
//! |---|---|
//! | a plane of [`crate::codec::floats`] | the mask: bit `g`, lowest bit of a byte first, is set if group `g` changed |
//! | the rest | the elements of the changed groups, as in mode 3 |
//!
//! The last group may be shorter. Mask bits beyond it are zero.

use super::context;
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::wire::WireReader;

/// Elements of a group.
const GROUP_ELEMENTS: usize = 64;

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct MaskedBuffers {
    mask: Vec<u8>,
    raw: Vec<u8>,
    base: Vec<u8>,
    context: context::ContextBuffers,
}

/// Appends the encoding of `raw`, which has as many elements as `base`.
pub(super) fn encode(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut MaskedBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let group = GROUP_ELEMENTS * element_type.width();
    let MaskedBuffers { mask, raw: changed, base: changed_base, context } = buffers;
    mask.clear();
    changed.clear();
    changed_base.clear();
    for (raw, base) in raw.chunks(8 * group).zip(base.chunks(8 * group)) {
        let mut bits = 0;
        for (number, (raw, base)) in raw.chunks(group).zip(base.chunks(group)).enumerate() {
            if raw != base {
                bits |= 1 << number;
                changed.extend_from_slice(raw);
                changed_base.extend_from_slice(base);
            }
        }
        mask.push(bits);
    }
    plane::encode(mask, scratch, out)?;
    context::analyse(element_type, changed, changed_base, context).write(context, out);
    Ok(())
}

/// Appends as many elements as `base` has to `out`. Reads all of `reader`.
pub(super) fn decode(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    buffers: &mut super::DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let group = GROUP_ELEMENTS * element_type.width();
    let MaskedBuffers { mask: decoded, raw: changed, .. } = &mut buffers.masked;
    let groups = base.len().div_ceil(group);
    decoded.resize(groups.div_ceil(8), 0);
    let mask = plane::decode(reader, scratch, decoded)?.unwrap_or(decoded.as_slice());
    if !groups.is_multiple_of(8) && mask.last().is_some_and(|last| last >> (groups % 8) != 0) {
        return Err(reader.error(format!("a mask of {groups} groups"), "a longer one"));
    }
    let is_changed = |number: usize| mask.get(number / 8).is_some_and(|bits| bits >> (number % 8) & 1 == 1);
    changed.clear();
    for (number, base) in base.chunks(group).enumerate() {
        if is_changed(number) {
            changed.extend_from_slice(base);
        }
    }
    context::decode(element_type, reader, changed, &mut buffers.context)?;
    let start = out.len();
    out.extend_from_slice(base);
    let mut left = changed.as_slice();
    for (number, out) in out.get_mut(start..).unwrap_or_default().chunks_mut(group).enumerate() {
        if is_changed(number) {
            let (own, more) = left.split_at(out.len().min(left.len()));
            out.copy_from_slice(own);
            left = more;
        }
    }
    Ok(())
}
