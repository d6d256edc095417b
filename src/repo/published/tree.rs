//! What a published name shows of its snapshot.
//!
//! 1. A directory is read whole once and cached. One with too many entries is an error, so memory is bounded.
//! 2. A symbolic link to a file shows that file if its target is inside the snapshot. Links to directories, links that
//!    lead out, devices and names that are no UTF-8 are not shown.
//! 3. Pages are in the order of a walk: a directory before what is in it, names by their bytes. The tree of a snapshot
//!    never changes, so a page goes on exactly where the last one ended.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Publication;
use crate::error::{Error, Result};
use crate::memory::{ByteLru, LookUps};
use crate::repo::read::{Reader, StoredFile};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// Entries of a directory, at most.
const ENTRIES_MAX: usize = 100_000;
/// Files and directories of a published name, at most.
pub const FILES_MAX: usize = 100_000;
/// Directories above an entry, at most.
const DEPTH_MAX: usize = 64;
/// Links that lead to links, at most.
const LINKS_MAX: usize = 8;
/// Memory for directories, bytes.
const CACHE_BYTES_MAX: usize = 64 << 20;

/// Names from the shown directory to an entry.
pub type TreePath = Vec<Vec<u8>>;

/// A file that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedFile {
    /// Its content. `None` if it is empty.
    pub content: Option<ContentReference>,
    /// Length, bytes.
    pub len: u64,
}

/// An entry that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedItem {
    /// A file.
    File(PublishedFile),
    /// A directory, and its listing.
    Directory(Option<ContentReference>),
}

/// What a stored entry is.
enum ListedKind {
    Item(PublishedItem),
    Link(Vec<u8>),
    /// Never shown.
    Other,
    /// Only a newer version can use it.
    Newer,
}

struct ListedName {
    name: Vec<u8>,
    kind: ListedKind,
}

impl ListedName {
    fn of(node: Node) -> Self {
        let kind = match node.kind {
            _ if node.unsupported().is_some() => ListedKind::Newer,
            NodeKind::Unknown => ListedKind::Newer,
            NodeKind::File => {
                ListedKind::Item(PublishedItem::File(PublishedFile { content: node.content, len: node.size }))
            }
            NodeKind::Directory => ListedKind::Item(PublishedItem::Directory(node.content)),
            NodeKind::Symlink => ListedKind::Link(node.link_target.unwrap_or_default()),
            _ => ListedKind::Other,
        };
        ListedName { name: node.name, kind }
    }

    fn bytes(&self) -> usize {
        let target = if let ListedKind::Link(target) = &self.kind { target.len() } else { 0 };
        self.name.len() + target + size_of::<ListedName>() + 32
    }

    fn is_shown(&self) -> bool {
        std::str::from_utf8(&self.name).is_ok()
    }
}

type Listed = Arc<Vec<ListedName>>;

/// Directories that were read.
pub struct DirectoryCache {
    directories: Mutex<ByteLru<ContentReference, Listed>>,
    look_ups: LookUps,
}

impl Default for DirectoryCache {
    fn default() -> Self {
        DirectoryCache { directories: Mutex::new(ByteLru::new(CACHE_BYTES_MAX)), look_ups: LookUps::default() }
    }
}

impl DirectoryCache {
    /// How often it was asked.
    pub fn look_ups(&self) -> &LookUps {
        &self.look_ups
    }

    fn get(&self, content: &ContentReference) -> Option<Listed> {
        let listed = self.directories.lock().get(content);
        self.look_ups.add(listed.is_some());
        listed
    }
}

/// The tree that a name shows.
#[derive(Clone)]
pub struct PublishedTree {
    reader: Reader,
    cache: Arc<DirectoryCache>,
    root: Option<ContentReference>,
    /// Names from the root of the snapshot to the directory that is shown.
    directory: TreePath,
}

/// Some entries of a tree, in order.
#[derive(Debug, Default)]
pub struct TreePage {
    /// The entries.
    pub items: Vec<(TreePath, PublishedItem)>,
    /// Whether there are more.
    pub has_more: bool,
    /// Entries on the way that are not shown.
    pub hidden: u64,
}

/// What a name shows, in numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PublishedTally {
    /// Files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries that are not shown.
    pub hidden: u64,
}

/// A directory on the way of a walk.
struct WalkLevel {
    listed: Listed,
    next: usize,
}

