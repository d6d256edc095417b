//! The database of chunks: the last level of the FHRD paper (4.3), a key-value store on the local disk.
//!
//! `chunk_database` maps fingerprints to entries with redb, `checked_file` lies below redb and passes on only what redb
//! has written. `quiet_panic` catches the panics of redb.

mod checked_file;
mod chunk_database;
mod quiet_panic;

pub(super) use chunk_database::ChunkDatabase;
pub use chunk_database::{DATABASE_FILE, DatabaseFile};
