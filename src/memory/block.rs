//! Large blocks of memory in huge pages, where the system has them.
//!
//! The system maps a page of 4 KiB on first access. On a virtual machine that takes longer than filling the page.
//! Caches of tens of megabytes therefore consist of reusable blocks that request pages of 2 MiB.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// Size of a huge page, bytes. Block sizes are multiples of it.
pub const BLOCK_BYTES: usize = 2 << 20;

/// A block of memory, initially zero.
#[derive(Debug)]
pub struct MemoryBlock(MmapMut);

impl MemoryBlock {
    /// Allocates a block of at least `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no memory left.
    pub fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let map = MmapMut::map_anon(bytes).map_err(|error| Error::io("allocate", format!("{bytes} bytes"), error))?;
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
    fn a_block_consists_of_whole_zeroed_pages() {
        for (bytes, want) in [(0, 1), (1, 1), (BLOCK_BYTES, 1), (BLOCK_BYTES + 1, 2)] {
            let mut memory = MemoryBlock::new(bytes).expect("allocates");
            assert_eq!(memory.len(), want * BLOCK_BYTES);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
