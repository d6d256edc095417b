//! Bytes: deltas of quantised tensors, integers, FP64 and unknown types, byte by byte.
//!
//! 1. A short chunk is encoded in modes 1, 2, 5 and 6, and the smallest is kept.
//! 2. For a longer one, the modes encode four samples. Those within 1/32 of the smallest encode the whole chunk.
//! 3. The size of mode 8 follows from counts of the whole chunk. It encodes the chunk if that is smaller.
//! 4. Mode 2 also encodes the whole chunk if it may win by repeats that are too far apart for the samples.

use super::payload::{
    CLASSES, DIFFERENCES, PLANES, SAME, SHORT_BYTES, combine, is_prefix, standalone, try_smaller, xor,
};
use super::{BlockGrid, DeltaBuffers, classes};
use crate::codec::{ElementType, Scratch, floats};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::kernel::windows::share_seen_before;

/// Samples of a chunk, and bytes of a sample.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 4 << 10;
/// Number of candidate modes, and position of mode 2 among them.
const MODES: usize = 4;
const XOR_AT: usize = 1;
/// Mode 8 alone encodes the chunk if counts expect it to take less than the others by one part in so many.
const CLASSES_WIN: usize = 16;

/// Appends the payload in the smallest mode to `out`.
pub(super) fn encode(
    element_type: ElementType,
    blocks: Option<BlockGrid>,
    [raw, base]: [&[u8]; 2],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    if is_prefix(raw, base) {
        out.push(SAME);
        return Ok(());
    }
    let mut trial = std::mem::take(&mut buffers.trial);
    let start = out.len();
    let has_classes = scratch.has_derivations && element_type == ElementType::Unknown;
    let plan = has_classes.then(|| classes::plan(blocks, raw, base, buffers));
    let (modes, least) = match raw.len() <= SHORT_BYTES {
        true => ([true; MODES], usize::MAX),
        false => promising(element_type, raw, base, &mut trial, buffers, scratch)?,
    };
    let enough = if least == usize::MAX { 0 } else { least / CLASSES_WIN * (CLASSES_WIN - 1) };
    let wins = plan.as_ref().is_some_and(|plan| plan.codes + plan.scales / 2 < enough);
    let modes = if wins { [false; MODES] } else { modes };
    for mode in (0..MODES).filter(|mode| modes.get(*mode) == Some(&true)) {
        try_smaller(start, out, &mut trial, |out| encode_mode(mode, element_type, raw, base, buffers, scratch, out))?;
    }
    if let Some(plan) = plan.filter(|plan| wins || plan.codes < out.len() - start) {
        try_smaller(start, out, &mut trial, |out| {
            out.push(CLASSES);
            classes::encode(&plan, blocks, [raw, base], buffers, scratch, out)
        })?;
    }
    buffers.trial = trial;
    Ok(())
}

/// Appends the payload in candidate mode `mode`.
fn encode_mode(
    mode: usize,
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (id, with) = match mode {
        0 => return standalone(element_type, raw, scratch, out),
        XOR_AT => return xor(raw, base, &mut buffers.combined, scratch, out),
        2 => (PLANES, kernel::xor as fn(&[u8], &[u8], &mut [u8])),
        _ => (DIFFERENCES, kernel::difference as fn(&[u8], &[u8], &mut [u8])),
    };
    combine(with, raw, base, &mut buffers.combined);
    out.push(id);
    floats::encode(element_type, 0, &buffers.combined, scratch, out)
}

/// Candidate modes that encode the whole chunk: the smallest on the samples, and those close to it. Also about the
/// bytes of the smallest one.
fn promising(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    trial: &mut Vec<u8>,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
) -> Result<([bool; MODES], usize)> {
    let (mut raw_sample, mut base_sample) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        // Samples start at multiples of eight bytes, so elements stay whole.
        let at = (raw.len() - SAMPLE_BYTES) / 8 * number / (SAMPLES - 1) * 8;
        raw_sample.extend_from_slice(raw.get(at..at + SAMPLE_BYTES).unwrap_or_default());
        base_sample
            .extend_from_slice(base.get(at.min(base.len())..base.len().min(at + SAMPLE_BYTES)).unwrap_or_default());
        base_sample.resize(raw_sample.len(), 0);
    }
    let mut sizes = [0; MODES];
    for (mode, size) in sizes.iter_mut().enumerate() {
        trial.clear();
        encode_mode(mode, element_type, &raw_sample, &base_sample, buffers, scratch, trial)?;
        *size = trial.len();
    }
    let least = sizes.iter().min().copied().unwrap_or(0);
    let enough = least + least / 32;
    let mut is_promising = sizes.map(|size| size <= enough);
    // Repeats cost mode 2 almost nothing.
    let new_share = 1.0 - share_seen_before(raw, base, &mut buffers.windows);
    let xor_least = sizes[XOR_AT] as f64 * new_share;
    is_promising[XOR_AT] |= xor_least <= enough as f64;
    let part = xor_least.min(least as f64) / raw_sample.len() as f64;
    Ok((is_promising, (part * raw.len() as f64) as usize))
}
