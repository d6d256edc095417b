//! Backup: the nine stages, in order.

mod adopt;
mod buffers;
pub mod chunk;
pub mod compress;
pub mod dedup;
pub mod hash;
pub mod identify;
mod listing;
pub mod message;
pub mod metadata;
pub mod model_encode;
pub mod parent;
pub mod read;
mod run;
pub mod save;
pub mod subdedup;

pub use run::*;
