//! Kernels: pure loops on slices that never fail; each has a readable twin as its oracle. The loops never allocate; the
//! entropy coder makes its tables and its buffer in front of them.

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
pub mod sieve;
mod vector;
pub mod windows;
