//! Bounded memory: a least-recently-used cache with a limit in bytes, and large blocks of huge pages.

mod block;
mod byte_lru;

pub use block::{BLOCK_BYTES, MemoryBlock};
pub use byte_lru::ByteLru;
