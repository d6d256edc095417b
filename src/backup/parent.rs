//! The parent snapshot, walked beside the source: which files need not be read?

use crate::repo::index::Presence;
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{HOLES_KEY, Node, NodeKind, Timestamp, TreeCursor};

/// Files changed less than this before the parent's start are read again: they may have changed once more within the
/// resolution of their times.
const UNCHANGED_NS_MIN: i128 = 2_000_000_000;

/// A directory of the parent.
struct ParentDirectory {
    cursor: TreeCursor,
    next: Option<Node>,
}

/// A cursor into the parent's tree.
pub struct Parent {
    reader: ChunkReader,
    presence: Presence,
    time_ns: i64,
    levels: Vec<Option<ParentDirectory>>,
    last_version: Option<ContentReference>,
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

impl Parent {
    /// Begins at the root of the snapshot that started at `time_ns`.
    pub fn new(mut reader: ChunkReader, presence: Presence, root: Option<ContentReference>, time_ns: i64) -> Self {
        let level = Self::open(&mut reader, root);
        Parent { reader, presence, time_ns, levels: vec![level], last_version: None }
    }

    fn open(reader: &mut ChunkReader, content: Option<ContentReference>) -> Option<ParentDirectory> {
        let mut cursor = TreeCursor::open(content);
        let next = cursor.next(reader).ok()?;
        Some(ParentDirectory { cursor, next })
    }

    /// The parent's entry called `name` in the current directory. Names are asked for in ascending order. A parent
    /// that cannot be read knows nothing: the files are read.
    fn find(&mut self, name: &[u8]) -> Option<Node> {
        let slot = self.levels.last_mut()?;
        let level = slot.as_mut()?;
        while level.next.as_ref()?.name.as_slice() < name {
            match level.cursor.next(&mut self.reader) {
                Ok(next) => level.next = next,
                Err(error) => {
                    tracing::warn!("the parent snapshot is of no use here: {error}");
                    *slot = None;
                    return None;
                }
            }
        }
        level.next.clone().filter(|node| node.name == name)
    }

    /// The walk enters a directory.
    pub fn enter(&mut self, node: &Node) {
        let known = self.find(&node.name).filter(|known| known.kind == NodeKind::Directory);
        let level = known.and_then(|known| Self::open(&mut self.reader, known.content));
        self.levels.push(level);
    }

    /// The walk leaves the directory entered last.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// The content of a file that did not change since the parent, `Some(None)` for an empty one; the node gets the
    /// map of holes that goes with it.
    pub fn unchanged(&mut self, node: &mut Node) -> Option<Option<ContentReference>> {
        self.last_version = None;
        let known = self.find(&node.name)?;
        self.last_version = known.content;
        let same = known.kind == NodeKind::File
            && !known.changed
            && known.size == node.size
            && known.mtime == node.mtime
            && known.ctime == node.ctime
            && known.inode == node.inode;
        let is_old_enough = nanoseconds(node.mtime.max(node.ctime)) + UNCHANGED_NS_MIN <= i128::from(self.time_ns);
        if !same || !is_old_enough {
            return None;
        }
        if let Some(holes) = known.extra.get(HOLES_KEY) {
            node.extra.insert(HOLES_KEY.into(), holes.clone());
        }
        let Some(content) = known.content else { return (known.size == 0).then_some(None) };
        self.is_whole(content).then_some(Some(content))
    }

    /// The content that the file asked for last had in the parent.
    pub fn last_version(&self) -> Option<ContentReference> {
        self.last_version
    }

    /// Whether a file was there unchanged well before the parent's start, so that the parent is likely to have it.
    pub fn is_older(&self, node: &Node) -> bool {
        nanoseconds(node.mtime.max(node.ctime)) + UNCHANGED_NS_MIN <= i128::from(self.time_ns)
    }

    /// Whether every recipe and chunk of a content is present.
    fn is_whole(&mut self, content: ContentReference) -> bool {
        let mut walk = RecipeWalk::new(content);
        loop {
            match walk.next(&mut self.reader) {
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
