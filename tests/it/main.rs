//! Integration tests, one binary.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod append_only;
#[cfg(feature = "bench")]
mod bench;
mod check;
mod check_snapshots;
mod cli;
mod compatibility;
mod copied;
mod crash;
mod crash_encrypted;
mod determinism;
mod encrypted_fixture;
mod families;
mod far;
mod flips;
mod forged;
mod golden;
mod golden_codecs;
mod golden_floats;
mod heal;
mod hooked;
mod hostile;
mod hostile_repository;
mod input;
mod interleavings;
mod list;
mod local_cache;
mod manifests;
mod memory_files;
mod models;
mod mount;
mod normal;
mod program;
mod repair;
mod repeated;
mod schemes;
mod segments;
mod servers;
mod strategies;
mod tidy;
mod trees;
mod unreadable;
mod weights;
mod wire;
mod withdrawn;
