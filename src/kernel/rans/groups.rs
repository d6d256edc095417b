//! What the vector kernels have in common: they take whole groups of symbols, one for each lane.

use super::{Decoder, LANES, WORD_BYTES, portable};

/// Bytes of the words that a group takes at most.
pub(super) const GROUP_BYTES: usize = LANES * WORD_BYTES;

/// Has `step` decode each whole group. False where the words end before; else `decoder.words` are those left.
///
/// A step is given the group's contexts, which have no meaning where there is one model, and the words to come. It
/// fills the group and gives the bytes of the words it took, [`GROUP_BYTES`] at most.
#[inline(always)]
pub(super) fn decode_each(
    decoder: &mut Decoder<'_>,
    contexts: &[u8],
    out: &mut [u8],
    mut step: impl FnMut(&[u8; LANES], &[u8; GROUP_BYTES], &mut [u8; LANES]) -> usize,
) -> bool {
    let (contexts, none) = (contexts.as_chunks::<LANES>().0, [0; LANES]);
    let mut groups = out.as_chunks_mut::<LANES>().0.iter_mut().enumerate();
    let mut words = decoder.words;
    while let Some(next) = words.first_chunk() {
        let Some((number, group)) = groups.next() else {
            decoder.words = words;
            return true;
        };
        let taken = step(contexts.get(number).unwrap_or(&none), next, group);
        words = words.get(taken..).unwrap_or_default();
    }
    // The last words, with zeros behind them so that as many as ever can be read.
    let mut last = [0; 2 * GROUP_BYTES];
    last[..words.len()].copy_from_slice(words);
    let mut taken = 0;
    for (number, group) in groups {
        let Some(next) = last.get(taken..).and_then(|rest| rest.first_chunk()) else { return false };
        taken += step(contexts.get(number).unwrap_or(&none), next, group);
        if taken > words.len() {
            return false;
        }
    }
    decoder.words = words.get(taken..).unwrap_or_default();
    true
}

/// Decodes what is left of `out` after the whole groups.
pub(super) fn decode_rest(decoder: &mut Decoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
    let whole = out.len() / LANES * LANES;
    portable::decode(decoder, contexts.get(whole..).unwrap_or_default(), &mut out[whole..])
}
