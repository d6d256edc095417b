//! Planes: FHRD's byte-grouped float encoding. The low-entropy bytes of every word are compressed, the others stored.
//!
//! A payload is: the word's width (1 byte), the mask of compressed byte groups (1 byte), the compressed length of each
//! of them (4 bytes, little-endian), then per group in order its zstd frame or its bytes, then the bytes after
//! the last whole word.
//! Groups are compressed apart: a constant one costs a dozen bytes and never dilutes another's statistics.

use super::{Codec, CodecInfo, Scratch, table};
use crate::error::{Error, Result};
use crate::kernel::entropy::EntropyProfile;
use crate::kernel::planes;
use crate::wire::WireReader;

/// Byte-grouped encoding of words; [`Planes::encode_layout`] where the layout is known.
pub struct Planes;

/// How a chunk's words lie: groups count from the chunk's first byte, so a chunk that starts amid a word has a
/// rotated mask and nothing else is special about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteGroupLayout {
    width: u8,
    mask: u8,
}

impl ByteGroupLayout {
    /// Everything stored as it is.
    pub const RAW: ByteGroupLayout = ByteGroupLayout { width: 1, mask: 0 };
    /// Word widths there are, bytes.
    pub const WIDTHS: [u8; 4] = [1, 2, 4, 8];

    /// Words of `width` bytes (1, 2, 4 or 8) of which the groups in `mask` (bit `g` = byte `g` of a word) are
    /// compressed; `None` for any other width or a mask with bits beyond it.
    pub const fn new(width: u8, mask: u8) -> Option<ByteGroupLayout> {
        let within = matches!(width, 1 | 2 | 4 | 8) && (mask as u16) < 1 << width;
        if within { Some(ByteGroupLayout { width, mask }) } else { None }
    }
    /// Words of `width` bytes of which every group is compressed; words of one byte where there is no such width.
    pub const fn all(width: usize) -> ByteGroupLayout {
        match width {
            2 => ByteGroupLayout { width: 2, mask: 0x03 },
            4 => ByteGroupLayout { width: 4, mask: 0x0f },
            8 => ByteGroupLayout { width: 8, mask: 0xff },
            _ => ByteGroupLayout { width: 1, mask: 0x01 },
        }
    }
    /// Bytes of a word.
    pub const fn width(self) -> usize {
        self.width as usize
    }
    /// Bytes before the first whole word, if the words are floats: the last byte of a word is low, as its exponent is,
    /// the one before it is not. 0 where no place or every place is like that.
    pub fn phase(self) -> usize {
        let (width, mask) = (self.width(), usize::from(self.mask));
        let is_low = |group: usize| mask >> (group % width) & 1 == 1;
        (0..width).find(|phase| is_low(phase + width - 1) && !is_low(phase + 2 * width - 2)).unwrap_or(0)
    }
    /// The compressed groups, bit `g` for byte `g` of a word.
    pub const fn mask(self) -> u8 {
        self.mask
    }
    /// Whether byte group `group` is compressed.
    pub const fn compresses(self, group: usize) -> bool {
        group < 8 && self.mask >> group & 1 == 1
    }

    /// The layout of the smallest predicted size, and that size in bits per byte of the input: a group under
    /// `bits_max` bits per byte costs its entropy, the others 8.
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
            // A wider word must be worth its tables and shorter runs.
            if bits < best.1 - WIDER_BITS {
                best = (ByteGroupLayout { width, mask }, bits);
            }
        }
        best
    }
}

/// Bits per byte by which a wider word must be predicted smaller than the best narrower one.
const WIDER_BITS: f32 = 0.03;
/// [`Codec::encode`] compresses groups under this many bits per byte.
const LOW_BITS: f32 = 7.3;
/// Windows that [`Codec::encode`] samples.
const WINDOWS: usize = 512;
/// Bytes of the header before the lengths.
const HEADER_BYTES: usize = 2;
/// Bytes of a compressed group's length.
const LENGTH_BYTES: usize = 4;

impl Planes {
    /// Appends the encoding of `raw` in `layout`, its low groups compressed at zstd `level`, to `out`.
    ///
    /// # Errors
    /// What zstd refuses (the level), or a group of 4 GiB.
    pub fn encode_layout(
        &self,
        layout: ByteGroupLayout,
        raw: &[u8],
        level: i32,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let width = layout.width();
        let words = raw.len() / width;
        let mut split = std::mem::take(&mut scratch.planes);
        split.resize(words * width, 0);
        planes::deinterleave(raw, width, &mut split);
        let encoded = encode_split(layout, &split, words, level, scratch, out);
        scratch.planes = split;
        out.extend_from_slice(raw.get(words * width..).unwrap_or_default());
        encoded
    }
}

