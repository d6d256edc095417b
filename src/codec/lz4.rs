//! lz4: one frame is one LZ4 block. The raw length in the frame header bounds the decoder.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::{Codec, CodecInfo, Scratch, table, undecodable};
use crate::error::{Error, Result};

/// LZ4 in its block format. It has no levels.
pub struct Lz4;

/// Appends the LZ4 block of `raw` to `out`.
pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + get_maximum_output_size(raw.len()), 0);
    let written = compress_into(raw, out.get_mut(start..).unwrap_or_default())
        .map_err(|error| Error::io("compress a frame in", "memory", std::io::Error::other(error)))?;
    out.truncate(start + written);
    Ok(())
}

/// Appends the `raw_len` bytes of an LZ4 block in a payload of `codec` to `out`.
pub(super) fn unpack(codec: &dyn Codec, block: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + raw_len, 0);
    let written = decompress_into(block, out.get_mut(start..).unwrap_or_default())
        .map_err(|error| undecodable(codec, format!("an LZ4 block of {raw_len} bytes"), error.to_string()))?;
    if written != raw_len {
        return Err(undecodable(codec, format!("{raw_len} bytes"), written.to_string()));
    }
    Ok(())
}

impl Codec for Lz4 {
    fn info(&self) -> CodecInfo {
        table::LZ4
    }
    fn encode(&self, raw: &[u8], _: i32, _: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        pack(raw, out)
    }
    fn decode(&self, payload: &[u8], raw_len: usize, _: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        unpack(self, payload, raw_len, out)
    }
}
