//! Groups of symbols, one for each lane: the part of decoding that the vector loops share.
#![cfg(target_arch = "x86_64")]

use super::{LANES, RansDecoder, UNIT_BYTES, portable};

/// Most bytes of units that a group takes.
pub(super) const GROUP_BYTES: usize = LANES * UNIT_BYTES;

/// Decodes each whole group with `step`. False if the units end too early; otherwise `decoder.units` are those left.
///
/// The arguments of `step` are the contexts of the group (unspecified if there is one table), the next units, and the
/// group to fill. It returns the bytes of the units that it took, at most [`GROUP_BYTES`].
#[inline(always)]
pub(super) fn decode_each(
    decoder: &mut RansDecoder<'_>,
    contexts: &[u8],
    out: &mut [u8],
    mut step: impl FnMut(&[u8; LANES], &[u8; GROUP_BYTES], &mut [u8; LANES]) -> usize,
) -> bool {
    let (contexts, none) = (contexts.as_chunks::<LANES>().0, [0; LANES]);
    let mut groups = out.as_chunks_mut::<LANES>().0.iter_mut().enumerate();
    let mut units = decoder.units;
    while let Some(next) = units.first_chunk() {
        let Some((number, group)) = groups.next() else {
            decoder.units = units;
            return true;
        };
        let taken = step(contexts.get(number).unwrap_or(&none), next, group);
        units = units.get(taken..).unwrap_or_default();
    }
    // Zeros follow the last units, so that each step can read as many as it may take.
    let mut last = [0; 2 * GROUP_BYTES];
    last[..units.len()].copy_from_slice(units);
    let mut taken = 0;
    for (number, group) in groups {
        let Some(next) = last.get(taken..).and_then(|rest| rest.first_chunk()) else { return false };
        taken += step(contexts.get(number).unwrap_or(&none), next, group);
        if taken > units.len() {
            return false;
        }
    }
    decoder.units = units.get(taken..).unwrap_or_default();
    true
}

/// Decodes the rest of `out` after the whole groups.
pub(super) fn decode_rest(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let whole = out.len() / LANES * LANES;
    portable::decode(decoder, contexts.get(whole..).unwrap_or_default(), &mut out[whole..])
}
