//! Raw: the bytes unchanged, for frames that do not compress.

use super::{Codec, CodecInfo, Scratch, table, undecodable};
use crate::error::Result;

/// The identity codec.
pub struct Raw;

impl Codec for Raw {
    fn info(&self) -> CodecInfo {
        table::RAW
    }
    fn encode(&self, raw: &[u8], _: i32, _: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(raw);
        Ok(())
    }
    fn decode(&self, payload: &[u8], raw_len: usize, _: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        if payload.len() != raw_len {
            return Err(undecodable(self, format!("{raw_len} bytes"), payload.len().to_string()));
        }
        out.extend_from_slice(payload);
        Ok(())
    }
}
