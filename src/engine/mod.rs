//! The engines: each operation as a list of stages or a short program over the repository's objects.

mod adopt;
pub mod backup;
pub mod check;
pub mod list;
pub mod restore;
pub mod stats;
