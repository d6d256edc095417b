//! Parity: recovery shards of a container, from which damage heals without the source.
//!
//! 1. The stored bytes of a container are cut into shards of 4 KiB, which are one stripe of a Reed-Solomon code
//!    (`layout`). Any shards of container and parity, as many as the container has, give its bytes back (`code`).
//! 2. The blob `parity/<container>.shards` has the recovery shards, and a checksum of every shard, so that a reader
//!    knows which ones are bad (`blob`). It is not sealed: the shards are functions of bytes that are. Header and table
//!    are there twice, at both ends, so no sector is needed.
//! 3. [`ParityStore`] puts parity after each container, and answers with healed bytes once a reader has found that a
//!    container is damaged. The hash in the container's name judges what the code gives.

mod blob;
mod code;
mod guess;
mod heal;
mod in_the_way;
mod layout;
mod memory;
mod missing_blobs;
mod own_bytes;
mod rebuilt;
mod share;
mod store;
#[cfg(test)]
mod tests;

pub use heal::parity_away;
pub use in_the_way::{BytesInTheWay, only_bytes};
pub use share::ParityShare;
pub use store::{ParityFound, ParityStore, SHORT_KINDS};
