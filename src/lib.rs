//! fhrd: a data-reduction backup engine for mixed workloads.
//!
//! The crate is layered; a lower layer never names a higher one:
//! L0 [`error`] [`types`] [`wire`] [`config`] [`metrics`] ·
//! L1 [`kernel`] [`format`] [`codec`] [`store`] [`pipeline`] ·
//! L2 the repository's objects ·
//! L3 the stages · L4 the engines · L5 the command line and the bench.

pub mod config;
pub mod engine;
pub mod error;
pub mod metrics;
pub mod types;
pub mod wire;

pub mod codec;
pub mod format;
pub mod kept;
pub mod kernel;
pub mod memory;
pub mod pipeline;
pub mod store;

pub mod container;
pub mod filesystem;
pub mod identify;
pub mod index;
pub mod lineage;
pub mod message;
pub mod place;
pub mod reader;
pub mod recipe;
pub mod repo;
pub mod snapshot;
pub mod stage;
pub mod subdedup;
pub mod tree;

pub mod bench;
pub mod chunker;
pub mod cli;

pub use error::{Error, Result};
