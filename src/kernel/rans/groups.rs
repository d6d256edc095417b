//! Groups of symbols, one for each lane: the part of decoding that the vector loops share.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

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
    let (mut units, mut left) = (decoder.units, decoder.units.len());
    // Zeros follow the last units, so that each step can read as many as it may take.
    let mut last = [0; 2 * GROUP_BYTES];
    let last_len = left.min(GROUP_BYTES - UNIT_BYTES);
    last[..last_len].copy_from_slice(&units[left - last_len..]);
    let mut is_last = false;
    for (number, group) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        if units.len() < GROUP_BYTES && !is_last {
            (units, is_last) = (&last[last_len - units.len()..], true);
        }
        let Some(next) = units.first_chunk() else { return false };
        let taken = step(contexts.get(number).unwrap_or(&none), next, group);
        if taken > left {
            return false;
        }
        units = units.get(taken..).unwrap_or_default();
        left -= taken;
    }
    decoder.units = &decoder.units[decoder.units.len() - left..];
    true
}

/// Decodes the rest of `out` after the whole groups.
pub(super) fn decode_rest(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let whole = out.len() / LANES * LANES;
    portable::decode(decoder, contexts.get(whole..).unwrap_or_default(), &mut out[whole..])
}
