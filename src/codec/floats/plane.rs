//! Plane: one byte plane in its cheapest mode.
//!
//! 1. A plane with one value is constant.
//! 2. The entropy of a sample decides for most: a plane near eight bits per byte is stored unless it repeats.
//! 3. If the sample has few bits or windows repeat, zstd compresses samples of the plane. If it is clearly smaller than
//!    their entropy, it compresses the plane.
//! 4. Otherwise the symbols are counted and the plane is entropy-coded: with a prefix code if that costs hardly more
//!    than rANS, because it decodes twice as fast. A prefix code may leave out noisy low bits so that its codes are
//!    short. If neither saves enough, the plane is stored.
//! 5. For a long plane, a quarter is counted first. If a prefix code wins, it is made from these counts, with a code
//!    for every value between the least and the greatest of the plane. If rANS wins or too many values were not
//!    counted, all symbols are counted.

use crate::codec::Scratch;
use crate::codec::entropy::{frequency_table, prefix_code};
use crate::error::{Error, Result};
use crate::kernel::counts::{self, ValueRange};
use crate::kernel::entropy::entropy_bits;
use crate::kernel::prefix::{self, PrefixCode};
use crate::kernel::rans::{self, FrequencyTable};
use crate::wire::WireReader;

/// Modes on disk; never reused.
pub(super) const STORED: u8 = 0;
const CONSTANT: u8 = 1;
const RANS: u8 = 2;
const ZSTD: u8 = 3;
const PREFIX: u8 = 4;

/// Logarithm of the sum of a table's frequencies.
const TABLE_BITS: u32 = 12;
/// Bytes of a rANS encoding besides its symbols: states, length, and an average table.
const RANS_BYTES: f64 = 190.0;
/// Bytes of a prefix encoding besides its symbols: lengths of streams, and an average code.
const PREFIX_BYTES: f64 = 40.0;
/// Bytes per symbol by which a prefix encoding may be longer than rANS.
const PREFIX_LOSS: f64 = 0.01;
/// Most bits per symbol of a prefix code. Longer codes give too few symbols per lookup.
const PREFIX_BITS_MAX: f32 = 4.0;
/// Planes of at least `SAMPLED_MIN` bytes are counted in part: `SAMPLE_BYTES` in each `SAMPLE_SHARE` times as many.
const SAMPLED_MIN: usize = 64 << 10;
const SAMPLE_BYTES: usize = 4 << 10;
const SAMPLE_SHARE: usize = 4;
/// Most symbols that have a code without being counted.
const UNSEEN_MAX: usize = 16;
/// Bytes copied at a time. For longer copies, `memcpy` may use `rep movsb`, which is slow on some processors if source
/// and destination have nearly the same offset in their pages, as here.
const COPIED_BYTES: usize = 1 << 10;
/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;
/// Greatest share of a plane that an encoding may take.
const WORTH: f64 = 0.975;
/// Greatest share of the entropy that zstd may take.
const ZSTD_WORTH: f64 = 0.95;
/// zstd level.
const LEVEL: i32 = 1;
/// Windows of a sample, and bytes of a window.
const WINDOWS: usize = 64;
const WINDOW_BYTES: usize = 64;
/// A sample with at least this many bits per byte is noise: the threshold minus the error of a sample of this size.
const NOISE_BITS: f32 = 7.87;
/// A sample with fewer bits per byte is worth a trial with zstd.
const SPARSE_BITS: f32 = 1.2;
/// Bytes of a sample that zstd is tried on, and samples of a longer plane.
const TRIAL_BYTES: usize = 8 << 10;
const TRIALS: usize = 2;
/// Planes up to this many bytes are always tried with zstd.
const SHORT_BYTES: usize = 4 << 10;
/// Windows looked up for repeats.
const REPEAT_POSITIONS: usize = 1024;
/// One in this many must repeat.
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
        let coder = PlaneCoder::choose(plane, &mut scratch.high_bits);
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

/// Appends `plane` to `out` with a Huffman code if that saves enough, else as it is. A constant plane is its byte.
pub(super) fn encode_huffman(plane: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match plane.first() {
        Some(first) if plane.iter().all(|byte| byte == first) => {
            out.extend_from_slice(&[CONSTANT, *first]);
            return Ok(());
        }
        Some(_) => {}
        None => {
            out.push(STORED);
            return Ok(());
        }
    }
    let counts = counts::count(plane);
    let code = PrefixCode::of_counts(&counts);
    let start = out.len();
    if code.cost_bits(&counts) as f64 / 8.0 + PREFIX_BYTES < plane.len() as f64 * WORTH {
        framed(PREFIX, out, |out| {
            out.push(0);
            prefix_code::write(&code, out);
            prefix::encode(plane, &code, out);
            Ok(())
        })?;
        if out.len() - start <= plane.len() {
            return Ok(());
        }
        out.truncate(start);
    }
    out.push(STORED);
    out.extend_from_slice(plane);
    Ok(())
}

