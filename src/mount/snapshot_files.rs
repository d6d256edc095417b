//! The trees of snapshots as files.
//!
//! 1. An inode is found by the names from the root to it. The nodes on the way are cached.
//! 2. A look-up goes on where the last one in that directory ended, because drivers look up in the order of a listing.
//! 3. Listings and look-ups share one chunk reader. Each read of file bytes has its own, so none waits for another.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::file_bytes::ReadFiles;
use super::inodes::{HeldInodes, InodePath, number};
use super::top::{TopEntry, top};
use super::{FileEntry, ListedEntry, ROOT, ReadOnlyFiles};
use crate::error::{Error, Result};
use crate::memory::ByteLru;
use crate::repo::Repository;
use crate::repo::read::{ChunkReader, Reader, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor};
use crate::types::SnapshotId;

/// Memory for nodes.
const NODE_BYTES_MAX: usize = 32 << 20;
/// Directories in which look-ups go on where they ended.
const SCANS_MAX: usize = 32;

/// Snapshots as files.
pub struct SnapshotFiles {
    repository: Repository,
    tree: Mutex<TreeState>,
    /// Reads that run go on with the one that they have.
    bytes: RwLock<Arc<ReadFiles>>,
    newer: Option<NewerSnapshots>,
}

/// Gives the snapshots as they are now.
pub type ListSnapshots = Box<dyn Fn() -> Result<Vec<NamedSnapshot>> + Send + Sync>;

/// How newer snapshots are found.
struct NewerSnapshots {
    list: ListSnapshots,
    age_max: Duration,
    /// The time of the last listing.
    listed: Mutex<Instant>,
}

/// What look-ups and listings share.
struct TreeState {
    /// Newer ones are added at the end, so that each stays at its position. None leaves: a file of it may be open.
    snapshots: Vec<NamedSnapshot>,
    top: TopEntry,
    reader: ChunkReader,
    inodes: HeldInodes,
    nodes: ByteLru<InodePath, Arc<FoundEntryNode>>,
    scans: LruCache<u64, DirectoryScan>,
    listings: HashMap<u64, OpenedListing>,
    next_handle: u64,
}

/// An entry, with what is needed to find entries below it.
struct FoundEntryNode {
    node: Node,
    /// Inode of the root of the snapshot; 0 above.
    tree: u64,
    /// The virtual entry, if it is one.
    top: Option<TopEntry>,
}

/// A cursor over a directory that look-ups move on.
struct DirectoryScan {
    cursor: TreeCursor,
    next: Option<Node>,
}

/// A directory that is open for listing.
struct OpenedListing {
    inode: u64,
    found: Arc<FoundEntryNode>,
    /// `None` for a virtual directory.
    cursor: Option<TreeCursor>,
    /// Number of the entry that the cursor gives next, or `pending`.
    next: u64,
    /// An entry that the driver had no space for.
    pending: Option<ListedEntry>,
}

impl SnapshotFiles {
    /// The snapshots of `repository`, sorted by time.
    ///
    /// # Errors
    /// Fails if the repository cannot be listed, or if no thread can be started.
    pub fn new(repository: &Repository, snapshots: Vec<NamedSnapshot>) -> Result<Self> {
        let reader = Reader::open(repository)?;
        let tree = TreeState {
            top: top(&snapshots, repository.clock.now_ns()),
            snapshots,
            reader: reader.chunks(),
            inodes: HeldInodes::default(),
            nodes: ByteLru::new(NODE_BYTES_MAX),
            scans: LruCache::new(at_least_one(SCANS_MAX)),
            listings: HashMap::new(),
            next_handle: 1,
        };
        let bytes = RwLock::new(Arc::new(ReadFiles::new(reader)?));
        Ok(SnapshotFiles { repository: repository.clone(), tree: Mutex::new(tree), bytes, newer: None })
    }

