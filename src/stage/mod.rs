//! The stages, one file each. Backup: Read, Chunk, Hash, Dedup, Identify, SubDedup, ModelEncode, Compress, Save.
//! Restore: Plan, Fetch, Decode, Gather, Write, Finish.

pub mod ahead;
mod buffers;
pub mod chunk;
pub mod compress;
pub mod decode;
pub mod dedup;
pub mod earlier;
pub mod fetch;
pub mod finish;
mod frame_cache;
pub mod gather;
pub mod hash;
pub mod identify;
mod listing;
pub mod metadata;
pub mod model_encode;
pub mod model_file;
pub mod models;
pub mod parent;
pub mod plan;
pub mod read;
pub mod restored;
pub mod save;
pub mod subdedup;
pub mod write;
