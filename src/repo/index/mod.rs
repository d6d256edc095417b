//! From fingerprints to places: segments in the repository, a local database as their cache, the four-level look-up
//! of the backup, the locator of everything that reads, and the similarity index of sub-block deduplication.

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
