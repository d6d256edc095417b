//! Indexes: from fingerprints and features to entries.
//!
//! Segments in the repository list all chunks, and a local database caches them. A backup looks up chunks in four
//! levels (`chunk`), readers use the locator (`locate`), and sub-block deduplication uses the similarity index.

mod chunk;
mod container_indexes;
mod database;
mod filter;
mod locate;
mod presence;
mod resolver;
mod segment;
mod similarity;

pub use chunk::{ChunkIndex, Hits};
pub use container_indexes::{ContainerIndexes, SharedContainerIndexes, read_container_index};
pub use database::{DATABASE_FILE, Database};
pub use locate::{ContainerListing, LocatedEntry, Locator};
pub use presence::ChunkPresence;
pub use resolver::Resolver;
pub use segment::{IndexRecord, IndexSegment, PREFIX, write_segment};
pub use similarity::{SessionContainer, Similar, SimilarityFiles, SimilarityIndex};
