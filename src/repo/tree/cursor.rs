//! Streams the nodes of a stored directory.
//!
//! A listing is stored as chunks, and each chunk holds whole nodes. Only one chunk is in memory at a time. Names
//! ascend within chunks and across them.

use super::listing::NodeReader;
use super::node::Node;
use crate::error::{Error, Result};
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;

/// Iterates over the nodes of one directory.
pub struct TreeCursor {
    walk: Option<RecipeWalk>,
    nodes: std::vec::IntoIter<Node>,
    last: Vec<u8>,
}

impl TreeCursor {
    /// Starts at the first node of a directory's content. Reads nothing yet.
    pub fn open(content: Option<ContentReference>) -> Self {
        TreeCursor { walk: content.map(RecipeWalk::new), nodes: Vec::new().into_iter(), last: Vec::new() }
    }

    /// Returns the next node, in order of names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the listing does not parse or is out of order. Those of reading its chunks.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<Node>> {
        loop {
            if let Some(node) = self.nodes.next() {
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
                Some(ContentReference::Chunk { fingerprint, .. }) => {
                    let bytes = reader.read(&fingerprint)?;
                    let what = format!("directory listing {fingerprint}");
                    self.nodes = NodeReader::new(&what, &bytes).collect::<Result<Vec<_>>>()?.into_iter();
                }
                Some(other) => return Err(Error::corrupt("directory listing", 0, "chunks only", format!("{other:?}"))),
            }
        }
    }
}
