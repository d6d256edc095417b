//! Large blocks of memory, in huge pages where the system has them.
//!
//! A page of 4 KiB is given by the system when it is touched first, which on a virtual machine takes longer than
//! filling it. Caches of tens of megabytes are therefore laid in blocks that ask for pages of 2 MiB and are used again.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// Blocks are multiples of this, bytes: a huge page.
pub const BLOCK_BYTES: usize = 2 << 20;

/// A block of memory, zeros at first.
#[derive(Debug)]
pub struct MemoryBlock(MmapMut);

impl MemoryBlock {
    /// A block of at least `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no more.
    pub fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let map = MmapMut::map_anon(bytes).map_err(|error| Error::io("get memory", format!("{bytes} bytes"), error))?;
        #[cfg(target_os = "linux")]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!("no huge pages: {error}");
        }
        Ok(MemoryBlock(map))
    }
}

impl Deref for MemoryBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for MemoryBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_pages_of_zeros() {
        for (bytes, want) in [(0, 1), (1, 1), (BLOCK_BYTES, 1), (BLOCK_BYTES + 1, 2)] {
            let mut memory = MemoryBlock::new(bytes).expect("gets memory");
            assert_eq!(memory.len(), want * BLOCK_BYTES);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
