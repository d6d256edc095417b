//! Kernels: pure loops on slices that never fail.
//!
//! The loops never allocate: the entropy coders make their tables and buffers beforehand. Tests compare each loop with
//! a readable scalar reference. The kernel names no other module of the crate.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod bits;
pub mod compare;
pub mod counts;
pub mod cpu_features;
pub mod deinterleave;
pub mod delta;
pub mod elements;
pub mod entropy;
pub mod interleave;
mod lanes;
pub mod planes;
pub mod prefix;
pub mod rans;
pub mod repeats;
pub mod sieve;
mod vector;
pub mod windows;