    /// The same, with the snapshots that `list` gives later: it is asked when a virtual directory is read and the last
    /// listing is older than `age_max`.
    #[must_use]
    pub fn with_newer(self, list: ListSnapshots, age_max: Duration) -> Self {
        let listed = Mutex::new(Instant::now());
        SnapshotFiles { newer: Some(NewerSnapshots { list, age_max, listed }), ..self }
    }

    /// Lists the snapshots again if the last listing is old. What fails is logged, and what was known stays.
    fn look_for_newer(&self) {
        // Who meets another one who looks does not wait.
        let Some((newer, mut listed)) = self.newer.as_ref().and_then(|newer| Some((newer, newer.listed.try_lock()?)))
        else {
            return;
        };
        if listed.elapsed() < newer.age_max {
            return;
        }
        if let Err(error) = (newer.list)().and_then(|snapshots| self.add(snapshots)) {
            tracing::warn!("mount: newer snapshots are not shown: {error}");
        }
        *listed = Instant::now();
    }

    /// Shows the snapshots that are not known.
    fn add(&self, mut snapshots: Vec<NamedSnapshot>) -> Result<()> {
        let known: HashSet<SnapshotId> = self.tree().snapshots.iter().map(|named| named.id).collect();
        snapshots.retain(|named| !known.contains(&named.id));
        if snapshots.is_empty() {
            return Ok(());
        }
        // The former listing lacks their containers.
        let reader = Reader::open(&self.repository)?;
        let chunks = reader.chunks();
        *self.bytes.write() = Arc::new(ReadFiles::new(reader)?);
        let tree = &mut *self.tree();
        tree.reader = chunks;
        tree.snapshots.extend(snapshots);
        tree.top = top(&tree.snapshots, self.repository.clock.now_ns());
        // Virtual directories among them are of before.
        tree.nodes = ByteLru::new(NODE_BYTES_MAX);
        Ok(())
    }

    fn bytes(&self) -> Arc<ReadFiles> {
        self.bytes.read().clone()
    }

    fn tree(&self) -> MutexGuard<'_, TreeState> {
        self.tree.lock()
    }

    /// The entry of an inode that the driver holds.
    fn found(&self, tree: &mut TreeState, inode: u64) -> Result<Option<Arc<FoundEntryNode>>> {
        let (mut chain, mut at) = (Vec::new(), inode);
        let mut found = loop {
            if at == ROOT {
                let (top, node) = (Some(tree.top.clone()), tree.top.node(&tree.snapshots));
                break Arc::new(FoundEntryNode { node, tree: 0, top });
            }
            let Some(path) = tree.inodes.path(at) else { return Ok(None) };
            if let Some(found) = tree.nodes.get(&path) {
                break found;
            }
            at = path.parent;
            chain.push(path);
        };
        while let Some(path) = chain.pop() {
            let Some(child) = self.child(tree, path.parent, &found, &path.name)? else { return Ok(None) };
            found = child;
        }
        Ok(Some(found))
    }

    /// The entry `name` of a directory.
    fn child(
        &self,
        tree: &mut TreeState,
        parent: u64,
        directory: &FoundEntryNode,
        name: &[u8],
    ) -> Result<Option<Arc<FoundEntryNode>>> {
        let path = InodePath { parent, name: name.into() };
        if let Some(found) = tree.nodes.get(&path) {
            return Ok(Some(found));
        }
        let found = match &directory.top {
            Some(TopEntry::Directory(entries)) => entries.get(name).map(|entry| tree.top_entry(parent, name, entry)),
            Some(TopEntry::Link(_)) => None,
            Some(TopEntry::Snapshot(_)) | None => {
                let node = tree.scan(parent, directory.listing(), name)?;
                node.map(|node| Arc::new(FoundEntryNode { node, tree: directory.tree, top: None }))
            }
        };
        if let Some(found) = &found {
            tree.nodes.put(path, found.clone(), found.bytes());
        }
        Ok(found)
    }

    /// The next entry of a listing.
    fn next_listed(&self, tree: &mut TreeState, listing: &mut OpenedListing) -> Result<Option<ListedEntry>> {
        let inode = listing.inode;
        let (name, found) = match (&mut listing.cursor, &listing.found.top) {
            (Some(cursor), _) => {
                let Some(node) = cursor.next(&mut tree.reader)? else { return Ok(None) };
                let name = node.name.clone();
                let found = FoundEntryNode { node, tree: listing.found.tree, top: None };
                (name, Arc::new(found))
            }
            (None, Some(TopEntry::Directory(entries))) => {
                let at = usize::try_from(listing.next).unwrap_or(usize::MAX);
                let Some((name, entry)) = entries.iter().nth(at) else { return Ok(None) };
                (name.clone(), tree.top_entry(inode, name, entry))
            }
            _ => return Ok(None),
        };
        let path = InodePath { parent: inode, name: name.as_slice().into() };
        tree.nodes.put(path, found.clone(), found.bytes());
        let number = number(found.tree, inode, &found.node, &name);
        Ok(Some(ListedEntry { name, entry: found.entry(number) }))
    }
}

