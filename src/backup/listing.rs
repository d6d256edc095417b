//! A directory being saved: its listing, cut into chunks between nodes.
//!
//! A listing chunk ends where a node's name says so, on average every 128 nodes, or when it is long; so an unchanged
//! stretch of a large directory costs one reference in the next snapshot, and memory does not grow with the directory.

use xxhash_rust::xxh3::xxh3_64;

use super::metadata::MetadataWriter;
use crate::error::Result;
use crate::repo::recipe::{ContentReference, RecipeBuilder};
use crate::repo::tree::Node;

/// A listing chunk is cut when it has this many bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// On average a chunk ends after this many nodes.
const NODES_AVERAGE: u64 = 128;

/// See the module.
pub struct OpenDirectory {
    node: Option<Box<Node>>,
    listing: Vec<u8>,
    recipe: RecipeBuilder,
}

impl OpenDirectory {
    /// A directory without entries yet; the root has no node.
    pub fn new(node: Option<Box<Node>>) -> Self {
        OpenDirectory { node, listing: Vec::new(), recipe: RecipeBuilder::default() }
    }

    /// Whether this is not the root.
    pub fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Adds the next entry in name order.
    pub fn append(&mut self, node: &Node, metadata: &mut MetadataWriter) -> Result<()> {
        node.append_to(&mut self.listing)?;
        let ends = xxh3_64(&node.name).is_multiple_of(NODES_AVERAGE);
        if ends || self.listing.len() >= CHUNK_BYTES { self.cut(metadata) } else { Ok(()) }
    }

    fn cut(&mut self, metadata: &mut MetadataWriter) -> Result<()> {
        if self.listing.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.listing);
        let len = bytes.len() as u64;
        let fingerprint = metadata.put(bytes)?;
        self.recipe.push(ContentReference::Chunk { fingerprint, len }, &mut |bytes| metadata.put(bytes))
    }

    /// Ends the root: its content.
    pub fn finish_root(mut self, metadata: &mut MetadataWriter) -> Result<Option<ContentReference>> {
        self.cut(metadata)?;
        self.recipe.finish(&mut |bytes| metadata.put(bytes))
    }

    /// Ends a directory: its node with its content.
    pub fn finish(mut self, metadata: &mut MetadataWriter) -> Result<Option<Box<Node>>> {
        let Some(mut node) = self.node.take() else { return Ok(None) };
        node.content = self.finish_root(metadata)?;
        Ok(Some(node))
    }
}
