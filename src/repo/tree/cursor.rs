//! Streams the nodes of a stored directory.
//!
//! A listing is stored as chunks that each end between two nodes; one chunk at a time is in memory. Names ascend
//! across chunks as within them.

use super::listing::NodeReader;
use super::node::Node;
use crate::error::{Error, Result};
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;

/// See the module.
pub struct TreeCursor {
    walk: Option<RecipeWalk>,
    nodes: std::vec::IntoIter<Node>,
    last: Vec<u8>,
}

impl TreeCursor {
    /// Begins at the first node of a directory's content; nothing is read yet.
    pub fn open(content: Option<ContentReference>) -> Self {
        TreeCursor { walk: content.map(RecipeWalk::new), nodes: Vec::new().into_iter(), last: Vec::new() }
    }

    /// The next node in name order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a listing that does not parse or is not in order; those of reading its chunks.
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
