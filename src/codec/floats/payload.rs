//! Payload: encodes and decodes the layout and the planes of a block.

use super::layout::PlaneLayout;
use super::{WHAT, ZeroBuffers, coded, plane, zeros};
use crate::codec::{Codec, CodecInfo, ElementRows, ElementType, Scratch, table};
use crate::error::Result;
use crate::kernel::{deinterleave, float_mode, interleave, planes};
use crate::wire::WireReader;

/// Entropy-coded planes of rotated elements; [`encode`] if the element type is known.
pub struct Floats;

/// Planes of the widest element.
const PLANES_MAX: usize = 8;

/// Appends the encoding of `raw` to `out`. `phase` bytes precede the first whole element.
///
/// # Errors
/// Errors of zstd, and [`crate::Error::Internal`] for a plane of 4 GiB or more.
pub fn encode(
    element_type: ElementType,
    phase: usize,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    encode_rows(element_type, phase, ElementRows::default(), raw, scratch, out)
}

/// Appends the encoding of `raw`, a block of a tensor with these rows, to `out`.
///
/// # Errors
/// Errors of [`encode`].
pub fn encode_rows(
    element_type: ElementType,
    phase: usize,
    rows: ElementRows,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    if !scratch.has_derivations {
        return planes_of(element_type, phase, raw, scratch, out);
    }
    let is_coded = phase == 0 && float_mode::with_ieee(|| coded::encode(element_type, rows, raw, scratch, out))?;
    // Planes of what repeats may be smaller.
    let middle = out.len();
    planes_of(element_type, phase, raw, scratch, out)?;
    if is_coded && middle - start <= out.len() - middle {
        out.truncate(middle);
    } else {
        out.drain(start..middle);
    }
    Ok(())
}

/// Appends planes of all elements, or of those that are no zeros.
fn planes_of(
    element_type: ElementType,
    phase: usize,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let (layout, noisy) = PlaneLayout::choose(element_type, phase, raw);
    all_elements(layout, noisy, raw, scratch, out)?;
    if scratch.has_derivations { zeros::try_smaller(layout, raw, start, scratch, out) } else { Ok(()) }
}

/// Appends the encoding of all elements of `raw`, of which a sample takes the `noisy` lowest planes for noise.
fn all_elements(layout: PlaneLayout, noisy: usize, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    out.push(layout.byte());
    let (head, whole, tail) = layout.split(raw);
    let elements = whole.len() / layout.width();
    out.extend_from_slice(head);
    let mut encoded = Ok(());
    if layout.width() == 1 {
        encoded = plane::encode(whole, scratch, out);
    } else if elements == 0 {
        (0..layout.width()).for_each(|_| out.push(plane::STORED));
    } else {
        let mut split = std::mem::take(&mut scratch.planes);
        split.resize(whole.len(), 0);
        let appended = append_noise(layout, noisy, whole, &mut split, out);
        for plane in split.chunks_exact(elements).skip(appended) {
            encoded = encoded.and_then(|()| plane::encode(plane, scratch, out));
        }
        scratch.planes = split;
    }
    out.extend_from_slice(tail);
    encoded
}

/// Appends ZipNN's encoding of `raw` to `out`, a payload that `decode` reads: the layout follows from the type, and
/// each plane is constant, stored, or has a Huffman code.
///
/// # Errors
/// [`crate::Error::Internal`] for a plane of 4 GiB or more.
pub fn encode_huffman(element_type: ElementType, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let layout = PlaneLayout::fixed(element_type, raw);
    out.push(layout.byte());
    let (head, whole, tail) = layout.split(raw);
    let elements = whole.len() / layout.width();
    out.extend_from_slice(head);
    let mut split = std::mem::take(&mut scratch.planes);
    split.resize(whole.len(), 0);
    planes::deinterleave_rotated(whole, layout.width(), layout.rotated, &mut split);
    let plane = |number: usize| split.get(number * elements..(number + 1) * elements).unwrap_or_default();
    let encoded = (0..layout.width()).try_for_each(|number| plane::encode_huffman(plane(number), out));
    scratch.planes = split;
    out.extend_from_slice(tail);
    encoded
}