/// Entropy coder of a plane, and the approximate size of its encoding.
enum PlaneCoder {
    Rans { table: Box<FrequencyTable>, cost_bytes: f64 },
    Prefix { code: Box<PrefixCode>, low_bits: u32, cost_bytes: f64 },
}

impl PlaneCoder {
    fn choose(plane: &[u8], sample: &mut Vec<u8>) -> PlaneCoder {
        if plane.len() >= SAMPLED_MIN {
            sample.clear();
            for bytes in plane.chunks(SAMPLE_BYTES * SAMPLE_SHARE) {
                sample.extend_from_slice(bytes.get(..SAMPLE_BYTES).unwrap_or(bytes));
            }
            let coder = Self::of_counts(&counts::count(sample), plane.len(), Some(counts::value_range(plane)));
            if matches!(coder, PlaneCoder::Prefix { .. }) {
                return coder;
            }
        }
        Self::of_counts(&counts::count(plane), plane.len(), None)
    }

    /// The coder for `symbols` symbols from the counts of all of them, or of a part. For a part, `range` holds the
    /// values of all symbols.
    fn of_counts(counts: &[u32; 256], symbols: usize, range: Option<ValueRange>) -> PlaneCoder {
        let counted = f64::from(counts.iter().sum::<u32>().max(1));
        let bytes = |bits: f64| bits / 8.0 * symbols as f64 / counted;
        let table = FrequencyTable::of_counts(counts, TABLE_BITS);
        let cost_bytes = bytes(table.cost_bits(counts)) + RANS_BYTES;
        let allowed = cost_bytes + symbols as f64 * PREFIX_LOSS;
        for low_bits in low_bits(counts) {
            let mut counts = without_low_bits(counts, low_bits);
            if range.is_some_and(|range| count_unseen(range, low_bits, &mut counts) > UNSEEN_MAX) {
                continue;
            }
            let code = PrefixCode::of_counts(&counts);
            let bits = code.cost_bits(&counts) as f64 + f64::from(low_bits) * counted;
            let cost_bytes = bytes(bits) + PREFIX_BYTES;
            if cost_bytes < allowed {
                return PlaneCoder::Prefix { code: Box::new(code), low_bits, cost_bytes };
            }
        }
        PlaneCoder::Rans { table: Box::new(table), cost_bytes }
    }

    fn cost_bytes(&self) -> f64 {
        match self {
            PlaneCoder::Rans { cost_bytes, .. } | PlaneCoder::Prefix { cost_bytes, .. } => *cost_bytes,
        }
    }

    fn encode(&self, plane: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        match self {
            PlaneCoder::Rans { table, .. } => framed(RANS, out, |out| {
                frequency_table::write(table, out);
                rans::encode(plane, &[], std::slice::from_ref(table.as_ref()), out);
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
                scratch.high_bits.resize(plane.len(), 0);
                prefix::split_low_bits(
                    plane,
                    *low_bits,
                    &mut scratch.high_bits,
                    out.get_mut(start..).unwrap_or_default(),
                );
                prefix_code::write(code, out);
                prefix::encode(&scratch.high_bits, code, out);
                Ok(())
            }),
        }
    }
}

/// Numbers of low bits that a prefix code may leave out, best first. Only 0 if the code is short enough without that;
/// otherwise the greatest first.
fn low_bits(counts: &[u32; 256]) -> impl Iterator<Item = u32> {
    let is_fast = |low_bits: &u32| entropy_bits(&without_low_bits(counts, *low_bits)) <= PREFIX_BITS_MAX;
    let most = if is_fast(&0) { 0 } else { prefix::LOW_BITS_MAX };
    (0..=most).rev().take_while(is_fast)
}

/// Counts of the symbols without their lowest bits.
fn without_low_bits(counts: &[u32; 256], low_bits: u32) -> [u32; 256] {
    let mut high_counts = [0; 256];
    for (high, counts) in high_counts.iter_mut().zip(counts.chunks(1 << low_bits)) {
        *high = counts.iter().sum();
    }
    high_counts
}

/// Sets the count of every uncounted symbol in the range to one, and returns their number. Symbols are values without
/// their lowest bits.
fn count_unseen(range: ValueRange, low_bits: u32, counts: &mut [u32; 256]) -> usize {
    let zero = counts.iter_mut().take(usize::from(range.has_zero));
    let mut unseen = 0;
    zero.filter(|count| **count == 0).for_each(|count| (*count, unseen) = (1, unseen + 1));
    let (least, most) = (usize::from(range.least >> low_bits), usize::from(range.most >> low_bits));
    let others = counts.get_mut(least..=most).unwrap_or_default().iter_mut();
    others.filter(|count| **count == 0).for_each(|count| (*count, unseen) = (1, unseen + 1));
    unseen
}

