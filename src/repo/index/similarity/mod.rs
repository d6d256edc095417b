//! The similarity index: from a feature to the entries, stored or of the running session, that have it.
//!
//! 1. The first look-up opens the index, so a backup without new chunks does not touch it.
//! 2. The [table] is in the file `similarity.pages`, the [containers of its numbers](numbers) are in
//!    `similarity.numbers`. A process locks the pages file. If it cannot, it uses a smaller table in memory.
//! 3. Opening drops containers that are no longer listed and reads the container indexes of new ones. If the files are
//!    lost, damaged, of another repository or larger than configured, it is empty first. Each opening adds the features
//!    of new containers up to a bound, those in the smallest segments first.
//! 4. Session entries get the numbers after those of the stored containers. The numbers file reserves such a number
//!    before it can reach a page. A successful run assigns the numbers to its containers. After a failed run they refer
//!    to nothing and are not used again.
//! 5. Features of containers that another machine has stored come from its [clues], if there are many: see there.
//! 6. The files are a cache. In the worst case they offer a wrong candidate, and bytes are always compared.

pub mod clues;
mod numbers;
mod pages;
mod partial;
mod session_clues;
mod similarity_index;
mod table;

pub use similarity_index::{SessionContainer, Similar, SimilarHits, SimilarityFiles, SimilarityIndex};
pub use table::HASH_MASK;
