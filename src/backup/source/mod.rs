//! Sources: what a backup reads. Each kind is a struct that has all of its own: its paths, its parents, its labels and
//! its first stages.
//!
//! | kind | first stages | parents |
//! |---|---|---|
//! | [`TreeSource`], paths of a file system | Walk (`walk.rs`) and Read (`read.rs`) | by its paths, or as asked |
//! | [`StreamSource`], standard input or a command | Stream (`stream.rs`) | none |
//! | [`MemorySource`], files in memory | Memory (`memory_stage.rs`) | by its paths |
//! | [`BucketSource`], objects of a bucket | List and Fetch (`bucket/`) | by its URL |
//! | [`SnapshotSource`], a stored snapshot | Stored (`stored.rs`) | the copy of an earlier snapshot |
//!
//! A run asks the source through [`SourceKind`] (`open.rs`) and does not know which kind it is. The stages behind the
//! first ones receive [`ReadBatch`](super::message::ReadBatch)es from each of them.

mod bucket;
mod in_target;
mod labels;
mod memory;
mod memory_file;
mod memory_stage;
mod open;
mod open_rule;
mod parent;
mod parents;
mod parents_of_shares;
mod read;
mod reading;
mod roots;
mod snapshot;
mod stored;
mod stored_walk;
mod stream;
mod tree;
mod walk;

pub use bucket::{BucketSource, SplitBucket, split_bucket};
pub use labels::{ShareLabel, SnapshotLabels};
pub use memory::MemorySource;
pub use memory_file::{MemoryContent, MemoryFile};
pub use open::{FirstStages, OpenSource, SourceKind, SourceRun};
pub use parents::{FoundParents, ParentChoice};
pub use snapshot::{CopyPurpose, SnapshotSource};
pub use stream::{NamedStream, StreamInput, StreamSource};
pub use tree::TreeSource;

/// What a backup reads.
#[derive(Debug, Clone)]
pub enum BackupSource {
    /// Files and directories of a file system.
    Tree(Box<TreeSource>),
    /// One stream, which becomes one file.
    Stream(StreamSource),
    /// Files whose bytes the caller gives.
    Memory(MemorySource),
    /// A stored snapshot, which is stored again.
    Snapshot(Box<SnapshotSource>),
    /// Objects of a bucket.
    Bucket(Box<BucketSource>),
}

impl BackupSource {
    /// What the run asks. This is the only place that knows all kinds.
    pub(super) fn kind(&self) -> &dyn SourceKind {
        match self {
            BackupSource::Tree(source) => source.as_ref(),
            BackupSource::Stream(source) => source,
            BackupSource::Memory(source) => source,
            BackupSource::Snapshot(source) => source.as_ref(),
            BackupSource::Bucket(source) => source.as_ref(),
        }
    }
}

impl From<TreeSource> for BackupSource {
    fn from(source: TreeSource) -> Self {
        BackupSource::Tree(Box::new(source))
    }
}

impl From<StreamSource> for BackupSource {
    fn from(source: StreamSource) -> Self {
        BackupSource::Stream(source)
    }
}

impl From<MemorySource> for BackupSource {
    fn from(source: MemorySource) -> Self {
        BackupSource::Memory(source)
    }
}

impl From<BucketSource> for BackupSource {
    fn from(source: BucketSource) -> Self {
        BackupSource::Bucket(Box::new(source))
    }
}

impl From<SnapshotSource> for BackupSource {
    fn from(source: SnapshotSource) -> Self {
        BackupSource::Snapshot(Box::new(source))
    }
}
