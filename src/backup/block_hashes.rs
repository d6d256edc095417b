//! Fingerprints of blocks in memory, which one backup leaves for the next.
//!
//! A caller who says that bytes did not change gives the hashes that the backup before has left. Then the blocks that
//! the repository has are not read. A block that it does not have is hashed as ever before it is stored, so a name
//! never stands for other bytes. A caller who is wrong gets the bytes of the backup before.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::types::Fingerprint;

/// Fingerprints of the blocks of an array, by offset in the array and length, bytes.
#[derive(Debug, Default)]
pub struct BlockHashes(Mutex<HashMap<(u64, u32), Fingerprint>>);

/// The place of one block's fingerprint.
#[derive(Debug, Clone)]
pub struct HashNote {
    hashes: Arc<BlockHashes>,
    offset: u64,
}

impl HashNote {
    /// The place for the block at byte `offset` of the array of `hashes`.
    pub fn new(hashes: &Arc<BlockHashes>, offset: u64) -> Self {
        HashNote { hashes: hashes.clone(), offset }
    }

    /// The fingerprint of the block of `len` bytes, if a backup has left one.
    pub fn get(&self, len: u32) -> Option<Fingerprint> {
        let hashes = self.hashes.0.lock();
        hashes.get(&(self.offset, len)).copied()
    }

    /// Leaves the fingerprint of the block of `len` bytes.
    pub fn set(&self, len: u32, fingerprint: Fingerprint) {
        let mut hashes = self.hashes.0.lock();
        hashes.insert((self.offset, len), fingerprint);
    }
}
