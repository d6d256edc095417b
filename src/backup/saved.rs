//! What a run has stored, or what a dry run would store.

use crate::repo::recipe::ContentReference;
use crate::repo::tree::EntryTally;

/// Totals of the last stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct Saved {
    /// Content of the root directory.
    pub root: Option<ContentReference>,
    /// Whether an entry of the root directory is left out.
    pub root_is_partial: bool,
    /// Entries, and bytes of content.
    pub tally: EntryTally,
    /// Chunks in the stream.
    pub chunks: u64,
    /// Chunks that this run stored.
    pub chunks_new: u64,
    /// Bytes of those chunks.
    pub bytes_new: u64,
    /// Bytes of containers written.
    pub bytes_stored: u64,
    /// Containers written.
    pub containers: u64,
}
