//! Bit planes: one plane for each bit of an element, then LZ4 over all planes.
//!
//! 1. The bytes of the elements are split into byte planes, as in [`super::Planes`], from the frame's first byte on.
//! 2. Each byte plane is split into eight bit planes. Only multiples of eight elements are split, so planes have whole
//!    bytes.
//! 3. The rest of the frame follows the planes unchanged. LZ4 compresses everything.
//!
//! A payload is the width of an element (1 byte) and the LZ4 block. Bits that seldom change (sign, high exponent)
//! become runs, which LZ4 finds without an entropy coder. Xet compared this bit grouping with its byte groups.

use super::{ByteGroupLayout, Codec, CodecInfo, Scratch, lz4, table};
use crate::error::Result;
use crate::kernel::entropy::EntropyProfile;
use crate::kernel::{bits, planes};
use crate::wire::WireReader;

/// Bit planes and LZ4; [`BitPlanes::encode_width`] if the width is known.
pub struct BitPlanes;

/// Elements with one bit each in a byte of a plane.
const EIGHT: usize = 8;
/// Windows that [`Codec::encode`] samples.
const WINDOWS: usize = 512;
/// A byte group below this many bits per byte is low for [`Codec::encode`].
const LOW_BITS: f32 = 7.3;

/// Bytes of the largest multiple of eight elements within `raw_len`.
fn whole_len(raw_len: usize, width: usize) -> usize {
    raw_len / (EIGHT * width) * (EIGHT * width)
}

impl BitPlanes {
    /// Appends the encoding of `raw` as elements of `width` (1, 2, 4 or 8) bytes to `out`. Any other width counts as 1.
    ///
    /// # Errors
    /// Errors of LZ4.
    pub fn encode_width(&self, width: usize, raw: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let width = if matches!(width, 2 | 4 | 8) { width } else { 1 };
        let (whole, rest) = raw.split_at(whole_len(raw.len(), width));
        let space = &mut scratch.planes;
        space.resize(2 * whole.len(), 0);
        let (bytes, split) = space.split_at_mut(whole.len());
        planes::deinterleave(whole, width, bytes);
        let plane_len = (whole.len() / width).max(1);
        for (bytes, split) in bytes.chunks_exact(plane_len).zip(split.chunks_exact_mut(plane_len)) {
            bits::deinterleave(bytes, split);
        }
        space.extend_from_slice(rest);
        out.push(width as u8);
        lz4::pack(space.get(whole.len()..).unwrap_or_default(), out)
    }
}

impl Codec for BitPlanes {
    fn info(&self) -> CodecInfo {
        table::BIT_PLANES
    }
    /// Samples the width.
    fn encode(&self, raw: &[u8], _: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let (layout, _) = ByteGroupLayout::predict(&EntropyProfile::of(raw, WINDOWS), LOW_BITS);
        self.encode_width(layout.width(), raw, scratch, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let mut reader = WireReader::new("frame payload (bit-planes)", 0, payload);
        let width = match reader.u8()? {
            width @ (1 | 2 | 4 | 8) => usize::from(width),
            other => return Err(reader.unsupported(format!("element width {other}"))),
        };
        let space = &mut scratch.planes;
        space.clear();
        lz4::unpack(self, reader.bytes(reader.remaining())?, raw_len, space)?;
        let (whole, plane_len) = (whole_len(raw_len, width), (whole_len(raw_len, width) / width).max(1));
        space.resize(raw_len + whole, 0);
        let (split, bytes) = space.split_at_mut(raw_len);
        let (split, rest) = split.split_at(whole);
        for (split, bytes) in split.chunks_exact(plane_len).zip(bytes.chunks_exact_mut(plane_len)) {
            bits::interleave(split, bytes);
        }
        let mut byte_planes = [[].as_slice(); 8];
        for (plane, bytes) in byte_planes.iter_mut().zip(bytes.chunks_exact(plane_len)) {
            *plane = bytes;
        }
        let start = out.len();
        out.resize(start + whole, 0);
        planes::interleave(byte_planes.get(..width).unwrap_or_default(), out.get_mut(start..).unwrap_or_default());
        out.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(width: usize, raw: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        BitPlanes.encode_width(width, raw, &mut Scratch::default(), &mut payload).unwrap();
        payload
    }

    fn decoded(payload: &[u8], raw_len: usize) -> Result<Vec<u8>> {
        let mut raw = Vec::new();
        BitPlanes.decode(payload, raw_len, &mut Scratch::default(), &mut raw)?;
        Ok(raw)
    }

    proptest! {
        #[test]
        fn any_bytes_of_any_width_round_trip(raw in prop::collection::vec(any::<u8>(), 0..700), power in 0usize..4) {
            prop_assert_eq!(decoded(&encoded(1 << power, &raw), raw.len()).unwrap(), raw);
        }

        #[test]
        fn a_changed_payload_is_an_error_or_bytes(
            raw in prop::collection::vec(0u8..3, 1..700), power in 0usize..4, at: prop::sample::Index, to: u8,
        ) {
            let mut payload = encoded(1 << power, &raw);
            let at = at.index(payload.len());
            payload[at] = to;
            if let Ok(bytes) = decoded(&payload, raw.len()) {
                prop_assert_eq!(bytes.len(), raw.len());
            }
        }
    }

    #[test]
    fn an_invalid_width_is_an_error() {
        let mut payload = encoded(2, &[7; 100]);
        for width in [0, 3, 5, 16, 255] {
            payload[0] = width;
            assert!(decoded(&payload, 100).is_err(), "{width}");
        }
    }

    #[test]
    fn constant_bits_cost_almost_nothing() {
        // Four bits in sixteen change: in the elements themselves LZ4 finds no repeats.
        let noise = (0..40_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 17) as u16 & 0x0891);
        let raw: Vec<u8> = noise.flat_map(|bits| (bits | 0x3000).to_le_bytes()).collect();
        assert!(encoded(2, &raw).len() < raw.len() * 4 / 16 + raw.len() / 50, "{}", encoded(2, &raw).len());
    }
}
