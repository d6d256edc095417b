//! Backup: twelve stages turn a source tree into a snapshot.
//!
//! 1. Walk walks the source tree and sends tree items, holes and what is to be read. It skips files unchanged since the
//!    parent snapshot.
//! 2. Read opens and reads files, in parallel.
//! 3. Chunk receives bytes and sends chunks: cut at content-defined boundaries, in tensors at block boundaries.
//! 4. Hash adds the fingerprint of each chunk, its keyed BLAKE3, in parallel.
//! 5. Dedup asks the chunk index for each chunk and drops the bytes of duplicates.
//! 6. Identify adds class, anchors and features of each new chunk, in parallel.
//! 7. Choose picks the stored chunks that each new chunk is compared with.
//! 8. Match finds the ranges that a new chunk shares with them, in parallel. With a strategy other than anchors, Choose
//!    and Match are left out.
//! 9. SubDedup receives chunks, makes copies in the new ones, plans deltas, and sends frames, entries and save items.
//! 10. ModelEncode encodes float frames and deltas, in parallel. It is left out if there can be none.
//! 11. Compress encodes the other frames, in parallel.
//! 12. Save receives encoded frames, entries and save items, and writes containers, recipes and listings.
//!
//! `stored.rs` takes the place of Walk and Read for a stored snapshot, `memory.rs` for files in memory, `stream.rs` for
//! a single stream. A dry run ends after Dedup, with Estimate.
//!
//! `backup` (in `run.rs`) prepares the run and commits the snapshot after Save has finished. `Wiring` builds each
//! stage from the configuration and links it to the one before. `message.rs` defines what the links carry.

mod block_hashes;
mod buffers;
mod changes;
#[cfg(test)]
mod changing_source_tests;
mod choose;
mod chunk;
mod commit;
mod compress;
mod dedup;
mod equal;
mod estimate;
mod hash;
mod identify;
mod indexes;
mod input;
mod known;
mod matching;
mod memory;
mod message;
mod model_encode;
mod parent;
mod parents;
mod read;
mod reading;
mod report;
mod rest;
mod roots;
mod run;
mod save;
mod segments;
mod sent;
mod stored;
mod stored_walk;
mod stream;
mod subdedup;
mod uploads;
mod walk;
mod wiring;

pub use block_hashes::BlockHashes;
pub use changes::CHANGES_TARGET;
pub use memory::{BorrowedPart, MemoryContent, MemoryFile};
pub use report::{BackupReport, BackupRequest, CopiedSnapshot, CopyPurpose, FileChanges};
pub use run::backup;
pub use stream::{StreamRequest, StreamSource};

use crate::error::Result;
use crate::metrics::StageMetrics;
use crate::pipeline::Link;

/// Links the stages in this order and runs them to the end of the stream.
fn run_stages<'a>(
    mut wiring: wiring::Wiring<'a>,
    read: input::InputStage<'a>,
) -> Result<(save::Saved, Vec<StageMetrics>)> {
    let link = find_new_chunks(&mut wiring, read);
    let link = wiring.identify(link);
    let link = wiring.subdedup(link);
    let link = wiring.model_encode(link);
    let link = wiring.compress(link);
    wiring.save(link)
}

/// Links the stages of a dry run in this order and runs them to the end of the stream.
fn run_dry_stages<'a>(
    mut wiring: wiring::Wiring<'a>,
    read: input::InputStage<'a>,
) -> Result<(save::Saved, Vec<StageMetrics>)> {
    let link = find_new_chunks(&mut wiring, read);
    wiring.estimate(link)
}

/// The stages up to Dedup.
fn find_new_chunks<'a>(wiring: &mut wiring::Wiring<'a>, read: input::InputStage<'a>) -> Link<'a, message::ChunkBatch> {
    let link = wiring.read(read);
    let link = wiring.chunk(link);
    let link = wiring.hash(link);
    wiring.dedup(link)
}
