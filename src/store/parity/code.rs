//! The Reed-Solomon code: recovery shards of data shards, and lost data shards from the others.

use reed_solomon_simd::{Error as CodeError, ReedSolomonDecoder, ReedSolomonEncoder};

use super::layout::{ParityLayout, SHARD_UNIT};
use crate::error::{Error, Result};

fn failed(error: CodeError) -> Error {
    Error::internal(format!("parity: {error}"))
}

/// Computes recovery shards, of one container after another. Its memory is about the bytes of the largest one.
#[derive(Default)]
pub(super) struct ParityEncoder {
    encoder: Option<ReedSolomonEncoder>,
    /// A shard that lies in several parts, or the last one.
    shard: Vec<u8>,
}

impl ParityEncoder {
    /// Calls `data` with each shard of the concatenation of `parts`, and `recovery` with each recovery shard.
    ///
    /// # Errors
    /// [`Error::Internal`] if the layout is not that of `parts`.
    pub fn encode(
        &mut self,
        layout: &ParityLayout,
        parts: &[&[u8]],
        mut data: impl FnMut(&[u8]),
        mut recovery: impl FnMut(&[u8]),
    ) -> Result<()> {
        let ParityLayout { shard_bytes, data_shards, recovery_shards, .. } = *layout;
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder.reset(data_shards, recovery_shards, shard_bytes).map_err(failed)?;
                encoder
            }
            none => none.insert(ReedSolomonEncoder::new(data_shards, recovery_shards, shard_bytes).map_err(failed)?),
        };
        let mut add = |shard: &[u8]| {
            data(shard);
            encoder.add_original_shard(shard).map_err(failed)
        };
        self.shard.clear();
        for part in parts {
            let missing = (shard_bytes - self.shard.len()) % shard_bytes;
            let (first, rest) = part.split_at(missing.min(part.len()));
            self.shard.extend_from_slice(first);
            if self.shard.len() == shard_bytes {
                add(&self.shard)?;
                self.shard.clear();
            }
            let whole = rest.chunks_exact(shard_bytes);
            self.shard.extend_from_slice(whole.remainder());
            for shard in whole {
                add(shard)?;
            }
        }
        if !self.shard.is_empty() {
            self.shard.resize(shard_bytes, 0);
            add(&self.shard)?;
        }
        let encoded = encoder.encode().map_err(failed)?;
        encoded.recovery_iter().for_each(&mut recovery);
        Ok(())
    }
}

/// Computes the shards `lost` of `data`, which has all shards of a container, from the others and from recovery shards.
/// Returns `false`, and changes nothing, if these are too few.
///
/// The code works on each 64 bytes of a shard alone. So shards are cut into columns, of which those are taken together
/// that the code works on in `work_bytes` bytes.
///
/// # Errors
/// [`Error::Internal`] if the layout is not that of `data`.
pub(super) fn restore_shards<'a>(
    layout: &ParityLayout,
    data: &mut [u8],
    lost: &[usize],
    recovery: impl Iterator<Item = (usize, &'a [u8])>,
    work_bytes: usize,
) -> Result<bool> {
    let ParityLayout { shard_bytes, data_shards, recovery_shards, .. } = *layout;
    let recovery: Vec<(usize, &[u8])> = recovery.take(lost.len()).collect();
    if recovery.len() < lost.len() {
        return Ok(false);
    }
    let width = (work_bytes / layout.work_shards()).clamp(SHARD_UNIT, shard_bytes) / SHARD_UNIT * SHARD_UNIT;
    for start in (0..shard_bytes).step_by(width) {
        let columns = start..shard_bytes.min(start + width);
        let mut decoder = ReedSolomonDecoder::new(data_shards, recovery_shards, columns.len()).map_err(failed)?;
        let mut next_lost = lost.iter().peekable();
        for (number, shard) in data.chunks_exact(shard_bytes).enumerate() {
            if next_lost.next_if(|lost| **lost == number).is_none() {
                let part = shard.get(columns.clone()).unwrap_or_default();
                decoder.add_original_shard(number, part).map_err(failed)?;
            }
        }
        for (number, shard) in &recovery {
            let part = shard.get(columns.clone()).unwrap_or_default();
            decoder.add_recovery_shard(*number, part).map_err(failed)?;
        }
        let decoded = decoder.decode().map_err(failed)?;
        for (number, part) in decoded.restored_original_iter() {
            let at = number * shard_bytes;
            if let Some(target) = data.get_mut(at + columns.start..at + columns.end) {
                target.copy_from_slice(part);
            }
        }
    }
    Ok(true)
}
