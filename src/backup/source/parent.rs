//! A cursor into the parent snapshot that follows the walk of the source and finds files that need not be read.

use std::path::Path;
use std::sync::Arc;

use super::roots::RecordedRoots;
use crate::backup::changes::{EntryChange, WatchedDirectory};
use crate::backup::counts::ReadCounts;
use crate::error::{ErrorKind, Result};
use crate::repo::index::ChunkPresence;
use crate::repo::read::{ChunkReader, is_whole};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{HOLES_KEY, Node, NodeKind, OBJECT_KEY, ObjectFacts, Timestamp, TreeCursor};
use crate::types::Fingerprint;

/// A directory of the parent snapshot.
struct ParentDirectory {
    content: Option<ContentReference>,
    cursor: TreeCursor,
    /// The next entry in name order.
    next: Option<Node>,
    compared: WatchedDirectory,
}

impl ParentDirectory {
    /// Goes to the next entry. If the walk has not asked for this one, it is gone.
    fn advance(&mut self, reader: &mut ChunkReader, removed: Option<&ReadCounts>) -> Result<()> {
        let is_found = std::mem::take(&mut self.compared.is_next_found);
        if let (false, Some(counts), Some(path), Some(node)) = (is_found, removed, &self.compared.path, &self.next) {
            counts.changes.removed(path, node, reader);
        }
        self.next = self.cursor.next(reader)?;
        Ok(())
    }
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
    /// What became of the entry of the last look.
    change: EntryChange,
    /// Where entries that are gone are counted.
    counts: Option<Arc<ReadCounts>>,
    roots: RecordedRoots,
    /// The entry of the next look, if the parent has it elsewhere in its tree.
    relocated: Option<Node>,
    /// Whether a node without file flags says that the entry had none.
    records_flags: bool,
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// Whether the metadata say that two entries of a name are the same.
fn is_same(known: &Node, node: &Node) -> bool {
    if node.extra.contains_key(OBJECT_KEY) {
        let facts = ObjectFacts::of(known).zip(ObjectFacts::of(node));
        let is_same = facts.is_some_and(|(known_facts, facts)| facts.is_same(&known_facts, [node.mtime, known.mtime]));
        return !known.changed && known.size == node.size && is_same;
    }
    !known.changed
        && known.size == node.size
        && known.mtime == node.mtime
        && known.ctime == node.ctime
        && known.inode == node.inode
}

impl ParentCursor {
    /// A cursor at the tree of `parent`. A file is read again if it changed less than `recheck_seconds` before the
    /// backup of `parent` started: later stores through a memory map leave its times alone until the system writes the
    /// pages back, and times have a limited resolution.
    pub fn new(mut reader: ChunkReader, presence: ChunkPresence, parent: &Snapshot, recheck_seconds: u64) -> Self {
        let level = Self::open(&mut reader, parent.root);
        let unchanged_since_ns = i128::from(parent.started_ns()) - i128::from(recheck_seconds) * 1_000_000_000;
        ParentCursor {
            reader,
            presence,
            unchanged_since_ns,
            levels: vec![level],
            previous_version: None,
            change: EntryChange::New,
            counts: None,
            roots: RecordedRoots::new(parent),
            relocated: None,
            records_flags: parent.records_flags(),
        }
    }

    /// Says that the root of the walk is the absolute `path` on disk.
    pub fn locate_root(&mut self, path: &Path) {
        if let Some(root) = self.roots.find(&mut self.reader, path, true) {
            let level = Self::open(&mut self.reader, root.content);
            self.levels = vec![level];
        }
    }

    /// Says that the entry of the next look is at the absolute `path` on disk, and whether the user gave that path. The
    /// parent may have it elsewhere in its tree.
    pub fn locate(&mut self, name: &[u8], path: &Path, is_given: bool) {
        let may_be_elsewhere = is_given || self.roots.has(path);
        if may_be_elsewhere && self.find(name).is_none() {
            self.relocated = self.roots.find(&mut self.reader, path, is_given);
        }
    }

    /// Counts what is gone in directories that are [watched](ParentCursor::watch) into `counts`.
    pub fn count_into(&mut self, counts: Arc<ReadCounts>) {
        self.counts = Some(counts);
    }

    /// Counts entries of the current directory that the walk does not ask for as gone. Returns whether the parent has
    /// this directory. `path` is its path.
    pub fn watch(&mut self, path: &Path) -> bool {
        let Some(Some(level)) = self.levels.last_mut() else { return false };
        level.compared.path = Some(path.to_path_buf());
        true
    }

    /// Counts nothing more of the current directory as gone.
    pub fn ignore(&mut self) {
        if let Some(Some(level)) = self.levels.last_mut() {
            level.compared.path = None;
        }
    }

