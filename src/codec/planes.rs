//! Planes: FHRD's byte-grouped float encoding. Low-entropy byte groups are compressed, the others are stored.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | width of an element |
//! | 1 | mask of compressed byte groups |
//! | 4 per compressed group | compressed length (`u32`) |
//! | per group, in order | its zstd frame or its bytes |
//! | the rest | the bytes after the last whole element |
//!
//! Each group is a zstd frame of its own: a constant one takes a dozen bytes and does not dilute another's statistics.

use super::{Codec, CodecInfo, Scratch, table};
use crate::error::{Error, Result};
use crate::kernel::entropy::EntropyProfile;
use crate::kernel::planes;
use crate::wire::WireReader;

/// Byte-grouped encoding of elements; [`Planes::encode_layout`] if the layout is known.
pub struct Planes;

/// Width of a chunk's elements, and the byte groups to compress.
///
/// Groups count from the chunk's first byte, so a chunk that starts inside an element only has a rotated mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteGroupLayout {
    width: u8,
    mask: u8,
}

impl ByteGroupLayout {
    /// Everything stored.
    pub const RAW: ByteGroupLayout = ByteGroupLayout { width: 1, mask: 0 };
    /// Possible widths of an element, bytes.
    pub const WIDTHS: [u8; 4] = [1, 2, 4, 8];

    /// Elements of `width` bytes (1, 2, 4 or 8); the groups in `mask` are compressed (bit `g` for byte `g` of an
    /// element). `None` for any other width or a mask with bits beyond the width.
    pub const fn new(width: u8, mask: u8) -> Option<ByteGroupLayout> {
        let within = matches!(width, 1 | 2 | 4 | 8) && (mask as u16) < 1 << width;
        if within { Some(ByteGroupLayout { width, mask }) } else { None }
    }
    /// Elements of `width` bytes with every group compressed. A width that does not exist counts as 1.
    pub const fn all(width: usize) -> ByteGroupLayout {
        match width {
            2 => ByteGroupLayout { width: 2, mask: 0x03 },
            4 => ByteGroupLayout { width: 4, mask: 0x0f },
            8 => ByteGroupLayout { width: 8, mask: 0xff },
            _ => ByteGroupLayout { width: 1, mask: 0x01 },
        }
    }
    /// Bytes of an element.
    pub const fn width(self) -> usize {
        self.width as usize
    }
    /// Bytes before the first whole element, if the elements are floats. The last byte of a float has the exponent, so
    /// its group is low and the group before it is not. The exponent of a double reaches into the byte before, whose
    /// group is low as well. 0 if no phase fits.
    pub fn phase(self) -> usize {
        let (width, mask) = (self.width(), usize::from(self.mask));
        let is_low = |group: usize| mask >> (group % width) & 1 == 1;
        let ends = |phase: &usize| is_low(phase + width - 1) && !is_low(phase + 2 * width - 2);
        let ends_double = |phase: &usize| is_low(phase + 7) && is_low(phase + 6) && !is_low(phase + 5);
        let double = if width == 8 { (0..width).find(ends_double) } else { None };
        double.or_else(|| (0..width).find(ends)).unwrap_or(0)
    }
    /// The compressed groups: bit `g` for byte `g` of an element.
    pub const fn mask(self) -> u8 {
        self.mask
    }
    /// Whether byte group `group` is compressed.
    pub const fn compresses(self, group: usize) -> bool {
        group < 8 && self.mask >> group & 1 == 1
    }

    /// The layout with the smallest predicted size, and this size in bits per byte of input. A group below `bits_max`
    /// bits per byte costs its entropy, any other group 8 bits.
    pub fn predict(profile: &EntropyProfile, bits_max: f32) -> (ByteGroupLayout, f32) {
        let mut best = (ByteGroupLayout::RAW, 8.0);
        for width in Self::WIDTHS {
            let (mut mask, mut sum) = (0, 0.0);
            for (group, bits) in profile.bits(usize::from(width)).iter().enumerate() {
                let low = *bits < bits_max;
                mask |= u8::from(low) << group;
                sum += if low { *bits } else { 8.0 };
            }
            let bits = sum / f32::from(width);
            // A wider element must save enough for its additional tables and shorter groups.
            if bits < best.1 - WIDER_BITS {
                best = (ByteGroupLayout { width, mask }, bits);
            }
        }
        best
    }
}

/// Bits per byte by which a wider element must be smaller than the best narrower one.
const WIDER_BITS: f32 = 0.03;
/// [`Codec::encode`] compresses groups below this many bits per byte.
const LOW_BITS: f32 = 7.3;
/// Windows that [`Codec::encode`] samples.
const WINDOWS: usize = 512;
/// Bytes of the header before the lengths.
const HEADER_BYTES: usize = 2;
/// Bytes of the length field of a group.
const LENGTH_BYTES: usize = 4;

