//! Traces: lists of chunks without their content. They are read from Destor's text and FSL's hash files.

mod destor;
mod fsl;
mod input;
mod item;
#[cfg(test)]
mod read_tests;

pub use item::{
    CHUNK_BYTES_MAX, FINGERPRINT_BYTES, NAME_BYTES_MAX, Trace, TraceChunk, TraceFingerprint, TraceItem, open, recognise,
};
