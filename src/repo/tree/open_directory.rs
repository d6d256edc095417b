//! A directory being saved: collects its listing and cuts it into chunks between nodes.
//!
//! A hash of a node's name decides whether a listing chunk ends after it: every 128 nodes on average, and at latest
//! when the chunk is long. So an unchanged part of a large directory costs one reference in the next snapshot, and
//! memory does not grow with the directory.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::Result;
use crate::repo::MetadataWriter;
use crate::repo::recipe::{ContentReference, RecipeBuilder};
use crate::repo::tree::{FormerListing, ListingBases, Node};

/// Bytes at which a listing chunk ends at latest.
const CHUNK_BYTES: usize = 256 << 10;
/// Average nodes of a listing chunk.
const NODES_AVERAGE: u64 = 128;

/// A directory whose entries are still arriving.
pub struct OpenDirectory {
    node: Option<Box<Node>>,
    listing: Vec<u8>,
    recipe: RecipeBuilder,
    is_partial: bool,
    former: Option<FormerListing>,
}

/// Where the metadata of a directory goes, and where bases of its listing come from, if it may have any.
pub struct ListingTarget<'a> {
    /// The writer.
    pub metadata: &'a mut MetadataWriter,
    /// The bases.
    pub bases: Option<&'a mut ListingBases>,
}

impl<'a> From<&'a mut MetadataWriter> for ListingTarget<'a> {
    fn from(metadata: &'a mut MetadataWriter) -> Self {
        ListingTarget { metadata, bases: None }
    }
}

impl OpenDirectory {
    /// An empty directory; the root has no node.
    pub fn new(node: Option<Box<Node>>) -> Self {
        OpenDirectory { node, listing: Vec::new(), recipe: RecipeBuilder::default(), is_partial: false, former: None }
    }

    /// Whether this is not the root.
    pub fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Notes that an entry is left out.
    pub fn omit(&mut self) {
        self.is_partial = true;
    }

    /// Whether an entry was left out.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Says what its listing was in a parent snapshot.
    pub fn compare_with(&mut self, former: FormerListing) {
        self.former = Some(former);
    }

    /// Appends the next entry in name order.
    ///
    /// # Errors
    /// Errors of [`Node::append_to`] and of the store.
    pub fn append<'a>(&mut self, node: &Node, target: impl Into<ListingTarget<'a>>) -> Result<()> {
        node.append_to(&mut self.listing)?;
        let ends = xxh3_64(&node.name).is_multiple_of(NODES_AVERAGE);
        if ends || self.listing.len() >= CHUNK_BYTES { self.cut(&mut target.into()) } else { Ok(()) }
    }

    fn cut(&mut self, target: &mut ListingTarget<'_>) -> Result<()> {
        if self.listing.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.listing);
        let len = bytes.len() as u64;
        let fingerprint = match (&mut self.former, &mut target.bases) {
            (Some(former), Some(bases)) => {
                let fingerprint = target.metadata.put_listing(bytes, |bytes| former.base_of(bytes, bases))?;
                former.skip(&fingerprint, bases)?;
                fingerprint
            }
            _ => target.metadata.put(bytes)?,
        };
        self.recipe.push(ContentReference::Chunk { fingerprint, len }, &mut |bytes| target.metadata.put(bytes))
    }

    /// Ends the root directory and returns its content.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish_root<'a>(mut self, target: impl Into<ListingTarget<'a>>) -> Result<Option<ContentReference>> {
        let target = &mut target.into();
        self.cut(target)?;
        self.recipe.finish(&mut |bytes| target.metadata.put(bytes))
    }

    /// Ends a directory and returns its node with the content set; `None` for the root.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish<'a>(mut self, target: impl Into<ListingTarget<'a>>) -> Result<Option<Box<Node>>> {
        let Some(mut node) = self.node.take() else { return Ok(None) };
        node.partial |= self.is_partial;
        node.content = self.finish_root(target)?;
        Ok(Some(node))
    }
}
