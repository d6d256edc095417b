//! Memory that is bounded: a least-recently-used cache bounded by bytes, and large blocks in huge pages.

mod byte_lru;
mod memory;

pub use byte_lru::ByteLru;
pub use memory::{BLOCK_BYTES, MemoryBlock};
