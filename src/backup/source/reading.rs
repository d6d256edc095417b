//! What Walk asks of Read, and what the two share of a file.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::backup::changes::EntryChange;
use crate::backup::message::{Outcome, ReadItem};
use crate::backup::sent::SentFile;
use crate::filesystem::{FileLocation, SourceFile};
use crate::model::{ModelFile, ModelRecord};
use crate::pipeline::Weigh;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, HoleMap, Node};

/// Files from this size on are sent with their previous version: float chunks may be deltas to it.
const CHANGED_BYTES_MIN: u64 = 64 << 10;

/// From Walk to Read.
pub enum WalkItem {
    /// An item that needs no reading.
    Ready(ReadItem),
    /// A file to open and to read.
    File(Box<FileToRead>),
    /// A range of an open file.
    Range(RangeToRead),
    /// All of an open file, which is to be opened if that is possible.
    Open {
        /// The file.
        file: Arc<OpenedFile>,
        /// Content of the file in the parent snapshot.
        previous_version: Option<ContentReference>,
    },
    /// The end of an open file. All its ranges were sent before.
    End {
        /// The file.
        file: Arc<OpenedFile>,
        /// Holes that are sent as data because they are short.
        small_holes: HoleMap,
    },
}

/// A file to open and to read.
pub struct FileToRead {
    /// Where to open it.
    pub location: FileLocation,
    /// Its entry.
    pub node: Node,
    /// Content of the file in the parent snapshot.
    pub previous_version: Option<ContentReference>,
    /// Whether the parent snapshot has it without content, and its metadata have not changed.
    pub was_empty: bool,
    /// Whether it may be opened, if its first bytes suggest that.
    pub may_open: bool,
    /// As what Walk has counted it.
    pub change: Option<EntryChange>,
    sent: SentKeeper,
}

/// A range of an open file.
pub struct RangeToRead {
    /// The file.
    pub file: Arc<OpenedFile>,
    /// Offsets of the first byte and behind the last one.
    pub range: Range<u64>,
}

/// An open file that several workers read.
pub struct OpenedFile {
    /// The file.
    pub source: Arc<SourceFile>,
    /// As what Walk has counted it, if it has.
    pub change: Option<EntryChange>,
    /// Whether it is a model, whose tensors are cut at their ends.
    pub is_model: bool,
    state: Mutex<ReadingState>,
    all_read: Condvar,
    sent: SentKeeper,
}

struct ReadingState {
    /// Ranges that were sent and not read yet.
    open_ranges: usize,
    outcome: Outcome,
}

/// Tells those who wait for a file how its reading ended. If nobody does, it has failed.
struct SentKeeper(Option<SentFile>);

/// A batch of items from Walk.
#[derive(Default)]
pub struct WalkBatch {
    /// Items in stream order.
    pub items: Vec<WalkItem>,
    /// Bytes to read.
    pub bytes: u64,
    /// Files to open.
    pub files: usize,
    /// Directories that stay open until the files are open. Equal ones in a row count once.
    pub directories: Vec<FileIdentity>,
}

impl Weigh for WalkBatch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl WalkBatch {
    /// Appends an item.
    pub fn push(&mut self, item: WalkItem) {
        match &item {
            WalkItem::File(file) => {
                self.files += 1;
                self.bytes += file.node.size;
                if let Some(directory) = file.location.directory_identity()
                    && self.directories.last() != Some(&directory)
                {
                    self.directories.push(directory);
                }
            }
            WalkItem::Range(range) => self.bytes += range.range.end - range.range.start,
            WalkItem::Open { file, .. } => self.bytes += file.source.size(),
            WalkItem::Ready(_) | WalkItem::End { .. } => {}
        }
        self.items.push(item);
    }
}

impl WalkItem {
    /// The task to read a range of `file`.
    pub fn range(file: &Arc<OpenedFile>, range: Range<u64>) -> Self {
        file.lock().open_ranges += 1;
        WalkItem::Range(RangeToRead { file: file.clone(), range })
    }
}

