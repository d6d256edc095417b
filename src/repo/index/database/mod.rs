//! Databases on the local disk. That of chunks is the last level of the FHRD paper (4.3), a key-value store.
//!
//! `chunk_database` maps fingerprints to entries with redb, `hash_database` remembers hashes of contents, and
//! `checked_file` lies below redb and passes on only what redb has written. `quiet_panic` catches the panics of redb.

mod checked_file;
mod chunk_database;
mod hash_database;
mod quiet_panic;

pub(super) use chunk_database::ChunkDatabase;
pub use chunk_database::{DATABASE_FILE, DatabaseFile};
pub use hash_database::{HASHES_FILE, HashDatabase};
