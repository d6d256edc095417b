//! Backup: nine stages turn a source tree into a snapshot.
//!
//! | stage | receives | sends | work |
//! |---|---|---|---|
//! | Read | source tree | bytes, holes, tree items | walks the source; skips files unchanged since the parent snapshot |
//! | Chunk | bytes | chunks | cuts files at content-defined boundaries, tensors at block boundaries |
//! | Hash | chunks | chunks with fingerprints | computes keyed BLAKE3 in parallel |
//! | Dedup | chunks | chunks; duplicates without bytes | asks the chunk index |
//! | Identify | new chunks | chunks with class and anchors | finds float and incompressible chunks in parallel |
//! | SubDedup | chunks | frames, entries, save items | finds copies inside new chunks, fills frames, plans deltas |
//! | ModelEncode | frames | frames | encodes floats and deltas in parallel; left out if there can be none |
//! | Compress | frames | encoded frames | compresses the other frames in parallel |
//! | Save | encoded frames, entries, save items | totals | writes containers, recipes and listings |
//!
//! `backup` (in `run.rs`) prepares the run and commits the snapshot after Save has finished. `Wiring` builds each
//! stage from the configuration and links it to the one before. `message.rs` defines what the links carry.

mod adopt;
mod buffers;
mod chunk;
mod compress;
mod dedup;
mod hash;
mod identify;
mod indexes;
mod listing;
mod message;
mod metadata;
mod model_encode;
mod parent;
mod read;
mod report;
mod run;
mod save;
mod subdedup;
mod wiring;

pub use report::{BackupReport, BackupRequest};
pub use run::backup;

use crate::error::Result;
use crate::metrics::StageMetrics;

/// Links the nine stages in this order and runs them to the end of the stream.
fn run_stages<'a>(
    mut wiring: wiring::Wiring<'a>,
    read: read::ReadStage<'a>,
) -> Result<(save::Saved, Vec<StageMetrics>)> {
    let link = wiring.read(read);
    let link = wiring.chunk(link);
    let link = wiring.hash(link);
    let link = wiring.dedup(link);
    let link = wiring.identify(link);
    let link = wiring.subdedup(link);
    let link = wiring.model_encode(link);
    let link = wiring.compress(link);
    wiring.save(link)
}
