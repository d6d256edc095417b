//! zstd: one frame is one zstd frame without a dictionary.

use super::{Codec, Scratch, undecodable};
use crate::error::{Error, Result};

/// zstd at the level given as the setting.
pub struct Zstandard;

impl Scratch {
    /// Appends the zstd compression of `raw` at `level` to `out`.
    pub fn compress(&mut self, raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
        let failed = |error| Error::io("compress a frame in", "memory", error);
        let encoder = match &mut self.encoder {
            Some((current, encoder)) if *current == level => encoder,
            slot => &mut slot.insert((level, zstd::bulk::Compressor::new(level).map_err(failed)?)).1,
        };
        let bound = zstd::zstd_safe::compress_bound(raw.len());
        if out.is_empty() {
            // Straight into spare capacity: no byte is written twice.
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
            // Straight into spare capacity, which is just what may be written.
            let written = self.decoder()?.decompress_to_buffer(payload, out);
            return whole(written, raw_len);
        }
        out.resize(start + raw_len, 0);
        self.decompress_into(payload, out.get_mut(start..).unwrap_or_default())
    }

    /// Fills `space` with bytes decompressed from `payload`, which are exactly as many.
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

/// Whether all bytes were written.
fn whole(written: std::io::Result<usize>, raw_len: usize) -> Result<()> {
    match written {
        Ok(written) if written == raw_len => Ok(()),
        Ok(written) => Err(undecodable(&Zstandard, format!("{raw_len} bytes"), written.to_string())),
        Err(error) => Err(undecodable(&Zstandard, format!("{raw_len} bytes of zstd data"), error.to_string())),
    }
}

impl Codec for Zstandard {
    fn id(&self) -> u8 {
        1
    }
    fn name(&self) -> &'static str {
        "zstd"
    }
    fn encode(&self, raw: &[u8], setting: i32, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        scratch.compress(raw, setting, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        scratch.decompress(payload, raw_len, out)
    }
}
