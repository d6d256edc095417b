//! Remembers files with several names until their other names come, within a bound on memory.
//!
//! A file is known by [`Node::file_digest`](crate::repo::tree::Node::file_digest): two names are joined only if the
//! snapshot gives them the same content and metadata, whatever it says of their inode.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::message::InodeState;

/// Memory of one inode besides its path, bytes, about.
const INODE_BYTES: u64 = 208;

/// The inodes used last. An inode that was forgotten is restored as a file of its own when it comes again.
pub struct Inodes {
    cache: LruCache<[u8; 32], RememberedInode>,
    bytes: u64,
    bytes_max: u64,
}

struct RememberedInode {
    state: Arc<Mutex<InodeState>>,
    bytes: u64,
}

impl Inodes {
    /// Takes at most `bytes_max` bytes, about.
    pub fn new(bytes_max: u64) -> Self {
        Inodes { cache: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// What became of an inode.
    pub fn find(&mut self, file: &[u8; 32]) -> Option<Arc<Mutex<InodeState>>> {
        self.cache.get(file).map(|inode| inode.state.clone())
    }

    /// Remembers an inode. `path_len` is the length of its path, which `state` is to hold.
    pub fn insert(&mut self, file: [u8; 32], path_len: usize, state: Arc<Mutex<InodeState>>) {
        let bytes = INODE_BYTES + path_len as u64;
        self.bytes += bytes;
        if let Some((_, old)) = self.cache.push(file, RememberedInode { state, bytes }) {
            self.bytes -= old.bytes;
        }
        while self.bytes > self.bytes_max {
            let Some((_, old)) = self.cache.pop_lru() else { break };
            self.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_least_recently_used_inode_is_forgotten() {
        let file = |number: u16| [number.to_le_bytes(); 16].as_flattened().try_into().unwrap();
        let mut inodes = Inodes::new(100 * (INODE_BYTES + 1000));
        for number in 0..1000 {
            inodes.insert(file(number), 1000, Arc::new(Mutex::new(InodeState::Pending)));
            assert!(inodes.find(&file(0)).is_some() && inodes.bytes <= inodes.bytes_max);
        }
        assert_eq!(inodes.cache.len(), 100);
        assert!(inodes.find(&file(1)).is_none() && inodes.find(&file(999)).is_some());
    }
}
