//! Repair: what can be done about damage without the source.
//!
//! | module | does |
//! |---|---|
//! | [`quarantine`] | Records what a check found bad, so that writers store it again. |
//! | [`index`] | Writes the segments again from the indexes of the containers. |
//! | [`containers`] | Stores again what is readable of containers with a damaged index. |
//! | [`snapshots`] | Writes damaged snapshots again without what is lost. |
//!
//! Every step first writes what replaces something, and deletes after that. So a repair may be killed at any point,
//! and run again.

mod away;
mod catalogue;
pub mod containers;
pub mod index;
pub mod quarantine;
mod returned;
mod snapshot_blobs;
pub mod snapshots;
mod writer;

#[cfg(test)]
mod power_cut_tests;
