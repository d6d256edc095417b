//! What travels between the stages.

use bytes::Bytes;

use crate::codec::Layout;
use crate::container::{Base, Piece, StoredFrame};
use crate::identify::Class;
use crate::kernel::sieve::Anchor;
use crate::pipeline::Weigh;
use crate::tree::{HoleMap, Node};
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
    /// Set by Identify for new chunks.
    pub class: Class,
    /// Set by a cutter that finds anchors on its way, otherwise, for a strategy that needs them, by Identify.
    pub anchors: Option<Vec<Anchor>>,
}

/// From Chunk to SubDedup.
#[derive(Debug)]
pub enum ChunkItem {
    /// Structure.
    Tree(TreeItem),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Literal bytes of ordinary chunks.
    Solid,
    /// Bytes that do not compress.
    Incompressible,
    /// One float chunk.
    Float(Layout),
}

/// A frame on its way to its container.
#[derive(Debug)]
pub struct Frame {
    /// Session number, in order of emission.
    pub number: u64,
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
    pub frame: u64,
    /// Where its literal bytes begin in the frame.
    pub literal_offset: u32,
    /// How many there are.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Pieces; empty for a whole chunk.
    pub pieces: Vec<Piece>,
    /// What the pieces' `base` counts in.
    pub bases: Vec<Base>,
    /// Similarity features.
    pub features: Vec<u64>,
}

/// From SubDedup to Save.
#[derive(Debug)]
pub enum Packet {
    /// Structure and chunk names, in stream order.
    Items(Vec<SaveItem>),
    /// A frame.
    Frame(Frame),
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
