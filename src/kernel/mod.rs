//! Kernels: pure loops on slices that never allocate and never fail; each has a readable twin as its oracle.

pub mod compare;
pub mod entropy;
pub mod planes;
pub mod sieve;
