//! The engines: each operation as a list of stages or a short program over the repository's objects.

mod adopt;
pub mod backup;
pub mod check;
pub mod content;
pub mod distance;
pub mod known;
mod label;
pub mod lineage;
pub mod list;
pub mod models;
mod naming;
pub mod restore;
pub mod stats;
pub mod tensor;
pub mod trace;
