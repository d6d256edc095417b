//! fhrd: a data-reduction backup engine for mixed workloads.
//!
//! The crate is layered; a lower layer never names a higher one. ARCHITECTURE.md is the map.

pub mod child;
pub mod config;
pub mod error;
pub mod memory;
pub mod metrics;
pub mod read_at;
pub mod text;
pub mod types;
pub mod wire;

pub mod codec;
pub mod crypto;
pub mod format;
pub mod html;
pub mod kernel;
pub mod opened;
pub mod pipeline;
pub mod store;

pub mod chunk;
pub mod filesystem;
pub mod model;
pub mod repo;
pub mod similar;

pub mod backup;
pub mod import;
pub mod inspect;
pub mod keep;
pub mod mount;
pub mod overview;
pub mod repair;
pub mod restore;
#[cfg(feature = "serve")]
pub mod serve;

pub mod cli;

pub use error::{Error, Result};
