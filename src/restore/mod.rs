//! Restore: the six stages, in order.

pub mod decode;
pub mod fetch;
pub mod finish;
mod frame_cache;
pub mod gather;
pub mod message;
pub mod plan;
mod run;
pub mod write;

pub use run::*;
