//! zstd: one frame is one zstd frame without a dictionary.
//!
//! Some levels have smaller tables than zstd's own, so that they fit into the cache of a core. Level 3 uses two hash
//! tables, for matches of 8 and 5 bytes. For a frame of 512 KiB they take 768 KiB; here they take 320 KiB, and matches
//! of 4 bytes instead of 5 compensate for most of the lost ones. Level 6 uses one table, of 2.5 MiB; here it takes 640
//! KiB. The output is standard zstd.

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::{Codec, CodecInfo, Scratch, table, undecodable};
use crate::error::{Error, Result};

/// Logarithms of the lengths of both tables and the shortest match, for levels that do not use zstd's own. 0 is zstd's
/// own.
const fn tables(level: i32) -> [CParameter; 3] {
    let (hash_log, chain_log, min_match) = match level {
        3 => (16, 14, 4),
        6 => (17, 0, 0),
        _ => (0, 0, 0),
    };
    [CParameter::HashLog(hash_log), CParameter::ChainLog(chain_log), CParameter::MinMatch(min_match)]
}

/// zstd; the setting is the level.
pub struct Zstandard;

impl Scratch {
    /// Appends the zstd compression of `raw` at `level` to `out`.
    pub fn compress(&mut self, raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
        let failed = |error| Error::io("compress a frame in", "memory", error);
        let encoder = match &mut self.encoder {
            Some((current, encoder)) if *current == level => encoder,
            // One context serves all levels: each would hold tables of its own.
            slot => {
                let mut encoder = match slot.take() {
                    Some((_, encoder)) => encoder,
                    None => Compressor::new(level).map_err(failed)?,
                };
                set_level(&mut encoder, level).map_err(failed)?;
                &mut slot.insert((level, encoder)).1
            }
        };
        let bound = zstd::zstd_safe::compress_bound(raw.len());
        if out.is_empty() {
            // Writes into spare capacity, without filling it first.
            out.reserve(bound);
            encoder.compress_to_buffer(raw, out).map_err(failed)?;
            return Ok(());
        }
        let start = out.len();
        out.resize(start + bound, 0);
        let space = out.get_mut(start..).unwrap_or_default();
        let written = encoder.compress_to_buffer(raw, space).map_err(failed)?;
        out.truncate(start + written);
        Ok(())
    }

    /// Appends exactly `raw_len` bytes decompressed from `payload` to `out`.
    pub fn decompress(&mut self, payload: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if start == 0 && out.capacity() == raw_len {
            // Writes into spare capacity, which equals the expected length.
            let written = self.decoder()?.decompress_to_buffer(payload, out);
            return whole(written, raw_len);
        }
        out.resize(start + raw_len, 0);
        self.decompress_into(payload, out.get_mut(start..).unwrap_or_default())
    }

    /// Fills `space` with the bytes of `payload`, which must have exactly this length.
    pub(super) fn decompress_into(&mut self, payload: &[u8], space: &mut [u8]) -> Result<()> {
        let written = self.decoder()?.decompress_to_buffer(payload, &mut *space);
        whole(written, space.len())
    }

    fn decoder(&mut self) -> Result<&mut zstd::bulk::Decompressor<'static>> {
        match &mut self.decoder {
            Some(decoder) => Ok(decoder),
            slot => Ok(slot.insert(
                zstd::bulk::Decompressor::new().map_err(|error| Error::io("decompress a frame in", "memory", error))?,
            )),
        }
    }
}

/// Makes `encoder` one of `level`, whatever its level was.
fn set_level(encoder: &mut Compressor<'static>, level: i32) -> std::io::Result<()> {
    encoder.set_compression_level(level)?;
    tables(level).into_iter().try_for_each(|parameter| encoder.set_parameter(parameter))
}

/// Fails unless exactly `raw_len` bytes were written.
fn whole(written: std::io::Result<usize>, raw_len: usize) -> Result<()> {
    match written {
        Ok(written) if written == raw_len => Ok(()),
        Ok(written) => Err(undecodable(&Zstandard, format!("{raw_len} bytes"), written.to_string())),
        Err(error) => Err(undecodable(&Zstandard, format!("{raw_len} bytes of zstd data"), error.to_string())),
    }
}

impl Codec for Zstandard {
    fn info(&self) -> CodecInfo {
        table::ZSTANDARD
    }
    fn encode(&self, raw: &[u8], setting: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        scratch.compress(raw, setting, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        scratch.decompress(payload, raw_len, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of hexadecimal numbers that does not repeat.
    fn text(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut bytes = Vec::with_capacity(len + 16);
        while bytes.len() < len {
            state = state.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(1);
            let number = (state >> 54) as u32;
            bytes.extend_from_slice(format!("{:x} ", number.wrapping_mul(2_654_435_761)).as_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn smaller_tables_cost_little_and_give_standard_zstd() {
        let mut scratch = Scratch::default();
        for len in [0, 1, 7, 1000, 100_000, 300_000, 524_288, 1_500_000] {
            let raw = text(len);
            for level in [3, 6] {
                let mut encoded = Vec::new();
                scratch.compress(&raw, level, &mut encoded).unwrap();
                let own = zstd::bulk::compress(&raw, level).unwrap().len();
                assert!(encoded.len() <= own + own / 50 + 8, "{len}, {level}: {} instead of {own}", encoded.len());
                assert_eq!(zstd::bulk::decompress(&encoded, len).unwrap(), raw);
            }
        }
    }

    #[test]
    fn smaller_tables_are_used_for_their_levels_only() {
        let raw = text(524_288);
        let mut scratch = Scratch::default();
        for level in [1, 2, 3, 4, 1, 6, 9, 3, 5, 6] {
            let mut encoded = Vec::new();
            scratch.compress(&raw, level, &mut encoded).unwrap();
            let own = zstd::bulk::compress(&raw, level).unwrap();
            assert_eq!(encoded == own, level != 3 && level != 6, "{level}");
        }
    }

    #[test]
    fn what_a_context_encoded_before_changes_nothing() {
        let mut scratch = Scratch::default();
        for seed in 0..40usize {
            let raw = &text(524_288)[..524_288 - seed * seed * 300];
            for level in [[3, 6], [6, 3], [6, 6]][seed % 3] {
                let (mut again, mut fresh) = (Vec::new(), Vec::new());
                scratch.compress(raw, level, &mut again).unwrap();
                Scratch::default().compress(raw, level, &mut fresh).unwrap();
                assert!(again == fresh, "{seed}, {level}");
            }
        }
    }
}
