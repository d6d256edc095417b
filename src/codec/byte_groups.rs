//! Byte groups: bytes grouped by their offset modulo four, one group after another, then LZ4 over all groups.
//!
//! This is BG4 + LZ4 of Hugging Face's Xet store, which does not know element types. Four is the width of FP32; with
//! elements of two bytes, each group still has bytes of one position. The bytes after the last multiple of four follow
//! the groups (Xet adds them to the first groups). A payload is the LZ4 block.

use super::{Codec, CodecInfo, Scratch, lz4, table};
use crate::error::Result;
use crate::kernel::planes;

/// Four byte groups and LZ4.
pub struct ByteGroups;

/// Number of groups.
const GROUPS: usize = 4;

impl Codec for ByteGroups {
    fn info(&self) -> CodecInfo {
        table::BYTE_GROUPS
    }
    fn encode(&self, raw: &[u8], _: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let (whole, rest) = raw.split_at(raw.len() / GROUPS * GROUPS);
        let grouped = &mut scratch.planes;
        grouped.resize(whole.len(), 0);
        planes::deinterleave(whole, GROUPS, grouped);
        grouped.extend_from_slice(rest);
        lz4::pack(grouped, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let grouped = &mut scratch.planes;
        grouped.clear();
        lz4::unpack(self, payload, raw_len, grouped)?;
        let elements = raw_len / GROUPS;
        let (whole, rest) = grouped.split_at(elements * GROUPS);
        let mut groups = [[].as_slice(); GROUPS];
        for (group, bytes) in groups.iter_mut().zip(whole.chunks_exact(elements.max(1))) {
            *group = bytes;
        }
        let start = out.len();
        out.resize(start + whole.len(), 0);
        planes::interleave(&groups, out.get_mut(start..).unwrap_or_default());
        out.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_exponents_are_found_by_groups_only() {
        let noise = (0..30_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7);
        let raw: Vec<u8> = noise.flat_map(|n| [n as u8, (n >> 8) as u8, (n >> 16) as u8, 0x3c]).collect();
        let encoded = |codec: &dyn Codec| {
            let mut payload = Vec::new();
            codec.encode(&raw, 1, &mut Scratch::default(), &mut payload).unwrap();
            payload.len()
        };
        assert!(encoded(&ByteGroups) < raw.len() * 4 / 5, "{}", encoded(&ByteGroups));
        assert!(encoded(&lz4::Lz4) > raw.len() * 99 / 100, "{}", encoded(&lz4::Lz4));
    }
}
