//! Xet: what clients send that know no other way for large files.
//!
//! 1. A client cuts files into chunks, and sends new ones in xorbs (`xorb_reader`). Then it sends shards
//!    (`shard_reader`), which say of which ranges of chunks of which xorbs each file consists.
//! 2. A xorb is stored as a snapshot of its own (`xorbs`): its chunks one after another, and a table of them
//!    (`chunk_table`), until it expires. Clients remember for three weeks what they have sent, so it expires later.
//! 3. A file of a shard is put together from its xorbs, and becomes an object like any other (`shards`), which a commit
//!    names by its SHA-256. The tables of its xorbs then refer to it (`refer`), and their own bytes are deleted.
//!
//! Every hash is computed here (`hash`) and compared: of chunks, xorbs, terms and files, and the SHA-256 of each file.
//! Lengths that a client claims never reserve memory.

mod chunk_table;
mod hash;
mod refer;
mod shard_reader;
mod shards;
mod xorb_reader;
mod xorbs;

pub use hash::{HashTree, XetHash};
pub use shard_reader::{SHARD_BYTES_MAX, ShardFile, ShardReader, ShardTerm, ShardXorb};
pub use shards::CheckedShard;
pub use xorb_reader::{SENT_BYTES_MAX, XorbChunk, XorbReader};
pub use xorbs::ReceivedXorb;

use std::io::{ErrorKind, Read};

use super::SPOOLED;
use super::fault::CommitFault;
use crate::error::Error;

/// Bytes of a record of a shard, and of a chunk table.
const RECORD_BYTES: usize = 48;
/// Chunks of a xorb, at most.
pub const CHUNKS_MAX: usize = 8 << 10;
/// Bytes of a chunk, at most.
pub const CHUNK_BYTES_MAX: usize = 128 << 10;

fn refused(reason: impl Into<String>) -> CommitFault {
    CommitFault::Refused(reason.into())
}

/// Fills `space` from `input`. Returns how many bytes there were.
fn fill(input: &mut impl Read, space: &mut [u8]) -> Result<usize, CommitFault> {
    let mut filled = 0;
    while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", SPOOLED, error).into()),
        }
    }
    Ok(filled)
}
