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
pub use container_indexes::{ContainerIndexes, Shared as SharedContainerIndexes, read_container_index};
pub use database::{DATABASE_FILE, Database};
pub use locate::{Listing, Located, Locator};
pub use presence::Presence;
pub use resolver::Resolver;
pub use segment::{PREFIX, Record, Segment, write_segment};
pub use similarity::{SessionShare, Similar, SimilarityIndex, SimilarityPlace};