fn encode_split(
    layout: ByteGroupLayout,
    split: &[u8],
    words: usize,
    level: i32,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.extend_from_slice(&[layout.width, layout.mask]);
    let mut length_at = out.len();
    out.resize(length_at + layout.mask.count_ones() as usize * LENGTH_BYTES, 0);
    for group in 0..layout.width() {
        let plane = split.get(group * words..(group + 1) * words).unwrap_or_default();
        if !layout.compresses(group) {
            out.extend_from_slice(plane);
            continue;
        }
        let before = out.len();
        scratch.compress(plane, level, out)?;
        let length = u32::try_from(out.len() - before)
            .map_err(|_| Error::internal(format!("a byte group of {words} bytes is too long for one frame")))?;
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
    /// Samples the layout; [`ByteGroupLayout::RAW`] where no byte group is low.
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

/// Where a group's bytes are: in the payload, or decompressed in the work space.
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
        .ok_or_else(|| reader.error("a word width and a mask within it", format!("{width} and {mask:#04x}")))?;
    let words = raw_len / layout.width();
    let (stored_groups, low_groups) = (layout.width() - mask.count_ones() as usize, mask.count_ones() as usize);
    let tail_len = raw_len - words * layout.width();
    let mut lengths: GroupLengths = [None; 8];
    let mut total = HEADER_BYTES + low_groups * LENGTH_BYTES + stored_groups * words + tail_len;
    for length in lengths.iter_mut().enumerate().filter(|(group, _)| layout.compresses(*group)).map(|(_, slot)| slot) {
        let bytes = reader.u32()? as usize;
        total = total.saturating_add(bytes);
        *length = Some(bytes);
    }
    if total != payload.len() {
        return Err(reader.error(format!("{total} bytes in all"), payload.len().to_string()));
    }
    let mut runs: [&[u8]; 8] = [&[]; 8];
    for (run, length) in runs.iter_mut().zip(lengths).take(layout.width()) {
        match length {
            Some(length) => scratch.decompress(reader.bytes(length)?, words, split)?,
            None => *run = reader.bytes(words)?,
        }
    }
    let mut low = split.chunks_exact(words.max(1));
    for (run, length) in runs.iter_mut().zip(lengths) {
        if length.is_some() {
            *run = low.next().unwrap_or_default();
        }
    }
    let start = out.len();
    out.resize(start + words * layout.width(), 0);
    planes::interleave(runs.get(..layout.width()).unwrap_or_default(), out.get_mut(start..).unwrap_or_default());
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
        fn words_round_trip_in_a_detected_layout(words: Vec<(u8, u16)>, phase in 0usize..8) {
            let bytes = words.iter().flat_map(|(high, low)| [low.to_le_bytes().as_slice(), &[high & 3, 0x3f]].concat());
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
    fn constant_groups_cost_next_to_nothing_and_phase_does_not_matter() {
        let words = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8);
        let bytes: Vec<u8> = words.flat_map(|low| [0, 0, low, 0x3d]).collect();
        for phase in 0..4 {
            let raw = &bytes[phase..phase + 65_536];
            let mut payload = Vec::new();
            Planes.encode(raw, 1, &mut Scratch::default(), &mut payload).unwrap();
            assert!(payload.len() < 65_536 / 4 + 120, "phase {phase}: {}", payload.len());
            assert_eq!(decoded(&payload, raw.len()).unwrap(), raw);
        }
    }

    #[test]
    fn the_phase_is_where_the_exponent_ends() {
        let phase = |width, mask| ByteGroupLayout::new(width, mask).unwrap().phase();
        assert_eq!([phase(4, 0b1000), phase(4, 0b0001), phase(4, 0b0010), phase(4, 0b0100)], [0, 1, 2, 3]);
        assert_eq!([phase(2, 0b10), phase(2, 0b01), phase(2, 0b11), phase(2, 0)], [0, 1, 0, 0]);
        assert_eq!([phase(8, 0b1000_0000), phase(8, 0b1_1000), phase(1, 1)], [0, 4, 0]);
    }

    #[test]
    fn layouts_name_only_groups_there_are() {
        assert!(
            ByteGroupLayout::new(2, 0b100).is_none()
                && ByteGroupLayout::new(3, 1).is_none()
                && ByteGroupLayout::new(0, 0).is_none()
        );
        assert!(ByteGroupLayout::new(8, 0xff).is_some() && ByteGroupLayout::new(1, 1).is_some());
    }
}