impl Planes {
    /// Appends the encoding of `raw` in `layout` to `out`. `level` is the zstd level.
    ///
    /// # Errors
    /// Errors of zstd, and [`Error::Internal`] for a group of 4 GiB or more.
    pub fn encode_layout(
        &self,
        layout: ByteGroupLayout,
        raw: &[u8],
        level: i32,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let width = layout.width();
        let elements = raw.len() / width;
        let mut split = std::mem::take(&mut scratch.planes);
        split.resize(elements * width, 0);
        planes::deinterleave(raw, width, &mut split);
        let encoded = encode_split(layout, &split, elements, level, scratch, out);
        scratch.planes = split;
        out.extend_from_slice(raw.get(elements * width..).unwrap_or_default());
        encoded
    }
}

fn encode_split(
    layout: ByteGroupLayout,
    split: &[u8],
    elements: usize,
    level: i32,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.extend_from_slice(&[layout.width, layout.mask]);
    let mut length_at = out.len();
    out.resize(length_at + layout.mask.count_ones() as usize * LENGTH_BYTES, 0);
    for group in 0..layout.width() {
        let plane = split.get(group * elements..(group + 1) * elements).unwrap_or_default();
        if !layout.compresses(group) {
            out.extend_from_slice(plane);
            continue;
        }
        let before = out.len();
        scratch.compress(plane, level, out)?;
        let length = u32::try_from(out.len() - before)
            .map_err(|_| Error::internal(format!("a byte group of {elements} bytes is too long for one frame")))?;
        if let Some(slot) = out.get_mut(length_at..length_at + LENGTH_BYTES) {
            slot.copy_from_slice(&length.to_le_bytes());
        }
        length_at += LENGTH_BYTES;
    }
    Ok(())
}

