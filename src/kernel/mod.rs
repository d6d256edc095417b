//! Kernels: pure loops on slices that never fail.
//!
//! The loops never allocate: the entropy coders make their tables and buffers beforehand. Tests compare each loop with
//! a readable scalar reference. The kernel names no other module of the crate. `dispatch` chooses among the loops for
//! the CPU features of the processor.

mod avx2;
pub mod bits;
pub mod byte_classes;
pub mod codebook;
pub mod compare;
#[cfg(test)]
mod counted;
pub mod counts;
pub mod cpu_features;
pub mod deinterleave;
pub mod delta;
mod dispatch;
pub mod elements;
pub mod entropy;
pub mod float_format;
pub mod float_mode;
pub mod interleave;
mod lanes;
pub mod peaks;
pub mod planes;
pub mod prefix;
pub mod quantise;
pub mod rans;
pub mod repeats;
pub mod scaled;
pub mod sieve;
pub mod windows;
pub mod zeros;