    fn open(reader: &mut ChunkReader, content: Option<ContentReference>) -> Option<ParentDirectory> {
        let mut cursor = TreeCursor::open(content);
        let next = cursor.next(reader).ok()?;
        Some(ParentDirectory { content, cursor, next, compared: WatchedDirectory::default() })
    }

    /// The listing of the current directory, if the parent has one that can be read.
    pub fn listing(&self) -> Option<ContentReference> {
        self.levels.last()?.as_ref()?.content
    }

    /// The parent's entry called `name` in the current directory. Callers ask for names in ascending order. If the
    /// parent cannot be read there is no entry, so the files of the directory are read.
    pub fn find(&mut self, name: &[u8]) -> Option<Node> {
        let slot = self.levels.last_mut()?;
        let level = slot.as_mut()?;
        while level.next.as_ref()?.name.as_slice() < name {
            if let Err(error) = level.advance(&mut self.reader, self.counts.as_deref()) {
                if error.kind() != ErrorKind::Interrupted {
                    tracing::warn!(
                        "reading all files of a directory again: the parent snapshot is unreadable there: {error}"
                    );
                }
                *slot = None;
                return None;
            }
        }
        let found = level.next.clone().filter(|node| node.name == name);
        level.compared.is_next_found |= found.is_some();
        found
    }

    /// Looks for `node` and says what became of it. If it was another kind of entry, that one is gone.
    pub fn look(&mut self, node: &Node) -> Option<Node> {
        let found = self.find(&node.name).or(self.relocated.take());
        if let Some(Some(level)) = self.levels.last_mut() {
            level.compared.is_next_found &= found.as_ref().is_none_or(|known| known.kind == node.kind);
        }
        let known = found.filter(|known| known.kind == node.kind);
        self.change = match &known {
            None => EntryChange::New,
            Some(known) if !is_same(known, node) => EntryChange::Changed,
            Some(_) if !node.extra.contains_key(OBJECT_KEY) && !self.is_older(node) => EntryChange::Recent,
            Some(_) => EntryChange::Unchanged,
        };
        known
    }

    /// What became of the entry of the last look.
    pub fn change(&self) -> EntryChange {
        self.change
    }

    /// Follows the walk into directory `node`.
    pub fn enter(&mut self, node: &Node) {
        let known = self.look(node).filter(|known| known.kind == NodeKind::Directory);
        let level = known.and_then(|known| Self::open(&mut self.reader, known.content));
        self.levels.push(level);
    }

    /// Follows the walk out of the current directory.
    pub fn leave(&mut self) {
        let Some(Some(mut level)) = self.levels.pop() else { return };
        while level.compared.path.is_some() && level.next.is_some() {
            if level.advance(&mut self.reader, self.counts.as_deref()).is_err() {
                return;
            }
        }
    }

    /// The content of a file that is unchanged since the parent snapshot; `Some(None)` for an empty file, `None` for a
    /// changed one. Copies the parent's map of holes to the node, and its file flags if the node's are not known: a
    /// change of flags is one of `ctime`. None is unchanged if it `may_be_other`, whatever its metadata say.
    pub fn unchanged(&mut self, node: &mut Node, may_be_other: bool) -> Option<Option<ContentReference>> {
        self.previous_version = None;
        let mut known = self.look(node)?;
        self.previous_version = known.content;
        if may_be_other && self.change == EntryChange::Unchanged {
            self.change = EntryChange::Recent;
        }
        if self.change != EntryChange::Unchanged {
            return None;
        }
        if let Some(holes) = known.extra.get(HOLES_KEY) {
            node.extra.insert(HOLES_KEY.into(), holes.clone());
        }
        // An object's facts came with its bytes; a listing has fewer. But it knows the key.
        if let Some((known, listed)) = ObjectFacts::of(&known).zip(ObjectFacts::of(node)) {
            ObjectFacts { key: listed.key, ..known }.attach(node);
        }
        if !self.records_flags {
            known.forget_absent_flags();
        }
        if !node.knows_flags() && known.knows_flags() {
            node.set_file_flags(known.file_flags());
        }
        let Some(content) = known.content else { return (known.size == 0).then_some(None) };
        // The content costs work by its length, which must be that of the file.
        if content.content_len() == known.size && self.is_whole(content) {
            return Some(Some(content));
        }
        self.change = EntryChange::Lost;
        None
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

    /// Whether the repository has every recipe and chunk of `content`, as far as is known.
    pub fn is_whole(&mut self, content: ContentReference) -> bool {
        self.has_all(content).unwrap_or(false)
    }

    /// Whether the repository has every recipe and chunk of `content`.
    ///
    /// # Errors
    /// Errors of [`is_whole`].
    pub fn has_all(&mut self, content: ContentReference) -> Result<bool> {
        // The run relies on the containers of recipes, too.
        is_whole(content, &mut self.reader, &mut self.presence)
    }
}
