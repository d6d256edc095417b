//! What travels between the stages.

use std::sync::Arc;

use bytes::Bytes;

use crate::chunk::classify::ChunkClass;
use crate::codec::{ByteGroupLayout, ElementType};
use crate::kernel::sieve::Anchor;
use crate::model::ModelRecord;
use crate::model::delta_plan::DeltaPlan;
use crate::model::detect::{ModelFile, TensorBlock};
use crate::pipeline::Weigh;
use crate::repo::container::{SessionFrameNumber, SessionOperations, StoredFrame};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{HoleMap, Node};
use crate::types::Fingerprint;

/// How the reading of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it, and it did not change meanwhile.
    Complete,
    /// It changed while it was read: what was read is kept and marked.
    Changed,
    /// It could not be read to its end: the file is left out.
    Failed,
}

/// Structure of the source, in depth-first order.
#[derive(Debug)]
pub enum TreeItem {
    /// A directory begins.
    Enter(Box<Node>),
    /// The directory entered last ends.
    Leave,
    /// An entry without content of its own to read: not a file, or a file whose content is known.
    Entry(Box<Node>),
    /// Another name of an inode whose content was sent before.
    Linked(Box<Node>),
    /// A file's content follows.
    Begin(Box<Node>),
    /// The content of a file follows that comes later in the tree, then as [`TreeItem::Linked`].
    Hoisted(Box<Node>),
    /// It is complete.
    End {
        /// How its reading ended.
        outcome: Outcome,
        /// The holes that were read as zeros.
        small_holes: HoleMap,
    },
}

/// From Read to Chunk.
#[derive(Debug)]
pub enum ReadItem {
    /// Structure.
    Tree(TreeItem),
    /// The file begun is a model.
    Model(Arc<ModelFile>),
    /// What the file begun was in the parent snapshot.
    PreviousVersion(ContentReference),
    /// The next bytes of the file begun.
    Data(Bytes),
    /// A hole of this many bytes.
    Hole(u64),
}

/// A batch from Read.
#[derive(Debug, Default)]
pub struct ReadBatch {
    /// In order.
    pub items: Vec<ReadItem>,
    /// Data bytes in them.
    pub bytes: u64,
}

/// A chunk on its way through the stages.
#[derive(Debug)]
pub struct Chunk {
    /// Its content; emptied when it proves a duplicate.
    pub bytes: Bytes,
    /// Length of the content.
    pub len: u32,
    /// Set by Hash.
    pub fingerprint: Fingerprint,
    /// Set by Dedup: not stored yet.
    pub is_new: bool,
    /// Set by Identify for new chunks; not for those that are likely to be copied for the most part, where it does not
    /// matter.
    pub class: Option<ChunkClass>,
    /// Set by a cutter that finds anchors on its way, otherwise, for a strategy that needs them, by Identify.
    pub anchors: Option<Vec<Anchor>>,
    /// Set by Chunk for blocks of tensors.
    pub block: Option<TensorBlock>,
}

/// From Chunk to SubDedup.
#[derive(Debug)]
pub enum ChunkItem {
    /// Structure.
    Tree(TreeItem),
    /// The file begun is a model.
    Model(Arc<ModelFile>),
    /// What the file begun was in the parent snapshot.
    PreviousVersion(ContentReference),
    /// The next chunk of the file begun.
    Chunk(Chunk),
    /// A hole.
    Hole(u64),
}

/// A batch of chunks.
#[derive(Debug, Default)]
pub struct ChunkBatch {
    /// In order.
    pub items: Vec<ChunkItem>,
    /// Chunk bytes in them.
    pub bytes: u64,
}

/// What Save needs of an item.
#[derive(Debug)]
pub enum SaveItem {
    /// Structure.
    Tree(TreeItem),
    /// What is to be remembered of the file begun; all its chunks have been sent.
    Model(Arc<ModelRecord>),
    /// The next chunk of the file begun.
    Chunk {
        /// Its name.
        fingerprint: Fingerprint,
        /// Its length.
        len: u32,
        /// Whether this run stores it.
        is_new: bool,
    },
    /// A hole.
    Hole(u64),
}

/// How a frame is to be encoded.
#[derive(Debug, Clone)]
pub enum FrameKind {
    /// Literal bytes of ordinary chunks.
    Solid,
    /// Bytes that do not compress.
    Incompressible,
    /// One float chunk, found by its entropies.
    Float(ByteGroupLayout),
    /// One block of a tensor of such words.
    Elements(ElementType),
    /// One block of a tensor, to be stored as a delta.
    Delta(Arc<DeltaPlan>),
}

/// A frame on its way to its container.
#[derive(Debug)]
pub struct PendingFrame {
    /// Session number, in order of emission.
    pub number: SessionFrameNumber,
    /// How to encode it.
    pub kind: FrameKind,
    /// Its bytes.
    pub raw: Bytes,
    /// Set by ModelEncode or Compress.
    pub stored: Option<StoredFrame>,
}

/// A chunk entry of this session, ready for a directory.
#[derive(Debug)]
pub struct NewEntry {
    /// Name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Session number of its frame.
    pub frame: SessionFrameNumber,
    /// Where its literal bytes begin in the frame.
    pub literal_offset: u32,
    /// How many there are; [`TO_THE_END`](crate::repo::container::TO_THE_END): all of the frame.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Pieces and bases; none for a whole chunk.
    pub body: Arc<SessionOperations>,
    /// Similarity features.
    pub features: Vec<u64>,
}

impl NewEntry {
    /// A delta whose base proved damaged: its frame holds the chunk itself.
    pub fn make_whole(&mut self) {
        (self.literal_len, self.depth) = (self.raw_len, 1);
        self.body = Arc::default();
    }
}

/// From SubDedup to Save.
#[derive(Debug)]
pub enum Packet {
    /// Structure and chunk names, in stream order.
    Items(Vec<SaveItem>),
    /// A frame.
    Frame(PendingFrame),
    /// Entries whose frames have all been sent; a container may end after them.
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