impl PublishedTree {
    /// The tree that `publication` shows of a snapshot with this root.
    pub fn new(
        reader: Reader,
        cache: Arc<DirectoryCache>,
        root: Option<ContentReference>,
        publication: &Publication,
    ) -> Self {
        let names = publication.directory.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let directory = names.map(<[u8]>::to_vec).collect();
        PublishedTree { reader, cache, root, directory }
    }

    /// Opens a file. Reads nothing.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its content has another length.
    pub fn open(&self, file: &PublishedFile) -> Result<StoredFile> {
        self.reader.file(file.content, file.len)
    }

    /// The entry at `path`. `None` if none is shown there.
    ///
    /// # Errors
    /// Errors of reading. [`Error::Unsupported`] for one that only a newer version can use.
    pub fn find(&self, path: &[Vec<u8>]) -> Result<Option<PublishedItem>> {
        if path.iter().any(|name| std::str::from_utf8(name).is_err()) {
            return Ok(None);
        }
        self.look_up([&self.directory, path].concat())
    }

    /// The entry at a path from the root of the snapshot. Follows links to files; one to a directory is not shown.
    fn look_up(&self, mut path: TreePath) -> Result<Option<PublishedItem>> {
        for link in 0..=LINKS_MAX {
            let (mut at, mut names) = (PublishedItem::Directory(self.root), path.iter().peekable());
            let target = loop {
                let Some(name) = names.next() else {
                    return Ok(Some(at).filter(|item| link == 0 || matches!(item, PublishedItem::File(_))));
                };
                let PublishedItem::Directory(content) = at else { return Ok(None) };
                let listed = self.listed(content)?;
                let found = listed.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok();
                match found.and_then(|found| listed.get(found)).map(|entry| &entry.kind) {
                    Some(ListedKind::Item(item)) => at = *item,
                    Some(ListedKind::Link(target)) if names.peek().is_none() => break target.clone(),
                    Some(ListedKind::Newer) => return Err(newer(name)),
                    Some(ListedKind::Link(_) | ListedKind::Other) | None => return Ok(None),
                }
            };
            path.pop();
            let Some(led) = follow(path, &target) else { return Ok(None) };
            path = led;
        }
        Ok(None)
    }

    /// The file that a link in the directory at `path`, from the root of the snapshot, leads to.
    fn linked(&self, path: &[Vec<u8>], target: &[u8]) -> Result<Option<PublishedItem>> {
        let Some(led) = follow(path.to_vec(), target) else { return Ok(None) };
        Ok(self.look_up(led)?.filter(|item| matches!(item, PublishedItem::File(_))))
    }

