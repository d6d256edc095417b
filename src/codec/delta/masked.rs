//! Masked: which groups of 64 words changed, and the words of those alone as in the context form.
//!
//! | bytes | what |
//! |---|---|
//! | | bit `g` of the mask: group `g` changed, the lowest bit of a byte first; a plane of [`crate::codec::floats`] |
//! | the rest | the words of the groups that changed, as in the context form |
//!
//! The last group may be shorter. Bits beyond it are zero.

use super::context;
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::wire::WireReader;

/// Words of a group.
const GROUP: usize = 64;

/// Work space.
#[derive(Default)]
pub(super) struct MaskedBuffers {
    mask: Vec<u8>,
    raw: Vec<u8>,
    base: Vec<u8>,
    context: context::ContextBuffers,
}

/// Appends the encoding of the words of `raw`, as many as `base` has.
pub(super) fn encode(
    word: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut MaskedBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let group = GROUP * word.width();
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
    context::analyse(word, changed, changed_base, context).write(context, out);
    Ok(())
}

/// Appends the words that follow from those of `base`; takes all that `reader` has.
pub(super) fn decode(
    word: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    buffers: &mut super::DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let group = GROUP * word.width();
    let MaskedBuffers { mask: decoded, raw: changed, base: changed_base, .. } = &mut buffers.masked;
    let groups = base.len().div_ceil(group);
    decoded.resize(groups.div_ceil(8), 0);
    let mask = plane::decode(reader, scratch, decoded)?.unwrap_or(decoded.as_slice());
    if !groups.is_multiple_of(8) && mask.last().is_some_and(|last| last >> (groups % 8) != 0) {
        return Err(reader.error(format!("a mask of {groups} groups"), "a longer one"));
    }
    let is_changed = |number: usize| mask.get(number / 8).is_some_and(|bits| bits >> (number % 8) & 1 == 1);
    changed_base.clear();
    for (number, base) in base.chunks(group).enumerate() {
        if is_changed(number) {
            changed_base.extend_from_slice(base);
        }
    }
    changed.resize(changed_base.len(), 0);
    context::decode(word, reader, changed_base, &mut buffers.context, changed)?;
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