/// Appends a mode, a length and the bytes of `write`.
fn framed(mode: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    out.push(mode);
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

/// Entropy of windows at equal distances, bits per byte.
fn sampled_bits(plane: &[u8]) -> f32 {
    if plane.len() <= WINDOWS * WINDOW_BYTES {
        return entropy_bits(&counts::count(plane));
    }
    let mut sample = [[0; WINDOW_BYTES]; WINDOWS];
    for (number, window) in sample.iter_mut().enumerate() {
        let from = (plane.len() - WINDOW_BYTES) / (WINDOWS - 1) * number;
        *window = plane.get(from..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; WINDOW_BYTES]);
    }
    entropy_bits(&counts::count(sample.as_flattened()))
}

/// Whether [`encode`] certainly stores the plane.
pub(super) fn is_noise(plane: &[u8]) -> bool {
    plane.len() > SHORT_BYTES && sampled_bits(plane) >= NOISE_BITS && !repeats(plane)
}

/// Whether windows of eight bytes repeat in the middle of the plane.
pub(in crate::codec) fn repeats(plane: &[u8]) -> bool {
    let from = (plane.len() / 2).saturating_sub(REPEAT_POSITIONS / 2);
    let bytes = plane.get(from..).unwrap_or_default();
    let mut seen = [0u64; REPEAT_POSITIONS];
    let mut found = 0;
    for window in bytes.windows(8).take(REPEAT_POSITIONS) {
        let value = window.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let hash = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        if let Some(slot) = seen.get_mut(hash) {
            found += usize::from(*slot == value);
            *slot = value;
        }
    }
    found * REPEAT_SHARE > REPEAT_POSITIONS
}

/// Whether zstd compresses samples of the plane to clearly less than their entropy.
fn zstd_pays(plane: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<bool> {
    let start = out.len();
    let mut cost = 0.0;
    let samples = if plane.len() <= TRIALS * TRIAL_BYTES { 1 } else { TRIALS };
    for number in 0..samples {
        let len = if samples == 1 { plane.len() } else { TRIAL_BYTES };
        let from = (plane.len() - len) / samples * number;
        let bytes = plane.get(from..from + len).unwrap_or_default();
        let counts = counts::count(bytes);
        cost += FrequencyTable::of_counts(&counts, TABLE_BITS).cost_bits(&counts) / 8.0;
        scratch.compress(bytes, LEVEL, out)?;
    }
    // A plane has states and a table once, and zstd starts each sample without history.
    let fixed = RANS_BYTES * (samples * TRIAL_BYTES).min(plane.len()) as f64 / plane.len() as f64;
    let compressed = (out.len() - start) as f64;
    out.truncate(start);
    Ok(compressed < (cost * ZSTD_WORTH + fixed).min(plane.len() as f64))
}

/// Decodes one plane of the length of `space`. Returns it if the payload stores it, otherwise fills `space`.
pub(in crate::codec) fn decode<'a>(
    reader: &mut WireReader<'a>,
    scratch: &mut Scratch,
    space: &mut [u8],
) -> Result<Option<&'a [u8]>> {
    let mode = reader.u8()?;
    match mode {
        STORED => return reader.bytes(space.len()).map(Some),
        CONSTANT => space.fill(reader.u8()?),
        RANS | ZSTD | PREFIX => {
            let offset = reader.offset() + LENGTH_BYTES as u64;
            let len = reader.u32()? as usize;
            let bytes = reader.bytes(len)?;
            let mut inner = WireReader::new(super::WHAT, offset, bytes);
            match mode {
                ZSTD => scratch.decompress_into(bytes, space)?,
                PREFIX => decode_prefix(&mut inner, space)?,
                _ => decode_rans(&mut inner, space)?,
            }
        }
        unknown => return Err(reader.unsupported(format!("plane mode {unknown}"))),
    }
    Ok(None)
}

/// Fills `space` from a table and an encoding, the rest of `reader`.
fn decode_rans(reader: &mut WireReader<'_>, space: &mut [u8]) -> Result<()> {
    let table = frequency_table::read(reader, TABLE_BITS)?;
    let encoding = reader.bytes(reader.remaining())?;
    if !rans::decode(encoding, &[], std::slice::from_ref(&table), space) {
        return Err(reader.error(format!("an encoding of {} bytes", space.len()), "another encoding"));
    }
    Ok(())
}

/// Fills `space` from low bits, a prefix code and an encoding, the rest of `reader`.
fn decode_prefix(reader: &mut WireReader<'_>, space: &mut [u8]) -> Result<()> {
    let low_bits = u32::from(reader.u8()?);
    if low_bits > prefix::LOW_BITS_MAX {
        return Err(reader.error(format!("at most {} bits left out", prefix::LOW_BITS_MAX), low_bits.to_string()));
    }
    let low_bits_bytes = reader.bytes(prefix::low_bits_len(space.len(), low_bits))?;
    let code = prefix_code::read(reader)?;
    let encoding = reader.bytes(reader.remaining())?;
    if !prefix::decode(encoding, &code, space) {
        return Err(reader.error(format!("an encoding of {} bytes", space.len()), "another encoding"));
    }
    prefix::join_low_bits(space, low_bits, low_bits_bytes);
    Ok(())
}
