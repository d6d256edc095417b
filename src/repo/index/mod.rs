//! Indexes: from fingerprints and features to entries.
//!
//! A chunk is stored if the index of a container names it. Segments in the repository list all chunks, and only find
//! them quickly. A backup looks up chunks in four levels (`chunk`), and a local `database` may answer before the last.
//! Readers use the locator (`locate`), and sub-block deduplication uses the similarity index.

mod chunk;
mod chunk_filter;
mod container_indexes;
mod coverage;
mod database;
mod filter;
mod listing;
mod listing_again;
mod locate;
mod lost;
mod maintain;
mod merge;
mod owner;
mod presence;
mod recovery;
mod resolver;
mod segment;
mod segment_writer;
pub mod similarity;
mod unlistable;
mod unread;
mod whole;

pub use chunk::{ChunkIndex, Hits, SegmentGuard};
pub use chunk_filter::FILTER_FILE;
pub use container_indexes::{
    ContainerIndexes, SharedContainerIndexes, cache_container_indexes, read_container_index, read_entry_count,
    read_fingerprints,
};
pub use coverage::poor_segment;
pub use database::{DATABASE_FILE, DatabaseFile, HASHES_FILE, HashDatabase};
pub use listing::ContainerListing;
pub use locate::{LocatedEntry, Locator, Soundness};
pub use lost::{MissingContainers, check_most_there, give_up_lost_containers, is_anything_bad, missing_containers};
pub use maintain::{
    delete_replaced_segments, delete_unreadable_segments, name_all_containers, name_containers,
    replace_damaged_segments, verify_segments, verify_small_segments,
};
pub use merge::{drop_deleted_containers, drop_gone_containers, merge_segments};
pub use presence::ChunkPresence;
pub use recovery::SegmentBatches;
pub use resolver::Resolver;
pub use segment::{IndexRecord, IndexSegment};
pub use segment_writer::{NewSegment, NewSegments, write_segment};
pub use similarity::{SessionContainer, Similar, SimilarHits, SimilarityFiles, SimilarityIndex};
pub use whole::WholeEntries;
