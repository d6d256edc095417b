//! Messages between the stages.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::equal::SentDirectory;
use super::opening::OpenedParts;
use super::rest::FileRest;
use super::sent::SentFile;
use crate::chunk::classify::ChunkClass;
use crate::codec::{ByteGroupLayout, ElementRows, ElementType};
use crate::kernel::sieve::Anchor;
use crate::model::{DeltaPlan, FinishedModel, ModelFile, TensorBlock};
use crate::pipeline::Weigh;
use crate::repo::container::{EntryNumber, SessionFrameNumber, SessionOperations, StoredFrame};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{HoleMap, Node};
use crate::similar::{BaseChunk, Counterparts, Elements, FoundSubBlock, HashedSubBlock, PeakFeatures, StrategyOutput};
use crate::types::Fingerprint;

/// Items of a batch, at most.
pub const ITEMS_MAX: usize = 1024;

/// How the reading of a file ended, the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The whole file was read, and it did not change meanwhile.
    Complete,
    /// The file changed while it was read: the bytes read are stored and the entry is marked.
    Changed,
    /// The file could not be read to its end: it is left out.
    Failed,
}

/// Structure of the source tree, in depth-first order.
#[derive(Debug)]
pub enum TreeItem {
    /// A directory begins.
    Enter(Box<Node>),
    /// The listing of the current directory in a parent snapshot, before its first entry.
    Former(ContentReference),
    /// The current directory ends. Learns what is stored, if equal ones may follow.
    Leave(Option<SentDirectory>),
    /// A directory that is equal to one that was sent before.
    Equal(Box<Node>, SentDirectory),
    /// An entry of the current directory is left out.
    Omitted,
    /// An entry whose content is not read: another kind than a file, or a file whose content is known.
    Entry(Box<Node>),
    /// A file whose content was sent before: another name of its inode, or a hoisted file.
    Linked(Box<Node>, SentFile),
    /// A file begins; its content follows.
    Begin(Box<Node>),
    /// A hoisted file begins: its content follows now, its entry comes later as [`TreeItem::Linked`].
    Hoisted(Box<Node>),
    /// The plain content of the current file has ended, and its corrections follow.
    Corrections,
    /// What came of the current file is to be stored as rebuilt content.
    Rebuilt {
        /// Fingerprint of all bytes of the file.
        hash: Fingerprint,
        /// Number of these bytes.
        len: u64,
    },
    /// The current file ends.
    End {
        /// How the reading ended.
        outcome: Outcome,
        /// Holes that were sent as zeros because they are short.
        small_holes: HoleMap,
        /// Learns what is stored, if other entries may refer to the file.
        sent: Option<SentFile>,
    },
}

/// From Read to Chunk.
#[derive(Debug)]
pub enum ReadItem {
    /// Structure.
    Tree(TreeItem),
    /// The current file is a model.
    Model(Arc<ModelFile>),
    /// Content of the current file in the parent snapshot.
    PreviousVersion(ContentReference),
    /// The next bytes of the current file.
    Data(Bytes),
    /// The next bytes of the current file, which is no model, and their anchors.
    Scanned(Bytes, Vec<Anchor>),
    /// The next bytes of the current file, which are to be one chunk.
    Chunk(Bytes),
    /// Like [`ReadItem::Chunk`], in memory that others may write to.
    Borrowed(Bytes),
    /// The next chunk of the current file, which is stored.
    Stored {
        /// Its fingerprint.
        fingerprint: Fingerprint,
        /// Its bytes.
        len: u32,
    },
    /// A hole of this many bytes.
    Hole(u64),
    /// The next bytes of the current file, as many as there are.
    Rest(Box<FileRest>),
    /// All of the current file, opened.
    Opened(Box<OpenedParts>),
    /// The current file could not be read further: what comes before its end is ignored.
    Broken,
}

/// A batch of items from Read.
#[derive(Debug, Default)]
pub struct ReadBatch {
    /// Items in stream order.
    pub items: Vec<ReadItem>,
    /// Bytes of data in the items.
    pub bytes: u64,
}

/// A chunk in the pipeline.
#[derive(Debug)]
pub struct Chunk {
    /// Content; Dedup empties it if the chunk is a duplicate. Empty from the start if the source knew that.
    pub bytes: Bytes,
    /// Length of the content.
    pub len: u32,
    /// Set by Hash, unless the chunk came without bytes.
    pub fingerprint: Fingerprint,
    /// Whether others may write to the bytes. Dedup copies those of a new chunk and checks its fingerprint.
    pub is_borrowed: bool,
    /// Set by Dedup: the chunk is not stored yet.
    pub is_new: bool,
    /// Set by Identify for new chunks. `None` for chunks that SubDedup is likely to copy for the most part, and for
    /// blocks of known element types.
    pub class: Option<ChunkClass>,
    /// Set by a chunker that finds anchors, else by Identify if the strategy needs anchors. Choose takes them.
    pub anchors: Option<Vec<Anchor>>,
    /// The search for copies. Set by the stages that search, one after another.
    pub search: CopySearch,
    /// How far the search for slices has come. Set by Identify for weights.
    pub slices: Option<Box<SliceCandidates>>,
    /// Set by Chunk for blocks of tensors.
    pub block: Option<TensorBlock>,
}

