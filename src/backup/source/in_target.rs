//! Finds the contents of a snapshot that is being copied which the target has already.
//!
//! 1. If both repositories have one key and cut alike, a content has the same name in both. The target has it if it
//!    has all its chunks and recipes.
//! 2. Otherwise an earlier snapshot of the source helps, together with its copy in the target: a file that has the same
//!    content in that snapshot and in this one has the content of the copy.

use super::parent::ParentCursor;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind};
use crate::types::Fingerprint;

/// Follows a walk of the snapshot.
pub struct FilesInTarget {
    /// Whether both repositories have the same key and chunker.
    pub same_chunks: bool,
    /// Whether the target may have rebuilt content.
    pub takes_rebuilt: bool,
    /// A cursor into the earlier snapshot.
    pub before: ParentCursor,
    /// A cursor into its copy, in the target.
    pub copy: ParentCursor,
}

impl FilesInTarget {
    /// Follows the walk into directory `node`.
    pub fn enter(&mut self, node: &Node) {
        self.before.enter(node);
        self.copy.enter(node);
    }

    /// Follows the walk out of the current directory.
    pub fn leave(&mut self) {
        self.before.leave();
        self.copy.leave();
    }

    /// First the content of file `node` in the target, `Some(None)` if it is empty; then that of the file at the same
    /// path in the copy.
    pub fn find(&mut self, node: &Node) -> (Option<Option<ContentReference>>, Option<ContentReference>) {
        let before = self.before.find(&node.name);
        let copy = self.copy.find(&node.name).filter(|copy| copy.kind == NodeKind::File);
        let previous = copy.as_ref().and_then(|copy| copy.content);
        let Some(content) = node.content else { return ((node.size == 0).then_some(None), previous) };
        if self.same_chunks {
            let fits = content.content_len() == node.size && (self.takes_rebuilt || content.rebuilt().is_none());
            let is_whole = fits && self.copy.is_whole(content);
            return (is_whole.then_some(Some(content)), previous);
        }
        let is_same = before.is_some_and(|before| before.kind == NodeKind::File && before.content == node.content)
            && copy.is_some_and(|copy| copy.size == node.size);
        let same = previous.filter(|same| is_same && same.content_len() == node.size && self.copy.is_whole(*same));
        (same.map(Some), previous)
    }

    /// Whether the target has the chunk of this name.
    pub fn has(&mut self, fingerprint: &Fingerprint) -> bool {
        self.same_chunks && self.copy.has(fingerprint)
    }
}
