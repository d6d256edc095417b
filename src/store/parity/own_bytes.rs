//! Whose bytes are under the name of a blob, where they are damaged or cannot all be read.

use super::store::ParityStore;
use crate::error::Result;
use crate::store::{BlobName, Reading};

/// Bytes that a device gives as a whole or not at all, at least.
const SECTOR_BYTES: usize = 4096;
/// Bytes that are read at once, if all of them can be read.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes that two containers have in common at the same offset by no chance.
const SAMPLE_BYTES: usize = 64;
/// Bytes are those of a blob if at least one sample in as many is.
const OWN_SHARE: usize = 5;

/// How many samples of some bytes are those of a blob at the same offset.
#[derive(Default)]
struct OwnSamples {
    equal: usize,
    all: usize,
}

impl OwnSamples {
    fn add(&mut self, offset: u64, bytes: &[u8], right: &[u8]) {
        let own = right.get(offset as usize..).unwrap_or_default();
        for (number, sample) in bytes.chunks(SAMPLE_BYTES).enumerate() {
            // Headers are alike, and one value over and over is nobody's.
            if offset == 0 && number == 0 || sample.iter().all(|byte| Some(byte) == sample.first()) {
                continue;
            }
            self.all += 1;
            let start = number * SAMPLE_BYTES;
            self.equal += usize::from(own.get(start..start + sample.len()) == Some(sample));
        }
    }

    fn is_own(&self) -> bool {
        self.equal * OWN_SHARE >= self.all
    }
}

impl ParityStore {
    /// Whether what can be read under the name of a blob is a part of `right`, its right bytes, or nobody's. If
    /// nothing that can be read tells, its length does.
    ///
    /// # Errors
    /// Errors of the store that are no damage.
    pub fn is_part_of(&self, name: &BlobName, right: &[u8]) -> Result<bool> {
        let Some(len) = self.inner.len_of(name)? else { return Ok(true) };
        let (mut samples, mut is_unread) = (OwnSamples::default(), false);
        for start in (0..len).step_by(WINDOW_BYTES) {
            let window = WINDOW_BYTES.min((len - start) as usize);
            let read = |offset, len| match self.inner.get_range(name, offset, len, Reading::FromStore) {
                Err(error) if error.is_unreadable() => Ok(None),
                bytes => bytes.map(Some),
            };
            if let Some(bytes) = read(start, window)? {
                samples.add(start, &bytes, right);
                continue;
            }
            for offset in (start..start + window as u64).step_by(SECTOR_BYTES) {
                let bytes = read(offset, SECTOR_BYTES.min((len - offset) as usize))?;
                is_unread |= bytes.is_none();
                bytes.into_iter().for_each(|bytes| samples.add(offset, &bytes, right));
            }
        }
        Ok(match samples.all {
            // Nothing tells: what was not read may be of another blob of another length.
            0 => !is_unread || len == right.len() as u64,
            _ => samples.is_own(),
        })
    }
}
