//! The repository: its configuration, and every object that it stores.
//!
//! Containers hold encoded chunks, and the index locates them. Recipes describe files as lists of chunks, trees hold
//! the metadata of directories, and snapshots name the roots. [`read`] reassembles all of these.

pub mod adopt;
mod blob_cache;
pub mod bundle;
pub mod checkpoint;
pub mod claims;
pub mod clock;
pub mod cold;
mod cold_store;
pub mod container;
mod encryption;
pub mod features;
pub mod heal;
mod hot_index;
pub mod in_bucket;
pub mod index;
#[cfg(test)]
mod init_power_cut_tests;
pub mod keys;
pub mod marks;
mod metadata_copies;
mod metadata_writer;
mod moved;
pub mod naming;
pub mod open;
pub mod overwritten;
pub mod parity;
pub mod paths;
pub mod pause;
pub mod published;
pub mod read;
pub mod reads;
pub mod rebuilt;
pub mod recipe;
mod record;
mod rehearsal;
pub mod reliance;
mod remembered;
mod repository;
pub mod salts;
mod scratch;
pub mod seen;
pub mod share_record;
pub mod snapshot;
pub mod snapshot_groups;
pub mod snapshot_listing;
pub mod sweep;
pub mod tags;
pub mod tree;
pub mod unknown_keys;
pub mod upload;
pub mod vanished;

pub use blob_cache::BlobCache;
pub use cold_store::ColdStore;
pub use encryption::{Encryption, HeldBack};
pub use metadata_writer::{ListingBase, MetadataBase, MetadataWriter};
pub use record::check_configuration;
pub use rehearsal::Rehearsal;
pub use remembered::RememberedRepository;
pub use repository::{AskUnlock, Repository};
pub use scratch::ScratchDirectory;
