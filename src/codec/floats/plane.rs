//! Plane: one run of bytes in its cheapest form.
//!
//! 1. A plane of one value is that value.
//! 2. A sample of runs tells the entropy; a plane near eight bits is stored, unless it repeats itself.
//! 3. Where the sample has few bits, or windows of it repeat, stretches are compressed with zstd; where that beats
//!    the entropy clearly, so is the plane.
//! 4. Otherwise the plane is counted. It is entropy-coded with rANS, or with a prefix code, which is decoded twice as
//!    fast, where that takes hardly more; where symbols have many bits only if some of them, being noise, may be left
//!    out of the code. If neither saves enough, the plane is stored.
//! 5. Of a long plane a quarter is counted first. If a prefix code is best by that, it is made of it, and every symbol
//!    between the least and the greatest of the plane has a word, too; else, or if that is many, all is counted.

use crate::codec::Scratch;
use crate::codec::entropy::{frequency_table, prefix_code};
use crate::error::{Error, Result};
use crate::kernel::counts::{self, ValueRange};
use crate::kernel::entropy::entropy_bits;
use crate::kernel::prefix::{self, PrefixCode};
use crate::kernel::rans::{self, FrequencyTable};
use crate::wire::WireReader;

/// Forms on disk.
pub(super) const STORED: u8 = 0;
const CONSTANT: u8 = 1;
const ENTROPY: u8 = 2;
const ZSTD: u8 = 3;
const PREFIX: u8 = 4;

/// Bits of a model.
const MODEL_BITS: u32 = 12;
/// Bytes that an encoding has besides its symbols' bits: states, length, and about what a model takes.
const ENTROPY_BYTES: f64 = 190.0;
/// Bytes that a prefix encoding has besides its symbols' bits: lengths of streams, and about what a code takes.
const PREFIX_BYTES: f64 = 40.0;
/// Bytes per symbol that a prefix encoding may be longer than the other.
const PREFIX_LOSS: f64 = 0.01;
/// Codes of more bits per symbol are not used: too few symbols are looked up at once.
const PREFIX_BITS_MAX: f32 = 4.0;
/// Planes of so many bytes, at least, are counted in part: stretches of so many bytes, one in so many.
const SAMPLED_MIN: usize = 64 << 10;
const STRETCH_BYTES: usize = 4 << 10;
const STRETCH_SHARE: usize = 4;
/// Symbols that were not seen in a part and have a word all the same, at most.
const UNSEEN_MAX: usize = 16;
/// Bytes copied at a time: for more, libraries may take an instruction that some processors are slow at where two
/// places are nearly alike in their page, as they are here.
const COPIED_BYTES: usize = 1 << 10;
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
        let coder = PlaneCoder::choose(plane, &mut scratch.highs);
        if coder.cost_bytes() < plane.len() as f64 * WORTH {
            coder.encode(plane, scratch, out)?;
            if out.len() - start <= plane.len() {
                return Ok(());
            }
            out.truncate(start);
        }
    }
    out.push(STORED);
    out.reserve(plane.len());
    plane.chunks(COPIED_BYTES).for_each(|bytes| out.extend_from_slice(bytes));
    Ok(())
}

/// How a plane is entropy-coded, and in about how many bytes.
enum PlaneCoder {
    Rans { model: Box<FrequencyTable>, cost_bytes: f64 },
    Prefix { code: Box<PrefixCode>, low_bits: u32, cost_bytes: f64 },
}

impl PlaneCoder {
    fn choose(plane: &[u8], sample: &mut Vec<u8>) -> PlaneCoder {
        if plane.len() >= SAMPLED_MIN {
            sample.clear();
            for stretch in plane.chunks(STRETCH_BYTES * STRETCH_SHARE) {
                sample.extend_from_slice(stretch.get(..STRETCH_BYTES).unwrap_or(stretch));
            }
            let coder = Self::of_counts(&rans::count(sample), plane.len(), Some(counts::value_range(plane)));
            if matches!(coder, PlaneCoder::Prefix { .. }) {
                return coder;
            }
        }
        Self::of_counts(&rans::count(plane), plane.len(), None)
    }