/// Approximate number of bytes that [`encode`] appends, from a sample.
pub(in crate::codec) fn estimate(element_type: ElementType, raw: &[u8]) -> usize {
    let bits = PlaneLayout::choose_with_bits(element_type, 0, raw).1;
    (raw.len() as f64 * f64::from(bits) / 8.0) as usize
}

/// Splits `whole` into planes. A sample takes the `noisy` lowest ones for noise.
///
/// If these are noise as a whole too, they are appended to `out` as stored planes without a copy through `split`, and
/// only the others are split to `split`. Returns the number of appended planes.
fn append_noise(layout: PlaneLayout, noisy: usize, whole: &[u8], split: &mut [u8], out: &mut Vec<u8>) -> usize {
    let elements = whole.len() / layout.width();
    let start = out.len();
    let rest = split.get_mut(noisy * elements..).unwrap_or_default();
    let stored = deinterleave::StoredPlanes { count: noisy, mark: plane::STORED };
    if deinterleave::append(whole, layout.width(), layout.rotated, stored, out, rest) {
        let stored = out.get(start..).unwrap_or_default();
        if stored.chunks_exact(elements + 1).all(|stored| plane::is_noise(stored.get(1..).unwrap_or_default())) {
            return noisy;
        }
    }
    out.truncate(start);
    planes::deinterleave_rotated(whole, layout.width(), layout.rotated, split);
    0
}

/// Appends the `raw_len` bytes that `payload` decodes to, to `out`.
///
/// # Errors
/// Errors of [`Codec::decode`].
pub(in crate::codec) fn decode(payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    if payload.first().is_some_and(|first| first & coded::CODED != 0) {
        return float_mode::with_ieee(|| coded::decode(payload, raw_len, scratch, out));
    }
    let mut split = std::mem::take(&mut scratch.planes);
    let mut zeros = std::mem::take(&mut scratch.zeros);
    let decoded = decode_with(payload, raw_len, scratch, &mut split, &mut zeros, out);
    scratch.planes = split;
    scratch.zeros = zeros;
    decoded
}

fn decode_with(
    payload: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    split: &mut Vec<u8>,
    zeros: &mut ZeroBuffers,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, payload);
    let byte = reader.u8()?;
    let leaves_out_zeros = byte & zeros::LEFT_OUT != 0;
    let layout = PlaneLayout::of_byte(byte & !zeros::LEFT_OUT)
        .filter(|layout| layout.phase <= raw_len && (layout.width() > 1 || !leaves_out_zeros))
        .ok_or_else(|| reader.error(format!("a layout of {raw_len} bytes"), format!("{byte:#04x}")))?;
    let all_elements = (raw_len - layout.phase) / layout.width();
    let head = reader.bytes(layout.phase)?;
    let left_out = if leaves_out_zeros { zeros.read_mask(all_elements, &mut reader, scratch)? } else { 0 };
    let elements = all_elements - left_out;
    // Stored planes stay in the payload; the others are decoded one after another into `split`.
    let mut stored: [Option<&[u8]>; PLANES_MAX] = [None; PLANES_MAX];
    let mut used = 0;
    for stored in stored.iter_mut().take(layout.width()) {
        if split.len() < used + elements {
            split.resize(used + elements, 0);
        }
        *stored = plane::decode(&mut reader, scratch, split.get_mut(used..used + elements).unwrap_or_default())?;
        used += if stored.is_some() { 0 } else { elements };
    }
    let tail = reader.bytes(raw_len - layout.phase - all_elements * layout.width())?;
    reader.finish()?;
    let mut decoded = split.chunks_exact(elements.max(1)).take(if elements == 0 { 0 } else { PLANES_MAX });
    let planes = stored.map(|stored| stored.or_else(|| decoded.next()).unwrap_or_default());
    let planes = planes.get(..layout.width()).unwrap_or_default();
    out.extend_from_slice(head);
    if leaves_out_zeros {
        zeros.append(layout, planes, all_elements, out);
    } else {
        interleave::append(planes, layout.rotated, out);
    }
    out.extend_from_slice(tail);
    Ok(())
}

impl Codec for Floats {
    fn info(&self) -> CodecInfo {
        table::FLOATS
    }
    /// Samples the layout. There is no setting.
    fn encode(&self, raw: &[u8], _: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        encode(ElementType::Unknown, 0, raw, scratch, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        decode(payload, raw_len, scratch, out)
    }
}
