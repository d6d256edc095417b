//! Bounded memory: a least-recently-used cache with a limit in bytes, and large blocks of huge pages.

mod byte_lru;
mod memory;

pub use byte_lru::ByteLru;
pub use memory::{BLOCK_BYTES, MemoryBlock};