impl FoundEntryNode {
    /// Whether newer snapshots may change it.
    fn is_virtual(&self) -> bool {
        matches!(self.top, Some(TopEntry::Directory(_) | TopEntry::Link(_)))
    }

    fn entry(&self, inode: u64) -> FileEntry {
        FileEntry { inode, node: self.node.clone(), is_virtual: self.is_virtual() }
    }

    /// Listing of a directory.
    fn listing(&self) -> Option<ContentReference> {
        self.node.content.filter(|_| self.node.kind == NodeKind::Directory)
    }

    /// Memory, bytes.
    fn bytes(&self) -> usize {
        let Node { name, link_target, xattrs, user, group, .. } = &self.node;
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let xattrs: usize = xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len() + 64).sum();
        let target = link_target.as_ref().map_or(0, Vec::len);
        let extra: usize = self.node.extra.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        2 * name.len() + target + xattrs + text(user) + text(group) + extra + size_of::<FoundEntryNode>() + 128
    }
}

impl TreeState {
    fn top_entry(&self, parent: u64, name: &[u8], entry: &TopEntry) -> Arc<FoundEntryNode> {
        // Names of virtual entries are no names of one file, and neither is the root of a snapshot.
        let node = Node { hard_link: None, ..entry.node(&self.snapshots) };
        let tree = if let TopEntry::Snapshot(_) = entry { number(0, parent, &node, name) } else { 0 };
        Arc::new(FoundEntryNode { node, tree, top: Some(entry.clone()) })
    }

    /// The node `name` of the directory `inode`. Goes on where the last look-up in the directory ended, if it can.
    fn scan(&mut self, inode: u64, listing: Option<ContentReference>, name: &[u8]) -> Result<Option<Node>> {
        let known = self.scans.pop(&inode);
        let can_go_on = |scan: &DirectoryScan| scan.next.as_ref().is_some_and(|next| next.name.as_slice() <= name);
        let mut scan = match known.filter(can_go_on) {
            Some(scan) => scan,
            None => {
                let mut cursor = TreeCursor::open(listing);
                let next = cursor.next(&mut self.reader)?;
                DirectoryScan { cursor, next }
            }
        };
        while scan.next.as_ref().is_some_and(|next| next.name.as_slice() < name) {
            scan.next = scan.cursor.next(&mut self.reader)?;
        }
        let found = scan.next.as_ref().filter(|next| next.name == name).cloned();
        self.scans.put(inode, scan);
        Ok(found)
    }
}

impl ReadOnlyFiles for SnapshotFiles {
    fn look_up(&self, parent: u64, name: &OsStr) -> Result<Option<FileEntry>> {
        // Each path from outside begins there.
        if parent == ROOT {
            self.look_for_newer();
        }
        let tree = &mut *self.tree();
        let Some(directory) = self.found(tree, parent)? else { return Ok(None) };
        let name = name.as_bytes();
        let Some(found) = self.child(tree, parent, &directory, name)? else { return Ok(None) };
        let inode = number(found.tree, parent, &found.node, name);
        tree.inodes.hold(inode, InodePath { parent, name: name.into() });
        Ok(Some(found.entry(inode)))
    }

