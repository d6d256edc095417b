//! A cursor into the parent snapshot that follows the walk of the source and finds files that need not be read.

use crate::error::ErrorKind;
use crate::repo::index::ChunkPresence;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{HOLES_KEY, Node, NodeKind, Timestamp, TreeCursor};
use crate::types::Fingerprint;

/// A directory of the parent snapshot.
struct ParentDirectory {
    cursor: TreeCursor,
    /// The next entry in name order.
    next: Option<Node>,
}

/// A cursor into the tree of the parent snapshot.
pub struct ParentCursor {
    reader: ChunkReader,
    presence: ChunkPresence,
    /// A file that changed later may have changed again without new times.
    unchanged_since_ns: i128,
    /// Open directories; `None` where the parent has none or it cannot be read.
    levels: Vec<Option<ParentDirectory>>,
    previous_version: Option<ContentReference>,
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

impl ParentCursor {
    /// A cursor at the tree of `parent`. A file is read again if it changed less than `recheck_seconds` before the
    /// backup of `parent` started: later stores through a memory map leave its times alone until the system writes the
    /// pages back, and times have a limited resolution.
    pub fn new(mut reader: ChunkReader, presence: ChunkPresence, parent: &Snapshot, recheck_seconds: u64) -> Self {
        let level = Self::open(&mut reader, parent.root);
        let unchanged_since_ns = i128::from(parent.started_ns()) - i128::from(recheck_seconds) * 1_000_000_000;
        ParentCursor { reader, presence, unchanged_since_ns, levels: vec![level], previous_version: None }
    }

    fn open(reader: &mut ChunkReader, content: Option<ContentReference>) -> Option<ParentDirectory> {
        let mut cursor = TreeCursor::open(content);
        let next = cursor.next(reader).ok()?;
        Some(ParentDirectory { cursor, next })
    }

    /// The parent's entry called `name` in the current directory. Callers ask for names in ascending order. If the
    /// parent cannot be read there is no entry, so the files of the directory are read.
    pub fn find(&mut self, name: &[u8]) -> Option<Node> {
        let slot = self.levels.last_mut()?;
        let level = slot.as_mut()?;
        while level.next.as_ref()?.name.as_slice() < name {
            match level.cursor.next(&mut self.reader) {
                Ok(next) => level.next = next,
                Err(error) => {
                    if error.kind() != ErrorKind::Interrupted {
                        tracing::warn!(
                            "reading all files of a directory again: the parent snapshot is unreadable there: {error}"
                        );
                    }
                    *slot = None;
                    return None;
                }
            }
        }
        level.next.clone().filter(|node| node.name == name)
    }

    /// Follows the walk into directory `node`.
    pub fn enter(&mut self, node: &Node) {
        let known = self.find(&node.name).filter(|known| known.kind == NodeKind::Directory);
        let level = known.and_then(|known| Self::open(&mut self.reader, known.content));
        self.levels.push(level);
    }

    /// Follows the walk out of the current directory.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// The content of a file that is unchanged since the parent snapshot; `Some(None)` for an empty file, `None` for a
    /// changed one. Copies the parent's map of holes to the node.
    pub fn unchanged(&mut self, node: &mut Node) -> Option<Option<ContentReference>> {
        self.previous_version = None;
        let known = self.find(&node.name)?;
        self.previous_version = known.content;
        let is_same = known.kind == NodeKind::File
            && !known.changed
            && known.size == node.size
            && known.mtime == node.mtime
            && known.ctime == node.ctime
            && known.inode == node.inode;
        if !is_same || !self.is_older(node) {
            return None;
        }
        if let Some(holes) = known.extra.get(HOLES_KEY) {
            node.extra.insert(HOLES_KEY.into(), holes.clone());
        }
        let Some(content) = known.content else { return (known.size == 0).then_some(None) };
        // The content costs work by its length, which must be that of the file.
        (content.content_len() == known.size && self.is_whole(content)).then_some(Some(content))
    }

    /// The parent's content of the file of the last [`ParentCursor::unchanged`] call.
    pub fn previous_version(&self) -> Option<ContentReference> {
        self.previous_version
    }

    /// Whether a file is older than the parent snapshot, so that the parent probably contains it.
    pub fn is_older(&self, node: &Node) -> bool {
        nanoseconds(node.mtime.max(node.ctime)) <= self.unchanged_since_ns
    }

    /// Whether the repository has the chunk, as [`ChunkPresence::has`] says.
    pub fn has(&mut self, fingerprint: &Fingerprint) -> bool {
        self.presence.has(fingerprint).unwrap_or(false)
    }

    /// Whether the repository has every recipe and chunk of `content`.
    pub fn is_whole(&mut self, content: ContentReference) -> bool {
        let (mut walk, mut recipes) = (RecipeWalk::new(content), Vec::new());
        loop {
            let next = walk.next_visiting(&mut self.reader, &mut |recipe| recipes.push(*recipe));
            // The run relies on the containers of recipes, too.
            if !recipes.drain(..).all(|recipe| self.presence.has(&recipe).unwrap_or(false)) {
                return false;
            }
            match next {
                Ok(None) => return true,
                Ok(Some(ContentReference::Chunk { fingerprint, .. })) => {
                    if !self.presence.has(&fingerprint).unwrap_or(false) {
                        return false;
                    }
                }
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
        }
    }
}
