//! Streams the nodes of a stored directory.
//!
//! A listing is stored as chunks, and each chunk holds whole nodes. Only one chunk is in memory at a time. Names
//! ascend within chunks and across them.

use super::listing::NodeReader;
use super::node::Node;
use crate::error::{Error, Result};
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;

/// Iterates over the nodes of one directory.
pub struct TreeCursor {
    walk: Option<RecipeWalk>,
    chunk: ListingChunk,
    last: Vec<u8>,
}

/// A chunk of the listing. Its nodes are decoded one by one, because they take many times the memory of their bytes.
#[derive(Default)]
struct ListingChunk {
    /// Name for errors.
    what: String,
    bytes: Vec<u8>,
    /// Bytes decoded so far.
    decoded: usize,
}

impl ListingChunk {
    fn next(&mut self) -> Option<Result<Node>> {
        let rest = self.bytes.get(self.decoded..).unwrap_or_default();
        let mut nodes = NodeReader::starting_at(&self.what, self.decoded as u64, rest);
        let node = nodes.next();
        self.decoded = self.bytes.len() - nodes.remaining();
        node
    }
}

impl TreeCursor {
    /// Starts at the first node of a directory's content. Reads nothing yet.
    pub fn open(content: Option<ContentReference>) -> Self {
        TreeCursor { walk: content.map(RecipeWalk::new), chunk: ListingChunk::default(), last: Vec::new() }
    }

    /// Returns the next node, in order of names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the listing does not parse or is out of order. Errors of reading its chunks.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<Node>> {
        loop {
            if let Some(node) = self.chunk.next() {
                let node = node?;
                if !self.last.is_empty() && node.name <= self.last {
                    let got = node.name.escape_ascii().to_string();
                    let expected = format!("a name after {}", self.last.escape_ascii());
                    return Err(Error::corrupt("directory listing", 0, expected, got));
                }
                self.last.clone_from(&node.name);
                return Ok(Some(node));
            }
            let Some(walk) = &mut self.walk else { return Ok(None) };
            match walk.next(reader)? {
                None => self.walk = None,
                Some(ContentReference::Chunk { fingerprint, len }) => {
                    let bytes = reader.read_exact(&fingerprint, len)?;
                    self.chunk = ListingChunk { what: format!("directory listing {fingerprint}"), bytes, decoded: 0 };
                }
                Some(ContentReference::Rebuilt { .. }) => {
                    return Err(Error::unsupported("directory listing", "rebuilt content of a directory"));
                }
                Some(other) => return Err(Error::corrupt("directory listing", 0, "chunks only", format!("{other:?}"))),
            }
        }
    }
}