impl Codec for Planes {
    fn info(&self) -> CodecInfo {
        table::PLANES
    }
    /// Samples the layout; [`ByteGroupLayout::RAW`] if no byte group is low.
    fn encode(&self, raw: &[u8], setting: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let (layout, _) = ByteGroupLayout::predict(&EntropyProfile::of(raw, WINDOWS), LOW_BITS);
        self.encode_layout(layout, raw, setting, scratch, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let mut split = std::mem::take(&mut scratch.planes);
        split.clear();
        let decoded = decode_with(payload, raw_len, scratch, &mut split, out);
        scratch.planes = split;
        decoded
    }
}

/// Compressed length of each group; `None` for a stored group.
type GroupLengths = [Option<usize>; 8];

fn decode_with(
    payload: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    split: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut reader = WireReader::new("frame payload (planes)", 0, payload);
    let (width, mask) = (reader.u8()?, reader.u8()?);
    let layout = ByteGroupLayout::new(width, mask)
        .ok_or_else(|| reader.error("an element width and a mask within it", format!("{width} and {mask:#04x}")))?;
    let elements = raw_len / layout.width();
    let (stored_groups, low_groups) = (layout.width() - mask.count_ones() as usize, mask.count_ones() as usize);
    let tail_len = raw_len - elements * layout.width();
    let mut lengths: GroupLengths = [None; 8];
    let mut total = HEADER_BYTES + low_groups * LENGTH_BYTES + stored_groups * elements + tail_len;
    for length in lengths.iter_mut().enumerate().filter(|(group, _)| layout.compresses(*group)).map(|(_, slot)| slot) {
        let bytes = reader.u32()? as usize;
        total = total.saturating_add(bytes);
        *length = Some(bytes);
    }
    if total != payload.len() {
        return Err(reader.error(format!("{total} bytes in all"), payload.len().to_string()));
    }
    let mut groups: [&[u8]; 8] = [&[]; 8];
    for (bytes, length) in groups.iter_mut().zip(lengths).take(layout.width()) {
        match length {
            Some(length) => scratch.decompress(reader.bytes(length)?, elements, split)?,
            None => *bytes = reader.bytes(elements)?,
        }
    }
    let mut low = split.chunks_exact(elements.max(1));
    for (bytes, length) in groups.iter_mut().zip(lengths) {
        if length.is_some() {
            *bytes = low.next().unwrap_or_default();
        }
    }
    let start = out.len();
    out.resize(start + elements * layout.width(), 0);
    planes::interleave(groups.get(..layout.width()).unwrap_or_default(), out.get_mut(start..).unwrap_or_default());
    out.extend_from_slice(reader.bytes(tail_len)?);
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = ByteGroupLayout> {
        (0usize..4, any::<u8>()).prop_map(|(power, mask)| {
            let width = ByteGroupLayout::WIDTHS[power];
            ByteGroupLayout::new(width, (u16::from(mask) & ((1 << width) - 1)) as u8).unwrap()
        })
    }

    fn decoded(payload: &[u8], raw_len: usize) -> Result<Vec<u8>> {
        let mut out = b"before".to_vec();
        Planes.decode(payload, raw_len, &mut Scratch::default(), &mut out)?;
        assert_eq!(out[..6], *b"before");
        Ok(out.split_off(6))
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_layout_round_trip(raw: Vec<u8>, layout in layouts(), level in -3i32..4) {
            let mut payload = Vec::new();
            Planes.encode_layout(layout, &raw, level, &mut Scratch::default(), &mut payload).unwrap();
            prop_assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
        }

        #[test]
        fn elements_round_trip_in_a_detected_layout(elements: Vec<(u8, u16)>, phase in 0usize..8) {
            let element = |(high, low): &(u8, u16)| [low.to_le_bytes().as_slice(), &[high & 3, 0x3f]].concat();
            let bytes = elements.iter().flat_map(element);
            let raw: Vec<u8> = bytes.skip(phase).collect();
            let mut payload = Vec::new();
            Planes.encode(&raw, 1, &mut Scratch::default(), &mut payload).unwrap();
            prop_assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
        }

        #[test]
        fn hostile_payloads_are_errors(mut payload: Vec<u8>, layout in layouts(), raw_len in 0usize..5000) {
            let _ = decoded(&payload, raw_len);
            if payload.len() > 2 {
                payload[..2].copy_from_slice(&[layout.width, layout.mask]);
                let _ = decoded(&payload, raw_len);
            }
        }

        #[test]
        fn a_changed_header_or_length_is_an_error(
            raw in prop::collection::vec(any::<u8>(), 64..400), layout in layouts(), at in 0usize..8, to: u8, cut: bool,
        ) {
            let mut payload = Vec::new();
            Planes.encode_layout(layout, &raw, 1, &mut Scratch::default(), &mut payload).unwrap();
            prop_assert!(decoded(&payload, raw.len() + 1).is_err());
            if cut {
                payload.truncate(payload.len() - 1 - at);
                prop_assert!(decoded(&payload, raw.len()).is_err());
            } else {
                payload[at] = to;
                let _ = decoded(&payload, raw.len());
            }
        }
    }

    #[test]
    fn a_group_that_decompresses_to_another_length_is_an_error() {
        let (short, long) = (vec![5u8; 100], vec![5u8; 300]);
        for other in [short, long] {
            let mut payload = vec![2, 0b10, 0, 0, 0, 0];
            payload.extend_from_slice(&[1; 200]);
            let before = payload.len();
            Scratch::default().compress(&other, 1, &mut payload).unwrap();
            let length = (payload.len() - before) as u32;
            payload[2..6].copy_from_slice(&length.to_le_bytes());
            assert!(matches!(decoded(&payload, 400), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn constant_groups_cost_almost_nothing_in_every_phase() {
        let low_bytes = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8);
        let bytes: Vec<u8> = low_bytes.flat_map(|low| [0, 0, low, 0x3d]).collect();
        for phase in 0..4 {
            let raw = &bytes[phase..phase + 65_536];
            let mut payload = Vec::new();
            Planes.encode(raw, 1, &mut Scratch::default(), &mut payload).unwrap();
            assert!(payload.len() < 65_536 / 4 + 120, "phase {phase}: {}", payload.len());
            assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
        }
    }

    #[test]
    fn the_phase_ends_after_the_exponent() {
        let phase = |width, mask| ByteGroupLayout::new(width, mask).unwrap().phase();
        assert_eq!([phase(4, 0b1000), phase(4, 0b0001), phase(4, 0b0010), phase(4, 0b0100)], [0, 1, 2, 3]);
        assert_eq!([phase(2, 0b10), phase(2, 0b01), phase(2, 0b11), phase(2, 0)], [0, 1, 0, 0]);
        assert_eq!([phase(8, 0b1000_0000), phase(8, 0b1000_1000), phase(1, 1)], [0, 0, 0]);
        assert_eq!([phase(8, 0b1100_0000), phase(8, 0b1_1000), phase(8, 0b1000_0001)], [0, 5, 1]);
    }

    #[test]
    fn a_layout_has_a_valid_width_and_only_groups_within_it() {
        assert!(
            ByteGroupLayout::new(2, 0b100).is_none()
                && ByteGroupLayout::new(3, 1).is_none()
                && ByteGroupLayout::new(0, 0).is_none()
        );
        assert!(ByteGroupLayout::new(8, 0xff).is_some() && ByteGroupLayout::new(1, 1).is_some());
    }
}
