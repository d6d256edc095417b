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
//! 8. Match finds the ranges that a new chunk shares with them, in parallel. With sub-blocks, FineHash (parallel),
//!    FineDedup and Diff (parallel) are in the place of Choose and Match. Other strategies leave all of them out.
//! 9. SubDedup receives chunks, makes copies in the new ones, plans deltas, and sends frames, entries and save items.
//! 10. ModelEncode encodes float frames and deltas, in parallel. It is left out if there can be none.
//! 11. Compress encodes the other frames, in parallel.
//! 12. Save receives encoded frames, entries and save items, and writes containers, recipes and listings.
//!
//! Walk and Read are the first stages of a tree. [`BackupSource`] has the other kinds of sources, each with a stage of
//! its own in the place of these two (`source/`). A dry run ends after Dedup, with Estimate.
//!
//! [`backup()`] (in `run.rs`) prepares the run and commits the snapshot after Save has finished. `stages.rs` is this
//! list as code. `wiring.rs` builds each stage from the configuration and links it to the one before. `message.rs`
//! defines what the links carry.

mod buffers;
mod changes;
#[cfg(test)]
mod changing_source_tests;
mod choose;
mod chunk;
mod commit;
mod compress;
mod counts;
mod dedup;
mod diff;
mod equal;
mod estimate;
mod fine_dedup;
mod fine_hash;
mod hash;
mod identify;
mod indexes;
mod matching;
mod message;
mod model_encode;
mod opening;
mod report;
mod request;
mod rest;
mod run;
mod save;
mod saved;
mod scan;
mod segments;
mod sent;
mod source;
mod stages;
mod subdedup;
mod uploads;
mod wiring;

pub use changes::CHANGES_TARGET;
pub use report::{BackupReport, FileChanges};
pub use request::BackupRequest;
pub use run::backup;
pub use source::{
    BackupSource, BucketSource, CopyPurpose, MemoryContent, MemoryFile, MemorySource, NamedStream, ParentChoice,
    ShareLabel, SnapshotLabels, SnapshotSource, SplitBucket, StreamInput, StreamSource, TreeSource, split_bucket,
};
