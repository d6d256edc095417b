//! Bounded memory: a least-recently-used cache with a limit in bytes and its counts, and large blocks of huge pages.

mod block;
mod byte_lru;
mod look_ups;

pub use block::{BLOCK_BYTES, MemoryBlock};
pub use byte_lru::ByteLru;
pub use look_ups::LookUps;