impl Drop for RangeToRead {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        state.open_ranges -= 1;
        if state.open_ranges == 0 {
            self.file.all_read.notify_all();
        }
    }
}

impl FileToRead {
    /// The task to read the file `node` at `location`. Other entries may refer to it as `sent`.
    pub fn new(
        location: FileLocation,
        node: Node,
        previous_version: Option<ContentReference>,
        sent: Option<SentFile>,
    ) -> Self {
        let (was_empty, may_open, change, sent) = (false, false, None, SentKeeper(sent));
        FileToRead { location, node, previous_version, was_empty, may_open, change, sent }
    }

    /// What others may refer to.
    pub fn sent(&self) -> Option<&SentFile> {
        self.sent.0.as_ref()
    }
}

impl OpenedFile {
    /// A file of which nothing has been read. Other entries may refer to it as `sent`.
    pub fn new(source: SourceFile, sent: Option<SentFile>) -> Self {
        let state = Mutex::new(ReadingState { open_ranges: 0, outcome: Outcome::Complete });
        let (source, all_read, sent) = (Arc::new(source), Condvar::new(), SentKeeper(sent));
        OpenedFile { source, change: None, is_model: false, state, all_read, sent }
    }

    fn lock(&self) -> MutexGuard<'_, ReadingState> {
        self.state.lock()
    }

    /// The outcome so far.
    pub fn outcome(&self) -> Outcome {
        self.lock().outcome
    }

    /// Makes the outcome at least as bad as this one.
    pub fn worsen(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome = state.outcome.max(outcome);
    }

    /// Waits until all ranges have been read. They are before the end in the stream, so other workers have them
    /// already, and none of them waits for this one.
    pub fn wait_for_ranges(&self) {
        self.all_read.wait_while(&mut self.lock(), |state| state.open_ranges > 0);
    }

    /// What others may refer to.
    pub fn sent(&self) -> Option<&SentFile> {
        self.sent.0.as_ref()
    }
}

impl Drop for SentKeeper {
    fn drop(&mut self) {
        if let Some(sent) = &self.0 {
            sent.end(false);
        }
    }
}

/// The item before a file's content: its record if it is a model, else its previous version.
pub fn announced(
    model: Option<&Arc<ModelFile>>,
    previous_version: Option<ContentReference>,
    size: u64,
) -> Option<ReadItem> {
    match model {
        Some(model) => Some(ReadItem::Model(model.clone())),
        None => {
            let is_alike = |previous: &ContentReference| size >= CHANGED_BYTES_MIN && previous.rebuilt().is_none();
            previous_version.filter(is_alike).map(ReadItem::PreviousVersion)
        }
    }
}

/// The item before the parts of an opened file: the plain content of its previous version.
pub fn announced_plain(previous_version: Option<ContentReference>) -> Option<ReadItem> {
    let rebuilt = previous_version.and_then(ContentReference::rebuilt);
    rebuilt.map(|rebuilt| ReadItem::PreviousVersion(rebuilt.source.into()))
}

/// Bytes to read at once from `offset` of a file on, at most `bytes_max`. In a model they end at a block boundary: a
/// block inside one buffer is not copied.
pub fn bytes_at_once(model: Option<&ModelRecord>, offset: u64, bytes_max: u64) -> u64 {
    let Some(model) = model else { return bytes_max };
    let at = model.tensors.partition_point(|tensor| tensor.offset + tensor.len <= offset);
    let Some(tensor) = model.tensors.get(at) else { return bytes_max };
    if offset < tensor.offset {
        return bytes_max.min(tensor.offset - offset);
    }
    let (inside, left) = (offset - tensor.offset, tensor.offset + tensor.len - offset);
    let whole = (inside + bytes_max) / model.block_bytes * model.block_bytes;
    if left <= bytes_max || whole <= inside { left.min(bytes_max) } else { whole - inside }
}
