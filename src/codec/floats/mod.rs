//! Floats: words turned so that their exponent is a byte, split into byte planes, each plane in its cheapest form.
//!
//! 1. *PlaneLayout*: the width of a word, whether words are turned left by one bit (the sign goes to the lowest place and
//!    the exponent of BF16 and FP32 becomes the highest byte), and how many bytes lie in front of the first whole word.
//!    Where the type is known only the turn is tried on a sample; otherwise every width and every phase.
//! 2. *Planes*: byte `g` of every word in plane `g`.
//! 3. *Form*: each plane apart is constant, stored, entropy-coded ([`crate::kernel::rans`] or
//!    [`crate::kernel::prefix`]) or a zstd frame.
//!
//! A payload is:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | bits 0-1: logarithm of the word's width; bit 2: words are turned; bits 3-5: the phase; bits 6-7: zero |
//! | phase | the bytes before the first word |
//! | per plane, lowest byte first | its form (1 byte) and what belongs to it |
//! | the rest | the bytes after the last whole word |
//!
//! | form | what follows |
//! |---|---|
//! | 0 stored | the plane |
//! | 1 constant | its byte |
//! | 2 entropy-coded | length of what follows (`u32`), a model of 12 bits, the encoding |
//! | 3 zstd | length of what follows (`u32`), one zstd frame |
//! | 4 prefix-coded | length of what follows (`u32`), how many low bits are left out, those, a code, the encoding |

mod layout;
pub(super) mod plane;
#[cfg(test)]
mod tests;

use super::{Codec, CodecInfo, ElementType, Scratch, table};
use crate::error::Result;
use crate::kernel::{deinterleave, interleave, planes};
use crate::wire::WireReader;
use layout::PlaneLayout;
pub(super) use plane::repeats;

/// Floats as planes; [`encode`] where their type is known.
pub struct Floats;

/// Name in errors.
const WHAT: &str = "frame payload (floats)";
/// Planes of the widest word.
const PLANES_MAX: usize = 8;

/// Appends the encoding of `raw` to `out`: words of type `word`, `phase` bytes of the first of which are missing less
/// than all (0: `raw` starts with a whole one).
///
/// # Errors
/// What zstd refuses, or a plane of 4 GiB.
pub fn encode(word: ElementType, phase: usize, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let (layout, noisy) = PlaneLayout::choose(word, phase, raw);
    out.push(layout.byte());
    let (head, rest) = raw.split_at(layout.phase.min(raw.len()));
    let words = rest.len() / layout.width();
    let (body, tail) = rest.split_at(words * layout.width());
    out.extend_from_slice(head);
    let mut encoded = Ok(());
    if layout.width() == 1 {
        encoded = plane::encode(body, scratch, out);
    } else if words == 0 {
        (0..layout.width()).for_each(|_| out.push(plane::STORED));
    } else {
        let mut split = std::mem::take(&mut scratch.planes);
        split.resize(body.len(), 0);
        let done = append_noise(layout, noisy, body, &mut split, out);
        for plane in split.chunks_exact(words).skip(done) {
            encoded = encoded.and_then(|()| plane::encode(plane, scratch, out));
        }
        scratch.planes = split;
    }
    out.extend_from_slice(tail);
    encoded
}

/// About how many bytes [`encode`] would append, by a sample.
pub(super) fn estimate(word: ElementType, raw: &[u8]) -> usize {
    let bits = PlaneLayout::choose_with_bits(word, 0, raw).1;
    (raw.len() as f64 * f64::from(bits) / 8.0) as usize
}

/// Splits `body` into the planes of `split`. The `noisy` lowest ones, which a sample takes for noise, are split to
/// where they stay, if they are stored indeed, and only the others to `split`; gives how many were appended.
fn append_noise(layout: PlaneLayout, noisy: usize, body: &[u8], split: &mut [u8], out: &mut Vec<u8>) -> usize {
    let words = body.len() / layout.width();
    let start = out.len();
    let rest = split.get_mut(noisy * words..).unwrap_or_default();
    let stored = deinterleave::StoredPlanes { count: noisy, mark: plane::STORED };
    if deinterleave::append(body, layout.width(), layout.rotated, stored, out, rest) {
        let stored = out.get(start..).unwrap_or_default();
        if stored.chunks_exact(words + 1).all(|stored| plane::is_noise(stored.get(1..).unwrap_or_default())) {
            return noisy;
        }
    }
    out.truncate(start);
    planes::deinterleave_rotated(body, layout.width(), layout.rotated, split);
    0
}

/// Appends the `raw_len` bytes that `payload` encodes to `out`.
///
/// # Errors
/// [`crate::Error::Corrupt`] where it does not encode so many.
pub(super) fn decode(payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut split = std::mem::take(&mut scratch.planes);
    let decoded = decode_with(payload, raw_len, scratch, &mut split, out);
    scratch.planes = split;
    decoded
}

fn decode_with(
    payload: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    split: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, payload);
    let byte = reader.u8()?;
    let layout = PlaneLayout::of_byte(byte)
        .filter(|layout| layout.phase <= raw_len)
        .ok_or_else(|| reader.error(format!("a layout of {raw_len} bytes"), format!("{byte:#04x}")))?;
    let words = (raw_len - layout.phase) / layout.width();
    let head = reader.bytes(layout.phase)?;
    // What was not stored is decoded one plane after the other; what was is left where it is.
    let mut stored: [Option<&[u8]>; PLANES_MAX] = [None; PLANES_MAX];
    let mut used = 0;
    for stored in stored.iter_mut().take(layout.width()) {
        if split.len() < used + words {
            split.resize(used + words, 0);
        }
        *stored = plane::decode(&mut reader, scratch, split.get_mut(used..used + words).unwrap_or_default())?;
        used += if stored.is_some() { 0 } else { words };
    }
    let tail = reader.bytes(raw_len - layout.phase - words * layout.width())?;
    reader.finish()?;
    let mut decoded = split.chunks_exact(words.max(1));
    let runs = stored.map(|stored| stored.or_else(|| decoded.next()).unwrap_or_default());
    out.extend_from_slice(head);
    interleave::append(runs.get(..layout.width()).unwrap_or_default(), layout.rotated, out);
    out.extend_from_slice(tail);
    Ok(())
}

impl Codec for Floats {
    fn info(&self) -> CodecInfo {
        table::FLOATS
    }
    /// Finds out the layout; there is no setting.
    fn encode(&self, raw: &[u8], _: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        encode(ElementType::Unknown, 0, raw, scratch, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        decode(payload, raw_len, scratch, out)
    }
}
