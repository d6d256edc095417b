//! The repository: its configuration, and every object that it stores.
//!
//! Containers hold encoded chunks, the index finds them, recipes and trees say how files are made of them, and
//! snapshots name the roots. The reader puts all of these back together.

pub mod container;
pub mod index;
pub mod paths;
pub mod reader;
pub mod recipe;
mod repository;
pub mod snapshot;
pub mod stored_file;
pub mod tree;

pub use repository::Repository;