    /// The coder for so many symbols of which all were counted, or a part, and then within this span are all of them.
    fn of_counts(counts: &[u32; 256], symbols: usize, span: Option<ValueRange>) -> PlaneCoder {
        let counted = f64::from(counts.iter().sum::<u32>().max(1));
        let bytes = |bits: f64| bits / 8.0 * symbols as f64 / counted;
        let model = FrequencyTable::of_counts(counts, MODEL_BITS);
        let cost_bytes = bytes(model.cost_bits(counts)) + ENTROPY_BYTES;
        let allowed = cost_bytes + symbols as f64 * PREFIX_LOSS;
        for low_bits in low_bits(counts) {
            let mut counts = without_lows(counts, low_bits);
            if span.is_some_and(|span| count_unseen(span, low_bits, &mut counts) > UNSEEN_MAX) {
                continue;
            }
            let code = PrefixCode::of_counts(&counts);
            let bits = code.cost_bits(&counts) as f64 + f64::from(low_bits) * counted;
            let cost_bytes = bytes(bits) + PREFIX_BYTES;
            if cost_bytes < allowed {
                return PlaneCoder::Prefix { code: Box::new(code), low_bits, cost_bytes };
            }
        }
        PlaneCoder::Rans { model: Box::new(model), cost_bytes }
    }

    fn cost_bytes(&self) -> f64 {
        match self {
            PlaneCoder::Rans { cost_bytes, .. } | PlaneCoder::Prefix { cost_bytes, .. } => *cost_bytes,
        }
    }

    fn encode(&self, plane: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        match self {
            PlaneCoder::Rans { model, .. } => framed(ENTROPY, out, |out| {
                frequency_table::write(model, out);
                rans::encode(plane, &[], std::slice::from_ref(model.as_ref()), out);
                Ok(())
            }),
            PlaneCoder::Prefix { code, low_bits: 0, .. } => framed(PREFIX, out, |out| {
                out.push(0);
                prefix_code::write(code, out);
                prefix::encode(plane, code, out);
                Ok(())
            }),
            PlaneCoder::Prefix { code, low_bits, .. } => framed(PREFIX, out, |out| {
                out.push(*low_bits as u8);
                let start = out.len();
                out.resize(start + prefix::low_bits_len(plane.len(), *low_bits), 0);
                scratch.highs.resize(plane.len(), 0);
                prefix::split_low_bits(plane, *low_bits, &mut scratch.highs, out.get_mut(start..).unwrap_or_default());
                prefix_code::write(code, out);
                prefix::encode(&scratch.highs, code, out);
                Ok(())
            }),
        }
    }
}

/// How many of the lowest bits of symbols a prefix code may leave out, the best first: none where there are few bits,
/// otherwise as many as possible, and enough.
fn low_bits(counts: &[u32; 256]) -> impl Iterator<Item = u32> {
    let is_fast = |low_bits: &u32| entropy_bits(&without_lows(counts, *low_bits)) <= PREFIX_BITS_MAX;
    let most = if is_fast(&0) { 0 } else { prefix::LOW_BITS_MAX };
    (0..=most).rev().take_while(is_fast)
}

/// The counts of symbols without their lowest bits.
fn without_lows(counts: &[u32; 256], low_bits: u32) -> [u32; 256] {
    let mut highs = [0; 256];
    for (high, counts) in highs.iter_mut().zip(counts.chunks(1 << low_bits)) {
        *high = counts.iter().sum();
    }
    highs
}