    /// Up to `count` entries below `path`, those behind `after`: all of them if `is_deep`, else those of the directory
    /// itself. `None` if no directory is shown there.
    ///
    /// # Errors
    /// Errors of reading. [`Error::Usage`] if there are too many entries to walk.
    pub fn page(
        &self,
        path: &[Vec<u8>],
        after: Option<&[Vec<u8>]>,
        is_deep: bool,
        count: usize,
    ) -> Result<Option<TreePage>> {
        let Some(PublishedItem::Directory(content)) = self.find(path)? else { return Ok(None) };
        let base = [&self.directory, path].concat();
        let mut levels = vec![WalkLevel { listed: self.listed(content)?, next: 0 }];
        let mut names: TreePath = Vec::new();
        self.go_on(after.unwrap_or_default(), is_deep, &mut levels, &mut names)?;
        let (mut page, mut steps) = (TreePage::default(), 0);
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.listed.get(level.next) else {
                levels.pop();
                names.pop();
                continue;
            };
            level.next += 1;
            steps += 1;
            if steps > ENTRIES_MAX + FILES_MAX {
                return Err(too_many());
            }
            let item = match &entry.kind {
                _ if !entry.is_shown() => None,
                ListedKind::Item(item) => Some(*item),
                ListedKind::Link(target) => self.linked(&[base.as_slice(), &names].concat(), target)?,
                ListedKind::Newer => return Err(newer(&entry.name)),
                ListedKind::Other => None,
            };
            let Some(item) = item else {
                page.hidden += 1;
                continue;
            };
            if page.items.len() >= count {
                page.has_more = true;
                break;
            }
            let name = entry.name.clone();
            page.items.push((path.iter().chain(&names).cloned().chain([name.clone()]).collect(), item));
            if let PublishedItem::Directory(content) = item
                && is_deep
            {
                self.descend(content, name, &mut levels, &mut names)?;
            }
        }
        Ok(Some(page))
    }

    /// Moves a walk that has just begun behind the entry `after`.
    fn go_on(&self, after: &[Vec<u8>], is_deep: bool, levels: &mut Vec<WalkLevel>, names: &mut TreePath) -> Result<()> {
        for name in after {
            let Some(level) = levels.last_mut() else { return Ok(()) };
            level.next = level.listed.partition_point(|entry| entry.name < *name);
            let Some(entry) = level.listed.get(level.next).filter(|entry| entry.name == *name) else { return Ok(()) };
            level.next += 1;
            match entry.kind {
                ListedKind::Item(PublishedItem::Directory(content)) if is_deep && entry.is_shown() => {
                    self.descend(content, name.clone(), levels, names)?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn descend(
        &self,
        content: Option<ContentReference>,
        name: Vec<u8>,
        levels: &mut Vec<WalkLevel>,
        names: &mut TreePath,
    ) -> Result<()> {
        if levels.len() >= DEPTH_MAX {
            return Err(Error::Usage(format!(
                "directories that are nested more than {DEPTH_MAX} times are not served"
            )));
        }
        levels.push(WalkLevel { listed: self.listed(content)?, next: 0 });
        names.push(name);
        Ok(())
    }

    /// Counts what is shown.
    ///
    /// # Errors
    /// Errors of reading. [`Error::Usage`] if it is more than a name can show.
    pub fn tally(&self) -> Result<PublishedTally> {
        let page = self.page(&[], None, true, FILES_MAX)?;
        let page = page.ok_or_else(|| Error::Usage("what is to be published is no directory".into()))?;
        if page.has_more {
            return Err(too_many());
        }
        let mut tally = PublishedTally { hidden: page.hidden, ..PublishedTally::default() };
        for (_, item) in page.items {
            if let PublishedItem::File(file) = item {
                tally.files += 1;
                tally.bytes = tally.bytes.saturating_add(file.len);
            }
        }
        Ok(tally)
    }

    /// The entries of a directory, in order of their names.
    fn listed(&self, content: Option<ContentReference>) -> Result<Listed> {
        let Some(content) = content else { return Ok(Listed::default()) };
        if let Some(listed) = self.cache.get(&content) {
            return Ok(listed);
        }
        let (mut cursor, mut entries) = (TreeCursor::open(Some(content)), Vec::new());
        self.reader.lend(|reader| {
            while let Some(node) = cursor.next(reader)? {
                if entries.len() >= ENTRIES_MAX {
                    let message = format!("a directory with more than {ENTRIES_MAX} entries is not served");
                    return Err(Error::Usage(message));
                }
                entries.push(ListedName::of(node));
            }
            Ok(())
        })?;
        let (bytes, listed) = (entries.iter().map(ListedName::bytes).sum(), Arc::new(entries));
        self.cache.directories.lock().put(content, listed.clone(), bytes);
        Ok(listed)
    }
}

/// Where a link in the directory `path` leads. `None` if that is not inside.
fn follow(mut path: TreePath, target: &[u8]) -> Option<TreePath> {
    if target.starts_with(b"/") {
        return None;
    }
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => _ = path.pop()?,
            name => path.push(name.to_vec()),
        }
    }
    Some(path)
}

fn newer(name: &[u8]) -> Error {
    Error::unsupported(format!("entry {}", name.escape_ascii()), "kind of an entry")
}

fn too_many() -> Error {
    Error::Usage(format!("more than {FILES_MAX} files and directories cannot be served under one name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_nowhere_outside_of_the_snapshot() {
        let path = |text: &str| text.split('/').filter(|name| !name.is_empty()).map(|name| name.into()).collect();
        let led = |from: &str, target: &str| {
            follow(path(from), target.as_bytes()).map(|path| path.join(&b'/').escape_ascii().to_string())
        };
        for (from, target, expected) in [
            ("", "a", Some("a")),
            ("snapshots/1", "../../blobs/x", Some("blobs/x")),
            ("a", "./b//c/", Some("a/b/c")),
            ("a", "..", Some("")),
            ("a", "../..", None),
            ("a", "../../a/b", None),
            ("", "../x", None),
            ("a/b", "/etc/passwd", None),
        ] {
            assert_eq!(led(from, target).as_deref(), expected, "{from} {target}");
        }
    }
}
