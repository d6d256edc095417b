//! Stores: named, immutable blobs.
//!
//! 1. A blob is put once, whole, and never changes. [`Store::put`] is atomic and durable, for any number of
//!    concurrent processes.
//! 2. A blob is read whole, with a limit, or by range. Blobs are listed by prefix and deleted by name.
//! 3. A [`BlobName`] says what the blob is. `kind` has the table of kinds. The prefix `tmp` is reserved for the store.
//! 4. [`open`] and [`create`] select the implementation by URL scheme. A new kind of store is one file here and one
//!    line in the table in `scheme`.
//!
//! Every implementation and every wrapper passes the suite in `contract`.

mod arc;
mod blob;
mod cache_files;
mod cached;
mod cached_fragments;
mod cold;
mod counting;
mod directories;
pub(crate) mod disk;
mod faulty;
mod interface;
mod kind;
mod local;
mod local_directories;
mod local_file;
mod local_listing;
mod memory;
mod name;
mod observed;
mod options;
mod overlay;
mod parallel;
mod parity;
mod rate;
mod recent_containers;
mod remote;
pub mod runtime;
mod scheme;
mod sealed;
mod sftp;
mod slots_in_use;
mod stopping;
mod temporary;

#[cfg(test)]
mod contract;
#[cfg(test)]
use crate::error::Error;
#[cfg(test)]
pub(crate) use kind::named;

pub use blob::{
    BlobMetadata, ListedBlob, again, check_hash, get_hashed, newer_or_wrong, read_again, read_stored_hash, read_stream,
};
pub use cached::CachedStore;
pub use cold::{ColdState, ObjectTag, StorageClass, StorageClasses, ThawRequest, ThawState, Thawing};
pub use counting::{CountingStore, StoreCounters, StoreCounts};
pub use directories::NO_DIRECTORY;
pub use disk::{sync_content, sync_name};
pub use faulty::{FaultyStore, InjectedFault};
use interface::no_locks;
pub use interface::{
    Durable, Locks, NewName, OtherCopy, PutBlob, PutOptions, ReadTwice, Reading, Sealing, Store, StoreExt,
    StoreProperties,
};
pub use kind::{BlobKind, BlobName, BlobPrefix};
pub use local::LocalStore;
pub use local_file::LocalFile;
pub use memory::MemoryStore;
pub use name::is_slot_id;
pub use observed::{ObservedStore, StoreCall, StoreObserver};
pub use options::{AccessKey, Patience, StoreOptions};
pub use overlay::OverlayStore;
pub use parallel::{map_parallel, try_map_parallel};
pub use parity::{BytesInTheWay, ParityFound, ParityShare, ParityStore, SHORT_KINDS, only_bytes, parity_away};
pub use rate::RateLimits;
pub use remote::{
    BucketRequests, BucketUpload, ExpectedObject, Fetched, ListedObject, ObjectPage, ObjectPut, ObjectRange,
    ObjectState, ObjectToPut, PageTokens, RemoteStore, SourceBucket,
};
pub use scheme::{create, create_with, is_bucket, is_remote, local_path, open, open_with};
pub use sealed::SealedStore;
pub use sftp::SftpStore;
pub use stopping::{StoppingReader, StoppingStore};