/// The search of a new block of weights, or of another float chunk, for ranges of blocks that it equals or is like.
#[derive(Debug)]
pub struct SliceCandidates {
    /// The elements whose peaks it has.
    pub layout: Elements,
    /// The features by which it finds other blocks, and later blocks find it.
    pub features: PeakFeatures,
    /// Set by Choose: stored entries that share them.
    pub counterparts: Counterparts,
}

/// How far the search for copies of a new chunk has come: through Identify, Choose and Match, or through FineHash,
/// FineDedup and Diff. With other strategies SubDedup does all of it.
#[derive(Debug, Default)]
pub enum CopySearch {
    /// Nothing is known, or the chunk is not searched.
    #[default]
    None,
    /// The features by which later chunks find this one.
    Features(Vec<u64>),
    /// The bases to compare with, best first.
    Bases {
        /// The features by which later chunks find this one.
        features: Vec<u64>,
        /// The content and its anchors.
        chunk: Arc<BaseChunk>,
        /// The bases.
        entries: Vec<EntryNumber>,
    },
    /// The sub-blocks and their hashes.
    SubBlocks(Vec<HashedSubBlock>),
    /// The sub-blocks that others have.
    Alike {
        /// The features by which later chunks find this one.
        features: Vec<u64>,
        /// The sub-blocks to compare.
        found: Vec<FoundSubBlock>,
    },
    /// The copies that were found.
    Found(StrategyOutput),
}

/// From Chunk to SubDedup.
#[derive(Debug)]
pub enum ChunkItem {
    /// Structure.
    Tree(TreeItem),
    /// The current file is a model.
    Model(Arc<ModelFile>),
    /// Content of the current file in the parent snapshot.
    PreviousVersion(ContentReference),
    /// The next chunk of the current file.
    Chunk(Chunk),
    /// A hole of this many bytes.
    Hole(u64),
}

/// A batch of chunks and tree items.
#[derive(Debug, Default)]
pub struct ChunkBatch {
    /// Items in stream order.
    pub items: Vec<ChunkItem>,
    /// Bytes of chunks in the items.
    pub bytes: u64,
    /// When the first of the items came from Read.
    pub read_at: Option<Instant>,
}

/// An item without content, for Save.
#[derive(Debug)]
pub enum SaveItem {
    /// Structure.
    Tree(TreeItem),
    /// Record of the current file, a model; all its chunks have been sent.
    Model(FinishedModel),
    /// The next chunk of the current file.
    Chunk {
        /// Fingerprint of the chunk.
        fingerprint: Fingerprint,
        /// Bytes of the chunk.
        len: u32,
        /// Whether this run stores it.
        is_new: bool,
    },
    /// A hole of this many bytes.
    Hole(u64),
}

/// How to encode a frame.
#[derive(Debug, Clone)]
pub enum FrameKind {
    /// Literal bytes of ordinary chunks.
    Solid {
        /// At least half of them are of long chunks that copy little.
        is_mostly_new: bool,
    },
    /// Literal bytes of ordinary chunks, at least half of them of plain blocks of tensors.
    Plain,
    /// Literal bytes of incompressible chunks.
    Incompressible,
    /// One float chunk, found by its entropy.
    Float(ByteGroupLayout),
    /// One block of a tensor of this element type, or literal bytes of one.
    Elements(ElementType),
    /// One block of a tensor of this element type, with these rows.
    Tensor(ElementType, ElementRows),
    /// One block or float chunk, to store as a delta.
    Delta(Arc<DeltaPlan>),
}

/// A frame that is not in a container yet.
#[derive(Debug)]
pub struct PendingFrame {
    /// Session number, in order of emission.
    pub number: SessionFrameNumber,
    /// How to encode the frame.
    pub kind: FrameKind,
    /// Raw bytes; Compress empties them.
    pub raw: Bytes,
    /// The encoded frame, set by ModelEncode or Compress.
    pub stored: Option<StoredFrame>,
}

/// A chunk entry of this session, ready for the container index.
#[derive(Debug)]
pub struct NewEntry {
    /// Fingerprint of the chunk.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Session number of the frame with its literal bytes.
    pub frame: SessionFrameNumber,
    /// Offset of its literal bytes in the frame.
    pub literal_offset: u32,
    /// Number of literal bytes; [`TO_THE_END`](crate::repo::container::TO_THE_END) for the whole frame.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Operations and bases; empty for a whole chunk.
    pub operations: Arc<SessionOperations>,
    /// Similarity features.
    pub features: Vec<u64>,
}

impl NewEntry {
    /// Turns a delta into a whole chunk: its base is damaged, so its frame holds the chunk itself.
    pub fn make_whole(&mut self) {
        (self.literal_len, self.depth) = (self.raw_len, 1);
        self.operations = Arc::default();
    }
}

/// From SubDedup to Save.
#[derive(Debug)]
pub enum Packet {
    /// Tree items and references to chunks, in stream order.
    Items(Vec<SaveItem>),
    /// A frame.
    Frame(PendingFrame),
    /// Entries whose frames have all been sent. A container may end after them.
    Entries(Vec<NewEntry>),
}

impl Weigh for ReadBatch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Weigh for ChunkBatch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Weigh for Packet {
    fn bytes(&self) -> u64 {
        match self {
            Packet::Frame(frame) => frame.stored.as_ref().map_or(frame.raw.len(), |stored| stored.payload.len()) as u64,
            _ => 0,
        }
    }
}
