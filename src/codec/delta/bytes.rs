//! Bytes: chunk and base combined byte by byte, for quantised tensors, integers and anything else.
//!
//! Forms 5, 6 and 2 are tried on stretches, and form 1 with them; the best is taken for all. Form 2 is tried besides
//! where windows of what it compresses come again anywhere. Short chunks are tried whole.

use super::{DIFFERENCES, DeltaBuffers, PLANES, SHORT_BYTES, combine, is_front, standalone, try_smaller, xor};
use crate::codec::{ElementType, Scratch, floats};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::kernel::windows::share_seen_before;

/// Stretches of a sample, and their bytes.
const STRETCHES: usize = 4;
const STRETCH_BYTES: usize = 4 << 10;
/// Forms there are, and which of them is form 2.
const FORMS: usize = 4;
const XOR_AT: usize = 1;

/// Appends the smallest form to `out`.
pub(super) fn encode(
    word: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    if is_front(raw, base) {
        out.push(super::SAME);
        return Ok(());
    }
    let mut trial = std::mem::take(&mut buffers.trial);
    let start = out.len();
    let forms = match raw.len() <= SHORT_BYTES {
        true => [true; FORMS],
        false => promising(word, raw, base, &mut trial, buffers, scratch)?,
    };
    for form in (0..FORMS).filter(|form| forms.get(*form) == Some(&true)) {
        try_smaller(start, out, &mut trial, |out| encode_form(form, word, raw, base, buffers, scratch, out))?;
    }
    buffers.trial = trial;
    Ok(())
}

fn encode_form(
    form: usize,
    word: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (number, with) = match form {
        0 => return standalone(word, raw, scratch, out),
        XOR_AT => return xor(raw, base, &mut buffers.combined, scratch, out),
        2 => (PLANES, kernel::xor as fn(&[u8], &[u8], &mut [u8])),
        _ => (DIFFERENCES, kernel::difference as fn(&[u8], &[u8], &mut [u8])),
    };
    combine(with, raw, base, &mut buffers.combined);
    out.push(number);
    floats::encode(word, 0, &buffers.combined, scratch, out)
}

/// The forms to try, by stretches: the smallest, and those next to it.
fn promising(
    word: ElementType,
    raw: &[u8],
    base: &[u8],
    trial: &mut Vec<u8>,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
) -> Result<[bool; FORMS]> {
    let (mut raw_sample, mut base_sample) = (Vec::new(), Vec::new());
    for number in 0..STRETCHES {
        // On a grid of eight bytes, so that words stay whole.
        let at = (raw.len() - STRETCH_BYTES) / 8 * number / (STRETCHES - 1) * 8;
        raw_sample.extend_from_slice(raw.get(at..at + STRETCH_BYTES).unwrap_or_default());
        base_sample
            .extend_from_slice(base.get(at.min(base.len())..base.len().min(at + STRETCH_BYTES)).unwrap_or_default());
        base_sample.resize(raw_sample.len(), 0);
    }
    let mut sizes = [0; FORMS];
    for (form, size) in sizes.iter_mut().enumerate() {
        trial.clear();
        encode_form(form, word, &raw_sample, &base_sample, buffers, scratch, trial)?;
        *size = trial.len();
    }
    let least = sizes.iter().min().copied().unwrap_or(0);
    let enough = least + least / 32;
    let mut is_promising = sizes.map(|size| size <= enough);
    // What came before takes next to nothing.
    let new_share = 1.0 - share_seen_before(raw, base, &mut buffers.windows);
    is_promising[XOR_AT] |= sizes[XOR_AT] as f64 * new_share <= enough as f64;
    Ok(is_promising)
}