    fn forget(&self, inode: u64, references: u64) {
        self.tree().inodes.forget(inode, references);
    }

    fn entry(&self, inode: u64) -> Result<Option<FileEntry>> {
        let found = self.found(&mut self.tree(), inode)?;
        Ok(found.map(|found| found.entry(inode)))
    }

    fn open_directory(&self, inode: u64) -> Result<Option<u64>> {
        let Some(mut found) = self.found(&mut self.tree(), inode)? else { return Ok(None) };
        if found.is_virtual() {
            self.look_for_newer();
        }
        let tree = &mut *self.tree();
        if let Some(now) = self.found(tree, inode)? {
            found = now;
        }
        let cursor = match &found.top {
            Some(TopEntry::Directory(_) | TopEntry::Link(_)) => None,
            Some(TopEntry::Snapshot(_)) | None => Some(TreeCursor::open(found.listing())),
        };
        let handle = tree.next_handle;
        tree.next_handle += 1;
        tree.listings.insert(handle, OpenedListing { inode, found, cursor, next: 0, pending: None });
        Ok(Some(handle))
    }

    fn list(&self, handle: u64, from: u64, visit: &mut dyn FnMut(u64, &ListedEntry) -> bool) -> Result<()> {
        let tree = &mut *self.tree();
        let Some(mut listing) = tree.listings.remove(&handle) else { return Ok(()) };
        if from < listing.next {
            listing.cursor = listing.cursor.map(|_| TreeCursor::open(listing.found.listing()));
            (listing.next, listing.pending) = (0, None);
        }
        let listed = loop {
            let entry = match listing.pending.take() {
                Some(entry) => entry,
                None => match self.next_listed(tree, &mut listing) {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                },
            };
            if listing.next >= from && !visit(listing.next, &entry) {
                listing.pending = Some(entry);
                break Ok(());
            }
            listing.next += 1;
        };
        tree.listings.insert(handle, listing);
        listed
    }

    fn close_directory(&self, handle: u64) {
        self.tree().listings.remove(&handle);
    }

    fn read(&self, inode: u64, offset: u64, count: usize) -> Result<Option<Vec<u8>>> {
        let Some(content) = self.content(inode)? else { return Ok(None) };
        content.map_or(Ok(Some(Vec::new())), |content| self.bytes().read(content, offset, count).map(Some))
    }

    fn data_len(&self, node: &Node) -> Result<Option<u64>> {
        node.content.map_or(Ok(Some(0)), |content| self.bytes().data_len(content))
    }

    fn seek(&self, inode: u64, offset: u64, in_hole: bool) -> Result<Option<Option<u64>>> {
        let Some(content) = self.content(inode)? else { return Ok(None) };
        content.map_or(Ok(Some(None)), |content| self.bytes().seek(content, offset, in_hole).map(Some))
    }
}

impl SnapshotFiles {
    /// The content of a file; `None` if the inode is not known, `Some(None)` if the file is empty.
    fn content(&self, inode: u64) -> Result<Option<Option<ContentReference>>> {
        let Some(found) = self.found(&mut self.tree(), inode)? else { return Ok(None) };
        let (node, content) = (&found.node, found.node.content);
        if let Some(error) = node.unsupported() {
            return Err(error);
        }
        let len = content.map_or(0, |content| content.content_len());
        if node.kind != NodeKind::File || len != node.size {
            let name = String::from_utf8_lossy(&node.name).into_owned();
            return Err(Error::corrupt(name, 0, format!("a file of {} bytes", node.size), format!("{len} bytes")));
        }
        Ok(Some(content))
    }
}
