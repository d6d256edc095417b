//! Reading: chunks by fingerprint, and files at any offset without restoring them.
//!
//! 1. A [`ChunkReader`] belongs to one thread. It reads chunks and walks recipes and listings.
//! 2. A [`Reader`] serves any number of threads. It lends each call a chunk reader, and all of these share one listing,
//!    the container indexes and what they have decoded.
//! 3. A [`StoredFile`] is the content of a file in a [`Reader`]: a [`crate::read_at::ReadAt`].
//! 4. What is decoded is kept in one cache of the process, whose limits bound the memory of all readers.

mod chunks;
mod content;
mod passing;
mod read_cache;
#[cfg(test)]
mod read_cache_tests;
mod reader;
mod rebuilt;
mod stored_file;

pub use chunks::{ChunkReader, RecipeWalk, at_least_one, is_whole};
pub use content::{LocatedRange, write_zeros};
pub use reader::Reader;
pub use rebuilt::RebuiltStream;
pub use stored_file::StoredFile;
