//! Plane: one run of bytes in its cheapest form.
//!
//! 1. A plane of one value is that value.
//! 2. A sample of runs tells the entropy; a plane near eight bits is stored, unless it repeats itself.
//! 3. Where the sample has few bits, or windows of it repeat, stretches are compressed with zstd; where that beats
//!    the entropy clearly, so is the plane.
//! 4. Otherwise the plane is counted and entropy-coded, if that saves enough.

use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::entropy::entropy_bits;
use crate::kernel::rans::{self, Model};
use crate::wire::Reader;

/// Forms on disk.
pub(super) const STORED: u8 = 0;
const CONSTANT: u8 = 1;
const ENTROPY: u8 = 2;
const ZSTD: u8 = 3;

/// Bits of a model.
const MODEL_BITS: u32 = 12;
/// Bytes that an encoding has besides its symbols' bits: states, length, and about what a model takes.
const ENTROPY_BYTES: f64 = 190.0;
/// Form and length.
const LENGTH_BYTES: usize = 4;
/// Share of a plane's bytes that coding it may leave.
const WORTH: f64 = 0.975;
/// Share of the entropy that zstd may leave.
const ZSTD_WORTH: f64 = 0.95;
/// zstd's level.
const LEVEL: i32 = 1;
/// Runs of a sample, and their bytes.
const RUNS: usize = 64;
const RUN_BYTES: usize = 64;
/// A sample of more bits per byte is taken for noise: the threshold and what a sample of this size may be off.
const NOISE_BITS: f32 = 7.87;
/// A sample of fewer bits per byte is worth a trial with zstd.
const SPARSE_BITS: f32 = 1.2;
/// Bytes of each stretch that zstd is tried on, and where there are more they are this many.
const TRIAL_BYTES: usize = 8 << 10;
const TRIALS: usize = 2;
/// Planes up to this many bytes are tried with zstd whole.
const SHORT_BYTES: usize = 4 << 10;
/// Positions of a window that are looked up for repeats.
const REPEAT_POSITIONS: usize = 1024;
/// Share of them, inverse, that must repeat.
const REPEAT_SHARE: usize = 16;

/// Appends the encoding of `plane` to `out`.
pub(in crate::codec) fn encode(plane: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let Some(first) = plane.first() else {
        out.push(STORED);
        return Ok(());
    };
    if plane.iter().all(|byte| byte == first) {
        out.extend_from_slice(&[CONSTANT, *first]);
        return Ok(());
    }
    let start = out.len();
    let bits = sampled_bits(plane);
    let may_repeat = plane.len() <= SHORT_BYTES || bits < SPARSE_BITS || repeats(plane);
    if may_repeat && zstd_pays(plane, scratch, out)? {
        framed(ZSTD, out, |out| scratch.compress(plane, LEVEL, out))?;
        if out.len() - start <= (plane.len() as f64 * WORTH) as usize {
            return Ok(());
        }
        out.truncate(start);
    }
    if bits < NOISE_BITS || plane.len() <= SHORT_BYTES {
        let counts = rans::count(plane);
        let model = Model::of_counts(&counts, MODEL_BITS);
        if model.cost_bits(&counts) / 8.0 + ENTROPY_BYTES < plane.len() as f64 * WORTH {
            return framed(ENTROPY, out, |out| {
                model.write(out);
                rans::encode(plane, &[], std::slice::from_ref(&model), out);
                Ok(())
            });
        }
    }
    out.push(STORED);
    out.extend_from_slice(plane);
    Ok(())
}

