//! Traces: lists of chunks without content, read from the text of Destor or the hash files of FSL.
//!
//! Traces represent successive backups in a simulation of indexes, rewriting methods and restore caches. Nothing is
//! stored. The simulation counts the containers that are written and read. Chunks count with their full length.

mod containers;
mod destor;
mod fsl;
mod index;
mod input;
mod item;
mod plan;
#[cfg(test)]
mod read_tests;
mod report;
mod restore;
mod rewrite;
mod simulate;
mod summary;

pub use item::{
    CHUNK_BYTES_MAX, FINGERPRINT_BYTES, NAME_BYTES_MAX, Trace, TraceChunk, TraceFingerprint, TraceItem, open, recognise,
};
pub use plan::TraceBench;
pub use report::{SimulatedBackup, SimulatedRestore};
