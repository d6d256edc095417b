//! Traces: lists of chunks without their content. They are read from Destor's text and FSL's hash files, and stand for
//! successive backups in a simulation of indexes, rewriting methods and restore caches. Nothing is stored: it is about
//! how many containers there are and are read, chunks counting with all their bytes.

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
pub use report::{SimulatedBackup, SimulatedRestore, run};
pub use summary::summary;