/// Counts each symbol once that was not counted and may be there; gives how many there are. The symbols are those of
/// the span without their lowest bits.
fn count_unseen(span: ValueRange, low_bits: u32, counts: &mut [u32; 256]) -> usize {
    let zero = counts.iter_mut().take(usize::from(span.has_zero));
    let mut unseen = 0;
    zero.filter(|count| **count == 0).for_each(|count| (*count, unseen) = (1, unseen + 1));
    let (least, most) = (usize::from(span.least >> low_bits), usize::from(span.most >> low_bits));
    let others = counts.get_mut(least..=most).unwrap_or_default().iter_mut();
    others.filter(|count| **count == 0).for_each(|count| (*count, unseen) = (1, unseen + 1));
    unseen
}

/// Appends a form, a length, and what `write` appends.
fn framed(form: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    out.push(form);
    let start = out.len() + LENGTH_BYTES;
    out.resize(start, 0);
    write(out)?;
    let length = u32::try_from(out.len() - start)
        .map_err(|_| Error::internal(format!("a plane of {} bytes is too long for one frame", out.len() - start)))?;
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

/// Whether [`encode`] would store the plane, and be sure of it.
pub(super) fn is_noise(plane: &[u8]) -> bool {
    plane.len() > SHORT_BYTES && sampled_bits(plane) >= NOISE_BITS && !repeats(plane)
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
        cost += FrequencyTable::of_counts(&counts, MODEL_BITS).cost_bits(&counts) / 8.0;
        scratch.compress(stretch, LEVEL, out)?;
    }
    // States and tables count once in a plane, and stretches start without what came before.
    let fixed = ENTROPY_BYTES * (stretches * TRIAL_BYTES).min(plane.len()) as f64 / plane.len() as f64;
    let compressed = (out.len() - start) as f64;
    out.truncate(start);
    Ok(compressed < (cost * ZSTD_WORTH + fixed).min(plane.len() as f64))
}

/// Takes one plane as long as `space`: gives it where it is stored in the payload, otherwise fills `space` with it.
pub(in crate::codec) fn decode<'a>(
    reader: &mut WireReader<'a>,
    scratch: &mut Scratch,
    space: &mut [u8],
) -> Result<Option<&'a [u8]>> {
    let form = reader.u8()?;
    match form {
        STORED => return reader.bytes(space.len()).map(Some),
        CONSTANT => space.fill(reader.u8()?),
        ENTROPY | ZSTD | PREFIX => {
            let offset = reader.offset() + LENGTH_BYTES as u64;
            let len = reader.u32()? as usize;
            let bytes = reader.bytes(len)?;
            let mut inner = WireReader::new(super::WHAT, offset, bytes);
            match form {
                ZSTD => scratch.decompress_into(bytes, space)?,
                PREFIX => decode_prefix(&mut inner, space)?,
                _ => decode_rans(&mut inner, space)?,
            }
        }
        _ => return Err(reader.error("a plane's form", form.to_string())),
    }
    Ok(None)
}

/// Fills `space` with what all of the rest is the encoding of.
fn decode_rans(reader: &mut WireReader<'_>, space: &mut [u8]) -> Result<()> {
    let model = frequency_table::read(reader, MODEL_BITS)?;
    let encoding = reader.bytes(reader.remaining())?;
    if !rans::decode(encoding, &[], std::slice::from_ref(&model), space) {
        return Err(reader.error(format!("an encoding of {} bytes", space.len()), "another"));
    }
    Ok(())
}

/// The same.
fn decode_prefix(reader: &mut WireReader<'_>, space: &mut [u8]) -> Result<()> {
    let low_bits = u32::from(reader.u8()?);
    if low_bits > prefix::LOW_BITS_MAX {
        return Err(reader.error(format!("at most {} bits left out", prefix::LOW_BITS_MAX), low_bits.to_string()));
    }
    let lows = reader.bytes(prefix::low_bits_len(space.len(), low_bits))?;
    let code = prefix_code::read(reader)?;
    let encoding = reader.bytes(reader.remaining())?;
    if !prefix::decode(encoding, &code, space) {
        return Err(reader.error(format!("an encoding of {} bytes", space.len()), "another"));
    }
    prefix::join_low_bits(space, low_bits, lows);
    Ok(())
}