/// Appends a form, a length, and what `write` appends.
fn framed(form: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    out.push(form);
    let start = out.len() + LENGTH_BYTES;
    out.resize(start, 0);
    write(out)?;
    let length = u32::try_from(out.len() - start)
        .map_err(|_| Error::Usage(format!("a plane of {} bytes is too long for one frame", out.len() - start)))?;
    if let Some(slot) = out.get_mut(start - LENGTH_BYTES..start) {
        slot.copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// Entropy of runs from all over the plane.
fn sampled_bits(plane: &[u8]) -> f32 {
    if plane.len() <= RUNS * RUN_BYTES {
        return entropy_bits(&rans::count(plane));
    }
    let mut sample = [[0; RUN_BYTES]; RUNS];
    for (number, run) in sample.iter_mut().enumerate() {
        let from = (plane.len() - RUN_BYTES) / (RUNS - 1) * number;
        *run = plane.get(from..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; RUN_BYTES]);
    }
    entropy_bits(&rans::count(sample.as_flattened()))
}

/// Whether windows of eight bytes come again within a stretch from the plane's middle.
pub(in crate::codec) fn repeats(plane: &[u8]) -> bool {
    let from = (plane.len() / 2).saturating_sub(REPEAT_POSITIONS / 2);
    let stretch = plane.get(from..).unwrap_or_default();
    let mut seen = [0u64; REPEAT_POSITIONS];
    let mut found = 0;
    for window in stretch.windows(8).take(REPEAT_POSITIONS) {
        let value = window.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let hash = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        if let Some(slot) = seen.get_mut(hash) {
            found += usize::from(*slot == value);
            *slot = value;
        }
    }
    found * REPEAT_SHARE > REPEAT_POSITIONS
}

/// Whether zstd makes clearly less of stretches of the plane than their entropy.
fn zstd_pays(plane: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<bool> {
    let start = out.len();
    let mut cost = 0.0;
    let stretches = if plane.len() <= TRIALS * TRIAL_BYTES { 1 } else { TRIALS };
    for number in 0..stretches {
        let bytes = if stretches == 1 { plane.len() } else { TRIAL_BYTES };
        let from = (plane.len() - bytes) / stretches * number;
        let stretch = plane.get(from..from + bytes).unwrap_or_default();
        let counts = rans::count(stretch);
        cost += Model::of_counts(&counts, MODEL_BITS).cost_bits(&counts) / 8.0;
        scratch.compress(stretch, LEVEL, out)?;
    }
    // States and tables count once in a plane, and stretches start without what came before.
    let fixed = ENTROPY_BYTES * (stretches * TRIAL_BYTES).min(plane.len()) as f64 / plane.len() as f64;
    let compressed = (out.len() - start) as f64;
    out.truncate(start);
    Ok(compressed < (cost * ZSTD_WORTH + fixed).min(plane.len() as f64))
}

/// Takes one plane of `words` bytes: those in the payload, or none where they were appended to `decoded`.
pub(in crate::codec) fn decode<'a>(
    reader: &mut Reader<'a>,
    words: usize,
    scratch: &mut Scratch,
    decoded: &mut Vec<u8>,
) -> Result<Option<&'a [u8]>> {
    let form = reader.u8()?;
    match form {
        STORED => return reader.bytes(words).map(Some),
        CONSTANT => {
            let byte = reader.u8()?;
            decoded.resize(decoded.len() + words, byte);
        }
        ENTROPY | ZSTD => {
            let offset = reader.offset() + LENGTH_BYTES as u64;
            let len = reader.u32()? as usize;
            let bytes = reader.bytes(len)?;
            if form == ZSTD {
                scratch.decompress(bytes, words, decoded)?;
            } else {
                let mut inner = Reader::new(super::WHAT, offset, bytes);
                let model = Model::read(&mut inner, MODEL_BITS)?;
                let encoding = inner.bytes(inner.remaining())?;
                let start = decoded.len();
                decoded.resize(start + words, 0);
                let space = decoded.get_mut(start..).unwrap_or_default();
                if !rans::decode(encoding, &[], std::slice::from_ref(&model), space) {
                    return Err(inner.error(format!("an encoding of {words} bytes"), "another"));
                }
            }
        }
        _ => return Err(reader.error("a plane's form", form.to_string())),
    }
    Ok(None)
}
