//! What heals may take of the memory of a process.

use bytesize::ByteSize;

use crate::config::MEMORY_DEFAULT;
use crate::error::{Error, Result};

/// See the module. All in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HealMemory {
    /// A container and its parity, with what the code works on.
    pub heal: usize,
    /// What the code works on, of these.
    pub work: usize,
    /// Rebuilt bytes that stay for readers.
    pub rebuilt: usize,
    /// Memory of the process.
    of: u64,
}

impl Default for HealMemory {
    fn default() -> Self {
        HealMemory::within(MEMORY_DEFAULT.0)
    }
}

impl HealMemory {
    /// That of a process of about `bytes` bytes. A container of 32 MiB heals within 64 MiB.
    pub fn within(bytes: u64) -> Self {
        let part = |parts: u64| usize::try_from(bytes / 16 * parts).unwrap_or(usize::MAX);
        HealMemory { heal: part(10), work: part(1), rebuilt: part(2), of: bytes }
    }

    /// Checks that a container and its parity, together of `bytes` bytes, are not too large.
    ///
    /// # Errors
    /// [`Error::Usage`] with the memory that they need.
    pub fn check(&self, bytes: u64) -> Result<()> {
        // Part 10 of 16 has both, and part 1 what the code works on.
        self.check_part(bytes, self.heal - self.work, 9)
    }

    /// The same for rebuilt bytes.
    ///
    /// # Errors
    /// Errors of [`Self::check`].
    pub fn check_rebuilt(&self, bytes: usize) -> Result<()> {
        self.check_part(bytes as u64, self.rebuilt, 2)
    }

    /// The same for the bytes of a container alone.
    ///
    /// # Errors
    /// Errors of [`Self::check`].
    pub fn check_whole(&self, bytes: u64) -> Result<()> {
        self.check_part(bytes, self.heal, 10)
    }

    fn check_part(&self, bytes: u64, bytes_max: usize, parts: u64) -> Result<()> {
        if bytes <= bytes_max as u64 {
            return Ok(());
        }
        let needed = bytes.div_ceil(parts).saturating_mul(16).div_ceil(1 << 20);
        Err(Error::Usage(format!("that takes `--memory {needed}MiB`, and there is {}", ByteSize(self.of))))
    }
}
